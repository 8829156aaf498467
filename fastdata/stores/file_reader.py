"""The reader of folders: each part is one value, opened, read whole and closed; its size is what it is by then."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from fastdata.errors import MissingPartError, StoreClosedError, StoreError
from fastdata.stores.reader import addresses_of, open_regular

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fastdata.types import Spans

__all__ = ["FileReader", "file_sizes", "read_whole"]

_STEP = 1 << 16  # bytes read at once behind the size a file has: of a growing one, or beyond 2 GiB


class FileReader:
    """Reads whole files; holds no descriptor between two reads, so there is nothing to share or to fork."""

    def __init__(self, paths: Sequence[str]) -> None:
        """Remember the paths; open nothing."""
        self._paths = paths
        self._closed = False

    def view(self, part: int, offset: int, length: int) -> memoryview:  # noqa: ARG002  the Reader protocol's arguments
        """Return all bytes of file ``part``; raise MissingPartError if it is gone, StoreError if it cannot be read."""
        path = self._paths[part]
        if self._closed:
            msg = f"{path}: the store was closed; open it again"
            raise StoreClosedError(msg)
        return memoryview(read_whole(path))

    def address(self, spans: Spans) -> tuple[NDArray[np.uint64], Sequence[memoryview], object]:
        """Read all files; the views own the memory."""
        return addresses_of([self.view(part, 0, 0) for part in spans.part.tolist()])

    def close(self) -> None:
        """Refuse further reads."""
        self._closed = True


def read_whole(path: str) -> bytes:
    """Return all bytes of a file; raise MissingPartError if it is gone, StoreError if it cannot be read.

    By system calls: a file object, or a Path, costs as much as a small read.
    """
    try:
        descriptor = open_regular(path)
        try:
            pieces = [os.read(descriptor, os.fstat(descriptor).st_size)]
            while data := os.read(descriptor, _STEP):
                pieces.append(data)
        finally:
            os.close(descriptor)
    except StoreError:
        raise
    except OSError as error:
        raise _unreadable(path, error) from error
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def file_sizes(paths: Sequence[str], parts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the size in bytes that each file has now."""
    sizes = np.empty(len(parts), np.int64)
    for row, part in enumerate(parts.tolist()):
        try:
            sizes[row] = os.stat(paths[part]).st_size  # noqa: PTH116  as above
        except OSError as error:
            raise _unreadable(paths[part], error) from error
    return sizes


def _unreadable(path: str, error: OSError) -> StoreError:
    if isinstance(error, FileNotFoundError):
        return MissingPartError(f"{path}: this file is not there (any more); restore it, or list the folder again")
    return StoreError(f"{path}: cannot be read: {error.strerror or error}")
