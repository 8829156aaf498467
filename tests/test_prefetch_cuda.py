"""CudaPrefetcher on a real device: what only a GPU can show. Skipped where there is none."""

from __future__ import annotations

import importlib
import random
import weakref

import pytest
import torch

from fastdata.device_ops import Normalizer
from fastdata.errors import LoaderError
from fastdata.prefetch import CudaPrefetcher
from fastdata.streams import open_streams

pytestmark = pytest.mark.cuda

SIZE = 1 << 18  # bytes of a batch
SLEEP = 300_000  # clock cycles of torch.cuda._sleep: some 0.2 ms, several copies' worth


class Ring:
    """Pinned slots, each overwritten with the next batch as soon as its tensor is dead, as a loader's engine does."""

    def __init__(self, steps, *, pinned=True):
        self.steps, self.pinned, self.free, self.made = steps, pinned, [], 0
        self.base = torch.randint(0, 256, (2 * SIZE,), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return self.steps

    def content(self, step):
        start = step * 7919 % SIZE
        return self.base[start : start + SIZE]

    def __iter__(self):
        for step in range(self.steps):
            yield self.batch(step), step

    def batch(self, step):
        if self.free:
            slot = self.free.pop()
        else:
            slot, self.made = torch.empty(SIZE, dtype=torch.uint8, pin_memory=self.pinned), self.made + 1
        tensor = slot.view(64, -1)
        tensor.copy_(self.content(step).view(64, -1))
        weakref.finalize(tensor, self.free.append, slot).atexit = False
        return tensor


def weights(device):
    return torch.arange(1, SIZE + 1, dtype=torch.int64, device=device).view(64, -1)


def checksum(batch, by):
    return (batch.to(torch.int64) * by).sum()  # integers: the same on every device, in every order


def press(rng, kept):
    """Allocate and let go of memory of many sizes, filled with rubbish: the allocator has reason to give it away."""
    kept.append(torch.full((rng.choice([SIZE, SIZE // 2, SIZE * 3, 1000]),), 255, dtype=torch.uint8, device="cuda"))
    while len(kept) > 6:
        kept.pop(rng.randrange(len(kept)))


@pytest.mark.parametrize("pinned", [True, False], ids=["pinned", "pageable"])
def test_2000_steps_under_pressure_give_the_cpus_checksums(pinned):  # C119
    steps, rng, kept, kept_aside = 2000, random.Random(0), [], []
    ring, by = Ring(steps, pinned=pinned), weights("cuda")
    sums = torch.zeros(steps, dtype=torch.int64, device="cuda")
    torch.cuda.synchronize()  # by and sums are there for every stream

    def transform(batch):
        images, step = batch
        press(rng, kept_aside)  # in the side stream's own pool
        if rng.random() < 0.3:
            torch.cuda._sleep(SLEEP)
        result = images + 0  # reads what was copied, late
        del images
        return result, step

    streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
    iterator, count = iter(CudaPrefetcher(ring, "cuda", transform)), 0
    while True:
        with torch.cuda.stream(streams[rng.random() < 0.2]):
            images, step = next(iterator, (None, None))
            if images is None:
                break
            assert step == count
            count += 1
            if rng.random() < 0.2:
                torch.cuda._sleep(SLEEP)
            sums[step] = checksum(images, by)
            press(rng, kept)
            del images
        if count % 250 == 0:
            torch.cuda.empty_cache()
    torch.cuda.synchronize()
    assert count == steps
    by = weights("cpu")
    expected = torch.stack([checksum(ring.content(step).view(64, -1), by) for step in range(steps)])
    assert torch.equal(sums.cpu(), expected)
    assert ring.made <= 4, "a source's batch was held longer than its copy"


def test_a_slot_is_not_given_back_before_its_copy_is_done():
    ring, streams = Ring(20), open_streams("cuda")
    for images, step in CudaPrefetcher(ring, "cuda", streams=streams):
        with torch.cuda.stream(streams.side):
            torch.cuda._sleep(SLEEP * 20)  # the next copies stand behind this
        assert torch.equal(images.cpu().view(-1), ring.content(step))


def test_an_early_break_waits_for_what_is_being_copied():
    ring, streams = Ring(20), open_streams("cuda")
    for _ in range(3):
        for _images, step in CudaPrefetcher(ring, "cuda", streams=streams):
            with torch.cuda.stream(streams.side):
                torch.cuda._sleep(SLEEP * 20)
            if step == 4:
                break
        assert len(ring.free) == ring.made <= 4


def test_memory_does_not_grow_from_epoch_to_epoch():
    ring, steps = Ring(30), Normalizer((0.5,), (0.5,), torch.float16)

    class Images:
        def __iter__(self):
            return (images.view(1, 1, 512, 512) for images, _ in ring)

    prefetcher, reserved = CudaPrefetcher(Images(), "cuda", steps), []
    for _ in range(5):
        for images in prefetcher:
            assert images.dtype == torch.float16
        del images
        torch.cuda.synchronize()
        reserved.append(torch.cuda.memory_reserved())
    assert reserved[-1] <= reserved[0] + (48 << 20)  # all batches of five epochs together have 112 MiB
    assert ring.made <= 4


def test_the_second_device_and_nothing_on_the_first():  # C125
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated(0)
    steps = Normalizer((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    images = torch.randint(0, 256, (4, 3, 64, 64), dtype=torch.uint8)
    for batch, labels in CudaPrefetcher([(images, torch.arange(4))] * 5, "cuda:1", steps):
        assert batch.device == labels.device == torch.device("cuda:1")
        assert torch.allclose(batch.cpu(), steps(images), atol=1e-5)
    assert {device.index for device in steps._constants if device.type == "cuda"} == {1}
    assert torch.cuda.memory_allocated(0) == before
    assert torch.cuda.current_device() == 0


def test_a_graph_is_captured_twenty_times_while_batches_are_loaded():  # C128
    ring = Ring(60)
    static, eager_equal = torch.zeros(64, SIZE // 64, dtype=torch.uint8, device="cuda"), []
    captured = 0
    for images, step in CudaPrefetcher(ring, "cuda"):
        if step % 3 == 0:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                output = static.to(torch.float32).mul(2).sum(1)
            captured += 1
        static.copy_(images)
        graph.replay()
        eager_equal.append(torch.equal(output, images.to(torch.float32).mul(2).sum(1)))
    assert captured == 20
    assert len(eager_equal) == 60
    assert all(eager_equal)


def test_next_inside_a_capture_says_so_and_loses_nothing():  # C128
    static = torch.zeros(4, device="cuda")
    iterator = iter(CudaPrefetcher([torch.tensor(n) for n in range(5)], "cuda"))

    def capture():
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            static.add_(1)
            next(iterator)

    assert int(next(iterator)) == 0
    with pytest.raises(LoaderError, match="a CUDA graph is being captured"):
        capture()
    assert [int(batch) for batch in iterator] == [1, 2, 3, 4]


ASKS = """
import torch

class Asks(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.cuda.is_initialized()
"""


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_workers_of_the_source_never_touch_cuda(context, tmp_path, monkeypatch):  # C127
    (tmp_path / "asks_cuda.py").write_text(ASKS)
    monkeypatch.syspath_prepend(tmp_path)  # where the workers find it
    data = importlib.import_module("asks_cuda").Asks()
    loader = torch.utils.data.DataLoader(data, 2, num_workers=2, multiprocessing_context=context)
    batches = list(CudaPrefetcher(loader, "cuda"))
    assert torch.cuda.is_initialized()
    assert len(batches) == 4
    assert not any(bool(batch.any()) for batch in batches)
