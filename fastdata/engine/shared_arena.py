"""Memory that processes of one machine share: records by number, written once, never changed, gone with the last user.

The memory is a memfd: it has no name in any file system, so nothing is left behind however its users end, and the size
of /dev/shm does not bound it. A forked child has it by inheritance; a spawned one by the descriptor that travels with
the pickle; other ranks through arena_meeting. Layout, little more than an array::

    page 0                      counters, 64-bit words (_MAGIC ... _PASSED)
    from byte 4096              the table: one 64-bit word per number: _FREE, _CLAIMED, _PASSED_OVER, or where its
                                record lies, in units of 64 bytes
    from the next page on       records: a head of eight 64-bit words, then the bytes; each begins at a multiple of 64

A record is visible when its word says where it lies, and that one word is stored after its bytes are there: readers
need no lock. Writers claim numbers and room under a file lock that the kernel releases when its holder dies; a writer
that is killed between claim and store leaves its numbers claimed: they are read from their source ever after.
Bytes are written by pwritev, which says "no memory" where a store into the mapping would kill the process.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import sys
import weakref
from multiprocessing import context
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastdata.engine.process_lock import ProcessLock
from fastdata.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = ["HEAD_WORDS", "ArenaState", "SharedArena", "smallest_arena"]

_PAGE, _UNIT = 4096, 64
HEAD_WORDS = _UNIT // 8
_SEEN = 0x31656863_61636466  # "fdcache1"
_FREE, _CLAIMED, _PASSED_OVER = 0, 1, 2  # below any record's place
_FIRST = _PAGE // _UNIT
_MAGIC, _SLOTS, _SIZE, _USED, _FULL, _RECORDS, _BYTES, _LARGE, _UNSTORABLE = range(9)
_MOST_BUFFERS = 512  # of one pwritev; Linux takes 1024
_LARGE_SHARE = 8  # a record that does not fit where an eighth is free is large; the cache is not full


class ArenaState(NamedTuple):
    """What lies in an arena: records and their bytes (heads included), of ``limit``; what was kept out, and why."""

    slots: int
    records: int
    bytes: int
    limit: int
    full: bool
    large: int
    unstorable: int


def smallest_arena(slots: int) -> int:
    """Return the bytes below which an arena of so many numbers holds nothing: its table and one page."""
    return _data_start(slots) + _PAGE


class SharedArena:
    """Up to ``size`` bytes in which records are kept by their number (0 to slots - 1); safe for threads and processes.

    Nothing is ever evicted: an arena that is full takes no more, and what it has stays useful in every epoch.
    """

    def __init__(self, descriptor: int, close_too: Callable[[], object] | None = None) -> None:
        """Map what ``make`` (or another process) made and own the descriptor; ``close_too`` runs at the end."""
        size = os.fstat(descriptor).st_size
        with mmap.mmap(descriptor, _PAGE, prot=mmap.PROT_READ) as first:
            words = np.frombuffer(first, np.int64, 3)
            magic, slots, said = words.tolist()
            del words
        if magic != _SEEN or said != size:
            msg = f"the memory behind descriptor {descriptor} is not a cache of fastdata's"
            raise OptionError(msg)
        self.descriptor, self.slots = descriptor, slots
        start = _data_start(slots)
        control = np.frombuffer(mmap.mmap(descriptor, start), np.int64)
        self._counters, self._table = control[: _PAGE // 8], control[_PAGE // 8 :][:slots]
        whole = mmap.mmap(descriptor, size, prot=mmap.PROT_READ)
        if hasattr(mmap, "MADV_DONTDUMP"):
            whole.madvise(mmap.MADV_DONTDUMP)  # a crash elsewhere must not write gigabytes of pictures
        #: All bytes, read-only; views of it keep the memory alive.
        self.data: NDArray[np.uint8] = np.frombuffer(whole, np.uint8)
        self.address: int = self.data.__array_interface__["data"][0]
        self._words = self.data.view(np.int64)
        self._lock = ProcessLock(descriptor)
        weakref.finalize(self, _release, descriptor, self._lock, close_too).atexit = False

    @classmethod
    def make(cls, slots: int, size: int, label: str = "") -> SharedArena:
        """Return a new arena of ``size`` bytes in all, taken from the system as they are filled."""
        return cls(new_memory(slots, size, label))

    @property
    def full(self) -> bool:
        """Whether the arena takes no more records."""
        return self._lock.stuck or bool(self._counters[_FULL])

    @property
    def state(self) -> ArenaState:
        """What lies in the arena, all processes together."""
        c = self._counters.tolist()
        limit = c[_SIZE] - _data_start(self.slots)
        return ArenaState(self.slots, c[_RECORDS], c[_BYTES], limit, self.full, c[_LARGE], c[_UNSTORABLE])

    def find(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where the records of ``numbers`` lie, in bytes (of their heads), 0 where they are not here."""
        if len(numbers) and int(numbers.max()) < self.slots:
            places = self._table[numbers]
        else:
            places = np.zeros(len(numbers), np.int64)
            known = numbers < self.slots
            places[known] = self._table[numbers[known]]
        places[places < _FIRST] = 0
        return places * _UNIT

    def heads(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the heads (n, 8) of the records at ``places``; the bytes lie 64 bytes behind. Word 0: their length."""
        heads: NDArray[np.int64] = self._words[(places // 8)[:, None] + np.arange(HEAD_WORDS)]
        return heads

    def put(self, numbers: Sequence[int], heads: NDArray[np.int64], bodies: Sequence[Sequence[Any]]) -> None:
        """Store records that are not there yet, as long as there is room; ``bodies`` are each record's buffers.

        heads: int64 (n, 8); word 0 is the length of the body in bytes.
        """
        if self.full:
            return
        claimed, start = self._claim(numbers, heads[:, 0].tolist())
        if not claimed:
            return
        buffers: list[Any] = []
        for row, _, padding in claimed:
            buffers += [heads[row].tobytes(), *bodies[row]]
            if padding:
                buffers.append(bytes(padding))
        try:
            _write(self.descriptor, buffers, start)
        except OSError:  # no memory: what is here stays, nothing more comes
            self._settle([(numbers[row], _FREE) for row, _, _ in claimed], full=True)
            return
        self._settle(
            [(numbers[row], place) for row, place, _ in claimed], lengths=heads[:, 0][[r for r, *_ in claimed]]
        )

    def count_unstorable(self) -> None:
        """Count a sample that cannot be stored."""
        with self._lock.held() as locked:
            if locked:
                self._counters[_UNSTORABLE] += 1

    def __reduce__(self) -> tuple[Callable[..., SharedArena | None], tuple[Any, ...]]:
        """Travel to a process that is being started by its descriptor, to any other of this machine by its place.

        Where it cannot be reached any more (another machine, the process has ended) None arrives.
        """
        if context.get_spawning_popen() is not None:
            from multiprocessing.reduction import DupFd  # noqa: PLC0415  needed only here

            return _inherited, (DupFd(self.descriptor),)
        return _reached, (os.getpid(), self.descriptor, os.fstat(self.descriptor).st_ino)

    def _claim(self, numbers: Sequence[int], lengths: Sequence[int]) -> tuple[list[tuple[int, int, int]], int]:
        """Return (row, place in units, padding in bytes) of what may be written, and the first byte of their room."""
        claimed: list[tuple[int, int, int]] = []
        with self._lock.held() as locked:
            if not locked:
                return [], 0
            counters, table = self._counters, self._table
            end = int(counters[_SIZE]) // _UNIT
            first = used = int(counters[_USED])
            for row, (number, length) in enumerate(zip(numbers, lengths, strict=True)):
                if not 0 <= number < self.slots or table[number] != _FREE:
                    continue
                units = 1 + -(-length // _UNIT)
                if used + units > end:
                    if end - used <= (end - _data_start(self.slots) // _UNIT) // _LARGE_SHARE:
                        counters[_FULL] = 1
                        break
                    table[number] = _PASSED_OVER
                    counters[_LARGE] += 1
                    continue
                table[number] = _CLAIMED
                claimed.append((row, used, (units - 1) * _UNIT - length))
                used += units
            counters[_USED] = used
        return claimed, first * _UNIT

    def _settle(
        self, words: list[tuple[int, int]], *, full: bool = False, lengths: NDArray[np.int64] | None = None
    ) -> None:
        # The locks (the file's inode in pwritev, this one) order the words behind the bytes on every processor.
        with self._lock.held() as locked:
            for number, word in words:
                self._table[number] = word
            if locked and full:
                self._counters[_FULL] = 1
            if locked and lengths is not None:
                self._counters[_RECORDS] += len(words)
                self._counters[_BYTES] += int(lengths.sum()) + _UNIT * len(words)


def new_memory(slots: int, size: int, label: str = "") -> int:
    """Return the descriptor of a new, empty arena; raise OptionError where it cannot be, or is too small."""
    if not hasattr(os, "memfd_create"):
        msg = f"a cache shared by processes needs Linux (memfd_create); this is {sys.platform}"
        raise OptionError(msg)
    if size < smallest_arena(slots):
        msg = f"cache_bytes={size} is too small: {slots} samples need at least {smallest_arena(slots)}"
        raise OptionError(msg)
    descriptor = os.memfd_create(f"fastdata-cache{label}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    size = size // _UNIT * _UNIT
    os.ftruncate(descriptor, size)
    # Nobody can cut it short any more, so no read of a mapping can fail.
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    words = np.zeros(_PAGE // 8, np.int64)
    words[[_MAGIC, _SLOTS, _SIZE, _USED]] = _SEEN, slots, size, _data_start(slots) // _UNIT
    os.pwrite(descriptor, words.tobytes(), 0)
    return descriptor


def open_of_process(process: int, descriptor: int) -> int:
    """Return a descriptor of our own for what another process (or this one) has open; raise OSError."""
    return os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)


def _data_start(slots: int) -> int:
    return _PAGE + -(-8 * slots // _PAGE) * _PAGE


def _inherited(duplicate: Any) -> SharedArena:  # noqa: ANN401  multiprocessing's own
    return SharedArena(duplicate.detach())


def _reached(process: int, descriptor: int, inode: int) -> SharedArena | None:
    try:
        own = open_of_process(process, descriptor)
    except OSError:
        return None
    if os.fstat(own).st_ino != inode:
        os.close(own)
        return None
    try:
        return SharedArena(own)
    except (OptionError, ValueError, OSError):
        os.close(own)
        return None


def _write(descriptor: int, buffers: list[Any], offset: int) -> None:
    """Write all buffers one behind the other; raise OSError where not all can be."""
    rest = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
    while rest:
        written = os.pwritev(descriptor, rest[:_MOST_BUFFERS], offset)
        if not written:
            msg = "nothing more can be written"
            raise OSError(msg)
        offset += written
        done = 0
        while written and written >= len(rest[done]):  # Linux writes at most 2 GiB at once
            written -= len(rest[done])
            done += 1
        rest = rest[done:]
        if written:
            rest[0] = rest[0][written:]


def _release(descriptor: int, lock: ProcessLock, close_too: Callable[[], object] | None) -> None:
    os.close(descriptor)
    lock.close()
    if close_too is not None:
        close_too()
