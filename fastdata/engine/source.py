"""Where the engine takes samples from: a store, or the (path, label) rows of an ImageFolder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from fastdata.errors import DecodeError, MissingPartError
from fastdata.stores.reader import addresses_of
from fastdata.types import Encoded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from fastdata.stores.store import Store

__all__ = [
    "ConcatSource",
    "FileSource",
    "Keyed",
    "MappedSource",
    "NumberSource",
    "Source",
    "StoreSource",
    "SubsetSource",
]


class Keyed(Protocol):
    """Gives keys by index."""

    def key(self, index: int) -> str:
        """Return the key (or path) of a sample, for messages."""
        ...


class Source(Keyed, Protocol):
    """Gives encoded images, labels and keys by index; safe for many threads.

    A source whose fetch reads nothing (a mapped pack) may say so by an attribute ``mapped = True``: then the samples of
    several batches are fetched at once, and ``will_need(indices)`` is called for them where they may lie on the disk.
    """

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


class MappedSource(Source, Protocol):
    """A source whose fetch reads nothing: its bytes are the pages of mapped files."""

    def will_need(self, indices: NDArray[np.int64]) -> None:
        """Tell the kernel that these samples are read soon."""
        ...


class StoreSource:
    """Samples of a Store; the bytes stay where the store's reader has them."""

    def __init__(self, store: Store) -> None:
        """Borrow the store; whoever opened it closes it."""
        self._store = store
        self.mapped = store.mapped
        self.nbytes = int(store.index.fields["image"].length.sum()) if store.mapped else 0

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._store)

    def fetch(self, indices: NDArray[np.int64]) -> Encoded:
        """Return the encoded images, without a copy where the store is mapped."""
        return self._store.fetch(indices)

    def will_need(self, indices: NDArray[np.int64]) -> None:
        """Tell the kernel that these samples are read soon."""
        self._store.will_need(indices)

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


class SubsetSource:
    """The samples of another source at these indices: int64 (n,), each within it."""

    def __init__(self, source: Source, indices: NDArray[np.int64]) -> None:
        """Borrow both."""
        self._source, self._indices = source, indices
        self.mapped = getattr(source, "mapped", False)

    def will_need(self, indices: NDArray[np.int64]) -> None:
        """Tell the kernel that these samples are read soon."""
        cast("MappedSource", self._source).will_need(self._indices[indices])

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._indices)

    def fetch(self, indices: NDArray[np.int64]) -> Encoded:
        """Return the encoded images."""
        return self._source.fetch(self._indices[indices])

    def labels(self, indices: NDArray[np.int64]) -> NDArray[Any] | None:
        """Return a fresh array of the labels, or None."""
        return self._source.labels(self._indices[indices])

    def key(self, index: int) -> str:
        """Return the key of a sample."""
        return self._source.key(int(self._indices[index]))

    def check(self, index: int) -> None:
        """Check a sample in its source."""
        self._source.check(int(self._indices[index]))


class ConcatSource:
    """The samples of several sources, one behind the other; their labels are of one kind."""

    def __init__(self, sources: Sequence[Source]) -> None:
        """Borrow the sources, one at least."""
        self._sources = sources
        self._ends = np.cumsum([len(source) for source in sources])

    def __len__(self) -> int:
        """Return the number of samples."""
        return int(self._ends[-1])

    def fetch(self, indices: NDArray[np.int64]) -> Encoded:
        """Return the encoded images, each from its source."""
        n = len(indices)
        address, length, codec = np.zeros(n, np.uint64), np.zeros(n, np.int64), np.zeros(n, np.uint8)
        width, height = np.zeros(n, np.int32), np.zeros(n, np.int32)
        views: list[memoryview] = [memoryview(b"")] * n
        keep = []
        for source, rows, inside in self._shares(indices):
            part = source.fetch(inside)
            address[rows], length[rows], codec[rows] = part.address, part.length, part.codec
            width[rows], height[rows] = part.width, part.height
            for row, view in zip(rows.tolist(), part.views, strict=True):
                views[row] = view
            keep.append(part.keep)
        return Encoded(address, length, codec, width, height, views, keep)

    def labels(self, indices: NDArray[np.int64]) -> NDArray[Any] | None:
        """Return a fresh array of the labels, or None."""
        labels: NDArray[Any] | None = None
        for source, rows, inside in self._shares(indices):
            part = source.labels(inside)
            if part is None:
                return None
            if labels is None:
                labels = np.zeros((len(indices), *part.shape[1:]), part.dtype)
            labels[rows] = part
        return self._sources[0].labels(indices) if labels is None else labels

    def key(self, index: int) -> str:
        """Return the key of a sample."""
        source, inside = self._place(index)
        return source.key(inside)

    def check(self, index: int) -> None:
        """Check a sample in its source."""
        source, inside = self._place(index)
        source.check(inside)

    def _place(self, index: int) -> tuple[Source, int]:
        number = int(np.searchsorted(self._ends, index, "right"))
        return self._sources[number], index - int(self._ends[number]) + len(self._sources[number])

    def _shares(self, indices: NDArray[np.int64]) -> Iterator[tuple[Source, NDArray[np.int64], NDArray[np.int64]]]:
        """Yield each source that has some of the samples, their rows, and their indices in it."""
        numbers = np.searchsorted(self._ends, indices, "right")
        for number in np.unique(numbers).tolist():
            source, rows = self._sources[number], np.flatnonzero(numbers == number)
            yield source, rows, indices[rows] - (self._ends[number] - len(source))


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
