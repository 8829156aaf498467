"""Files mapped into memory for reading, also where a file system does not do it as it should, or without a mapping."""

from __future__ import annotations

import errno
import mmap
import os
import sys
import weakref
from typing import TYPE_CHECKING

import numpy as np

from fastdata.errors import OptionError, TruncatedStoreError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FileBytes", "map_file"]

_STEP = 1 << 24  # bytes of one read
#: MAP_NORESERVE, which Python 3.11 has no name for: memory that nobody has written to is not counted as used.
_NO_RESERVE = 0x4000 if sys.platform == "linux" else 0
_CANNOT = {errno.ENODEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}


def map_file(descriptor: int, path: str) -> mmap.mmap:
    """Return a read-only mapping of an open file of one byte at least, which may be closed then.

    Some network file systems (FUSE without a page cache) map files privately only: then so. Raises OptionError where it
    cannot be mapped at all.
    """
    try:
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    except OSError as error:
        if error.errno not in _CANNOT or not hasattr(mmap, "MAP_PRIVATE"):
            raise
        try:
            return mmap.mmap(descriptor, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
        except OSError:
            msg = (
                f'{path}: its file system cannot map files into memory ({error.strerror}): give io="pread", which '
                "reads without, or copy the pack to a local disk"
            )
            raise OptionError(msg) from error


class FileBytes:
    """The bytes of an open file as one array ``data``: mapped, or memory into which is read what ``part`` is asked for.

    For what an index is made of. Memory of the second kind is as long as the file and takes what was asked for; the
    rest is zeros. Arrays keep it alive. The file may be closed: this has a descriptor of its own.
    """

    def __init__(self, descriptor: int, path: str, *, mapped: bool = True) -> None:
        """Map the file, of one byte at least, unless ``mapped`` is False or its file system cannot."""
        self.path, self.size = path, os.fstat(descriptor).st_size
        self._descriptor = -1
        try:
            self._memory = map_file(descriptor, path) if mapped else self._empty()
        except OptionError:
            self._memory = self._empty()
            mapped = False
        if not mapped:
            self._descriptor = os.dup(descriptor)
            weakref.finalize(self, os.close, self._descriptor)
        self.data: NDArray[np.uint8] = np.frombuffer(self._memory, np.uint8)

    @property
    def is_mapped(self) -> bool:
        """Whether all bytes are there without being asked for."""
        return self._descriptor < 0

    def part(self, offset: int, length: int) -> NDArray[np.uint8]:
        """Return a view of one run of bytes, which lies in the file; raise TruncatedStoreError where it ends sooner."""
        if not self.is_mapped:
            for at in range(offset, offset + length, _STEP):
                piece = self._read(at, min(_STEP, offset + length - at))
                self._memory[at : at + len(piece)] = piece
        return self.data[offset : offset + length]

    def copy(self, offset: int, length: int) -> bytes:
        """Return a copy of one run of bytes; nothing of it is kept."""
        if not self.is_mapped:
            return self._read(offset, length)
        return self._memory[offset : offset + length]

    def release(self) -> None:
        """Tell the system that the pages touched so far need not stay in this process (they come back when touched)."""
        if self.is_mapped and hasattr(mmap, "MADV_DONTNEED"):  # Linux
            self._memory.madvise(mmap.MADV_DONTNEED)

    def _empty(self) -> mmap.mmap:
        if sys.platform == "win32":
            return mmap.mmap(-1, self.size)
        memory = mmap.mmap(-1, self.size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
        if hasattr(mmap, "MADV_NOHUGEPAGE"):  # or each byte read could take 2 MB
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        return memory

    def _read(self, offset: int, length: int) -> bytes:
        pieces, end = list[bytes](), offset + length
        while offset < end:
            piece = os.pread(self._descriptor, end - offset, offset)
            if not piece:
                msg = f"{self.path}: the file was cut short to {offset} bytes while it was opened: copy it again"
                raise TruncatedStoreError(msg)
            pieces.append(piece)
            offset += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
