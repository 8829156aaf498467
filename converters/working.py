"""Who does the work of packing, and what becomes of it where a worker dies or an earlier run has done it already."""

from __future__ import annotations

from collections import deque
from concurrent.futures import BrokenExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from fastdata.converters.pool import WorkerDiedError, WorkerPool
from fastdata.converters.report import Skipped
from fastdata.converters.restarts import check_restarts
from fastdata.converters.work import Packed, pack_rows
from fastdata.engine.cores import usable_cores
from fastdata.errors import PackError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Executor, Future

    from fastdata.converters.options import PackOptions
    from fastdata.converters.sources import Row
    from fastdata.converters.spool import Spool

__all__ = ["Ending", "Pace", "Work", "pace_of", "packed_rows", "results_of"]

_LEAST, _MOST = 2, 8  # rows of one task
_TASKS = 16  # of each worker at least, before they grow: so that workers end together
_SMALL = 1 << 19  # pixels up to which results are small enough for many to wait


def packed_rows(rows: Sequence[Row], options: PackOptions, total: int) -> Iterator[Packed | Skipped]:
    """Yield what becomes of rows, in order, by as many workers as the options say."""
    check_restarts(options)
    workers = min(options.workers or usable_cores(), max(1, total))
    with ExitStack() as stack:
        pool = stack.enter_context(Ending(WorkerPool(workers, options.worker_timeout))) if workers > 1 else None
        yield from results_of(iter(rows), Work(pool, options, None), pace_of(options, workers, total))


@dataclass(frozen=True, slots=True)
class Pace:
    """How many rows a task has, and how many images may be between being read and being written."""

    rows: int
    in_flight: int


def pace_of(options: PackOptions, workers: int, total: int) -> Pace:
    """Return tasks of 2 images, or of up to 8 where all become small and there are many: each task has its price.

    The one process that hands them out and writes takes 405 microseconds an image with tasks of 2 and 262 with tasks of
    8 (two workers, photographs to 256, a busy machine). Two tasks a worker are in flight: one at work, one waiting.
    """
    box = options.box
    # With resume, what a stop costs shall stay small.
    small = box is not None and box[0] * box[1] <= _SMALL and not options.resume
    rows = min(max(total // (workers * _TASKS), _LEAST), _MOST) if small else _LEAST
    return Pace(rows, workers * 2 * rows)


class Ending:
    """Ends a pool of ours: after its work where all went well, at once where not."""

    def __init__(self, pool: WorkerPool) -> None:
        """Take over a pool."""
        self._pool = pool

    def __enter__(self) -> WorkerPool:
        return self._pool

    def __exit__(self, kind: object, *_: object) -> None:
        self._pool.shutdown(cancel_futures=kind is not None)


def results_of(rows: Iterator[Row], work: Work, pace: Pace) -> Iterator[Packed | Skipped]:
    """Yield what became of each sample, in order; at most ``pace.in_flight`` images exist at a time."""
    waiting: deque[_Pending] = deque()
    try:
        while some := list(islice(rows, pace.rows)):
            waiting.append(work.begin(some))
            if work.executor is None or len(waiting) * pace.rows >= pace.in_flight:
                yield from waiting.popleft().results()
        while waiting:
            yield from waiting.popleft().results()
    finally:
        for pending in waiting:
            pending.cancel()


@dataclass(frozen=True, slots=True)
class Work:
    """Who packs (None: this process), how, and what an earlier run has finished."""

    executor: Executor | None
    options: PackOptions
    spool: Spool | None

    def begin(self, rows: list[Row]) -> _Pending:
        """Start the work on rows that nobody has finished yet."""
        known = [None if self.spool is None else self.spool.take(row) for row in rows]
        missing = [row for row, packed in zip(rows, known, strict=True) if packed is None]
        future = self.submit(missing) if missing and self.executor is not None else None
        return _Pending(self, known, missing, future)

    def submit(self, rows: list[Row]) -> Future[list[Packed | Skipped]]:
        """Give rows to the executor; raise PackError where it is broken."""
        assert self.executor is not None
        try:
            return self.executor.submit(pack_rows, rows, self.options)
        except BrokenExecutor as error:
            raise _crash(error, rows) from error


@dataclass(frozen=True, slots=True)
class _Pending:
    """Rows at work: those that are known already, and a future of the others (None: they are packed when asked for)."""

    work: Work
    known: list[Packed | None]
    missing: list[Row]
    future: Future[list[Packed | Skipped]] | None

    def results(self) -> Iterator[Packed | Skipped]:
        """Yield what became of the rows, in order."""
        made = iter(self._made() if self.missing else ())
        for packed in self.known:
            yield packed if packed is not None else next(made)

    def cancel(self) -> None:
        """Let it be, where it has not begun."""
        if self.future is not None:
            self.future.cancel()

    def _made(self) -> list[Packed | Skipped]:
        if self.future is None:
            made = pack_rows(self.missing, self.work.options)
        else:
            made = _answer(self.future, self.missing, self.work)
        if self.work.spool is not None:
            for row, result in zip(self.missing, made, strict=True):
                if isinstance(result, Packed):
                    self.work.spool.keep(row, result)
        return made


def _answer(future: Future[list[Packed | Skipped]], rows: list[Row], work: Work) -> list[Packed | Skipped]:
    try:
        return future.result()
    except WorkerDiedError:
        return [_alone(row, work) for row in rows]
    except BrokenExecutor as error:
        raise _crash(error, rows) from error


def _alone(row: Row, work: Work) -> Packed | Skipped:
    """Pack one row of a range whose worker died: a killed worker costs nothing, a file that kills costs itself."""
    try:
        return work.submit([row]).result()[0]
    except WorkerDiedError as error:
        return Skipped(row.values[0].path, row.key, f"{type(error).__name__}: {error}, twice; this file is the cause")


def _crash(error: BrokenExecutor, rows: list[Row]) -> PackError:
    names = ", ".join(row.values[0].path for row in rows)
    return PackError(
        f"{error}; it was at work on or near {names}. A file that crashes its decoder, or too little memory, does "
        "that: try again with workers=1 (--workers 1) to see which, and leave that file out"
    )
