"""The Store: one class for every format; a format only says what lies where (Contents)."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fastdata.errors import ChecksumError, OptionError, SampleError, StoreError, StoreFormatError
from fastdata.stores.file_reader import FileReader, file_sizes
from fastdata.stores.json_values import parse_json
from fastdata.stores.reader import MapReader, open_reader
from fastdata.types import CODECS, Encoded, Field, Record, Spans

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from fastdata.stores.index import Index
    from fastdata.stores.reader import Io, Reader, Stamp
    from fastdata.types import Label

__all__ = ["Contents", "Store"]


@dataclass(frozen=True, slots=True, eq=False)
class Contents:
    """What a format's opener found: the files (parts) a store reads, the Index over them, and what is written there.

    kind: "lmdb", "hdf5", "tar", "folder", "manifest", ... info: the pack's own JSON facts (classes, options, mean, std,
    format_version, ...), empty for foreign sets but for "classes" where they are known. whole_files: each part is one
    value, whatever its size by the time it is read (folders); the Index's lengths are 0 then. extras: gives the extras
    of sample i where they do not lie in a field of that name (manifests). stamps: what the parts must still be when
    they are opened (``reader.stamp_of``), where that is known.
    """

    path: str
    kind: str
    parts: Sequence[str]
    index: Index
    info: Mapping[str, Any] = field(default_factory=dict)
    whole_files: bool = False
    extras: Callable[[int], Mapping[str, Any]] | None = None
    stamps: Sequence[Stamp] = ()


class Store:
    """Random access to the samples of a pack or a folder; safe for many threads, picklable, fork-safe, read-only.

    Made by ``open_store``. Memory of the views it gives: the file's own pages (mmap), alive as long as the view.
    """

    def __init__(self, contents: Contents, reopen: Callable[[], Store], io: Io = "mmap") -> None:
        """Wrap what a format found. ``reopen`` (picklable) opens the same path again, in another process."""
        self.path, self.kind = contents.path, contents.kind
        self.index, self.parts = contents.index, contents.parts
        self.info: Mapping[str, Any] = MappingProxyType(dict(contents.info))
        self.classes: tuple[str, ...] = _classes(contents)
        self._reopen, self._extras, self._whole_files = reopen, contents.extras, contents.whole_files
        self._reader: Reader = (
            FileReader(self.parts) if contents.whole_files else open_reader(self.parts, io, contents.stamps)
        )

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The number of each class name, as in ImageFolder."""
        return {name: number for number, name in enumerate(self.classes)}

    @property
    def mapped(self) -> bool:
        """Whether the bytes it gives are the file's own pages, so that fetching them reads nothing yet."""
        return isinstance(self._reader, MapReader)

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields, "image" first."""
        return tuple(self.index.fields)

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.index)

    def __repr__(self) -> str:
        """Return kind, path and length."""
        return f"Store({self.kind}, {self.path!r}, {len(self)} samples)"

    def key(self, i: int) -> str:
        """Return the key of sample ``i``."""
        return self.index.keys[self._position(i)]

    def find(self, key: str) -> int:
        """Return the position of ``key``; raise KeyNotFoundError."""
        return self.index.keys.find(key)

    def label(self, i: int) -> Label:
        """Return the label of sample ``i``: int, float, a tuple of floats, or None."""
        column = self.index.label
        if column is None:
            return None
        value = column[self._position(i)].tolist()
        return tuple(value) if isinstance(value, list) else value

    def spans(self, indices: NDArray[np.int64], field: str = "image") -> Spans:
        """Return where ``field`` of the samples lies."""
        column = self._column(field)
        part, length = column.part[indices].astype(np.int64), column.length[indices].astype(np.int64)
        if self._whole_files:
            length = file_sizes(self.parts, part)
        return Spans(part, column.offset[indices], length)

    def read(self, i: int, field: str = "image") -> memoryview:
        """Return the bytes of a field of sample ``i``: read-only, no copy with mmap.

        Raises OptionError where no sample has such a field, SampleError where this one has none.
        """
        column, i = self._column(field), self._position(i)
        length = int(column.length[i])
        if length < 0:
            msg = f"{self.path}: sample {i} ({self.key(i)!r}) has no field {field!r}, which others have"
            raise SampleError(msg)
        return self._reader.view(int(column.part[i]), int(column.offset[i]), length)

    def fetch(self, indices: NDArray[np.int64], field: str = "image") -> Encoded:
        """Return the encoded bytes of many samples, for a BatchDecoder; width and height are 0 where unknown."""
        column, index = self._column(field), self.index
        part, length = column.part[indices].astype(np.int64), column.length[indices].astype(np.int64)
        address, views, keep = self._reader.address(Spans(part, column.offset[indices], length))
        if self._whole_files:
            length = np.fromiter(map(len, views), np.int64, len(views))
        return Encoded(address, length, column.codec[indices], index.width[indices], index.height[indices], views, keep)

    def will_need(self, indices: NDArray[np.int64], field: str = "image") -> None:
        """Tell the kernel that these samples are read soon, where the store is mapped; return at once."""
        if isinstance(self._reader, MapReader):
            self._reader.will_need(self.spans(indices, field))

    def extras(self, i: int) -> dict[str, Any]:
        """Return what else the source said of sample ``i``."""
        if self._extras is not None:
            return dict(self._extras(self._position(i)))
        column = self.index.fields.get("extras")
        if column is None or column.length[self._position(i)] <= 0:
            return {}
        try:
            value = parse_json(bytes(self.read(i, "extras")))
        except StoreError:  # of reading
            raise
        except ValueError as error:
            msg = f"{self.path}: the extras of sample {i} ({self.key(i)!r}) are not JSON: {error}"
            raise StoreFormatError(msg) from error
        return value if isinstance(value, dict) else {"extras": value}

    def codec(self, i: int, field: str = "image") -> str:
        """Return the codec's name (of CODECS) of a field of sample ``i``."""
        return CODECS[int(self._column(field).codec[self._position(i)])]

    def record(self, i: int) -> Record:
        """Return sample ``i`` with all its fields, for a Writer; the bytes are views."""
        i, index = self._position(i), self.index
        fields = tuple(
            Field(name, self.codec(i, name), self.read(i, name))
            for name, column in index.fields.items()
            if name != "extras" and column.length[i] >= 0
        )
        size = int(index.width[i]), int(index.height[i])
        return Record(self.key(i), fields, self.label(i), *size, self.extras(i))

    def records(self) -> Iterator[Record]:
        """Yield all samples in order."""
        return map(self.record, range(len(self)))

    def check(self, i: int, field: str = "image") -> None:
        """Raise ChecksumError unless the bytes of sample ``i`` are those that were packed, where a sum is known."""
        import zlib  # noqa: PLC0415  only verification needs it

        wanted = int(self._column(field).checksum[self._position(i)])
        if wanted and zlib.crc32(self.read(i, field)) != wanted:
            msg = f"{self.path}: field {field!r} of sample {i} ({self.key(i)!r}) was changed after packing (CRC-32)"
            raise ChecksumError(msg)

    def close(self) -> None:
        """Let go of the files; may be called twice; views given out stay good."""
        self._reader.close()

    def __enter__(self) -> Self:
        """Return the store."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def __reduce__(self) -> tuple[Callable[[], Store], tuple[()]]:
        """Pickle as the way to open the same path again."""
        return self._reopen, ()

    def _position(self, i: int) -> int:
        n = len(self)
        if not -n <= i < n:
            msg = f"index {i} is out of range: {self.path} has {n} samples"
            raise IndexError(msg)
        return i % n

    def _column(self, field: str) -> Any:  # noqa: ANN401  SpanColumn, imported for types only
        try:
            return self.index.fields[field]
        except KeyError:
            msg = f"{self.path} has no field {field!r}; it has {', '.join(self.fields)}"
            raise OptionError(msg) from None


def _classes(contents: Contents) -> tuple[str, ...]:
    names = contents.info.get("classes", ())
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        msg = f"{contents.path}: the classes in its info are no list of names: it is damaged; pack again"
        raise StoreFormatError(msg)
    return tuple(names)
