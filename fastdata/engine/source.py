"""Where the engine takes samples from: a store, or the (path, label) rows of an ImageFolder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fastdata.errors import DecodeError, MissingPartError
from fastdata.stores.reader import addresses_of
from fastdata.types import Encoded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from fastdata.stores.store import Store

__all__ = ["FileSource", "Keyed", "NumberSource", "Source", "StoreSource"]


class Keyed(Protocol):
    """Gives keys by index."""

    def key(self, index: int) -> str:
        """Return the key (or path) of a sample, for messages."""
        ...


class Source(Keyed, Protocol):
    """Gives encoded images, labels and keys by index; safe for many threads."""

    def __len__(self) -> int:
        """Return the number of samples."""
        ...

    def fetch(self, indices: NDArray[np.int64]) -> Encoded:
        """Return the encoded images; width and height are 0 where unknown."""
        ...

    def labels(self, indices: NDArray[np.int64]) -> NDArray[Any] | None:
        """Return a fresh array of the labels, or None where the set has none."""
        ...

    def check(self, index: int) -> None:
        """Raise ChecksumError if the bytes of a sample are not those that were packed."""
        ...


class StoreSource:
    """Samples of a Store; the bytes stay where the store's reader has them."""

    def __init__(self, store: Store) -> None:
        """Borrow the store; whoever opened it closes it."""
        self._store = store

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._store)

    def fetch(self, indices: NDArray[np.int64]) -> Encoded:
        """Return the encoded images, without a copy where the store is mapped."""
        return self._store.fetch(indices)

    def labels(self, indices: NDArray[np.int64]) -> NDArray[Any] | None:
        """Return a fresh array of the labels, or None."""
        column = self._store.index.label
        return None if column is None else column[indices]

    def key(self, index: int) -> str:
        """Return the key of a sample."""
        return self._store.key(index)

    def check(self, index: int) -> None:
        """Raise ChecksumError if the bytes of a sample are not those that were packed."""
        self._store.check(index)


class FileSource:
    """Samples of a list of (path, label) rows, read live: rows that the user changes between epochs count."""

    def __init__(self, rows: Sequence[tuple[str | Path, int]]) -> None:
        """Borrow the rows (an ImageFolder's ``samples``)."""
        self._rows = rows

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._rows)

    def fetch(self, indices: NDArray[np.int64]) -> Encoded:
        """Read the files, each whole into memory of its own."""
        n = len(indices)
        address, views, keep = addresses_of([_read(self._rows[i][0]) for i in indices.tolist()])
        length = np.fromiter((len(view) for view in views), np.int64, n)
        zeros = np.zeros(n, np.int32)
        return Encoded(address, length, np.zeros(n, np.uint8), zeros, zeros, views, keep)

    def labels(self, indices: NDArray[np.int64]) -> NDArray[Any]:
        """Return the labels as default_collate would stack them: int64 for ints."""
        return np.array([self._rows[i][1] for i in indices.tolist()])

    def key(self, index: int) -> str:
        """Return the path of a sample."""
        return str(self._rows[index][0])

    def check(self, index: int) -> None:
        """Know no checksums: files are as good as their disk."""


class NumberSource:
    """The keys of a data set that nobody here can read: its indices, as strings."""

    def key(self, index: int) -> str:
        """Return the index as a string."""
        return str(index)


def _read(path: str | Path) -> memoryview:
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123  a Path costs more than the read
            return memoryview(file.read())
    except FileNotFoundError as error:
        msg = f"{path}: this file of the data set is not there any more"
        raise MissingPartError(msg) from error
    except OSError as error:
        msg = f"{path}: cannot be read ({error})"
        raise DecodeError(msg) from error
