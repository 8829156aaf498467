"""What worker processes see and give: an index that no process copies, batches that are the user's to keep."""

from __future__ import annotations

import gc
import multiprocessing
import time
from multiprocessing import connection, util

import numpy as np
import pytest
import torch
from torchvision import transforms as T

from fastdata.converters.writers import WriterOptions, open_writer
from fastdata.engine.workers import FromWorkers, SharedCollate, own_small
from fastdata.loader import FastLoader
from fastdata.stores.opener import open_store
from fastdata.types import Field, Record

TO_TENSOR = T.PILToTensor()


def _plainly(image):
    return TO_TENSOR(image)


def _pss(process):
    with open(f"/proc/{process}/smaps_rollup") as file:
        return sum(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))


@pytest.mark.slow
def test_workers_copy_no_index(tmp_path):  # C104, its full size is in benchmarks/loader_costs.py
    path, n, workers = tmp_path / "many.lmdb", 300_000, 2
    writer = open_writer(path, WriterOptions(samples=n))
    for i in range(n):
        writer.write(
            Record(f"n{i % 1000:08d}/n{i % 1000:08d}_{i}", (Field("image", "raw", b"12345678" * 24),), i, 8, 8)
        )
    writer.finish({})
    index = open_store(path).index
    columns = [index.width, index.height, index.label, index.keys.offset, index.keys.blob]
    columns += [getattr(index.fields["image"], name) for name in ("part", "offset", "length", "codec")]
    size = sum(np.asarray(column).nbytes for column in columns)
    assert size > 15e6
    loader = FastLoader(path, 256, shuffle=True, num_workers=workers, transform=_plainly)
    assert "worker processes" in loader.explain()
    iterator = iter(loader)
    for _ in range(20):
        next(iterator)
    everybody = ["self", *(child.pid for child in multiprocessing.active_children())]
    before = sum(map(_pss, everybody))
    for _ in range(150):
        next(iterator)
    # A copy in each worker would be all of it; what the workers copy of the tests' own objects is some megabytes.
    assert sum(map(_pss, everybody)) - before <= 0.5 * size * workers


def test_small_tensors_become_the_users_own():
    small, large = torch.arange(10).share_memory_(), torch.zeros(100_000).share_memory_()
    plain = torch.ones(3)
    batch = own_small([small, {"large": large}, plain, "text"])
    assert batch[0].tolist() == list(range(10))
    assert not batch[0].is_shared()
    assert batch[1]["large"] is large
    assert batch[2] is plain


def test_a_workers_batch_is_shared_when_it_is_made():
    made = torch.zeros(10)
    assert SharedCollate(lambda rows: (made, rows))([1, 2]) == (made, [1, 2])
    assert made.is_shared()


class _Odd(torch.utils.data.Dataset):
    def __len__(self):
        return 100

    def __getitem__(self, i):
        if i == 2:
            raise LookupError(i)
        return i


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_of_an_iterator_that_the_garbage_collector_finds_are_told_to_end(tmp_path, persistent):  # C110
    def init(worker):  # DataLoader waits 5 s for each and ends it by a signal: then this is not called
        util.Finalize(None, (tmp_path / str(worker)).touch, exitpriority=0)

    loader = FastLoader(_Odd(), 2, num_workers=2, persistent_workers=persistent, worker_init_fn=init)
    batches = iter(loader)
    assert next(batches).tolist() == [0, 1]
    with pytest.raises(LookupError):
        next(batches)
    cycle = [loader, batches]
    cycle.append(cycle)
    del loader, batches, cycle
    gc.collect()
    assert {path.name for path in tmp_path.iterdir()} == {"0", "1"}


class _Breaks:
    """Stands for DataLoader's iterator at the moment in which a worker's pipe is closed and its process is not over."""

    def __init__(self, error, *workers):
        self.error, self._workers, self._workers_status = error, workers, [True, True, False]

    def __next__(self):
        raise self.error


@pytest.mark.parametrize("error", [ConnectionResetError(104, "reset by peer"), EOFError(), BrokenPipeError()])
def test_a_broken_pipe_names_the_worker_that_is_about_to_end(error):  # C109
    context = multiprocessing.get_context("spawn")
    lasting = context.Process(target=time.sleep, args=(60,))
    # All that it has open is closed half a second before it ends.
    ending = context.Process(target=exec, args=("import os, time; os.closerange(3, 256); time.sleep(0.5)", {}))
    over = context.Process(target=int)
    try:
        for process in (lasting, ending, over):
            process.start()
        over.join()
        assert connection.wait([ending.sentinel], 60)
        with pytest.raises(RuntimeError, match=rf"worker \(pid\(s\) {ending.pid}\) exited unexpectedly") as caught:
            next(FromWorkers(_Breaks(error, lasting, ending, over)))
        assert caught.value.__cause__ is error
    finally:
        lasting.kill()
        for process in (lasting, ending):
            process.join()


def test_an_error_of_a_sample_is_not_the_pipes():
    error = ConnectionResetError("Caught ConnectionResetError in DataLoader worker process 0. ...")
    broken = _Breaks(error)
    del broken._workers  # nobody waits for their end
    with pytest.raises(ConnectionResetError, match="Caught"):
        next(FromWorkers(broken))
