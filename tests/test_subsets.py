"""Subset, ConcatDataset and random_split of what the engine reads are read by the engine, too."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset, random_split
from torch.utils.data.distributed import DistributedSampler
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

from fastdata.dataset import PackedDataset
from fastdata.errors import OptionError
from fastdata.loader import FastLoader

EVAL = T.Compose([T.Resize((16, 16)), T.PILToTensor()])
TRAIN = T.Compose([T.RandomResizedCrop(16), T.PILToTensor()])


@pytest.fixture
def folder(image_folder):
    return ImageFolder(str(image_folder), EVAL)


@pytest.fixture
def pack(packs):
    return PackedDataset(packs["lmdb"], EVAL)


def _sets(folder, pack):
    return {
        "subset": Subset(folder, [5, 3, 20, 3]),
        "of a pack": Subset(pack, range(10, 20)),
        "nested": Subset(Subset(pack, np.arange(20, 0, -1)), [0, 4, 7]),
        "split": random_split(folder, [0.5, 0.5], torch.Generator().manual_seed(1))[1],
        "concat": ConcatDataset([pack, Subset(pack, [1, 2]), pack]),
        "concat of subsets": Subset(
            ConcatDataset([Subset(folder, [20, 1]), folder, Subset(folder, [7])]), [0, 23, 1, 9]
        ),
        "empty part": ConcatDataset([Subset(pack, []), pack]),
    }


@pytest.mark.parametrize(
    "kind", ["subset", "of a pack", "nested", "split", "concat", "concat of subsets", "empty part"]
)
def test_the_engine_gives_what_dataloader_gives(folder, pack, kind):  # C091
    data = _sets(folder, pack)[kind]
    loader = FastLoader(data, 3, num_workers=1, engine=True)
    theirs = list(DataLoader(data, 3))
    ours = [[images.clone(), labels, list(loader.last.keys), loader.last.indices] for images, labels in loader]
    assert torch.cat([b[1] for b in ours]).tolist() == torch.cat([b[1] for b in theirs]).tolist()
    difference = torch.cat([b[0] for b in ours]).int() - torch.cat([b[0] for b in theirs]).int()
    assert difference.abs().max() <= 1
    assert np.concatenate([b[3] for b in ours]).tolist() == list(range(len(data)))
    assert all("/" in key for b in ours for key in b[2])
    assert "threaded engine" in loader.explain()
    assert loader.dataset is data


def test_keys_are_those_of_the_whole_set(pack):
    loader = FastLoader(Subset(pack, range(5, 10)), 5, shuffle=True, seed=1)
    next(iter(loader))
    assert sorted(loader.last.keys) == [pack.store.key(i) for i in range(5, 10)]


def test_indices_and_ranks(packs):  # C091
    pack = PackedDataset(packs["tar"], TRAIN)
    part = Subset(pack, range(8, 18))
    for shuffle in (True, False):
        seen = []
        for rank in range(2):
            loader = FastLoader(part, 3, sampler=DistributedSampler(part, 2, rank, shuffle=shuffle), num_workers=1)
            for _ in loader:
                seen += list(loader.last.keys)
        assert sorted(seen) == [pack.store.key(i) for i in range(8, 18)]


def test_target_transform_and_decoder_are_found(packs):
    pack = PackedDataset(packs["lmdb"], EVAL, target_transform=lambda label: label + 10, decoder="pillow")
    loader = FastLoader(Subset(pack, [20, 0]), 2)
    assert next(iter(loader))[1].tolist() == [12, 10]
    assert "decoder pillow" in loader.explain()
    assert "target_transform" in loader.explain()


class Mine(Subset):
    """Somebody's own kind of Subset."""

    def __getitem__(self, index):
        return super().__getitem__(index)

    def __getitems__(self, indices):
        return [self[index] for index in indices]


def test_what_may_differ_goes_dataloaders_way(folder, pack, image_folder):
    other = ImageFolder(str(image_folder), T.Compose([T.Resize((16, 16)), T.PILToTensor()]))
    labelled = PackedDataset(pack.store, EVAL, target_transform=lambda label: label)
    for data, why in (
        (Mine(pack, [1]), "Mine"),
        (Subset(Mine(pack, [1]), [0]), "Mine"),
        (Subset(pack, [-1]), "0 to 20"),
        (Subset(pack, [21]), "0 to 20"),
        (ConcatDataset([folder, other]), "one transform"),
        (ConcatDataset([pack, labelled]), "one target_transform"),
        (ConcatDataset([pack, folder]), "one decoder"),
    ):
        assert why in FastLoader(data, 1).explain()
        assert "DataLoader's own way" in FastLoader(data, 1).explain()
    assert next(iter(FastLoader(Subset(pack, [-1]), 1)))[1].tolist() == [2]


def test_a_subset_goes_on_where_it_was(pack):
    loader = FastLoader(Subset(pack, range(3, 19)), 4, shuffle=True, seed=1)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    rest = [labels.tolist() for _, labels in iterator]
    loader.load_state_dict(state)
    assert [labels.tolist() for _, labels in loader] == rest


def test_a_cache_knows_the_parts_apart(folder, pack):
    for whole in (folder, pack):
        wanted = [images.clone() for images, _ in FastLoader(whole, 7)]
        loader = FastLoader(Subset(whole, list(range(20, -1, -1))), 7, cache="encoded", cache_bytes=1 << 24)
        for _ in range(2):
            got = torch.cat([images for images, _ in loader])
            assert torch.equal(got.flip(0), torch.cat(wanted))


def test_parts_with_other_classes_are_warned_of(packs, image_folder, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(image_folder, other)
    first = min(folder for folder in other.iterdir() if folder.is_dir())
    shutil.rmtree(first)
    parts = [PackedDataset(packs["lmdb"]), Subset(ImageFolder(str(other)), range(3))]
    with pytest.warns(UserWarning, match="different classes, so that one label means different things"):
        FastLoader(ConcatDataset(parts), 4)
    FastLoader(ConcatDataset([parts[0], ImageFolder(str(image_folder))]), 4)


def test_several_paths_are_told_how_to_be_one_set(packs):
    with pytest.raises(OptionError, match="several packs: ConcatDataset"):
        FastLoader([packs["lmdb"], packs["tar"]], 4, transform=T.Resize(8))
