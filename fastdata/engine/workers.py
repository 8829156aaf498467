"""What DataLoader's own workers see of a data set, and what is known of the batches that they give."""

from __future__ import annotations

import multiprocessing
import os
import time
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import IterableDataset

from fastdata.engine.batches import BatchInfo, Keys
from fastdata.engine.bucket_sizes import BucketDataset
from fastdata.engine.guarded import GuardedCollate, GuardedDataset
from fastdata.engine.over import Over
from fastdata.engine.seeded import SeededCollate, SeededDataset, UsersDatasetInit
from fastdata.errors import LoaderError
from fastdata.nested import map_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fastdata.engine.guarded import Unguarded
    from fastdata.engine.resume import Progress
    from fastdata.engine.source import Keyed

__all__ = [
    "FromWorkers",
    "SharedCollate",
    "drawn_info",
    "ending_at_once",
    "own_small",
    "seen_by_workers",
    "taken_valid",
]

_ENDING = 5.0  # seconds; between a process's last closed pipe and its end lie milliseconds on an idle machine
_SMALL = 1 << 16  # bytes; copying that much takes a few microseconds


def seen_by_workers(  # noqa: PLR0913  what a worker sees depends on all of them
    dataset: Any,  # noqa: ANN401
    collate_fn: Callable[[Any], Any],
    worker_init_fn: Callable[[int], None] | None,
    *,
    seeded: bool,
    on_error: str,
    one: bool,
    shares: bool,
) -> dict[str, Any]:
    """Return which attributes of the DataLoader are others for its workers, and what they are there.

    An IterableDataset stays as it is. seeded: indices come as (index, seed). on_error: other than "raise", what workers
    give is for an Unguarded. one: samples come one by one, unbatched. shares: there are worker processes.
    """
    changes: dict[str, Any] = {"dataset": dataset} if isinstance(dataset, BucketDataset) else {}
    if shares:
        collate_fn = changes["collate_fn"] = SharedCollate(collate_fn)
        changes["worker_init_fn"] = OrphansEnd(worker_init_fn)
    if isinstance(dataset, IterableDataset):
        return changes
    if on_error != "raise":
        dataset = GuardedDataset(dataset)
        collate_fn = GuardedCollate(collate_fn, dataset, replace=on_error == "replace", one=one)
        changes |= {"dataset": dataset, "collate_fn": collate_fn}
    if seeded:
        changes |= {"dataset": SeededDataset(dataset), "collate_fn": SeededCollate(collate_fn)}
    if "dataset" in changes:
        changes["worker_init_fn"] = UsersDatasetInit(changes.get("worker_init_fn", worker_init_fn))
    return changes


class SharedCollate:
    """The user's collate_fn in a worker process: what it returns is put into shared memory there and then.

    DataLoader does that in a thread of the worker's, whose failure (no room in /dev/shm) nobody hears of: the parent
    would wait for ever. Here it is the batch's failure.
    """

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        """Remember the user's function."""
        self._collate = collate

    def __call__(self, samples: Any) -> Any:  # noqa: ANN401
        """Return the batch."""
        batch = self._collate(samples)
        try:
            return map_tensors(batch, _shared)
        except RuntimeError as error:
            msg = (
                f"a batch found no room in shared memory ({error}): give /dev/shm more (docker run --shm-size=8g), or "
                "take fewer workers, smaller batches or prefetch_factor=1"
            )
            raise LoaderError(msg) from error


class OrphansEnd:
    """A worker_init_fn after which a worker ends whose parent was killed meanwhile.

    DataLoader's workers look whether their parent is still the one that it was when they began to wait for work: one
    that was killed while they started they would not miss, and wait for ever.
    """

    def __init__(self, init: Callable[[int], None] | None) -> None:
        """Remember the user's function."""
        self._init = init

    def __call__(self, worker: int) -> None:
        """Call the user's function, and look."""
        if self._init is not None:
            self._init(worker)
        parent, here = multiprocessing.parent_process(), multiprocessing.current_process()
        if parent is None:
            return
        # A fork server is the parent of its processes. Of a fork, siblings may hold the pipe that tells of the parent.
        served = type(here).__name__ == "ForkServerProcess"
        if not (parent.is_alive() if served else os.getppid() == parent.pid):
            os._exit(1)


class FromWorkers(Over):
    """DataLoader's batches from worker processes; where the pipe to a worker breaks, the error names the worker.

    A process that is killed closes its pipes before it counts as ended. DataLoader, where it looks in between, raises
    what the pipe said ("Connection reset by peer") and nothing more.
    """

    def __next__(self) -> Any:  # noqa: ANN401  a batch is of any type
        """Return the next batch; raise RuntimeError, in DataLoader's words, where a worker has ended."""
        try:
            return next(self._batches)
        except (OSError, EOFError) as error:
            if "in DataLoader worker process" in str(error):  # the data set's own, which was sent here
                raise
            ended = self._ended()
            if not ended:
                raise
            msg = f"DataLoader worker (pid(s) {', '.join(map(str, ended))}) exited unexpectedly"
            raise RuntimeError(msg) from error

    def _ended(self) -> list[int]:
        """Return the processes of those workers that ended before their time, waiting for the first a little.

        A worker's sentinel is a pipe, too, and says no more than the one that broke.
        """
        batches: Any = self._batches
        workers = [worker for worker, due in zip(batches._workers, batches._workers_status, strict=True) if due]  # noqa: SLF001
        until = time.monotonic() + _ENDING
        while not (ended := [worker.pid for worker in workers if not worker.is_alive()]) and time.monotonic() < until:
            time.sleep(0.01)
        return ended


def ending_at_once(batches: Any) -> Any:  # noqa: ANN401  DataLoader's iterator
    """Return DataLoader's iterator over worker processes, which end at once where it dies in a cycle of references.

    Such a cycle is what an error makes, with the traceback that DataLoader gives it. The garbage collector would close
    the queues first, which carry the word to end, and DataLoader would wait 5 seconds for each worker.
    """
    kept = batches._index_queues, batches._worker_result_queue, batches._workers  # noqa: SLF001
    weakref.finalize(batches, _let_go, kept).atexit = False
    return batches


def _let_go(_: object) -> None:
    """Do nothing: what a finaliser was given is no garbage before it was called."""


def drawn_info(progress: Progress, keyed: Keyed, guard: Unguarded | None) -> BatchInfo:
    """Return what is known of the workers' next batch: what was asked for, less what failed."""
    indices, valid = progress.drawn.popleft()
    valid = np.ones(len(indices), bool) if valid is None else valid
    if guard is not None:
        indices, valid = guard.delivered(indices, valid)
    return BatchInfo(indices, valid, Keys(keyed, indices))


def taken_valid(progress: Progress, guard: Unguarded | None, batch: int) -> NDArray[np.bool_] | None:
    """Return which samples count of the batch that was taken from the workers last, by its number; None: all."""
    indices, valid = progress.drawn_as(batch)
    if guard is None:
        return valid
    return guard.taken(indices, np.ones(len(indices), bool) if valid is None else valid)[1]


def own_small(batch: Any) -> Any:  # noqa: ANN401  a batch is of any type
    """Return the batch with small tensors in memory of their own.

    One that came from a worker lies in shared memory, which is an open file as long as it is kept: a list of the labels
    of a thousand batches would be a thousand open files.
    """
    return map_tensors(batch, _own)


def _shared(leaf: Any) -> Any:  # noqa: ANN401
    if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and leaf.device.type == "cpu":
        leaf.share_memory_()  # type: ignore[no-untyped-call]
    return leaf


def _own(leaf: Any) -> Any:  # noqa: ANN401
    if type(leaf) is not torch.Tensor or leaf.layout is not torch.strided or leaf.device.type != "cpu":
        return leaf
    shared: bool = leaf.is_shared()  # type: ignore[no-untyped-call]
    return leaf.clone() if shared and leaf.nbytes <= _SMALL else leaf
