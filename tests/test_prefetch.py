"""CudaPrefetcher on any machine: nothing lost, types kept, errors in their place. What needs a GPU is elsewhere."""

from __future__ import annotations

import weakref
from collections import OrderedDict, UserDict, defaultdict, deque
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import fastdata
from fastdata import prefetch, streams
from fastdata.device_ops import Normalizer
from fastdata.errors import LoaderError, OptionError
from fastdata.nested import map_tensors, tensors
from fastdata.prefetch import CudaPrefetcher

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


def numbers(batches):
    return [int(batch) for batch in batches]


def source(n):
    return [torch.tensor(number) for number in range(n)]


class Late(streams.PlainStreams):
    """The CPU, asked to work ahead as a GPU does."""

    ahead = True


@pytest.fixture
def ahead(monkeypatch):
    """Let device="cuda" be the CPU with all of its look-ahead, where there is no GPU."""
    monkeypatch.setattr(prefetch, "checked_device", torch.device)
    monkeypatch.setattr(prefetch, "open_streams", lambda _: Late(torch.device("cpu")))
    return "cuda"


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize("n", range(10))
def test_as_many_come_out_as_go_in(n, depth, ahead):  # C121
    for device in ("cpu", ahead):
        prefetcher = CudaPrefetcher(source(n), device, depth=depth)
        assert len(prefetcher) == n
        for _ in range(3):  # C122
            iterator = iter(prefetcher)
            assert numbers(iterator) == list(range(n))
            for _ in range(3):
                with pytest.raises(StopIteration):
                    next(iterator)


@pytest.mark.parametrize("device", DEVICES)
def test_a_look_ahead_around_it_gets_every_epoch_whole(device):  # C095
    def one_ahead(batches):
        iterator = iter(batches)
        following = next(iterator, None)
        while following is not None:
            batch, following = following, next(iterator, None)
            yield batch
        assert next(iterator, None) is None  # once too often

    prefetcher = CudaPrefetcher(source(7), device)
    for _ in range(3):
        assert numbers(one_ahead(prefetcher)) == list(range(7))


class Pair(NamedTuple):
    image: object
    name: str | None


class Named(dict):
    title = "none"


class Wide(tuple):
    __slots__ = ()


@dataclass
class Pinning:
    image: torch.Tensor
    name: str
    made: list = field(default_factory=list, init=False)

    def pin_memory(self):
        return type(self)(self.image.pin_memory(), self.name)


@dataclass(frozen=True, slots=True)
class Frozen:
    image: torch.Tensor
    pair: Pair
    none: None = None


class Own:
    def __init__(self, image):
        self.image, self.note = image, "kept"

    def pin_memory(self):
        return self


def title(batch):
    result = Named(batch)
    result.title = "mine"
    return result


def trees():
    one = torch.arange(3)
    yield one
    yield (one, "text", None, 3, 2.5, b"bytes", np.ones(2))
    yield [one, [one, (one,)]]
    yield Pair(one, None)
    yield Wide((one, "x"))
    yield deque([one, "x"], maxlen=5)
    yield {"a": one, "b": ["text", None]}
    yield OrderedDict(b=one, a=one)
    yield defaultdict(list, a=one)
    yield UserDict(a=one)
    yield MappingProxyType({"a": one})
    yield title({"a": one})
    yield Pinning(one, "text")
    yield Frozen(one, Pair(one, "x"))
    yield Own({"deep": one})
    yield torch.max(torch.ones(2, 2), 0)  # a structseq
    yield torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
    yield (Frozen, int, len)  # types and functions are no batches


def shape_of(tree):
    """Return the tree of types, with the values of what is not a tensor."""
    if isinstance(tree, torch.Tensor):
        return type(tree), tree.dtype, tree.shape
    if isinstance(tree, (dict, UserDict, MappingProxyType)):
        return type(tree), [(key, shape_of(value)) for key, value in tree.items()], getattr(tree, "title", None)
    if isinstance(tree, (tuple, list, deque)):
        return type(tree), [shape_of(value) for value in tree], getattr(tree, "maxlen", None)
    if isinstance(tree, (Pinning, Frozen, Own)):
        names = getattr(tree, "__slots__", None) or vars(tree)
        return type(tree), [(name, shape_of(getattr(tree, name))) for name in names]
    return tree.tolist() if isinstance(tree, np.ndarray) else tree


@pytest.mark.parametrize("device", ["cpu", "meta", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("tree", list(trees()), ids=lambda tree: type(tree).__name__)
def test_types_come_out_as_they_go_in(tree, device):  # C101
    before = shape_of(tree)
    (result,) = CudaPrefetcher([tree], device)
    assert shape_of(result) == before
    found = list(tensors(result))
    assert {tensor.device.type for tensor in found if tensor.ndim and tensor.dtype != torch.int64} <= {device, "cpu"}
    if not isinstance(tree, torch.nn.utils.rnn.PackedSequence):  # its batch_sizes belong on the CPU
        assert all(tensor.device.type == device for tensor in found)
    assert all(tensor.device.type == "cpu" for tensor in tensors(tree)), "the source's batch was written to"
    assert len(found) == len(list(tensors(tree)))


def test_a_defaultdict_keeps_its_factory_and_a_plain_pass_its_objects():
    (result,) = CudaPrefetcher([defaultdict(list, a=torch.ones(1))], "meta")
    assert result["new"] == []
    tree = (torch.ones(1), {"a": [torch.ones(2)]}, Frozen(torch.ones(1), Pair(None, None)))
    assert map_tensors(tree, lambda tensor: tensor) is tree


@pytest.mark.parametrize("device", ["cpu", "meta", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_torchvision_tensors_keep_their_type_and_size(device):
    tv_tensors = pytest.importorskip("torchvision.tv_tensors")
    boxes = tv_tensors.BoundingBoxes(torch.ones(2, 4), format="XYXY", canvas_size=(7, 9))
    ((result, image),) = CudaPrefetcher([(boxes, tv_tensors.Image(torch.ones(3, 2, 2)))], device)
    assert type(result) is tv_tensors.BoundingBoxes
    assert type(image) is tv_tensors.Image
    assert result.canvas_size == (7, 9)
    assert result.device.type == image.device.type == device


@pytest.mark.parametrize("device", DEVICES)
def test_transform_and_values_are_the_same_on_every_device(device):  # C131
    images = torch.randint(0, 256, (4, 3, 8, 8), dtype=torch.uint8)
    batches = [(images + number, torch.arange(4), ["a"] * 4) for number in range(5)]
    steps = Normalizer((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    result = list(CudaPrefetcher(batches, device, steps))
    assert len(result) == 5
    for (before, labels, names), (after, labels_after, names_after) in zip(batches, result, strict=True):
        assert after.device.type == labels_after.device.type == device
        assert torch.allclose(after.cpu(), steps(before), atol=1e-5)
        assert torch.equal(labels_after.cpu(), labels)
        assert names_after == names


def failing(n, error=ValueError):
    class Failing:
        def __iter__(self):
            yield from source(n)
            text = f"after {n}"
            raise error(text)

    return Failing()


def collect(iterator, into):
    for batch in iterator:
        into.append(int(batch))


@pytest.mark.parametrize("n", [0, 1, 2, 5])
@pytest.mark.parametrize("depth", [1, 3])
def test_a_failing_source_fails_after_the_batches_before_it(n, depth, ahead):
    for device in ("cpu", ahead):
        prefetcher = CudaPrefetcher(failing(n), device, depth=depth)
        for _ in range(2):
            iterator, got = iter(prefetcher), []
            with pytest.raises(ValueError, match=f"after {n}"):
                collect(iterator, got)
            assert got == list(range(n))
            assert next(iterator, "end") == "end"


def test_an_interrupt_is_not_kept_back(ahead):
    iterator = iter(CudaPrefetcher(failing(1, KeyboardInterrupt), ahead))
    with pytest.raises(KeyboardInterrupt):
        next(iterator)


def test_a_failing_transform_fails_in_its_place(ahead):
    def transform(batch):
        return ["a", "b", "c"][int(batch)]

    for device in ("cpu", ahead):
        iterator = iter(CudaPrefetcher(source(6), device, transform))
        assert [next(iterator) for _ in range(3)] == ["a", "b", "c"]
        with pytest.raises(IndexError):
            next(iterator)
        assert next(iterator, None) is None


class Watched:
    """An iterable whose generators say when they are closed, and whose batches when they are dead."""

    def __init__(self):
        self.closed, self.alive = 0, weakref.WeakSet()

    def __iter__(self):
        try:
            for number in range(100):
                yield self.batch(number)
        finally:
            self.closed += 1

    def batch(self, number):
        batch = torch.tensor(number)
        self.alive.add(batch)
        return batch


def test_an_early_break_closes_the_source_and_lets_go_of_its_batches(ahead):
    for device in ("cpu", ahead):
        watched = Watched()
        prefetcher = CudaPrefetcher(watched, device)
        for turn in range(1, 4):
            for number, batch in enumerate(prefetcher):
                assert int(batch) == number
                if number == 5:
                    break
            del batch
            assert watched.closed == turn
            assert not watched.alive


def test_a_batch_whose_copy_is_done_goes_back_to_the_source_at_once(ahead):
    for device in ("cpu", ahead):  # here, every copy is done at once; for late ones see test_prefetch_order.py
        watched = Watched()
        for batch in CudaPrefetcher(watched, device, torch.clone, depth=3):
            assert len(watched.alive) == 0
            del batch


def test_two_iterators_do_not_share_batches(ahead):
    for device in ("cpu", ahead):
        prefetcher = CudaPrefetcher(source(5), device)
        assert [(int(a), int(b)) for a, b in zip(prefetcher, prefetcher, strict=True)] == [(n, n) for n in range(5)]


def test_an_iterator_as_source_is_read_once_and_says_so(ahead):
    for device in ("cpu", ahead):
        generator = iter(source(4))
        prefetcher = CudaPrefetcher(generator, device)
        assert numbers(prefetcher) == [0, 1, 2, 3]
        with pytest.raises(LoaderError, match="can be read once"):
            next(iter(prefetcher))


def test_a_generator_of_the_callers_is_not_closed_by_a_break():
    def count():
        yield from source(9)

    generator = count()
    for batch in CudaPrefetcher(generator, "cpu"):
        if int(batch) == 3:
            break
    assert int(next(generator)) == 4


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("device", DEVICES)
def test_a_dataloader_as_source(workers, device):
    data = TensorDataset(torch.arange(20), torch.arange(20) * 2)
    context = "forkserver" if workers else None
    loader = DataLoader(data, 3, num_workers=workers, persistent_workers=workers > 0, multiprocessing_context=context)
    prefetcher = CudaPrefetcher(loader, device)
    assert prefetcher.dataset is data
    assert len(prefetcher) == 7
    for _ in range(2):
        batches = list(prefetcher)
        assert [type(batch) for batch in batches] == [list] * 7
        assert torch.cat([batch[1] for batch in batches]).tolist() == list(range(0, 40, 2))


def test_attributes_are_the_sources_and_length_too():
    class Loader:
        epoch = 0

        def __iter__(self):
            return iter(())

        def set_epoch(self, epoch):
            self.epoch = epoch

    prefetcher = fastdata.CudaPrefetcher(Loader(), "cpu")
    prefetcher.set_epoch(3)
    assert prefetcher.batches.epoch == 3
    with pytest.raises(TypeError, match="len"):
        len(prefetcher)
    assert list(prefetcher) == []
    with pytest.raises(AttributeError):
        prefetcher.nothing  # noqa: B018
    with pytest.raises(AttributeError, match="_private"):
        prefetcher._private  # noqa: B018


def test_wrong_arguments_are_refused():
    with pytest.raises(OptionError, match="depth=0"):
        CudaPrefetcher([], "cpu", depth=0)
    with pytest.raises(OptionError, match="expected 'cpu', 'cuda' or 'cuda:N'"):
        CudaPrefetcher([], "gpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_no_cuda_is_an_error_that_names_the_cpu():
    with pytest.raises(OptionError, match='device="cpu" gives the same values'):
        CudaPrefetcher([], "cuda")


def test_the_named_device_is_used_and_no_other(monkeypatch):  # C125, where there are no two GPUs
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    opened = []

    class Opened(Late):
        def __init__(self, device):
            opened.append(device)
            super().__init__(torch.device("cpu"))

    monkeypatch.setattr(streams, "CudaStreams", Opened)
    for device in ("cuda:1", torch.device("cuda", 1), 1, "cuda"):
        list(CudaPrefetcher(source(3), device))
    assert opened == [torch.device("cuda:1")] * 4
    with pytest.raises(OptionError, match="'cuda:0' to 'cuda:1'"):
        CudaPrefetcher([], "cuda:2")
