"""The pump: runs jobs in threads ahead of their consumer and hands the results out in order."""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING, Generic, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor, Future

from fastdata.errors import LoaderError

__all__ = ["Pump"]

_CLOSED = "the loader was closed in the middle of this epoch: begin another one, by iter(loader)"

J = TypeVar("J")
R = TypeVar("R")


class Pump(Generic[J, R]):
    """An iterator over ``run(job)`` for each job, in order, at most ``ahead`` of them started but not handed out.

    Jobs are drawn in the consumer's thread (samplers are not thread-safe). Without an executor each job runs when it is
    asked for. An exception of a job is raised where its result would have come, and DataLoader's RuntimeError where it
    does not come in ``timeout`` seconds; the jobs behind it go on. close drops what is not started and may be called
    twice; dropping the pump closes it. A forked child has no use for its parent's pump, whose threads it lacks: it gets
    a LoaderError instead of waiting for ever, and so does who goes on when the executor was shut down.
    """

    def __init__(
        self,
        jobs: Iterator[J],
        run: Callable[[J], R],
        *,
        executor: Executor | None = None,
        ahead: int = 0,
        timeout: float = 0,
    ) -> None:
        """Start the first ``ahead`` jobs. timeout: seconds to wait for a result, 0 for ever."""
        self._jobs, self._run, self._executor, self._ahead = jobs, run, executor, ahead
        self._timeout = timeout
        self._pending: deque[Future[R]] = deque()
        self._owner = os.getpid()
        self._fill()

    def __iter__(self) -> Self:
        """Return the pump."""
        return self

    def __next__(self) -> R:
        """Return the next result; raise what its job raised."""
        if self._executor is None:
            return self._run(next(self._jobs))
        if self._owner != os.getpid():
            msg = f"this iterator was begun in process {self._owner}, before the fork: begin one here, by iter(loader)"
            raise LoaderError(msg)
        self._fill()
        if not self._pending:
            raise StopIteration
        future = self._pending.popleft()
        try:
            result = future.result(self._timeout or None)
        except BaseException as error:
            if isinstance(error, TimeoutError) and not future.done():
                future.cancel()
                msg = f"DataLoader timed out after {self._timeout} seconds"
                raise RuntimeError(msg) from None
            if future.cancelled():
                raise LoaderError(_CLOSED) from error
            future.cancel()  # Ctrl-C while waiting: nobody will ask for it again
            raise
        self._fill()  # the slot that the consumer just gave back is at work before the consumer is
        return result

    def close(self) -> None:
        """Drop the jobs that are not started."""
        self._jobs = iter(())
        if self._owner != os.getpid():
            return  # a lock in there may have been held at the fork, and is for ever
        while self._pending:
            self._pending.pop().cancel()

    def __del__(self) -> None:
        """Close."""
        if hasattr(self, "_pending"):
            self.close()

    def _fill(self) -> None:
        while self._executor is not None and len(self._pending) < self._ahead:
            try:
                job = next(self._jobs)
            except StopIteration:
                return
            try:
                self._pending.append(self._executor.submit(self._run, job))
            except RuntimeError as error:
                raise LoaderError(_CLOSED) from error
