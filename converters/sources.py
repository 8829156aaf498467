"""What is packed: one or several stores as one sequence of rows, with one class map and keys that are one each."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from fastdata.errors import OptionError, StoreNotFoundError
from fastdata.philox import words
from fastdata.stores.opener import open_store
from fastdata.stores.store import Store
from fastdata.types import CODEC_IDS, CODECS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from fastdata.converters.options import PackOptions
    from fastdata.types import Label

__all__ = ["Row", "Source", "Value", "open_source", "order_of"]

_PARTS = 4096  # files of a source that a destination is compared with: all shards of a set; of a manifest, the first
_PICTURES = [
    CODEC_IDS[name] for name in ("jpeg", "png", "webp", "bmp", "raw", "gif", "tiff", "avif", "heic", "jxl", "jp2")
]
_BLOCK = 1 << 20  # rows whose draws are made at once
_ROWS = 256  # rows whose places are looked up at once


class Value(NamedTuple):  # a tuple, as Row: there are many, and a frozen dataclass takes five times as long to make
    """Where one field's bytes lie: a file, offset and length in bytes (0 and 0: the whole file), and their CRC-32."""

    name: str
    codec: str
    path: str
    offset: int
    length: int
    checksum: int = 0


class Row(NamedTuple):
    """One sample to be packed: everything a worker needs, and nothing of the store. values[0] is the image."""

    key: str
    values: tuple[Value, ...]
    label: Label
    width: int
    height: int
    extras: Mapping[str, Any]


class Source:
    """Stores put one behind the other; rows are made when asked for."""

    def __init__(self, stores: Sequence[Store], folders: Sequence[object] = ()) -> None:
        """Merge the class maps; raise OptionError where labels cannot be merged. folders: further places of files."""
        self.stores = tuple(stores)
        self._folders = folders
        self._start = np.cumsum([0, *map(len, stores)])
        self.classes = _merged_classes(stores)
        self._numbers = [[self.classes.index(name) for name in store.classes] for store in stores]
        self._prefixes = _prefixes(stores) if _keys_collide(stores) else [""] * len(stores)

    def __len__(self) -> int:
        """Return the number of samples of all stores."""
        return int(self._start[-1])

    @property
    def places(self) -> list[str]:
        """Where the sources lie: nothing is written to these files, or into these folders."""
        places: list[str] = []
        for store in self.stores:
            places.extend([store.path] if os.path.isdir(store.path) else [store.path, *store.parts[:_PARTS]])  # noqa: PTH112
        return [*places, *map(str, self._folders)]

    def further_pictures(self) -> list[str]:
        """Return the names of the fields, the image apart, that hold pictures, too (masks, second views)."""
        names = set()
        for store in self.stores:
            for name, column in store.index.fields.items():
                if name != "image" and np.isin(column.codec[column.length >= 0], _PICTURES).any():
                    names.add(name)
        return sorted(names)

    @property
    def ignored(self) -> dict[str, int]:
        """How many files of the folders are no images, by type."""
        total: dict[str, int] = {}
        for store in self.stores:
            for kind, count in dict(store.info.get("ignored", {})).items():
                total[kind] = total.get(kind, 0) + int(count)
        return total

    @property
    def unlabelled(self) -> tuple[str, ...]:
        """The columns of manifests that have no labels: one of them may be meant as such."""
        manifests = [store for store in self.stores if store.kind == "manifest"]  # HDF5 packs call their sums so, too
        return tuple(dict.fromkeys(str(name) for store in manifests for name in store.info.get("columns", ())))

    @property
    def flat(self) -> int:
        """How many folders hold pictures and no class folders, so that there are no labels."""
        return sum(store.kind == "folder" and store.index.label is None for store in self.stores)

    @property
    def without_index(self) -> tuple[str, ...]:
        """Why tars of ours have no class names here, a text each: they are read without their index."""
        return tuple(
            str(store.info["without_index"])
            for store in self.stores
            if store.index.label is not None and "without_index" in store.info
        )

    def rows(self, order: Sequence[int] | NDArray[np.int64]) -> Iterator[Row]:
        """Yield the samples at these positions of the whole sequence."""
        for first in range(0, len(order), _ROWS):
            position = np.asarray(order[first : first + _ROWS], np.int64)
            which = np.searchsorted(self._start, position, side="right") - 1
            # Each store's rows come in order, so the next one of a sample's store is that sample's.
            rows = {
                number: self._rows_of(number, position[which == number] - self._start[number])
                for number in np.unique(which).tolist()
            }
            for number in which.tolist():
                yield next(rows[number])

    def _rows_of(self, number: int, indices: NDArray[np.int64]) -> Iterator[Row]:
        """Yield samples of one store; columns become lists for all of them at once, a tenth of the price one by one."""
        store, prefix, numbers = self.stores[number], self._prefixes[number], self._numbers[number]
        index = store.index
        labels = [None] * len(indices) if index.label is None else index.label[indices].tolist()
        sizes = zip(index.width[indices].tolist(), index.height[indices].tolist(), strict=True)
        values = zip(*(_values(store, name, indices) for name in index.fields if name != "extras"), strict=True)
        for i, label, size, some in zip(indices.tolist(), labels, sizes, values, strict=True):
            there = tuple(value for value in some if value is not None)
            yield Row(prefix + store.key(i), there, _label(label, numbers), *size, store.extras(i))

    def close(self) -> None:
        """Close the stores."""
        for store in self.stores:
            store.close()


def _label(value: Any, numbers: Sequence[int]) -> Label:  # noqa: ANN401  what a column's tolist gives
    """Return the label of a sample; a class by its number among the classes of all stores."""
    if isinstance(value, list):
        return tuple(value)
    return numbers[value] if isinstance(value, int) and 0 <= value < len(numbers) else value


def _values(store: Store, name: str, indices: NDArray[np.int64]) -> list[Value | None]:
    """Return where one field of these samples lies; None for those that do not have it."""
    column = store.index.fields[name]
    columns = (column.codec, column.part, column.offset, column.length, column.checksum)
    return [
        Value(name, CODECS[codec], os.path.abspath(store.parts[part]), offset, length, checksum)  # noqa: PTH100  a string
        if length >= 0
        else None
        for codec, part, offset, length, checksum in zip(*(c[indices].tolist() for c in columns), strict=True)
    ]


def open_source(
    src: object,
    manifest: str | os.PathLike[str] | None = None,
    *,
    label_column: str | None = None,
    on_duplicate: Literal["raise", "skip"] = "raise",
) -> Source:
    """Open a path, a Store, or a list of either; with ``manifest``, the files it lists, relative to the folder src.

    label_column: the column of the manifests (``manifest``, or among src) that is the label.
    on_duplicate: of tars, as ``open_store`` has it.
    """
    several = list(src) if isinstance(src, (list, tuple)) else [] if src is None else [src]
    if manifest is not None:
        return Source([_open_manifest(manifest, several, label_column)], several)
    if not several:
        msg = "no source was given; expected a folder, a manifest or a pack"
        raise OptionError(msg)
    stores = [one if isinstance(one, Store) else open_store(_path(one), on_duplicate=on_duplicate) for one in several]
    if label_column is None:
        return Source(stores)
    if not any(store.kind == "manifest" for store in stores):
        msg = f"label_column={label_column!r} is for manifests (CSV, TSV, JSONL), and the source has none"
        raise OptionError(msg)
    return Source([_open_manifest(s.path, [], label_column) if s.kind == "manifest" else s for s in stores])


def _open_manifest(manifest: str | os.PathLike[str], roots: Sequence[object], label_column: str | None = None) -> Store:
    from fastdata.stores.manifest_store import read_manifest  # noqa: PLC0415  manifests only

    if len(roots) > 1:
        msg = f"with a manifest, give one folder that its paths are relative to, or none; not {len(roots)}"
        raise OptionError(msg)
    path, root = os.fspath(manifest), os.fspath(_path(roots[0])) if roots else None
    if not os.path.isfile(path):  # noqa: PTH113  a string
        msg = f"{path}: no manifest lies there"
        raise StoreNotFoundError(msg)
    contents = read_manifest(path, root, label_column=label_column)
    return Store(contents, partial(_open_manifest, path, [root] if root else [], label_column))


def _path(one: object) -> str | os.PathLike[str]:
    if isinstance(one, (str, os.PathLike)):
        return one
    msg = f"src is {type(one).__name__}: expected a path, a Store, or a list of them"
    raise OptionError(msg)


def order_of(length: int, options: PackOptions) -> Sequence[int] | NDArray[np.int64]:
    """Return which sample of the source comes at which place: a function of length, shuffle, seed and limit only."""
    if not options.shuffle:
        return range(length if options.limit is None else min(length, options.limit))
    draws = np.empty(length, np.uint64)
    for start in range(0, length, _BLOCK):
        high, low = words(options.seed, 0, np.arange(start, min(length, start + _BLOCK)), 2).T
        draws[start : start + _BLOCK] = (high << np.uint64(32)) | low
    return np.argsort(draws, kind="stable")[: options.limit]


def _merged_classes(stores: Sequence[Store]) -> tuple[str, ...]:
    """Return the sorted union of the class names (one store: its own, in its own order)."""
    if len(stores) == 1 or len({store.classes for store in stores}) == 1:
        return stores[0].classes
    without = [store.path for store in stores if not store.classes and store.index.label is not None]
    if without:
        msg = (
            f"{without[0]} has labels without class names, another source has class names: pack them one by one, "
            "into packs of their own"
        )
        raise OptionError(msg)
    return tuple(sorted({name for store in stores for name in store.classes}))


def _keys_collide(stores: Sequence[Store]) -> bool:
    if len(stores) == 1:
        return False
    # 64-bit hashes: two different keys that share one only cost prefixes that were not needed.
    hashes = np.concatenate([np.fromiter(map(_hash, map(s.key, range(len(s)))), np.uint64, len(s)) for s in stores])
    return len(np.unique(hashes)) < len(hashes)


def _hash(key: str) -> int:
    import hashlib  # noqa: PLC0415  only where several sources meet

    data = key.encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def _prefixes(stores: Sequence[Store]) -> list[str]:
    """Return a folder name for the keys of each store: its own name, numbered where two are alike."""
    names: list[str] = []
    for store in stores:
        name = os.path.basename(os.path.abspath(store.path)).partition(".")[0] or "source"  # noqa: PTH100, PTH119
        number, unique = 2, name
        while unique in names:
            unique, number = f"{name}-{number}", number + 1
        names.append(unique)
    return [name + "/" for name in names]
