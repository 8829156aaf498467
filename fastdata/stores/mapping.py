"""Files mapped into memory for reading, also where a file system does not do it as it should."""

from __future__ import annotations

import errno
import mmap
import os

from fastdata.errors import OptionError, StoreError

__all__ = ["map_file", "map_or_read"]

_READ_MOST = 1 << 30  # bytes of a file that are read in place of a mapping
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


def map_or_read(descriptor: int, path: str) -> mmap.mmap:
    """Return a mapping as ``map_file`` does, or memory with the bytes of a file that cannot be mapped.

    For what an index is made of. Raises StoreError for a file of more than a gibibyte that cannot be mapped.
    """
    try:
        return map_file(descriptor, path)
    except OptionError as error:
        size = os.fstat(descriptor).st_size
        if size > _READ_MOST:
            msg = f"{path}: its file system cannot map files into memory: copy the pack to a local disk"
            raise StoreError(msg) from error
        memory = mmap.mmap(-1, size)  # shared, so that madvise drops nothing
        at = 0
        while at < size and (piece := os.pread(descriptor, min(1 << 24, size - at), at)):
            memory[at : at + len(piece)] = piece
            at += len(piece)
        return memory
