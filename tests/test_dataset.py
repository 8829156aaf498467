"""PackedDataset looks like ImageFolder; StreamDataset deals every sample once to ranks and workers."""

from __future__ import annotations

import os
import pickle
import random
import threading
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

from fastdata.dataset import PackedDataset, StreamDataset
from fastdata.errors import OptionError, SampleError, StoreNotFoundError
from fastdata.loader import FastLoader

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than cores, on purpose

KINDS = ["lmdb", "hdf5", "tar", "tars"]
N = 21


class Number:
    """The sample's own number in place of its picture: pictures are told apart by their mean."""

    def __call__(self, image):
        return float(np.asarray(image, np.float64).mean())


class Draws:
    """What an augmentation draws from each generator."""

    def __call__(self, _image):
        return random.random(), float(np.random.rand()), float(torch.rand(()))  # noqa: NPY002  what users do


@pytest.fixture(scope="module")
def means(packs):
    return [value for value, _ in (PackedDataset(packs["lmdb"], Number())[i] for i in range(N))]


# ---------------------------------------------------------------- map-style


def test_a_list_of_transforms_is_their_chain(packs):
    steps = [T.CenterCrop(20), [T.Grayscale(), Number()]]
    wanted = T.Compose([T.CenterCrop(20), T.Grayscale(), Number()])
    assert PackedDataset(packs["lmdb"], steps)[3] == PackedDataset(packs["lmdb"], wanted)[3]
    (ours, theirs) = (list(StreamDataset(packs["lmdb"], transform)) for transform in (steps, wanted))
    assert ours == theirs
    batches = FastLoader(packs["lmdb"], 4, transform=steps, num_workers=0)  # Number is nobody's: not the engine
    assert batches.explain().startswith("DataLoader")
    assert next(iter(batches))[0].tolist() == pytest.approx([means for means, _ in theirs[:4]])


@pytest.mark.parametrize("kind", KINDS)
def test_the_surface_of_image_folder(packs, image_folder, kind):  # C002
    ours, theirs = PackedDataset(packs[kind]), ImageFolder(str(image_folder))
    assert len(ours) == len(theirs)
    assert ours.classes == theirs.classes
    assert ours.class_to_idx == theirs.class_to_idx
    assert ours.targets == theirs.targets
    assert [label for _, label in ours.samples] == [label for _, label in theirs.imgs] == [x for _, x in ours.imgs]
    for i in (0, 8, N - 1, -1):
        image, label = ours[i]
        wanted, wanted_label = theirs[i % N]
        assert isinstance(image, Image.Image)
        assert label == wanted_label
        assert np.array_equal(np.asarray(image), np.asarray(wanted))
    with pytest.raises(IndexError):
        ours[N]


def test_transforms_are_applied(packs):
    image, label = PackedDataset(packs["lmdb"], T.ToTensor(), lambda label: -label)[20]
    assert image.dtype == torch.float32
    assert label == -2


@pytest.mark.parametrize(("kind", "method"), [*((kind, "fork") for kind in KINDS), ("hdf5", "spawn")])
def test_a_dataset_that_was_read_goes_into_workers(packs, kind, method):  # C052, C062
    # a spawned worker imports what it unpickles, so nothing of this file
    data = PackedDataset(packs[kind], T.Compose([T.Resize((16, 16)), T.PILToTensor()]))
    wanted = torch.stack([data[i][0] for i in range(N)])
    workers = 2 if method == "fork" else 1  # a spawned one imports torch for seconds
    loader = DataLoader(data, 4, num_workers=workers, multiprocessing_context=method)
    assert torch.equal(torch.cat([batch for batch, _ in loader]), wanted)


def test_pickle_sends_the_path(packs):
    data = PackedDataset(packs["hdf5"])
    assert len(pickle.dumps(data)) < 2000
    assert pickle.loads(pickle.dumps(data))[3][1] == data[3][1]


def test_two_packs_with_the_same_keys_stay_apart(tmp_path):  # C061
    from fastdata.converters import pack

    for name, level in (("a", 10), ("b", 200)):
        (tmp_path / name / "c").mkdir(parents=True)
        Image.new("RGB", (20, 20), (level,) * 3).save(tmp_path / name / "c" / "x.png")
        (tmp_path / name / "out").mkdir()
        pack(tmp_path / name / "c", tmp_path / name / "out" / "p.lmdb", workers=1)
    both = ConcatDataset([PackedDataset(tmp_path / name / "out" / "p.lmdb", Number()) for name in "ab"])
    assert [value for value, _ in both] == [10, 200]


def test_errors_name_what_is_wrong(tmp_path):
    with pytest.raises(StoreNotFoundError, match=r"nowhere\.lmdb"):
        PackedDataset(tmp_path / "nowhere.lmdb")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "bad.jpg").write_bytes(b"\xff\xd8\xff\xe0 no more")
    with pytest.raises(SampleError, match="bad"):
        PackedDataset(tmp_path)[0]


# ---------------------------------------------------------------- iterable


def _values(loader):
    return [value for batch, _ in loader for value in batch.tolist()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", [0, 1, 2, 5])
def test_workers_share_out_the_samples(packs, means, kind, workers):  # C067, C077
    data = StreamDataset(packs[kind], Number(), shuffle=True)
    values = _values(DataLoader(data, 4, num_workers=workers))
    assert Counter(values) == Counter(means)


@pytest.mark.parametrize("world", [1, 2, 3, 8])
@pytest.mark.parametrize("uneven", ["pad", "drop", "exact"])
def test_ranks_share_out_the_samples_evenly(packs, means, world, uneven, monkeypatch):  # C068, C116
    parts = []
    for rank in range(world):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", str(world))
        data = StreamDataset(packs["tars"], Number(), shuffle=True, uneven=uneven)
        parts.append([value for value, _ in data])
        assert len(parts[-1]) == len(data)
    assert len({len(part) for part in parts}) == 1
    counts = Counter(value for part in parts for value in part)
    if uneven == "drop":
        assert sum(counts.values()) == N // world * world
        assert max(counts.values()) == 1
    else:
        assert set(counts) == set(means)
        assert sum(counts.values()) == -(-N // world) * world


@pytest.mark.parametrize("batch_size", [1, 4, 21, 40])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("workers", [0, 2, 4])
def test_whole_batches_are_dealt_to_the_workers(packs, batch_size, drop_last, workers):  # C079, C080
    data = StreamDataset(packs["lmdb"], Number(), batch_size=batch_size, drop_last=drop_last)
    loader = DataLoader(data, batch_size=None, num_workers=workers)
    sizes = [len(values) for values, _ in loader]
    wanted = N // batch_size if drop_last else -(-N // batch_size)
    assert len(sizes) == len(data) == wanted
    assert sum(sizes) == (wanted * batch_size if drop_last else N)


@pytest.mark.parametrize("persistent", [False, True])
def test_every_epoch_has_its_own_order(packs, means, persistent):  # C085, C086
    data = StreamDataset(packs["lmdb"], Number(), shuffle=True, seed=4)
    loader = DataLoader(data, 4, num_workers=2, persistent_workers=persistent)
    free = [_values(loader) for _ in range(3)]
    assert len({tuple(epoch) for epoch in free}) == 3
    assert all(Counter(epoch) == Counter(means) for epoch in free)
    told = []
    for epoch in (1, 0):
        data.set_epoch(epoch)
        told.append(_values(loader))
    assert told == [free[1], free[0]]


def test_augmentation_draws_differ_between_workers(packs):  # C083
    rows = [draws for draws, _ in DataLoader(StreamDataset(packs["lmdb"], Draws()), batch_size=None, num_workers=4)]
    for draws in zip(*rows, strict=True):
        assert len(set(draws)) == N


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_tar_from_a_pipe_with_flat_memory(packs, means, tmp_path, shuffle):
    """A pipe cannot seek; the tar goes through it forty times over, and memory does not grow."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    body = packs["tar"].read_bytes().rstrip(b"\0")
    body += b"\0" * (-len(body) % 512)

    def feed(times):
        with pipe.open("wb") as file:
            for _ in range(times):
                file.write(body)
            file.write(b"\0" * 1024)

    data = StreamDataset(pipe, Number(), shuffle=shuffle, window=5)
    values, before = [], 0
    for times in (2, 40):
        thread = threading.Thread(target=feed, args=(times,))
        thread.start()
        values = [value for value, _ in DataLoader(data, batch_size=None)]
        thread.join()
        grown = _private_memory() - before
        before = _private_memory()
    assert Counter(values) == Counter(means * 40)
    assert (values == means * 40) is not shuffle
    assert grown < 8e6
    with pytest.raises(TypeError, match="pipe"):
        len(data)


def test_a_pipe_has_one_reader(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OptionError, match="one reader"):
        next(iter(DataLoader(StreamDataset(tmp_path / "pipe"), num_workers=2)))


@pytest.mark.parametrize("wrong", [{"window": 0}, {"batch_size": 0}])
def test_wrong_options_are_named(packs, wrong):
    with pytest.raises(OptionError):
        StreamDataset(packs["lmdb"], **wrong)


def _private_memory():
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon"))
