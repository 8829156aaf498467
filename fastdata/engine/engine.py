"""The engine: threads, slots and a decoder behind one loader; made at the first batch, closed with its loader."""

from __future__ import annotations

import os
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from fastdata.engine.pump import Pump
from fastdata.engine.slots import SlotRing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastdata.engine.batches import Batch, Job
    from fastdata.types import BatchDecoder

__all__ = ["Engine"]

# Two jobs at work, so that the last images of one batch are decoded beside the first of the next; fetch, draws and
# labels of the second happen meanwhile. The decoder's own threads do the decoding.
_FEEDERS = 2
_NAME = "fastdata-feeder"


class Engine:
    """Keeps a decoder and two feeding threads alive from epoch to epoch; close may be called twice.

    A forked child makes its own on first use: no thread survives a fork.
    """

    def __init__(self, make_decoder: Callable[[], BatchDecoder], *, threaded: bool, ahead: int, pinned: bool) -> None:
        """Start nothing.

        ahead: batches started before they are asked for, when threaded. pinned: the memory of batches is page-locked.
        """
        self.ring = SlotRing(pinned=pinned, spare=ahead + 2)  # where batches get their memory, epoch after epoch
        self._make_decoder, self._threaded, self._ahead = make_decoder, threaded, ahead
        self._lock = threading.Lock()
        self._owner = 0
        self._decoder: BatchDecoder | None = None
        self._executor: ThreadPoolExecutor | None = None
        self._finalizer: weakref.finalize[[BatchDecoder, ThreadPoolExecutor | None], Engine] | None = None

    @property
    def decoder(self) -> BatchDecoder:
        """The decoder, made when first asked for in this process."""
        with self._lock:
            if self._decoder is None or self._owner != os.getpid():
                self._start()
            assert self._decoder is not None
            return self._decoder

    def run(self, jobs: Iterator[Job], run: Callable[[Job], Batch], *, timeout: float = 0) -> Pump[Job, Batch]:
        """Return the batches of ``jobs``, in order; timeout: seconds to wait for one, 0 for ever."""
        assert self.decoder is not None  # starts the threads of this process
        return Pump(jobs, run, executor=self._executor, ahead=self._ahead, timeout=timeout)

    def close(self) -> None:
        """Stop the threads; what is at work ends first, what waits is dropped."""
        with self._lock:
            finalizer, self._finalizer = self._finalizer, None
            self._decoder = self._executor = None
        if finalizer is not None:
            finalizer()

    def _start(self) -> None:
        if self._finalizer is not None:
            self._finalizer.detach()  # the parent's threads are the parent's
        self._owner = os.getpid()
        self._decoder = self._make_decoder()
        self._executor = ThreadPoolExecutor(_FEEDERS, _NAME) if self._threaded else None
        self._finalizer = weakref.finalize(self, _stop, self._decoder, self._executor)


def _stop(decoder: BatchDecoder, executor: ThreadPoolExecutor | None) -> None:
    if executor is not None:
        # The collector may run this in one of the feeders themselves, which cannot wait for itself.
        waits = not threading.current_thread().name.startswith(_NAME)
        executor.shutdown(wait=waits, cancel_futures=True)
    decoder.close()
