"""``FastLoader(sampling=)``: the same for threads and processes, formats and ranks; resumed at any batch."""

from __future__ import annotations

import copy
from collections import Counter
from itertools import islice

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

from fastdata import Balanced, Buckets, FastLoader, Mixture, PackedDataset, Weighted, Windowed
from fastdata.converters import pack
from fastdata.engine.source import StoreSource
from fastdata.errors import OptionError

TRAIN = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.PILToTensor()])
UNKNOWN = T.Compose([TRAIN, T.Lambda(lambda image: image)])
SIZES = [(24, 24), (20, 32)]  # height, width; the pictures are squares and wider than high
WEIGHTS = np.arange(21) % 5
SAMPLINGS = {
    "balanced": Balanced(),
    "balanced, replaced": Balanced(replacement=True, num_samples=30),
    "weighted": Weighted(WEIGHTS, num_samples=40),
    "weighted, not replaced": Weighted(WEIGHTS, replacement=False),
    "windowed": Windowed(samples=8, runs=2),
    "windowed, MB": Windowed(megabytes=0.02, runs=2),
    "buckets": Buckets(SIZES),
    "mix": Mixture([2, 1], until="last"),
}


class Numbers(Dataset):
    """A data set that only its author knows, of 30 numbers in 3 classes."""

    targets = (0,) * 20 + (1,) * 7 + (2,) * 3
    transform = None

    def __len__(self):
        return 30

    def __getitem__(self, i):
        return i, torch.rand(1)


def _data(path, name, transform):
    """What a loader gets: the path, or for Mixture two parts of it."""
    if name != "mix":
        return {"dataset": path, "transform": transform}
    whole = PackedDataset(path, transform)
    return {"dataset": ConcatDataset([Subset(whole, range(15)), Subset(whole, range(15, 21))])}


def _loader(path, name, transform=TRAIN, batch_size=4, **options):
    return FastLoader(
        **_data(path, name, transform), batch_size=batch_size, sampling=SAMPLINGS[name],
        **{"seed": 7, "num_workers": 0} | options,
    )  # fmt: skip


def _seen(loader, count=None):
    """Each batch as (indices, valid, keys, pixels)."""
    found = []
    for batch in islice(loader, count):
        last = loader.last
        found.append((last.indices.tolist(), last.valid.tolist(), list(last.keys), batch[0].tolist()))
    return found


# ---------------------------------------------------------------- what comes


def test_balanced_gives_each_class_as_often(packs):
    loader = FastLoader(packs["lmdb"], 4, transform=TRAIN, seed=1, num_workers=0, sampling=Balanced(num_samples=300))
    labels = Counter(torch.cat([labels for _, labels in loader]).tolist())
    assert labels == {0: 100, 1: 100, 2: 100}
    replaced = Balanced(replacement=True, num_samples=3000)
    loader = FastLoader(Numbers(), 50, seed=1, sampling=replaced)
    found = np.bincount(np.repeat(np.arange(3), [20, 7, 3])[torch.cat([batch[0] for batch in loader])])
    assert ((found - 1000) ** 2 / 1000).sum() < 20


def test_weighted_leaves_out_what_weighs_nothing(packs):
    for sampling in (SAMPLINGS["weighted"], SAMPLINGS["weighted, not replaced"]):
        loader = FastLoader(packs["hdf5"], 4, transform=TRAIN, seed=1, num_workers=1, sampling=sampling)
        indices = [i for batch in _seen(loader) for i in batch[0]]
        assert all(WEIGHTS[indices])
        assert len(loader) == -(-len(indices) // 4)
    assert sorted(indices) == np.flatnonzero(WEIGHTS).tolist()


@pytest.mark.parametrize("until", ["first", "last"])
def test_a_mixture_ends_with_the_first_or_the_last_part(packs, until):
    whole = PackedDataset(packs["lmdb"], TRAIN)
    parts = ConcatDataset([Subset(whole, range(15)), Subset(whole, range(15, 21))])
    loader = FastLoader(parts, 4, seed=1, sampling=Mixture([1, 1], until=until))
    times = np.bincount([i for batch in _seen(loader) for i in batch[0]], minlength=21)
    assert times[:15].sum() == times[15:].sum() == {"first": 6, "last": 15}[until]
    assert times[15:].min() >= 1
    assert times[:15].max() <= 1
    assert times[15:].max() - times[15:].min() <= 1
    loader = FastLoader(parts, 4, seed=1, sampling=Mixture([3, 1], num_samples=800))
    times = np.bincount([i for batch in _seen(loader) for i in batch[0]], minlength=21)
    assert times[:15].tolist() == [40] * 15
    assert set(times[15:].tolist()) == {33, 34}


@pytest.mark.parametrize("transform", [TRAIN, UNKNOWN], ids=["engine", "workers"])
def test_buckets_give_batches_of_one_shape_without_padding(packs, transform):
    loader = _loader(packs["tar"], "buckets", transform)
    store, shapes = loader.dataset.store, Counter()
    for images, labels in loader:
        height, width = images.shape[2:]
        shapes[height, width] += len(images)
        for index, label in zip(loader.last.indices, labels.tolist(), strict=True):
            aspect = store.index.width[index] / store.index.height[index]
            far = [abs(np.log(aspect) - np.log(w / h)) for h, w in SIZES]
            assert SIZES[int(np.argmin(far))] == (height, width)
            assert store.label(index) == label
    assert sum(shapes.values()) == 21
    assert set(shapes) == set(SIZES)
    assert len(loader) == sum(-(-count // 4) for count in shapes.values()) == len(loader.batch_sampler)
    assert {len(batch) for batch in loader.batch_sampler} <= {1, 2, 3, 4}


def test_the_buckets_of_threads_are_those_of_processes_in_pixels(image_folder, packs):
    evaluation = T.Compose([T.Resize((24, 24)), T.PILToTensor()])
    options = {"batch_size": 4, "transform": evaluation, "sampling": Buckets(SIZES, shuffle=False), "num_workers": 1}
    ours = FastLoader(packs["lmdb"], **options)
    theirs = FastLoader(packs["lmdb"], **options, engine=False)
    count = 0
    for (mine, labels), (other, wanted) in zip(ours, theirs, strict=True):
        assert mine.shape == other.shape
        assert (mine.int() - other.int()).abs().max() <= 1
        assert labels.tolist() == wanted.tolist()
        assert ours.last.indices.tolist() == theirs.last.indices.tolist()
        assert list(ours.last.keys) == list(theirs.last.keys)
        count += len(mine)
    assert count == 21
    # a folder does not know its sizes, but its user may
    of = np.arange(21) % 2
    folder = ImageFolder(str(image_folder), evaluation)
    loader = FastLoader(folder, 4, sampling=Buckets(SIZES, of=of), seed=3)
    for images, _ in loader:
        assert {SIZES[of[i]] for i in loader.last.indices} == {tuple(images.shape[2:])}


def test_windows_are_asked_of_the_kernel_in_the_order_of_the_pack(packs, monkeypatch):
    asked = []
    monkeypatch.setattr(StoreSource, "will_need", lambda _, indices: asked.append(indices.tolist()))
    loader = FastLoader(packs["lmdb"], 4, transform=TRAIN, num_workers=0, sampling=Windowed(samples=8, runs=1))
    order = [i for batch in _seen(loader) for i in batch[0]]
    assert [sorted(order[at : at + 8]) for at in (0, 8, 16)] == [[*range(8)], [*range(8, 16)], [*range(16, 21)]]
    assert [i for part in asked for i in part] == list(range(21)) != order  # once, and in sequence


# ---------------------------------------------------------------- the same, however it is made


@pytest.mark.parametrize("name", list(SAMPLINGS))
def test_formats_and_numbers_of_workers_make_no_difference(packs, name):
    wanted = _seen(_loader(packs["lmdb"], name))
    for kind, workers in (("hdf5", 1), ("tar", 2), ("tars", 0)):
        assert _seen(_loader(packs[kind], name, num_workers=workers)) == wanted


@pytest.mark.parametrize("name", ["balanced", "weighted, not replaced", "buckets", "mix"])
def test_processes_make_no_difference(packs, name):
    wanted = _seen(_loader(packs["lmdb"], name, UNKNOWN))
    for workers in (1, 2):
        assert _seen(_loader(packs["hdf5"], name, UNKNOWN, num_workers=workers)) == wanted
    # the order is that of threads, too
    assert [batch[:3] for batch in _seen(_loader(packs["tar"], name))] == [batch[:3] for batch in wanted]


@pytest.mark.parametrize("name", list(SAMPLINGS))
@pytest.mark.parametrize("uneven", ["pad", "drop", "exact"])
def test_ranks_put_together_are_one(packs, monkeypatch, name, uneven):
    def run(world):
        ranks = []
        for rank in range(world):
            monkeypatch.setenv("RANK", str(rank))
            monkeypatch.setenv("WORLD_SIZE", str(world))
            loader = _loader(packs["lmdb"], name, batch_size=12 // world, uneven=uneven)
            ranks.append(_seen(loader))
            assert len(loader) == len(ranks[-1])
        assert len({tuple(len(batch[0]) for batch in rank) for rank in ranks}) == 1
        steps = []
        for step in zip(*ranks, strict=True):
            assert len({np.shape(batch[3])[1:] for batch in step}) == 1  # one bucket a step
            rows = [row for batch in step for row in zip(batch[0], batch[1], map(str, batch[3]), strict=True)]
            steps.append(sorted((index, pixels) for index, valid, pixels in rows if valid))
        return steps

    one = run(1)
    for world in (2, 3, 4):
        many = run(world)
        if uneven == "exact":
            assert many == one
            continue
        kept, every = (Counter(row for step in steps for row in step) for steps in (many, one))
        if uneven == "drop":
            assert not kept - every
            assert (every - kept).total() < world * len(SIZES)
        else:
            assert not every - kept
            assert (kept - every).total() < world * len(SIZES)


# ---------------------------------------------------------------- resume


@pytest.mark.parametrize("name", list(SAMPLINGS))
def test_every_batch_after_a_state_is_that_of_the_uninterrupted_run(packs, name):
    whole = _loader(packs["lmdb"], name)
    epochs = [_seen(whole) for _ in range(3)]
    assert epochs[0] != epochs[1]
    for count in range(len(epochs[1]) + 1):
        first = _loader(packs["lmdb"], name, num_workers=2)
        first.set_epoch(1)
        list(islice(first, count))
        state = first.state_dict()
        assert all(isinstance(value, (int, str)) for value in state.values())
        other = _loader(packs["hdf5"], name, num_workers=count % 2)
        other.load_state_dict(state)
        assert [_seen(other), _seen(other)] == ([epochs[1][count:], epochs[2]] if count else epochs[1:])


@pytest.mark.parametrize("name", ["balanced", "weighted", "windowed", "buckets", "mix"])
@pytest.mark.parametrize(("old", "new"), [(1, 2), (2, 1), (3, 2), (2, 4)])
def test_another_number_of_ranks_goes_on(packs, monkeypatch, name, old, new):
    def run(world, count, state):
        seen = []
        for rank in range(world):
            monkeypatch.setenv("RANK", str(rank))
            monkeypatch.setenv("WORLD_SIZE", str(world))
            loader = _loader(packs["lmdb"], name, batch_size=12 // world, uneven="exact")
            if state:
                loader.load_state_dict(state)
            for indices, valid, _, pixels in _seen(loader, count):
                seen += [(i, str(x)) for i, v, x in zip(indices, valid, pixels, strict=True) if v]
        return seen, loader.state_dict()

    whole, _ = run(1, None, None)
    first, state = run(old, 1, None)
    rest, _ = run(new, None, state)
    assert sorted(first + rest) == sorted(whole)
    assert first


def test_ten_million_positions_are_passed_over():
    class Many(Numbers):
        targets = np.arange(10_000_000) % 1000

        def __init__(self):
            self.read = []

        def __len__(self):
            return 10_000_000

        def __getitem__(self, i):
            self.read.append(i)
            return i

    data = Many()
    for sampling in (Balanced(num_samples=20_000_000), Windowed(samples=10_000)):
        loader = FastLoader(data, 50, seed=1, sampling=sampling)
        next(iter(loader))
        state = loader.state_dict() | {"batches": 199_900, "position": 9_995_000}
        loader.load_state_dict(state)
        data.read.clear()
        indices = next(iter(loader))
        order = loader.sampler.order_again(1, 0)
        assert data.read == indices.tolist() == order.indices(9_995_000, 9_995_050).tolist()


def test_states_of_another_sampling_are_refused(packs):
    states = {name: _loader(packs["lmdb"], name) for name in SAMPLINGS}
    for name, loader in states.items():
        list(islice(loader, 1))
        states[name] = loader.state_dict()
    plain = FastLoader(packs["lmdb"], 4, shuffle=True, seed=7)
    for name, why in (("weighted", "Weighted"), ("balanced", "no sampling="), ("buckets", "buckets")):
        with pytest.raises(OptionError, match=why):
            plain.load_state_dict(states[name])
    with pytest.raises(OptionError, match="no sampling="):
        _loader(packs["lmdb"], "weighted").load_state_dict(plain.state_dict())
    with pytest.raises(OptionError, match="replacement=False"):
        _loader(packs["lmdb"], "weighted, not replaced").load_state_dict(states["weighted"])
    with pytest.raises(OptionError, match="batches of 4 over all ranks, here they have 8"):
        _loader(packs["lmdb"], "buckets", batch_size=8).load_state_dict(states["buckets"])
    # a state from before sampling= was there
    state = plain.state_dict()
    del state["sampling"]
    plain.load_state_dict(state)


# ---------------------------------------------------------------- without a seed, and rebuilt


@pytest.mark.parametrize("name", ["balanced", "weighted, not replaced", "windowed", "buckets"])
def test_without_a_seed_torchs_generator_governs(packs, name):
    runs = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        loader = _loader(packs["lmdb"], name, seed=None)
        runs.append([_seen(loader), _seen(loader)])
    assert runs[0] == runs[1] != runs[2]
    assert runs[0][0] != runs[0][1]
    generators = [torch.Generator().manual_seed(9) for _ in range(2)]
    first, second = (_seen(_loader(packs["lmdb"], name, seed=None, generator=g)) for g in generators)
    assert [batch[:3] for batch in first] == [batch[:3] for batch in second]


@pytest.mark.parametrize("name", ["weighted", "buckets"])
def test_a_loader_is_rebuilt_from_its_attributes(packs, name):
    loader = _loader(packs["lmdb"], name)
    list(loader)
    rebuilt = FastLoader(
        loader.dataset, batch_size=loader.batch_size, shuffle=False, sampler=loader.sampler, seed=loader.seed,
        num_workers=0, sampling=loader.sampling, uneven=loader.uneven,
    )  # fmt: skip
    assert rebuilt.sampling is SAMPLINGS[name]
    assert _seen(rebuilt) == _seen(loader)  # the second epoch
    assert _seen(copy.copy(loader)) == _seen(rebuilt)
    assert f"sampling: {SAMPLINGS[name]!r}" in loader.explain()
    assert f"sampling: {SAMPLINGS[name]!r}" in _loader(packs["lmdb"], name, UNKNOWN).explain()
    for batch in rebuilt.batch_sampler:
        assert len(batch) <= 4
    assert len(list(rebuilt.sampler)) == {"weighted": 40, "buckets": 21}[name]


class Watched:
    """A batch sampler in the manner of Lightning's, which notes what its inner one gives."""

    def __init__(self, inner):
        self.__dict__.update(vars(inner))
        self.inner = inner

    def __iter__(self):
        return iter(self.inner)

    def __len__(self):
        return len(self.inner)


@pytest.mark.parametrize("transform", [TRAIN, UNKNOWN], ids=["engine", "workers"])
@pytest.mark.parametrize("name", ["weighted", "buckets"])
def test_a_loader_is_rebuilt_around_its_batch_sampler(packs, name, transform):
    loader = _loader(packs["lmdb"], name, transform)
    wanted = [batch[0] for batch in _seen(loader)]
    loader.set_epoch(0)
    batches = type(loader.batch_sampler)(loader.sampler, batch_size=4, drop_last=False)
    rebuilt = FastLoader(
        loader.dataset, batch_size=1, shuffle=False, sampler=None, batch_sampler=Watched(batches), drop_last=False,
        num_workers=0, seed=7, sampling=loader.sampling,
    )  # fmt: skip
    shapes = []
    for batch, indices in zip(rebuilt, wanted, strict=True):
        shapes.append(tuple(batch[0].shape[2:]))
        assert len(batch[0]) == len(indices)
    assert set(shapes) == (set(SIZES) if name == "buckets" else {(24, 24)})


# ---------------------------------------------------------------- what does not go


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(3))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"sampling": Balanced(), "shuffle": True}, "shuffle="),
        ({"sampling": Balanced(), "sampler": [1, 2]}, "sampler="),
        ({"sampling": Balanced(), "batch_sampler": [[1, 2]]}, "batch_sampler="),
        ({"sampling": "balanced"}, "expected a Balanced"),
        ({"sampling": Balanced}, "expected a Balanced"),
        ({"sampling": Weighted([1, 2])}, "2 weights for a data set of 30"),
        ({"sampling": Windowed(megabytes=1)}, "how many bytes"),
        ({"sampling": Buckets([(8, 8)]), "dataset": "sized"}, "no step whose size"),
        ({"sampling": Buckets([(8, 8)], of=[0] * 30), "batch_size": None}, "batch_size"),
        ({"sampling": Mixture([1, 2])}, "ConcatDataset"),
        ({"sampling": Mixture([1, 2]), "dataset": ConcatDataset([Numbers()])}, "2 weights for parts"),
        ({"sampling": Balanced(), "dataset": Stream()}, "map-style"),
        ({"sampling": Balanced(), "dataset": ConcatDataset([[1, 2]])}, "no classes"),
        ({"sampling": Balanced(), "dataset": []}, "no samples"),
    ],
)
def test_what_cannot_be_is_named(packs, options, why):
    options = {"dataset": Numbers()} | options
    if options["dataset"] == "sized":
        options |= {"dataset": packs["lmdb"], "transform": T.PILToTensor()}
    with pytest.raises(OptionError, match=why):
        FastLoader(**options)


def test_buckets_of_a_folder_and_classes_of_a_set_without_labels_are_refused(image_folder, tmp_path):
    folder = ImageFolder(str(image_folder), TRAIN)
    with pytest.raises(OptionError, match="how large its pictures are"):
        FastLoader(folder, 4, sampling=Buckets(SIZES))
    with pytest.raises(OptionError, match="2 numbers, the data set 21"):
        FastLoader(folder, 4, sampling=Buckets(SIZES, of=[0, 1]))
    pack(image_folder / "ant", tmp_path / "flat.lmdb", workers=1)
    with pytest.raises(OptionError, match="Balanced: the data set has no classes"):
        FastLoader(tmp_path / "flat.lmdb", 4, sampling=Balanced())


def test_a_data_set_that_changes_its_length_is_told():
    class Growing(Numbers):
        n = 30

        def __len__(self):
            return self.n

    data = Growing()
    loader = FastLoader(data, 4, seed=1, sampling=Weighted(np.ones(30)))
    data.n = 31
    with pytest.raises(OptionError, match="had 30 samples"):
        next(iter(loader))


# ---------------------------------------------------------------- quality


def test_shuffle_quality_looks_without_touching(packs):
    torch.manual_seed(1)
    loaders = [
        FastLoader(packs["lmdb"], 4, shuffle=True, transform=TRAIN, seed=1),
        FastLoader(packs["lmdb"], 4, shuffle=True, transform=TRAIN),
        FastLoader(Numbers(), 4, shuffle=True),
        FastLoader(Numbers(), 4, shuffle=True, generator=torch.Generator().manual_seed(3)),
        *(_loader(packs["lmdb"], name) for name in SAMPLINGS),
    ]
    for loader in loaders:
        before, generator = torch.get_rng_state(), loader.generator
        state = loader.state_dict()
        quality = loader.shuffle_quality()
        assert quality.samples >= 6
        assert quality.neighbours > 0.2
        assert quality.classes > 0.2
        assert torch.equal(torch.get_rng_state(), before)
        assert {k: v for k, v in loader.state_dict().items() if isinstance(v, (int, str))} == {
            k: v for k, v in state.items() if isinstance(v, (int, str))
        }
        assert generator is None or torch.equal(loader.generator.get_state(), generator.get_state())


def test_shuffle_quality_of_the_same_classes_by_way_of_order():
    class Sorted(Numbers):
        targets = np.arange(5000) // 50

        def __len__(self):
            return 5000

    asked = {
        "none": {},
        "window": {"sampling": Windowed(samples=250)},
        "true": {"shuffle": True},
        "balanced": {"sampling": Balanced()},
    }
    found = {name: FastLoader(Sorted(), 20, seed=1, **options).shuffle_quality() for name, options in asked.items()}
    assert found["none"].classes < 0.15 < found["window"].classes < 0.9
    assert found["true"].classes == pytest.approx(1, abs=0.03)
    assert found["balanced"].classes > 1
    assert FastLoader(Sorted(), 20, shuffle=True).shuffle_quality().classes == pytest.approx(1, abs=0.03)
    assert FastLoader(Sorted(), sampler=range(5000)).shuffle_quality().classes < 0.15
    with pytest.raises(OptionError, match="no order"):
        FastLoader(Stream()).shuffle_quality()
    with pytest.raises(OptionError, match="no whole numbers"):
        FastLoader(Numbers(), sampler="abc").shuffle_quality()
    with pytest.raises(OptionError, match="no batches"):
        FastLoader(Numbers(), sampler=[]).shuffle_quality()
