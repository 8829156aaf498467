"""The Index: what a store knows of its samples, as numpy columns."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdata.errors import KeyNotFoundError, OptionError, StoreFormatError
from fastdata.types import CODEC_IDS, CODECS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from fastdata.types import Label

__all__ = ["Index", "IndexBuilder", "KeyColumn", "SpanColumn"]

_SPAN_DTYPES = {"part": "<i4", "offset": "<i8", "length": "<i8", "codec": "u1", "checksum": "<u4"}


@dataclass(frozen=True, slots=True, eq=False)
class KeyColumn:
    """Keys in one buffer: UTF-8 (surrogateescape) and a NUL behind each; offset (n + 1) has each one's first byte."""

    blob: NDArray[np.uint8]
    offset: NDArray[np.int64]

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self.offset) - 1

    def __getitem__(self, i: int) -> str:
        """Return key ``i``."""
        start, stop = int(self.offset[i]), int(self.offset[i + 1])
        return self.blob[start : stop - 1].tobytes().decode("utf-8", "surrogateescape")

    def find(self, key: str) -> int:
        """Return the position of ``key``; raise KeyNotFoundError. One pass of memmem over the buffer."""
        needle = key.encode("utf-8", "surrogateescape") + b"\0"
        haystack = self.blob.data
        if len(self) and self[0] == key:
            return 0
        # A NUL before it makes the hit a whole key; bytes.find needs bytes, so the buffer is searched in 16 MiB steps.
        needle, step = b"\0" + needle, 1 << 24
        for start in range(0, len(haystack), step):
            window = bytes(haystack[start : start + step + len(needle)])
            hit = window.find(needle)
            while hit >= 0:
                i = int(np.searchsorted(self.offset, start + hit + 1))
                if i < len(self) and self[i] == key:  # a damaged buffer may have a NUL inside of a key
                    return i
                hit = window.find(needle, hit + 1)
        msg = f"no sample has the key {key!r} ({len(self)} samples; keys are relative paths without their ending)"
        raise KeyNotFoundError(msg)

    @classmethod
    def of(cls, keys: Iterable[str]) -> KeyColumn:
        """Build the column from strings."""
        blob, offset = bytearray(), array("q", [0])
        for key in keys:
            blob += _key_bytes(key)
            offset.append(len(blob))
        return cls(np.frombuffer(bytes(blob), np.uint8), np.array(offset, np.int64))


def _key_bytes(key: str) -> bytes:
    data = key.encode("utf-8", "surrogateescape") + b"\0"
    if data.find(b"\0") != len(data) - 1:
        msg = f"key {key!r} has a NUL character: rename the file"
        raise OptionError(msg)
    return data


@dataclass(frozen=True, slots=True, eq=False)
class SpanColumn:
    """Where one field of every sample lies; arrays of shape (n,).

    part int32; offset, length int64 in bytes (length -1: this sample does not have the field); codec uint8 (a number of
    CODECS); checksum uint32, the CRC-32 of the bytes (0 where none is known: folders, foreign packs).
    """

    part: NDArray[np.int32]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    codec: NDArray[np.uint8]
    checksum: NDArray[np.uint32]


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """Columns over n samples.

    label: int64 (n,), float64 (n,), float32 (n, k), or None where the set has no labels. width, height: int32 (n,)
    pixels of the image, 0 where unknown. fields: the SpanColumn of each field, "image" first; "extras" is JSON.
    """

    keys: KeyColumn
    label: NDArray[Any] | None
    width: NDArray[np.int32]
    height: NDArray[np.int32]
    fields: Mapping[str, SpanColumn]

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.width)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the columns by name, as containers store them: little-endian, C-contiguous."""
        arrays: dict[str, NDArray[Any]] = {
            "key_blob": self.keys.blob,
            "key_offset": self.keys.offset,
            "width": self.width,
            "height": self.height,
        }
        if self.label is not None:
            arrays["label"] = self.label
        for name, column in self.fields.items():
            for part in _SPAN_DTYPES:
                arrays[f"{name}/{part}"] = getattr(column, part)
        return {k: np.ascontiguousarray(v, v.dtype.newbyteorder("<")) for k, v in arrays.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], where: str, parts: int = 1) -> Index:
        """Build an Index over borrowed arrays of a pack of ``parts`` files.

        Raises StoreFormatError, naming ``where``, unless the columns fit together and name no other files.
        """
        try:
            names = [key[: -len("/offset")] for key in arrays if key.endswith("/offset")]
            names.sort(key=lambda name: (name != "image", name))
            fields = {
                name: SpanColumn(**{p: _typed(arrays[f"{name}/{p}"], d) for p, d in _SPAN_DTYPES.items()})
                for name in names
            }
            label = arrays.get("label")
            index = cls(
                KeyColumn(_typed(arrays["key_blob"], "u1"), _typed(arrays["key_offset"], "<i8")),
                None if label is None else _label_column(label),
                _typed(arrays["width"], "<i4"),
                _typed(arrays["height"], "<i4"),
                fields,
            )
        except (KeyError, TypeError, ValueError) as error:
            msg = f"{where}: the index is damaged ({error}); pack again"
            raise StoreFormatError(msg) from error
        index.check(where, parts)
        return index

    def check(self, where: str, parts: int | None = None) -> None:
        """Raise StoreFormatError, naming ``where``, unless all columns have n rows and their numbers are possible.

        parts: how many files there are (None: not looked at).
        """
        n, keys = len(self.width), self.keys
        columns = [self.height] + [getattr(c, part) for c in self.fields.values() for part in _SPAN_DTYPES]
        good = (
            "image" in self.fields
            and all(c.shape == (n,) for c in columns)
            and (self.label is None or (self.label.ndim in {1, 2} and len(self.label) == n))
            and len(keys.offset) == n + 1
            and int(keys.offset[0]) == 0
            and int(keys.offset[-1]) == len(keys.blob)
            and bool((keys.offset >= 0).all() and (np.diff(keys.offset) >= 1).all())
            and all(bool((c.offset >= 0).all() and (c.length >= -1).all()) for c in self.fields.values())
            and all(bool((c.part >= 0).all() and (c.codec < len(CODECS)).all()) for c in self.fields.values())
            and bool((self.width >= 0).all() and (self.height >= 0).all())
        )
        if not good:
            msg = f"{where}: the index is damaged (its columns do not fit together); pack again"
            raise StoreFormatError(msg)
        if parts is not None and any(bool((c.part >= parts).any()) for c in self.fields.values()):
            msg = f"{where}: the index is damaged (a sample lies in a file that the pack does not have); pack again"
            raise StoreFormatError(msg)


def _typed(column: NDArray[Any], dtype: str) -> NDArray[Any]:
    if column.dtype != np.dtype(dtype) or column.ndim != 1:
        msg = f"a column is {column.dtype} with {column.ndim} dimensions instead of {dtype} with one"
        raise TypeError(msg)
    return column


def _label_column(column: NDArray[Any]) -> NDArray[Any]:
    if column.dtype not in {np.dtype("<i8"), np.dtype("<f8"), np.dtype("<f4")}:
        msg = f"labels are {column.dtype} instead of int64, float64 or float32"
        raise TypeError(msg)
    return column


class IndexBuilder:
    """Collects rows while a writer writes; ``build`` makes the Index. Rows cost their columns' bytes, no objects."""

    def __init__(self) -> None:
        """Start with no rows."""
        self._blob = bytearray()
        self._key_offset = array("q", [0])
        self._width, self._height = array("i"), array("i")
        self._fields: dict[str, dict[str, array[Any]]] = {}
        self._labels: array[float] | array[int] | None = None
        self._label_kind: tuple[type, int] | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._width)

    def add(self, key: str, label: Label, width: int, height: int) -> None:
        """Start the next row; its fields follow by ``add_span``."""
        key_bytes = _key_bytes(key)  # what may fail comes first, so that a refused row leaves nothing behind
        self._add_label(key, label)
        self._blob += key_bytes
        self._key_offset.append(len(self._blob))
        self._width.append(width)
        self._height.append(height)

    def add_span(self, name: str, codec: str, where: tuple[int, int, int], checksum: int = 0) -> None:
        """Say where field ``name`` of the row added last lies: (part, offset, length)."""
        column = self._fields.get(name)
        if column is None:
            column = {"part": array("i"), "offset": array("q"), "length": array("q"), "codec": array("B")}
            column["checksum"] = array("I")
            self._fields[name] = column
        if len(column["part"]) < len(self) - 1:
            self._pad(column, len(self) - 1)
        for target, value in zip(column.values(), (*where, CODEC_IDS.get(codec, 0), checksum), strict=True):
            target.append(value)

    def build(self) -> Index:
        """Return the Index of the rows so far."""
        n = len(self)
        self._fields.setdefault("image", {p: array("i") for p in _SPAN_DTYPES})
        fields = {}
        for name in sorted(self._fields, key=lambda name: (name != "image", name)):
            self._pad(self._fields[name], n)
            fields[name] = SpanColumn(**{p: np.array(self._fields[name][p], d) for p, d in _SPAN_DTYPES.items()})
        keys = KeyColumn(np.frombuffer(bytes(self._blob), np.uint8), np.array(self._key_offset, np.int64))
        return Index(keys, self._label_array(n), np.array(self._width, "i4"), np.array(self._height, "i4"), fields)

    @staticmethod
    def _pad(column: dict[str, array[Any]], rows: int) -> None:
        for name, values in column.items():
            values.extend([-1 if name == "length" else 0] * (rows - len(values)))

    def _add_label(self, key: str, label: Label) -> None:
        if isinstance(label, tuple):
            kind: tuple[type, int] = (tuple, len(label))
        else:
            kind = (type(None) if label is None else float if isinstance(label, float) else int, 1)
        if self._label_kind is None:
            self._label_kind = kind
            self._labels = None if label is None else array("q" if kind[0] is int else "d")
        elif self._label_kind != kind:
            if {self._label_kind[0], kind[0]} == {int, float}:
                self._label_kind, self._labels = (float, 1), array("d", self._labels or ())
            else:
                before, now = (f"{k.__name__} x {size}" for k, size in (self._label_kind, kind))
                msg = f"key {key!r}: its label is {now}, the labels before it are {before}; give all one kind"
                raise OptionError(msg)
        if self._labels is not None:
            self._labels.extend(label if isinstance(label, tuple) else (label,))  # type: ignore[arg-type]

    def _label_array(self, n: int) -> NDArray[Any] | None:
        if self._labels is None or self._label_kind is None:
            return None
        kind, size = self._label_kind
        if kind is tuple:
            return np.array(self._labels, np.float32).reshape(n, size)
        return np.array(self._labels, np.int64 if kind is int else np.float64)
