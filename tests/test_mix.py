"""mix=: MixUp and CutMix of whole batches, whichever way the loader takes."""

from __future__ import annotations

import json
import pickle
import shutil

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset
from torch.utils.data.distributed import DistributedSampler
from torchvision import transforms as T
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from fastdata.converters import pack
from fastdata.device_ops import cut_before, mix_before
from fastdata.errors import OptionError
from fastdata.loader import FastLoader
from fastdata.transforms.mix import draw_mixture, read_mix

FLOAT = T.Compose([T.RandomResizedCrop(32), T.ToTensor(), T.Normalize((0.4, 0.5, 0.6), (0.2, 0.25, 0.3))])
BYTES = T.Compose([T.RandomResizedCrop(32), T.PILToTensor()])
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
MIXES = {
    "mixup": lambda: v2.MixUp(alpha=0.4),
    "cutmix": v2.CutMix,
    "one of them": lambda: v2.RandomChoice([v2.CutMix(), v2.MixUp(alpha=0.4)]),
}


def torchvisions(images, labels, mixture, num_classes):
    """What torchvision's own object makes of the batch with that lambda and box."""
    theirs = v2.MixUp(num_classes=num_classes) if mixture.box is None else v2.CutMix(num_classes=num_classes)
    params = {"lam": mixture.weight} if mixture.box is None else {"box": mixture.box, "lam_adjusted": mixture.weight}
    theirs.make_params = lambda _: params
    return theirs(images, labels)


def batches(loader):
    return [(images.clone(), labels.clone()) for images, labels in loader]


def same(one, other):
    assert len(one) == len(other) > 0
    for (images, labels), (more, others) in zip(one, other, strict=True):
        assert torch.equal(images, more)
        assert torch.equal(labels, others)


@pytest.mark.parametrize("engine", [None, False])
@pytest.mark.parametrize("kind", MIXES)
def test_equal_to_torchvision_given_lambda_and_box(packs, kind, engine):
    options = {"transform": FLOAT, "shuffle": True, "seed": 3, "num_workers": 0, "engine": engine}
    plain = batches(FastLoader(packs["lmdb"], 4, **options))
    mix = read_mix(MIXES[kind]())
    found = batches(FastLoader(packs["lmdb"], 4, **options, mix=MIXES[kind]()))
    kinds = set()
    for number, ((images, labels), (mixed, weights)) in enumerate(zip(plain, found, strict=True)):
        mixture = draw_mixture(mix, (3, 0), number, (32, 32))
        kinds.add(mixture.box is None)
        expected, their_weights = torchvisions(images, labels, mixture, 3)
        assert torch.equal(mixed, expected)
        assert torch.equal(weights, their_weights)
        assert mixed.is_contiguous()
        assert weights.dtype == torch.float32
        assert weights.shape == (len(labels), 3)
    assert kinds == {"mixup": {True}, "cutmix": {False}, "one of them": {True, False}}[kind]


@pytest.mark.parametrize("seed", [3, None])
def test_the_same_bits_for_any_workers_way_and_device(packs, image_folder, seed):
    def run(data, **options):
        torch.manual_seed(5)
        transform = None if isinstance(data, ImageFolder) else FLOAT
        return batches(
            FastLoader(data, 4, transform=transform, shuffle=True, seed=seed, mix=MIXES["one of them"](), **options)
        )

    first = run(packs["lmdb"], num_workers=0)
    same(first, run(packs["lmdb"], num_workers=2))
    same(first, run(packs["hdf5"], num_workers=1, device="cpu"))
    if seed is not None:
        folder = ImageFolder(str(image_folder), FLOAT)
        same(run(folder, num_workers=0, engine=False), run(folder, num_workers=2, engine=False, device="cpu"))


def test_without_a_seed_torchs_generator_governs_and_epochs_differ(packs):
    def make():
        torch.manual_seed(1)
        return FastLoader(packs["lmdb"], 4, transform=FLOAT, shuffle=True, mix=v2.MixUp(), num_workers=0)

    loader = make()
    first, second = batches(loader), batches(loader)
    assert not torch.equal(first[0][0], second[0][0])
    same(first, batches(make()))


@pytest.mark.parametrize("engine", [None, False])
def test_persistent_workers_draw_new_mixtures_in_each_epoch(packs, engine):
    options = {"transform": T.Compose([T.Resize((32, 32)), T.ToTensor()]), "mix": v2.MixUp()}
    loader = FastLoader(packs["lmdb"], 21, num_workers=1, persistent_workers=True, engine=engine, **options)
    labels = [batches(loader)[0][1] for _ in range(3)]
    assert len({part.numpy().tobytes() for part in labels}) == 3


@pytest.mark.parametrize("engine", [None, False])
@pytest.mark.parametrize("seed", [3, None])
def test_resume_goes_on_with_the_same_mixtures(packs, engine, seed):
    def make(workers):
        return FastLoader(
            packs["lmdb"], 4, transform=FLOAT if engine is None else T.Compose([T.Resize((32, 32)), T.ToTensor()]),
            shuffle=True, seed=seed, mix=MIXES["one of them"](), num_workers=workers, engine=engine,
        )  # fmt: skip

    torch.manual_seed(7)
    loader = make(0)
    list(loader)
    whole, states = [], []
    for images, labels in loader:
        whole.append((images.clone(), labels.clone()))
        states.append(loader.state_dict())
    torch.manual_seed(8)
    again = make(2)
    again.load_state_dict(states[1])
    same(whole[2:], batches(again))


@pytest.mark.parametrize("engine", [None, False])
def test_two_epochs_under_way_draw_the_mixtures_of_each(packs, engine):
    options = {"transform": FLOAT, "shuffle": True, "seed": 3, "num_workers": 0, "engine": engine}
    loader = FastLoader(packs["lmdb"], 4, mix=MIXES["one of them"](), **options)
    first, second = batches(loader), batches(loader)
    loader.set_epoch(0)
    pairs = list(zip(loader, loader, strict=True))
    same(first, [one for one, _ in pairs])
    same(second, [other for _, other in pairs])


def test_ranks_draw_mixtures_of_their_own():
    data = Samples(lambda i: (i,))  # one sample a class: labels tell the lambda
    found = {}
    for rank in range(2):
        sampler = DistributedSampler(data, 2, rank, seed=1)
        loader = FastLoader(data, 2, sampler=sampler, seed=3, mix=v2.MixUp(num_classes=6))
        for number, (_, labels) in enumerate(loader):
            found[2 * number + rank] = labels[0][labels[0] > 0]
    mix = read_mix(v2.MixUp())
    weights = [draw_mixture(mix, (3, 0), at, (8, 8)).weight for at in range(4)]
    assert len(set(weights)) == 4
    for at, weight in enumerate(weights):
        expected = [weight, 1 - weight] if len(found[at]) == 2 else [1.0]
        torch.testing.assert_close(found[at].sort().values, torch.tensor(sorted(expected)))


@pytest.mark.parametrize("engine", [None, False])
@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_padding_is_mixed_into_no_sample(packs, monkeypatch, engine, kind):
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "3")  # 21 samples: this rank's sixth is padding
    options = {"transform": T.Compose([T.Resize((32, 32)), T.ToTensor()]), "uneven": "exact", "num_workers": 0}
    plain = batches(FastLoader(packs["lmdb"], 4, **options, engine=engine))
    loader = FastLoader(packs["lmdb"], 4, **options, engine=engine, mix=MIXES[kind](), seed=3)
    (_, (images, labels)), last = batches(loader), loader.last
    assert last.valid.tolist() == [True, False]
    before, numbers = plain[1]
    # One real sample: both are mixed with themselves alone.
    torch.testing.assert_close(images, before)
    torch.testing.assert_close(labels, torch.nn.functional.one_hot(numbers, 3).float())


@pytest.mark.parametrize("engine", [None, False])
@pytest.mark.parametrize("device", [None, "cpu"])
def test_a_replacement_is_mixed_into_no_sample(tmp_path, image_folder, engine, device):
    folder = tmp_path / "images"
    shutil.copytree(image_folder, folder)
    (folder / "ant" / "ant2.jpg").write_bytes(b"no picture")
    options = {"on_error": "replace", "num_workers": 0, "engine": engine, "device": device}
    options["transform"] = T.Compose([T.Resize((32, 32)), T.ToTensor()])
    images, _ = next(iter(FastLoader(folder, 6, **options)))
    loader = FastLoader(folder, 6, **options, mix=v2.MixUp(), seed=3)
    mixed, _ = next(iter(loader))
    weight = draw_mixture(read_mix(v2.MixUp()), (3, 0), 0, (32, 32)).weight
    assert loader.last.valid.tolist() == [True] * 5 + [False]
    torch.testing.assert_close(mixed[:5], images[:5] * weight + images[:5].roll(1, 0) * (1 - weight))
    torch.testing.assert_close(mixed[5], images[5])


def test_uint8_can_be_cut_but_not_summed(packs):
    loader = FastLoader(packs["lmdb"], 4, transform=BYTES, seed=3, mix=v2.CutMix(), num_workers=0)
    images, labels = next(iter(loader))
    assert images.dtype == torch.uint8
    assert labels.shape == (4, 3)
    for mix in (v2.MixUp(), MIXES["one of them"]()):
        with pytest.raises(OptionError, match="MixUp needs images of floats; let the transform end in ToTensor"):
            FastLoader(packs["lmdb"], 4, transform=BYTES, mix=mix)
        with pytest.raises(OptionError, match="MixUp needs images of floats"):
            FastLoader(packs["lmdb"], 4, transform=BYTES, mix=mix, engine=False, num_workers=0)
    opaque = T.Compose([BYTES, T.Lambda(lambda image: image)])
    workers = FastLoader(packs["lmdb"], 4, transform=opaque, mix=v2.MixUp(), num_workers=0)
    with pytest.raises(OptionError, match="MixUp needs images of floats"):
        next(iter(workers))


@pytest.mark.parametrize("engine", [None, False])
@pytest.mark.parametrize(
    ("label", "mix", "why"),
    [
        (None, v2.MixUp(num_classes=3), "needs labels as a tensor behind the images, and there are none"),
        (1, v2.CutMix(), "give it num_classes=; the data set does not tell its classes"),
        (0.5, v2.MixUp(num_classes=3), "needs labels .n,. of whole numbers"),
        ((0.25, 0.75), v2.MixUp(num_classes=3), "num_classes=3, and the labels have 2 columns"),
    ],
)
def test_labels_of_a_pack_are_looked_at_when_the_loader_is_made(image_folder, tmp_path, label, mix, why, engine):
    rows = [{"path": str(path)} | ({} if label is None else {"label": label}) for path in image_folder.glob("cat/*")]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    path = tmp_path / "pack.h5"
    pack(tmp_path / "rows.jsonl", path, workers=1)
    opaque = T.Compose([FLOAT, T.Lambda(lambda image: image)])
    for transform in (FLOAT, opaque):
        with pytest.raises(OptionError, match=why):
            FastLoader(path, 2, transform=transform, mix=mix, engine=engine)
        # What target_transform or collate_fn make of them is theirs to know.
        FastLoader(path, 2, transform=transform, mix=mix, engine=engine, target_transform=lambda _: 1)
        FastLoader(path, 2, transform=transform, mix=mix, engine=engine, collate_fn=list)


class Samples(Dataset):
    """Pictures with labels of any kind."""

    def __init__(self, label):
        self.label = label

    def __len__(self):
        return 6

    def __getitem__(self, i):
        return (torch.full((3, 8, 8), i / 6), *self.label(i))


@pytest.mark.parametrize(
    ("label", "mix", "why"),
    [
        (lambda _: (), v2.MixUp(num_classes=3), "needs labels as a tensor behind the images"),
        (lambda i: (f"{i}",), v2.MixUp(num_classes=3), "needs labels as a tensor behind the images"),
        (lambda i: (i / 2,), v2.MixUp(num_classes=3), "whole numbers or .* got torch.float64"),
        (
            lambda _: (torch.zeros(2, 2),),
            v2.CutMix(num_classes=3),
            r"\(n, num_classes\); got torch.float32 \(3, 2, 2\)",
        ),
        (lambda i: (i,), v2.MixUp(), "give it num_classes="),
        (lambda i: (i,), v2.CutMix(num_classes=2), "num_classes=2, and there are labels from 0 to 2"),
        (lambda i: (-i,), v2.CutMix(num_classes=2), "num_classes=2, and there are labels from -2 to 0"),
        (lambda _: (torch.zeros(4),), v2.MixUp(num_classes=3), "num_classes=3, and the labels have 4 columns"),
    ],
)
@pytest.mark.parametrize("device", [None, "cpu"])
def test_labels_that_cannot_be_mixed_are_refused(label, mix, why, device):
    with pytest.raises(OptionError, match=why):
        list(FastLoader(Samples(label), 3, mix=mix, num_workers=0, device=device))


def test_batches_that_are_no_images_and_labels_are_refused():
    pairs = Samples(lambda i: (i,))
    as_mapping = FastLoader(pairs, 3, mix=v2.MixUp(num_classes=6), collate_fn=lambda rows: {"labels": rows})
    with pytest.raises(OptionError, match="this one is a dict"):
        next(iter(as_mapping))
    one_by_one = FastLoader(pairs, None, mix=v2.MixUp(num_classes=6))
    with pytest.raises(OptionError, match="behind the images"):
        next(iter(one_by_one))


def test_vectors_of_probabilities_are_mixed_and_further_fields_stay():
    data = Samples(lambda i: (torch.eye(6)[i], i))
    images, labels, numbers = next(iter(FastLoader(data, 6, mix=v2.MixUp(), seed=2)))
    weight = draw_mixture(read_mix(v2.MixUp()), (2, 0), 0, (8, 8)).weight
    expected, their_labels = torchvisions(
        *next(iter(FastLoader(data, 6)))[:2], type("M", (), {"weight": weight, "box": None}), 6
    )
    assert torch.equal(images, expected)
    assert torch.equal(labels, their_labels)
    assert numbers.tolist() == list(range(6))


def test_the_loader_says_so_and_travels(packs):
    loader = FastLoader(packs["lmdb"], 4, transform=FLOAT, mix=v2.MixUp(alpha=0.2), seed=3, num_workers=0)
    assert "mix MixUp(alpha=0.2), labels (n, 3): batch by batch, in the consumer's thread" in loader.explain()
    workers = FastLoader(packs["lmdb"], 4, transform=FLOAT, mix=v2.CutMix(), device="cpu", engine=False, num_workers=0)
    assert "mix CutMix(alpha=1.0), labels (n, 3): on cpu" in workers.explain()
    again = pickle.loads(pickle.dumps(loader))
    same(batches(loader), batches(again))
    with pytest.raises(OptionError, match="expected torchvision"):
        FastLoader(packs["lmdb"], 4, mix=0.2)


def test_failed_batches_count():
    """What comes behind a batch that fails is mixed as if it had not."""

    class Fails(Samples):
        broken = True

        def __getitem__(self, i):
            if self.broken and i == 0:
                raise OSError(i)
            return super().__getitem__(i)

    data = Fails(lambda i: (i,))
    loader = FastLoader(data, 2, seed=3, mix=v2.MixUp(num_classes=6))
    iterator = iter(loader)
    with pytest.raises(OSError, match="0"):
        next(iterator)
    rest = list(iterator)
    data.broken = False
    same(rest, batches(FastLoader(data, 2, seed=3, mix=v2.MixUp(num_classes=6)))[1:])


# ---------------------------------------------------------------- on the device


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_operators_are_torchvisions_and_keep_the_memory_format(memory_format, dtype, device):
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(5, 3, 12, 14, generator=generator).to(device, dtype, memory_format=memory_format)
    before = images.clone()
    mixed, cut = mix_before(images, 0.3), cut_before(images, (2, 3, 9, 12))
    expected = images.roll(1, 0).mul_(0.7).add_(images.mul(0.3))
    assert torch.equal(mixed, expected)
    labels = torch.zeros(5, dtype=torch.int64, device=device)
    mixture = type("M", (), {"weight": 0.5, "box": (2, 3, 9, 12)})
    assert torch.equal(cut, torchvisions(images, labels, mixture, 2)[0])
    assert mixed.stride() == cut.stride() == images.stride()
    assert torch.equal(images, before)
    others = torch.tensor([0, 4, 1, 2, 4], device=device)
    torch.testing.assert_close(mix_before(images, 0.3, others), images[others].mul(0.7).add_(images.mul(0.3)))
    assert torch.equal(cut_before(images, (0, 0, 14, 12), others), images[others])


@pytest.mark.parametrize("kind", MIXES)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.cuda
def test_cuda_gives_the_cpus_mixtures(packs, kind, memory_format):
    options = {"transform": FLOAT, "shuffle": True, "seed": 3, "num_workers": 2, "memory_format": memory_format}
    here = batches(FastLoader(packs["lmdb"], 4, **options, mix=MIXES[kind](), device="cpu"))
    there = batches(FastLoader(packs["lmdb"], 4, **options, mix=MIXES[kind](), device="cuda"))
    for (images, labels), (more, others) in zip(here, there, strict=True):
        assert more.is_contiguous(memory_format=memory_format)
        assert np.abs(images.numpy() - more.cpu().numpy()).max() < 1e-5
        torch.testing.assert_close(labels, others.cpu())
