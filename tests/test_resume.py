"""A loader goes on where another one was: state_dict, load_state_dict."""

from __future__ import annotations

import multiprocessing
import random
import time
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

from fastdata.engine.choice import Choice
from fastdata.engine.sampler import EpochSampler
from fastdata.errors import OptionError, SampleError
from fastdata.loader import FastLoader
from fastdata.order import Order
from fastdata.train.checkpoint import load_checkpoint, save_checkpoint
from fastdata.train.trainer import Trainer, TrainOptions
from fastdata.transforms.compile import compile_transform
from fastdata.types import Encoded

TRAIN = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.PILToTensor()])
UNKNOWN = T.Compose([TRAIN, T.Lambda(lambda image: image)])


class Numbers(Dataset):
    """A data set that nobody but its author knows: its samples draw from all three generators, and are counted."""

    def __init__(self, n=21):
        self.n, self.read = n, []

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        self.read.append(i)
        return i, random.random(), float(np.random.rand()), torch.rand(2)  # noqa: NPY002


def _bits(batch):
    return [part.tolist() for part in batch]


def _epoch(loader):
    return [_bits(batch) for batch in loader]


def _state_after(loader, count):
    """The state when ``count`` batches were delivered, with threads or workers further ahead."""
    iterator = iter(loader)
    for _ in range(count):
        next(iterator)
    return loader.state_dict()


# ---------------------------------------------------------------- the next batch is the next batch


@pytest.mark.parametrize("transform", [TRAIN, UNKNOWN], ids=["engine", "workers"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_every_batch_after_a_state_is_that_of_the_uninterrupted_run(packs, transform, shuffle):  # C139, C140
    def loader(kind="lmdb", workers=0):
        return FastLoader(packs[kind], 4, shuffle, transform=transform, seed=7, num_workers=workers)

    whole = loader()
    epochs = [_epoch(whole) for _ in range(3)]
    for count in range(7):
        kind, workers = [("lmdb", 0), ("hdf5", 1), ("tar", 2 if transform is TRAIN else 0), ("tars", 0)][count % 4]
        first = loader(workers=2 if transform is TRAIN else 0)
        _epoch(first)
        state = _state_after(first, count)
        other = loader(kind, workers)
        other.load_state_dict(state)
        assert other.state_dict()["batches"] == count
        assert [_epoch(other) for _ in range(2)] == [epochs[1][count:], epochs[2]]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_the_state_is_a_few_numbers_and_survives_distributed_checkpoint(packs, tmp_path):
    first = FastLoader(packs["lmdb"], 4, shuffle=True, transform=TRAIN, seed=7, num_workers=2)
    state = _state_after(first, 2)
    assert all(isinstance(value, (int, str)) for value in state.values())
    assert len(state) < 20
    rest = _epoch_rest(first, state)
    dcp.save({"loader": first}, checkpoint_id=tmp_path / "first")
    other = FastLoader(packs["lmdb"], 4, shuffle=True, transform=TRAIN, seed=7)
    dcp.load({"loader": other}, checkpoint_id=tmp_path / "first")
    assert _epoch(other) == rest
    # with tensors: a sampler of the user's
    data = Numbers()
    first = FastLoader(data, 4, shuffle=True)
    iterator = iter(first)
    next(iterator)
    dcp.save({"loader": first}, checkpoint_id=tmp_path / "second")
    other = FastLoader(data, 4, shuffle=True)
    dcp.load({"loader": other}, checkpoint_id=tmp_path / "second")
    assert [batch[0].tolist() for batch in other] == [batch[0].tolist() for batch in iterator]


def _epoch_rest(loader, state):
    loader.load_state_dict(state)
    rest = _epoch(loader)
    loader.load_state_dict(state)
    assert loader.state_dict() == state
    return rest


def test_without_a_seed_the_drawn_one_is_in_the_state(packs):
    for transform in (TRAIN, T.Compose([T.Resize((8, 8)), T.Lambda(T.functional.pil_to_tensor)])):
        torch.manual_seed(3)
        first = FastLoader(packs["lmdb"], 4, shuffle=True, transform=transform, num_workers=0)
        iterator = iter(first)
        next(iterator)
        state = first.state_dict()
        rest = _epoch(iterator)
        saved = torch.get_rng_state()
        following = _epoch(first)
        torch.manual_seed(99)
        other = FastLoader(packs["hdf5"], 4, shuffle=True, transform=transform, num_workers=0)
        other.load_state_dict(state)
        torch.set_rng_state(saved)  # what the user saves
        assert _epoch(other) == rest
        assert torch.equal(torch.get_rng_state(), saved)
        assert _epoch(other) == following


class Shuffled:
    """A sampler of the user's: draws from a generator of its choice, when its first sample is asked for."""

    def __init__(self, n, draw):
        self.n, self.draw = n, draw

    def __len__(self):
        return self.n

    def __iter__(self):
        yield from self.draw(self.n)


class Eager(Shuffled):
    """Draws when it is iterated."""

    def __iter__(self):
        return iter(list(self.draw(self.n)))


def _samplers():
    generator = torch.Generator().manual_seed(4)
    return {
        "shuffle": lambda: {"shuffle": True},
        "generator": lambda: {"shuffle": True, "generator": torch.Generator().manual_seed(4)},
        "own generator": lambda: {"sampler": RandomSampler(range(21), generator=torch.Generator().manual_seed(4))},
        "replacement": lambda: {
            "sampler": WeightedRandomSampler([1.0] * 21, 80, generator=torch.Generator().manual_seed(4))
        },
        "with replacement": lambda: {
            "sampler": RandomSampler(range(21), replacement=True, num_samples=80, generator=generator.clone_state())
        },
        "numpy": lambda: {"sampler": Shuffled(21, np.random.permutation)},
        "python": lambda: {"sampler": Shuffled(21, lambda n: random.sample(range(n), n))},
        "eager": lambda: {"sampler": Eager(21, lambda n: torch.randperm(n).tolist())},
        "list": lambda: {"batch_sampler": [[3], [1, 2, 0], [20, 19], [5, 5, 5, 5]], "batch_size": 1},
        "distributed": lambda: {"sampler": DistributedSampler(range(21), 2, 1, seed=5)},
    }


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("engine", [True, False])
@pytest.mark.parametrize("kind", list(_samplers()))
@pytest.mark.filterwarnings("ignore:the DistributedSampler is at epoch")
def test_samplers_of_the_users_go_on(image_folder, kind, engine, workers):
    if workers and not engine and kind not in {"shuffle", "with replacement", "eager"}:
        return  # processes are slow to start; these are the kinds that differ
    data = ImageFolder(str(image_folder), T.Compose([T.Resize((8, 8)), T.PILToTensor()]))

    def loader():
        return FastLoader(data, **{"batch_size": 4, "num_workers": workers, "engine": engine} | _samplers()[kind]())

    def labels(batches):
        return [batch[0].sum(dim=(1, 2, 3)).tolist() for batch in batches]

    for count in (0, 2):
        torch.manual_seed(11)
        np.random.seed(11)  # noqa: NPY002
        random.seed(11)
        first = loader()
        labels(first)
        first.set_epoch(1)
        iterator = iter(first)
        head = labels(islice(iterator, count))
        state = first.state_dict()
        globals_then = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
        rest = labels(iterator)
        following = labels(first)
        torch.manual_seed(12)
        other = loader()
        other.load_state_dict(state)
        torch.set_rng_state(globals_then[0])
        np.random.set_state(globals_then[1])  # noqa: NPY002
        random.setstate(globals_then[2])
        assert labels(other) == rest
        assert labels(other) == following
        assert len(head) == count


def test_the_order_without_a_seed_is_still_dataloaders():
    for workers in (0, 1):
        torch.manual_seed(5)
        theirs = [[b[0].tolist() for b in DataLoader(Numbers(), 4, shuffle=True, num_workers=workers)] for _ in "ab"]
        state = torch.get_rng_state()
        torch.manual_seed(5)
        loader = FastLoader(Numbers(), 4, shuffle=True, num_workers=workers)
        assert [[b[0].tolist() for b in loader] for _ in "ab"] == theirs
        assert torch.equal(torch.get_rng_state(), state) or not workers  # (without workers the samples draw)


@pytest.mark.parametrize("persistent", [False, True])
def test_worker_processes_go_on_persistent_ones_too(persistent):
    def loader():
        return FastLoader(
            Numbers(), 4, shuffle=True, seed=3, num_workers=1, persistent_workers=persistent, prefetch_factor=4
        )

    first = loader()
    states, epochs = [first.state_dict()], [[]]
    for batch in first:
        epochs[0].append(_bits(batch))
        states.append(first.state_dict())
    epochs += [_epoch(first) for _ in range(2)]
    other = loader()
    for count in (2, 5):
        other.load_state_dict(states[count])
        assert [_epoch(other), _epoch(other)] == [epochs[0][count:], epochs[1]]
    assert _epoch(other) == epochs[2]


def test_samples_one_by_one_go_on():
    def loader():
        return FastLoader(Numbers(), batch_size=None, shuffle=True, seed=3)

    first = loader()
    samples = [(sample[0], sample[1]) for sample in first]
    state = _state_after(loader(), 8)
    other = loader()
    other.load_state_dict(state)
    assert [(sample[0], sample[1]) for sample in other] == samples[8:]


def test_a_distributed_sampler_that_is_told_its_epoch_goes_on():
    def loader():
        return FastLoader(Numbers(), 4, sampler=DistributedSampler(range(21), 2, 1, seed=5), seed=3)

    first, epochs = loader(), []
    for epoch in range(4):
        first.sampler.set_epoch(epoch)
        epochs.append(_epoch(first))
        if epoch == 1:
            half = loader()
            half.sampler.set_epoch(1)
            state = _state_after(half, 2)
    other = loader()
    other.load_state_dict(state)
    got = []
    for epoch in range(1, 4):
        other.sampler.set_epoch(epoch)
        got.append(_epoch(other))
    assert got == [epochs[1][2:], *epochs[2:]]
    other.load_state_dict(state)
    other.sampler.set_epoch(3)
    assert _epoch(other) == epochs[3]


# ---------------------------------------------------------------- ends, blocks, failures


def test_a_state_between_epochs_begins_the_next(packs):
    first = FastLoader(packs["lmdb"], 4, shuffle=True, transform=TRAIN, seed=7)
    fresh = first.state_dict()
    epochs = [_epoch(first) for _ in range(2)]
    after_one = FastLoader(packs["lmdb"], 4, shuffle=True, transform=TRAIN, seed=7)
    after_one.load_state_dict(fresh)
    assert _epoch(after_one) == epochs[0]
    other = FastLoader(packs["lmdb"], 4, shuffle=True, transform=TRAIN, seed=7)
    other.load_state_dict(after_one.state_dict())
    assert _epoch(other) == epochs[1]
    # delivered whole, but its end not seen: there is nothing left of it, and then comes the next
    state = _state_after(FastLoader(packs["lmdb"], 4, shuffle=True, transform=TRAIN, seed=7), 6)
    other.load_state_dict(state)
    assert [_epoch(other), _epoch(other)] == [[], epochs[1]]


@pytest.mark.parametrize("transform", [TRAIN, UNKNOWN], ids=["engine", "workers"])
@pytest.mark.parametrize("finished", [False, True])
def test_a_state_after_set_epoch_begins_that_epoch(packs, transform, finished):
    def loader():
        return FastLoader(packs["lmdb"], 4, shuffle=True, transform=transform, seed=7)

    wanted = loader()
    wanted.set_epoch(3)
    wanted = _epoch(wanted)
    first, other = loader(), loader()
    if finished:
        _epoch(first)
    first.set_epoch(3)
    other.load_state_dict(first.state_dict())
    assert _epoch(first) == _epoch(other) == wanted


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("engine", [True, False])
def test_persistent_workers_go_on_with_torchs_generator_where_it_was(image_folder, engine, finished):
    """DataLoader draws a base seed with the first epoch only, and this one was before the state."""

    def loader():
        data = ImageFolder(str(image_folder), TRAIN)
        return FastLoader(data, 4, shuffle=True, num_workers=1, persistent_workers=True, engine=engine)

    torch.manual_seed(3)
    first = loader()
    epochs = [_epoch(first)]
    iterator = iter(first)
    for _ in range(6 if finished else 2):
        next(iterator)
    rest = _epoch(iterator)
    state, torchs = first.state_dict() if finished else None, torch.get_rng_state()
    epochs.append(_epoch(first))
    assert epochs[0] != epochs[1]
    if not finished:
        torch.manual_seed(3)
        again = loader()
        _epoch(again)
        state = _state_after(again, 2)
    torch.manual_seed(99)
    other = loader()
    other.load_state_dict(state)
    if not finished:
        resumed = _epoch(other)
        assert [labels for _, labels in resumed] == [labels for _, labels in rest]
        assert resumed == rest or not engine  # what worker processes draw is new
    torch.set_rng_state(torchs)  # what the user saves
    following = _epoch(other)
    assert [labels for _, labels in following] == [labels for _, labels in epochs[1]]
    assert following == epochs[1] or not engine


def test_a_few_batches_an_epoch_can_be_consecutive_blocks(packs):  # C143
    loader = FastLoader(packs["lmdb"], 4, shuffle=True, transform=TRAIN, seed=7, num_workers=2)
    wanted = [_bits(batch) for batch in loader]
    loader = FastLoader(packs["lmdb"], 4, shuffle=True, transform=TRAIN, seed=7, num_workers=2)
    blocks = []
    for _ in range(3):
        blocks += [_bits(batch) for batch in islice(loader, 2)]
        loader.load_state_dict(loader.state_dict())
    assert blocks == wanted


def test_set_epoch_keeps_the_position_in_its_own_epoch_only(packs):
    def loader():
        return FastLoader(packs["lmdb"], 4, shuffle=True, transform=TRAIN, seed=7)

    epochs = [_epoch(whole) for whole in [loader()] for _ in range(2)]
    state = _state_after(loader(), 3)
    for epoch, wanted in ((0, epochs[0][3:]), (1, epochs[1])):
        other = loader()
        other.load_state_dict(state)
        other.set_epoch(epoch)
        assert _epoch(other) == wanted


def test_a_batch_that_failed_is_tried_again_unless_a_later_one_came():
    class Fails(Numbers):
        def __getitem__(self, i):
            if i == 5:
                raise SampleError(str(i))
            return super().__getitem__(i)

    loader = FastLoader(Fails(), 4, seed=1)
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(SampleError):
        next(iterator)
    assert loader.state_dict()["batches"] == 1
    next(iterator)
    assert loader.last.indices.tolist() == [8, 9, 10, 11]
    assert loader.state_dict()["batches"] == 3
    assert loader.state_dict()["position"] == 12


def test_a_data_set_without_a_length_goes_on():
    class Letters(Dataset):
        def __getitem__(self, letter):
            return letter

    first = FastLoader(Letters(), 2, sampler="abcde", seed=3)
    state = _state_after(first, 1)
    assert state["length"] == 0
    first.load_state_dict(state)
    assert list(first) == [["c", "d"], ["e"]]


def test_an_iterable_data_set_is_iterated_again():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(21))

    first = FastLoader(Stream(), 4)
    state = _state_after(first, 2)
    other = FastLoader(Stream(), 4, num_workers=1)
    other.load_state_dict(state)
    assert [batch.tolist() for batch in other][0] == [8, 9, 10, 11]  # noqa: RUF015  all are read
    assert len(list(other)) == 6


def test_a_new_process_goes_on(packs):  # C139
    def go_on(pipe, state):
        torch.set_num_threads(1)  # torch's own threads did not survive the fork
        loader = FastLoader(packs["tar"], 4, shuffle=True, transform=TRAIN, seed=7, num_workers=1)
        loader.load_state_dict(state)
        pipe.send(_epoch(loader))

    first = FastLoader(packs["lmdb"], 4, shuffle=True, transform=TRAIN, seed=7, num_workers=2)
    iterator = iter(first)
    next(iterator), next(iterator)
    mine, theirs = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=go_on, args=(theirs, first.state_dict()))
    child.start()
    assert mine.poll(30)
    assert mine.recv() == _epoch(iterator)
    child.join()


def test_batches_in_any_order_have_no_position(packs):
    with pytest.raises(OptionError, match="in_order"):
        FastLoader(Numbers(), 4, num_workers=2, in_order=False).state_dict()
    assert FastLoader(packs["lmdb"], 4, transform=TRAIN, num_workers=2, in_order=False).state_dict()["batches"] == 0


# ---------------------------------------------------------------- nothing skipped is touched


class Synthetic:
    """A source of 11 million samples without a file."""

    def __init__(self, data):
        self.fetched = []
        self._bytes = memoryview(data)

    def __len__(self):
        return 11_000_000

    def fetch(self, indices):
        from fastdata.stores.reader import addresses_of

        self.fetched += indices.tolist()
        n = len(indices)
        address, views, keep = addresses_of([self._bytes] * n)
        zeros = np.zeros(n, np.int32)
        return Encoded(address, np.full(n, len(self._bytes)), np.zeros(n, np.uint8), zeros, zeros, views, keep)

    def labels(self, indices):
        return indices.copy()

    def key(self, index):
        return str(index)

    def check(self, index):
        pass


def test_ten_million_samples_are_passed_over_at_once(image_folder, monkeypatch):  # C142
    source = Synthetic((image_folder / "ant" / "ant0.jpg").read_bytes())
    plan = compile_transform(TRAIN)
    monkeypatch.setattr(FastLoader, "_choose", lambda _: Choice(source, plan, "synthetic"))
    loader = FastLoader(Numbers(11_000_000), 50, shuffle=True, seed=1, num_workers=0)
    next(iter(loader))
    state = loader.state_dict() | {"batches": 200_000, "position": 10_000_000}
    loader = FastLoader(Numbers(11_000_000), 50, shuffle=True, seed=1, num_workers=0)
    loader.load_state_dict(state)
    source.fetched.clear()
    began = time.process_time()
    _, labels = next(iter(loader))
    assert time.process_time() - began < 1  # it is 0.01; drawing all that was passed over takes seconds
    assert labels.tolist() == Order(11_000_000, 1).indices(10_000_000, 10_000_050).tolist() == source.fetched


def test_samples_that_workers_would_skip_are_not_read():  # C142
    data = Numbers(11_000_000)
    loader = FastLoader(data, 50, shuffle=True, seed=1)
    state = _state_after(loader, 1) | {"batches": 200_000, "position": 10_000_000}
    loader.load_state_dict(state)
    data.read.clear()
    began = time.process_time()
    indices = next(iter(loader))[0]
    assert time.process_time() - began < 1  # it is 0.01; drawing all that was passed over takes seconds
    assert data.read == indices.tolist() == Order(11_000_000, 1).indices(10_000_000, 10_000_050).tolist()


# ---------------------------------------------------------------- other ranks, other runs


def _rank(monkeypatch, rank, world):
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", str(world))


@pytest.mark.parametrize(("old", "new"), [((1, 12), (2, 6)), ((2, 6), (1, 12)), ((4, 3), (3, 4)), ((1, 5), (5, 1))])
@pytest.mark.parametrize("shuffle", [True, False])
def test_another_number_of_ranks_goes_on(packs, monkeypatch, old, new, shuffle):  # C160
    def run(world, batch_size, count, state):
        """What each rank is given, as (position in time, key, pixels), and the state behind ``count`` batches."""
        seen = []
        for rank in range(world):
            _rank(monkeypatch, rank, world)
            loader = FastLoader(packs["lmdb"], batch_size, shuffle, transform=TRAIN, seed=2, uneven="exact")
            if state:
                loader.load_state_dict(state)
            for images, _ in islice(loader, count):
                keys, valid = list(loader.last.keys), loader.last.valid.tolist()
                seen += [(k, x.numpy().tobytes()) for k, v, x in zip(keys, valid, images, strict=True) if v]
        return seen, loader.state_dict()

    whole, _ = run(1, 21, None, None)
    first, state = run(*old, 1, None)
    rest, _ = run(*new, None, state)
    assert len(first) == old[0] * old[1]
    assert sorted(first + rest) == sorted(whole)
    assert len({key for key, _ in first + rest}) == 21


def test_what_does_not_fit_is_refused(packs, image_folder, monkeypatch):
    def loader(path="lmdb", batch_size=4, **options):
        return FastLoader(packs[path], batch_size, **{"shuffle": True, "transform": TRAIN, "seed": 7} | options)

    state = _state_after(loader(), 1)
    for options, why in (
        ({"seed": 8}, "seed=7"),
        ({"seed": None}, "seed="),
        ({"shuffle": False}, "shuffle=True"),
        ({"shuffle": None, "sampler": list(range(21))}, "own order"),
    ):
        with pytest.raises(OptionError, match=why):
            loader(**options).load_state_dict(state)
    with pytest.raises(OptionError, match="21 samples, this one has 5"):
        FastLoader(Numbers(5), 4, shuffle=True, seed=7).load_state_dict(state)
    with pytest.raises(OptionError, match="no state of a FastLoader"):
        loader().load_state_dict({"epoch": 1})
    with pytest.raises(OptionError, match="version"):
        loader().load_state_dict(state | {"version": 99})
    _rank(monkeypatch, 0, 3)
    with pytest.raises(OptionError, match="sample 4 of the epoch, which 3 ranks"):
        loader().load_state_dict(state)
    # a sampler of the user's
    mine = FastLoader(packs["lmdb"], 4, sampler=DistributedSampler(range(21), 2, 0), transform=TRAIN)
    state = _state_after(mine, 1)
    other = FastLoader(packs["lmdb"], 4, sampler=DistributedSampler(range(21), 3, 0), transform=TRAIN)
    with pytest.raises(OptionError, match="world size 2, this loader has 3"):
        other.load_state_dict(state)
    other = FastLoader(packs["lmdb"], 2, sampler=DistributedSampler(range(21), 2, 0), transform=TRAIN)
    with pytest.raises(OptionError, match="batch_size 4, this loader has 2"):
        other.load_state_dict(state)
    _rank(monkeypatch, 0, 2)
    plain = FastLoader(ImageFolder(str(image_folder), TRAIN), 4, sampler=list(range(21)))
    state = _state_after(plain, 1)
    _rank(monkeypatch, 0, 1)
    plain = FastLoader(ImageFolder(str(image_folder), TRAIN), 4, sampler=list(range(21)))
    with pytest.raises(OptionError, match="world size 2"):
        plain.load_state_dict(state)


def test_after_the_prefetcher_only_what_was_delivered_counts(packs):
    first = FastLoader(packs["lmdb"], 4, shuffle=True, transform=TRAIN, seed=7, num_workers=2, device="cpu")
    state = _state_after(first, 2)
    assert (state["batches"], state["position"]) == (2, 8)
    assert isinstance(first.sampler, EpochSampler)


class Pictures(Numbers):
    """Numbers as pictures, with labels."""

    def __getitem__(self, i):
        drawn = super().__getitem__(i)[3].mean()
        return torch.full((3, 8, 8), float(i)) * drawn, i % 3


@pytest.mark.parametrize("options", [{"seed": 4}, {}], ids=["seed", "torch"])
def test_the_trainer_goes_on_without_making_batches_again(tmp_path, options):
    def trainer():
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 3))
        chosen = TrainOptions(epochs=2, lr=1e-4, amp="off", channels_last=False)
        return Trainer(model, chosen, device=torch.device("cpu"), batches_per_epoch=6)

    class StopError(Exception):
        pass

    def stop(event):
        if event.step == 9:
            raise StopError

    whole = trainer()
    whole.options = replace(whole.options, report_every=1)
    whole.fit(FastLoader(Pictures(), 4, shuffle=True, **options))
    half = trainer()
    half.options = replace(half.options, report_every=1)
    with pytest.raises(StopError):
        half.fit(FastLoader(Pictures(), 4, shuffle=True, **options), report=stop)
    save_checkpoint(tmp_path / "half.pt", half.state_dict())
    data, resumed = Pictures(), trainer()
    resumed.load_state_dict(load_checkpoint(tmp_path / "half.pt"))
    resumed.fit(FastLoader(data, 4, shuffle=True, **options))
    assert len(data.read) == 21 - 3 * 4
    assert resumed.step == whole.step == 12
    for ours, wanted in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(ours, wanted)
