"""A lock among the threads of all processes that have one file open; the kernel releases it when its holder dies."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ProcessLock"]

_PATIENCE = 1.0  # seconds; the lock is held for microseconds, so whoever has it this long is stopped
_NAP = 0.0002  # seconds between two tries


class ProcessLock:
    """Mutual exclusion over an open file that may have no name; fork-safe; gives up rather than wait for ever."""

    def __init__(self, descriptor: int) -> None:
        """Borrow the descriptor; the file is opened again when the lock is first taken in a process."""
        self._descriptor = descriptor
        self._gates: dict[int, _Gate] = {}
        self.stuck = False

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Hold the lock, or give False, now and ever after, where somebody sat on it for a second."""
        if self.stuck:
            yield False
            return
        gate = self._gates.get(os.getpid())
        if gate is None:  # the first time in this process: a forked child has no use for its parent's
            gate = self._gates.setdefault(os.getpid(), _Gate())
        with gate.lock:
            if gate.descriptor < 0:
                # flock belongs to the opening of a file, which forked processes share: each opens its own.
                gate.descriptor = os.open(f"/proc/self/fd/{self._descriptor}", os.O_RDWR | os.O_CLOEXEC)
            locked = _flock(gate.descriptor)
            self.stuck = not locked
            try:
                yield locked
            finally:
                if locked:
                    fcntl.flock(gate.descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close what was opened; nobody may hold the lock."""
        while self._gates:
            descriptor = self._gates.popitem()[1].descriptor
            if descriptor >= 0:
                os.close(descriptor)


class _Gate:
    """One process's lock among its threads, and its own opening of the file, for the lock among processes."""

    __slots__ = ("descriptor", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.descriptor = -1


def _flock(descriptor: int) -> bool:
    give_up = 0.0
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            now = time.monotonic()
            give_up = give_up or now + _PATIENCE
            if now > give_up:
                return False
            time.sleep(_NAP)
        else:
            return True
