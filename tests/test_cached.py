"""fastdata.cached: what a data set gives, once computed, for all workers; nothing else than that."""

from __future__ import annotations

import collections
import gc
import math
import multiprocessing
import os
import pickle
import signal
import threading
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import fastdata
from fastdata.engine.flat_values import Unstorable, flatten, restore
from fastdata.engine.memory import available_memory
from fastdata.engine.shared_arena import HEAD_WORDS, SharedArena, smallest_arena
from fastdata.errors import OptionError

ROOMY = 16 << 20


class Counting(Dataset):
    """Counts, in shared memory, how often each sample is computed."""

    def __init__(self, n=40, make=None):
        self.calls = torch.zeros(n, dtype=torch.int64).share_memory_()
        self.make = make

    def __len__(self):
        return len(self.calls)

    def __getitem__(self, i):
        if not -len(self) <= i < len(self):
            raise IndexError(i)
        self.calls[i] += 1
        return torch.full((3, 8, 8), i % len(self), dtype=torch.uint8), i % len(self), {"name": f"s{i % len(self)}"}


# ---------------------------------------------------------------- values

LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
    | st.complex_numbers(allow_nan=False)
)  # fmt: skip
HASHABLE = st.none() | st.booleans() | st.integers() | st.text() | st.binary()
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(HASHABLE, inner, max_size=4)
    ),
    max_leaves=20,
)


def _round(value):
    return restore(memoryview(b"".join(bytes(part) for part in flatten(value))))


def _typed(value):
    if isinstance(value, (list, tuple)):
        return type(value), [_typed(item) for item in value]
    if isinstance(value, dict):
        return dict, [(_typed(key), _typed(item)) for key, item in value.items()]
    return type(value), value


@settings(max_examples=200, deadline=None)
@given(VALUES)
def test_plain_values_come_back_equal_in_value_type_and_order(value):
    assert _typed(_round(value)) == _typed(value)


ARRAYS = hnp.arrays(
    hnp.scalar_dtypes() | hnp.byte_string_dtypes() | hnp.unicode_string_dtypes(),
    hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
)


@settings(max_examples=200, deadline=None)
@given(ARRAYS, st.booleans())
def test_arrays_come_back_bit_by_bit(array, fortran):
    array = np.asfortranarray(array) if fortran and array.ndim else array
    back = _round(array)
    assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())
    assert back.flags.writeable
    if array.size > 1:
        assert back.flags.f_contiguous == array.flags.f_contiguous
    for scalar in array.reshape(-1)[:1]:
        again = _round(scalar)
        assert type(again) is type(scalar)
        assert np.asarray(again).tobytes() == np.asarray(scalar).tobytes()


TENSORS = [
    torch.arange(24, dtype=torch.uint8).reshape(2, 3, 4),
    torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    torch.randn(3, 4).to(torch.bfloat16),
    torch.randn(3).to(torch.float16),
    torch.randn(3, dtype=torch.complex64),
    torch.tensor([True, False]),
    torch.tensor(3),
    torch.empty(0, 3),
    torch.arange(10)[::3],
    torch.arange(6).reshape(2, 3).T,
    torch.ones(3, 1).expand(3, 4),
    torch.tensor([math.nan, math.inf]),
]


@pytest.mark.parametrize("tensor", TENSORS, ids=lambda t: f"{t.dtype}-{tuple(t.shape)}")
def test_tensors_come_back_with_their_dtype_shape_and_order(tensor):
    back = _round(tensor)
    assert (back.dtype, back.shape) == (tensor.dtype, tensor.shape)
    assert torch.equal(torch.nan_to_num(back.float()) if back.dtype.is_floating_point else back,
                       torch.nan_to_num(tensor.float()) if tensor.dtype.is_floating_point else tensor)  # fmt: skip
    if tensor.ndim == 4:
        assert back.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "CMYK", "I", "F", "I;16", "LA", "YCbCr"])
def test_pictures_come_back(mode):
    rgb = Image.fromarray(np.random.default_rng(0).integers(0, 256, (7, 9, 3), np.uint8))
    image = Image.fromarray(np.arange(63, dtype=np.uint16).reshape(7, 9)) if mode == "I;16" else rgb.convert(mode)
    image.info["note"], image.info["object"] = (1, "x"), object()
    back = _round(image)
    assert (back.mode, back.size, back.tobytes()) == (image.mode, image.size, image.tobytes())
    assert back.info == {"note": (1, "x")}
    if mode == "P":
        assert back.convert("RGB").tobytes() == image.convert("RGB").tobytes()


class Point(NamedTuple):
    x: int
    y: int


def _loop():
    rows = []
    rows.append(rows)
    return rows


@pytest.mark.parametrize(
    "value",
    [
        object(), Point(1, 2), collections.OrderedDict(a=1), {1, 2}, bytearray(b"x"), np.array([None]), _loop(),
        np.zeros(2, [("a", "i4")]), torch.ones(2, requires_grad=True), torch.nn.Parameter(torch.ones(2)), len,
        torch.eye(3).to_sparse(), [1, {"deep": {3}}],
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_has_no_bytes_of_its_own_is_refused(value):
    with pytest.raises(Unstorable):
        flatten(value)


# ---------------------------------------------------------------- the data set


def test_each_sample_is_computed_once():
    plain = Counting()
    data = fastdata.cached(plain, ROOMY)
    assert len(data) == 40
    for _ in range(3):
        for i in [*range(40), -1, np.int64(3), torch.tensor(4)]:
            image, label, extra = data[i]
            assert image.unique().tolist() == [label]
            assert extra == {"name": f"s{label}"}
    assert plain.calls.tolist() == [1] * 40
    info = data.cache_info()
    assert (info.records, info.hits, info.misses, info.full) == (40, 3 * 43 - 40, 40, False)
    with pytest.raises(IndexError):
        data[40]


def test_what_is_given_is_the_callers_own():
    data = fastdata.cached(Counting(), ROOMY)
    for _ in range(3):
        image, _, extra = data[5]
        assert image.unique().tolist() == [5]
        image.zero_()
        extra.clear()


def test_a_data_set_that_gives_its_own_memory_and_changes_it_later():
    class Same(Counting):
        def __init__(self):
            super().__init__(4)
            self.memory = np.zeros(4)

        def __getitem__(self, i):
            self.memory[:] = i
            return self.memory

    data = fastdata.cached(Same(), ROOMY)
    for _ in range(2):
        for i in range(4):
            assert data[i].tolist() == [i] * 4


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_workers_share_it(method, spawnable):
    plain = spawnable.Counting()
    data = fastdata.cached(plain, ROOMY)
    epochs, workers = (3, 2) if method == "fork" else (1, 1)  # a spawned worker imports torch for seconds
    for epoch in range(epochs):
        generator = torch.Generator().manual_seed(epoch)
        loader = DataLoader(
            data, 4, shuffle=True, num_workers=workers, multiprocessing_context=method, generator=generator,
        )  # fmt: skip
        labels = torch.cat([batch[1] for batch in loader])
        assert sorted(labels.tolist()) == list(range(40))
    assert plain.calls.tolist() == [1] * 40
    assert data.cache_info().records == 40
    assert data[7][1] == 7
    assert data.cache_info().hits == 1


def test_a_full_one_passes_on():
    plain = Counting()
    data = fastdata.cached(plain, smallest_arena(40) + 4096)
    for _ in range(3):
        assert [data[i][1] for i in range(40)] == list(range(40))
    info = data.cache_info()
    assert 0 < info.records < 40
    assert info.full
    assert int((plain.calls == 1).sum()) == info.records
    with pytest.raises(OptionError, match="at least"):
        fastdata.cached(plain, 100)


def test_a_large_sample_does_not_stop_the_small_ones():
    class Mixed(Counting):
        def __getitem__(self, i):
            return super().__getitem__(i) if i else torch.zeros(ROOMY, dtype=torch.uint8)

    data = fastdata.cached(Mixed(), ROOMY // 4)
    for i in range(40):
        data[i]
    info = data.cache_info()
    assert (info.records, info.large, info.full) == (39, 1, False)
    assert len(data[0]) == ROOMY


def test_samples_of_other_types_pass_through_and_are_counted():
    class Objects(Counting):
        def __getitem__(self, i):
            sample = super().__getitem__(i)
            return sample if i % 2 else Point(*sample[:2])

    data = fastdata.cached(Objects(10), ROOMY)
    for _ in range(2):
        assert [type(data[i]) for i in range(10)] == [Point, tuple] * 5
    info = data.cache_info()
    assert (info.records, info.unstorable) == (5, 10)


def test_errors_of_the_data_set_are_its_own_every_time():
    class Broken(Counting):
        def __getitem__(self, i):
            if i == 3:
                raise KeyError(i)
            return super().__getitem__(i)

    data = fastdata.cached(Broken(), ROOMY)
    for _ in range(2):
        with pytest.raises(KeyError):
            data[3]
    assert data[2][1] == 2


def test_what_is_no_map_style_data_set_is_refused():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(())

    for wrong in (Stream(), iter([1]), 3):
        with pytest.raises(OptionError, match="map-style"):
            fastdata.cached(wrong)


# ---------------------------------------------------------------- transforms


def test_random_steps_run_after_the_cache(image_folder, packs):
    transform = T.Compose([T.RandomCrop(20), T.PILToTensor()])
    for plain in (ImageFolder(str(image_folder), transform), fastdata.PackedDataset(packs["lmdb"], transform)):
        data = fastdata.cached(plain, ROOMY)
        for epoch in range(3):
            torch.manual_seed(epoch)
            wanted = [plain[i] for i in range(21)]
            torch.manual_seed(epoch)
            for i in range(21):
                image, label = data[i]
                assert torch.equal(image, wanted[i][0])
                assert label == wanted[i][1]
        assert data.cache_info().records == 21
        assert data.classes == plain.classes
        plain.transform = T.PILToTensor()  # seen at once
        assert torch.equal(data[3][0], plain[3][0])


def test_a_transform_that_cannot_be_moved_is_asked_about():
    plain = Counting()
    plain.transform = T.RandomCrop(4)
    with pytest.raises(OptionError, match="frozen=True"):
        fastdata.cached(plain, ROOMY)
    assert fastdata.cached(plain, ROOMY, frozen=True)[3][1] == 3
    del plain.transform
    data = fastdata.cached(plain, ROOMY, transform=T.RandomCrop(4), target_transform=str)
    image, label, _ = data[3]
    assert (image.shape, label) == ((3, 4, 4), "3")


# ---------------------------------------------------------------- the memory under it


def test_concurrent_writers_never_show_wrong_bytes():  # noqa: C901  one story: writers, readers, what is left
    arena = SharedArena.make(400, 6 << 20)
    wrong = []

    def body(number):
        return np.full(100 + 37 * number, number % 251, np.uint8)

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(60):
            numbers = rng.choice(400, 16, replace=False)
            places = arena.find(numbers)
            for place, number in zip(places.tolist(), numbers.tolist(), strict=True):
                if place:
                    length = int(arena.heads(np.array([place]))[0, 0])
                    if not np.array_equal(arena.data[place + 64 : place + 64 + length], body(number)):
                        wrong.append(number)
            new = numbers[places == 0].tolist()
            heads = np.zeros((len(new), HEAD_WORDS), np.int64)
            bodies = [body(number) for number in new]
            heads[:, 0] = [len(data) for data in bodies]
            arena.put(new, heads, [(data,) for data in bodies])

    context = multiprocessing.get_context("fork")
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    children = [context.Process(target=work, args=(seed,)) for seed in (3, 4)]
    for child in children:
        child.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for child in children:
        child.join()
        assert child.exitcode == 0
    work(5)
    assert not wrong
    state = arena.state
    places = arena.find(np.arange(400))
    assert int((places > 0).sum()) == state.records > 300
    lengths = arena.heads(places[places > 0])[:, 0]
    order = np.argsort(places[places > 0])
    starts = places[places > 0][order]
    assert (starts[1:] >= starts[:-1] + 64 + lengths[order][:-1]).all()  # no two records overlap


def _stop_in_the_lock(arena, ready):
    with arena._lock.held():
        ready.set()
        signal.pause()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_writer_that_dies_or_stops_in_the_lock_holds_nobody_up(how):
    arena = SharedArena.make(4, 1 << 20)
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    child = context.Process(target=_stop_in_the_lock, args=(arena, ready))
    child.start()
    assert ready.wait(10)
    os.kill(child.pid, how)
    if how == signal.SIGKILL:
        child.join()
    heads = np.zeros((1, HEAD_WORDS), np.int64)
    heads[0, 0] = 3
    arena.put([2], heads, [(b"abc",)])
    assert arena.full == (how == signal.SIGSTOP)  # it gives up taking more, after a second
    assert bool(arena.find(np.array([2]))[0]) == (how == signal.SIGKILL)
    child.kill()
    child.join()


def test_memory_is_freed_with_the_last_user():
    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    gc.collect()
    before = descriptors()
    data = fastdata.cached(Counting(), ROOMY)
    again = pickle.loads(pickle.dumps(data))
    assert data[3][1] == again[3][1] == 3
    assert again.cache_info().records == 1
    del data, again
    gc.collect()
    assert descriptors() <= before + 1  # the counters of Counting, torch's own shared memory
    with SharedArenaOfOther() as path, pytest.raises(OptionError, match="not a cache"):
        SharedArena(path)


class SharedArenaOfOther:
    """Memory that is nobody's cache."""

    def __enter__(self):
        self.descriptor = os.memfd_create("other")
        os.ftruncate(self.descriptor, 8192)
        return self.descriptor

    def __exit__(self, *_):
        os.close(self.descriptor)


def test_available_memory_is_cut_by_the_container(tmp_path):
    machine = available_memory()
    assert machine > 0
    (tmp_path / "memory.max").write_text("3000000\n")
    (tmp_path / "memory.current").write_text("1000000\n")
    assert available_memory(cgroup=str(tmp_path)) == 2_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory(cgroup=str(tmp_path)) > 2_000_000
    assert available_memory(meminfo=str(tmp_path / "none")) == 0
