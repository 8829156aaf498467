"""Where all bytes of a store come from: files mapped into memory, or read with pread.

No copy lies between the page cache and the decoder with mmap; pread copies each value once, into memory of its own,
and survives a file that is cut short while it is read.
"""

from __future__ import annotations

import mmap
import os
import stat
import threading
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np

from fastdata.errors import (
    MissingPartError,
    OptionError,
    StaleIndexError,
    StoreClosedError,
    StoreFormatError,
    TruncatedStoreError,
)
from fastdata.stores.mapping import map_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fastdata.types import Spans

__all__ = [
    "Io",
    "MapReader",
    "PreadReader",
    "Reader",
    "Stamp",
    "addresses_of",
    "open_reader",
    "open_regular",
    "stamp_of",
]

Io = Literal["mmap", "pread"]


class Reader(Protocol):
    """Gives the bytes of spans. Safe for many threads; opens nothing before the first read; close may come twice."""

    def view(self, part: int, offset: int, length: int) -> memoryview:
        """Return the bytes of one span, read-only; the view keeps its memory alive, after close too."""
        ...

    def address(self, spans: Spans) -> tuple[NDArray[np.uint64], Sequence[memoryview], object]:
        """Return the spans' addresses, their views (made when asked for), and what keeps the memory alive."""
        ...

    def close(self) -> None:
        """Let go of the files."""
        ...


class Stamp(NamedTuple):
    """What changes when a file is written anew. Without its inode, which network file systems may make up anew."""

    size: int
    changed_ns: int


def stamp_of(path: str) -> Stamp:
    """Return a file's stamp as it is now; raise MissingPartError."""
    try:
        return _stamp(os.stat(path))  # noqa: PTH116  a str path
    except FileNotFoundError as error:
        raise _missing(path) from error


def _stamp(status: os.stat_result) -> Stamp:
    return Stamp(status.st_size, status.st_mtime_ns)


def open_reader(paths: Sequence[str], io: Io, stamps: Sequence[Stamp] = ()) -> Reader:
    """Return the reader for ``io`` over the files ``paths``; none is opened yet, and then it must have its stamp."""
    if io not in {"mmap", "pread"}:
        msg = f"io={io!r}: expected 'mmap' or 'pread'"
        raise OptionError(msg)
    return MapReader(paths, stamps) if io == "mmap" else PreadReader(paths, stamps)


def _outside(path: str, offset: int, length: int, size: int) -> TruncatedStoreError:
    return TruncatedStoreError(
        f"{path}: a value at bytes {offset} to {offset + length} lies outside the file, which has {size} bytes: it was "
        "cut short or replaced after it was packed; copy it again or pack again"
    )


def _missing(path: str) -> MissingPartError:
    return MissingPartError(f"{path}: this file of the pack is not there (any more); copy it again or pack again")


class _LazyViews:
    """The views of a batch, each made when it is asked for: the native core never asks."""

    __slots__ = ("_reader", "_spans")

    def __init__(self, reader: MapReader, spans: Spans) -> None:
        self._reader, self._spans = reader, spans

    def __len__(self) -> int:
        return len(self._spans.offset)

    def __getitem__(self, i: int) -> memoryview:
        spans = self._spans
        return self._reader.view(int(spans.part[i]), int(spans.offset[i]), int(spans.length[i]))


class MapReader:
    """Maps each file once, when it is first needed; a view keeps its mapping alive."""

    def __init__(self, paths: Sequence[str], stamps: Sequence[Stamp] = ()) -> None:
        """Remember the paths; open nothing."""
        self._paths, self._stamps = paths, stamps
        self._maps: dict[int, NDArray[np.uint8]] = {}
        self._lock = threading.Lock()
        self._closed = False

    def view(self, part: int, offset: int, length: int) -> memoryview:
        """Return the bytes of one span; raise TruncatedStoreError if it lies outside the file."""
        data = self._part(part)
        if offset < 0 or length < 0 or offset + length > len(data):
            raise _outside(self._paths[part], offset, length, len(data))
        return data.data[offset : offset + length]

    def address(self, spans: Spans) -> tuple[NDArray[np.uint64], Sequence[memoryview], object]:
        """Return addresses inside the mappings; nothing is copied and no page is touched."""
        parts = np.unique(spans.part)
        base = np.zeros(int(parts[-1]) + 1 if len(parts) else 0, np.uint64)
        size = np.zeros(len(base), np.int64)
        keep = [self._part(int(part)) for part in parts]
        for part, data in zip(parts, keep, strict=True):
            base[part], size[part] = data.__array_interface__["data"][0], len(data)
        # No sum of two numbers that a file may hold: it could wrap round, and lead into memory that is not ours.
        wrong = (spans.offset < 0) | (spans.length < 0) | (spans.length > size[spans.part] - spans.offset)
        if wrong.any():
            i = int(np.argmax(wrong))
            part = int(spans.part[i])
            raise _outside(self._paths[part], int(spans.offset[i]), int(spans.length[i]), int(size[part]))
        return base[spans.part] + spans.offset.astype(np.uint64), _LazyViews(self, spans), keep  # type: ignore[return-value]

    def will_need(self, spans: Spans) -> None:
        """Tell the kernel that these spans, all inside their files, are read soon: it fetches them side by side.

        One system call a span; without it each page that is not in memory is waited for when it is touched.
        """
        if not hasattr(mmap, "MADV_WILLNEED"):  # only Linux and BSD have it
            return
        for part, offset, length in zip(*(column.tolist() for column in spans), strict=True):
            mapping: Any = self._part(part).base
            if length > 0 and isinstance(mapping, mmap.mmap):
                start = offset // mmap.PAGESIZE * mmap.PAGESIZE
                mapping.madvise(mmap.MADV_WILLNEED, start, offset + length - start)

    def close(self) -> None:
        """Drop the mappings; each goes when its last view does."""
        with self._lock:
            self._closed = True
            self._maps.clear()

    def _part(self, part: int) -> NDArray[np.uint8]:
        data = self._maps.get(part)
        if data is not None:
            return data
        with self._lock:
            if self._closed:
                msg = f"{self._paths[part]}: the store was closed; open it again"
                raise StoreClosedError(msg)
            if part not in self._maps:
                self._maps[part] = _map(self._paths[part], self._stamps[part] if self._stamps else None)
            return self._maps[part]


def open_regular(path: str) -> int:
    """Return a descriptor of a file; raise StoreFormatError where it is a pipe, a device or a folder, and OSError.

    A pipe is not waited for, and a device could be read for ever: what a pack or a list names may be either.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        msg = f"{path}: a pipe, a device or a folder, where a file should be"
        raise StoreFormatError(msg)
    return descriptor


def _open(path: str, stamp: Stamp | None) -> int:
    try:
        descriptor = open_regular(path)
    except FileNotFoundError as error:
        raise _missing(path) from error
    now = _stamp(os.fstat(descriptor))
    if stamp is None or now == stamp:
        return descriptor
    os.close(descriptor)
    msg = f"{path} was replaced or changed after it was opened, and before this was read of it: open it again"
    if now.size < stamp.size:
        raise TruncatedStoreError(msg + f" (it has {now.size} bytes instead of {stamp.size}: cut short, perhaps)")
    raise StaleIndexError(msg)


def _map(path: str, stamp: Stamp | None) -> NDArray[np.uint8]:
    descriptor = _open(path, stamp)
    try:
        if os.fstat(descriptor).st_size == 0:
            return np.zeros(0, np.uint8)
        # The array holds the only reference to the mapping, so the mapping lives as long as the last view of it.
        return np.frombuffer(map_file(descriptor, path), np.uint8)
    finally:
        os.close(descriptor)


class PreadReader:
    """Reads each span into memory of its own with pread; descriptors open when first needed, at most 64 at a time."""

    _LARGE = 1 << 20  # bytes
    _FAR = 1 << 62  # bytes; the system refuses an offset whose end is no int64
    _MOST_OPEN = 64  # well under the common limit of 1024 descriptors, with several loaders in one process

    def __init__(self, paths: Sequence[str], stamps: Sequence[Stamp] = ()) -> None:
        """Remember the paths; open nothing."""
        self._paths, self._stamps = paths, stamps
        self._open: dict[int, int] = {}
        self._lock = threading.Lock()
        self._closed = False

    def view(self, part: int, offset: int, length: int) -> memoryview:
        """Return a copy of one span's bytes; raise TruncatedStoreError if the file ends before it does."""
        path = self._paths[part]
        descriptor = self._descriptor(part)
        try:
            # Memory is taken before the read: a large length is looked at first, a small one costs no system call.
            large = (length > self._LARGE or offset > self._FAR) and offset + length > os.fstat(descriptor).st_size
            if offset < 0 or length < 0 or large:
                raise _outside(path, offset, length, os.fstat(descriptor).st_size)
            data = _read_all(descriptor, offset, length)
            if len(data) < length:
                raise _outside(path, offset, length, os.fstat(descriptor).st_size)
        finally:
            os.close(descriptor)
        return memoryview(data)

    def address(self, spans: Spans) -> tuple[NDArray[np.uint64], Sequence[memoryview], object]:
        """Read all spans; the views own the memory."""
        rows = zip(spans.part.tolist(), spans.offset.tolist(), spans.length.tolist(), strict=True)
        return addresses_of([self.view(part, offset, length) for part, offset, length in rows])

    def close(self) -> None:
        """Close the descriptors; views stay good, they are copies."""
        with self._lock:
            self._closed = True
            while self._open:
                os.close(self._open.popitem()[1])

    def _descriptor(self, part: int) -> int:
        """Return a duplicate of the part's descriptor, so that another thread may close ours meanwhile."""
        with self._lock:
            if self._closed:
                msg = f"{self._paths[part]}: the store was closed; open it again"
                raise StoreClosedError(msg)
            if part not in self._open:
                if len(self._open) >= self._MOST_OPEN:
                    os.close(self._open.pop(next(iter(self._open))))
                self._open[part] = _open(self._paths[part], self._stamps[part] if self._stamps else None)
            return os.dup(self._open[part])


def _read_all(descriptor: int, offset: int, length: int) -> bytes:
    data = os.pread(descriptor, length, offset)
    while 0 < len(data) < length:  # one pread gives at most 2 GiB, and may be interrupted
        more = os.pread(descriptor, length - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data


def addresses_of(
    views: Sequence[memoryview],
) -> tuple[NDArray[np.uint64], Sequence[memoryview], object]:
    """Return the addresses of views, the views, and what keeps them alive (the views)."""
    address = np.fromiter(
        (np.frombuffer(v, np.uint8).__array_interface__["data"][0] if len(v) else 0 for v in views),
        np.uint64,
        len(views),
    )
    return address, views, views
