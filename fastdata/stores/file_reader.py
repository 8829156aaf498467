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

__all__ = ["FileReader", "file_sizes"]


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
        try:
            # A Path object costs as much as a small read.
            with open(open_regular(path), "rb", buffering=0) as file:  # noqa: PTH123
                return memoryview(file.read())
        except StoreError:
            raise
        except OSError as error:
            raise _unreadable(path, error) from error

    def address(self, spans: Spans) -> tuple[NDArray[np.uint64], Sequence[memoryview], object]:
        """Read all files; the views own the memory."""
        return addresses_of([self.view(part, 0, 0) for part in spans.part.tolist()])

    def close(self) -> None:
        """Refuse further reads."""
        self._closed = True


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
