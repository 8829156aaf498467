"""A pack in LMDB as a store, through our own reader of the file (never the LMDB library).

A pack has these databases: "images", the files as they are under keys of ten decimal digits (row numbers);
"fields/NAME" for each further field of a record, under the same keys; and "fastdata" with "info" (JSON) and
"index/COLUMN" (the raw little-endian columns of the Index; their types and checksums stand in the info). The info's
"stamp" says for which transaction the places in the Index were computed: after any later change, or in a compacted
copy, the trees are walked instead, and nothing is written. LMDB files of other programs: ``lmdb_foreign``.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdata.errors import IncompletePackError, StaleIndexError, StoreFormatError
from fastdata.stores.index import Index, SpanColumn
from fastdata.stores.json_values import parse_json
from fastdata.stores.lmdb_file import LmdbFile
from fastdata.stores.store import Contents

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fastdata.stores.lmdb_file import Database, Entries

__all__ = [
    "FORMAT_VERSION",
    "IMAGES",
    "KEY_DIGITS",
    "META",
    "field_database",
    "read_lmdb",
    "row_spans",
    "stamp_of",
    "was_rewritten",
]

FORMAT_VERSION = 1
KEY_DIGITS = 10  # so that keys sort as numbers for up to 10**10 samples, of a source of unknown length too
IMAGES, META = b"images", b"fastdata"
_PREFIX = b"index/"
_OWN = ("index", "stamp")  # what of the info is for this file only


def field_database(name: str) -> bytes:
    """Return the name of the database that holds field ``name``."""
    return IMAGES if name == "image" else b"fields/" + name.encode()


def read_lmdb(path: str, *, mapped: bool = True) -> Contents:
    """Return what lies in an LMDB file (or in the data.mdb of a folder); columns are views of it where it is mapped."""
    file = LmdbFile(os.path.join(path, "data.mdb") if os.path.isdir(path) else path, mapped=mapped)  # noqa: PTH112, PTH118
    databases = file.databases()
    if META not in databases:
        from fastdata.stores.lmdb_foreign import read_foreign  # noqa: PLC0415  only other programs' files need it

        return read_foreign(path, file, databases)
    if file.is_short:
        raise file.short_file()
    values = _values(file, databases[META])
    info = _info(file, values)
    index = Index.from_arrays(_columns(file, values, info), file.path)
    if info.get("stamp") == stamp_of(file, databases):
        _check_bounds(file, index)
    else:
        index = _found_again(file, databases, index)
    file.release()  # checking the columns touched them all; a loader touches the rows it needs
    return Contents(path, "lmdb", [file.path], index, {k: v for k, v in info.items() if k not in _OWN})


def stamp_of(file: LmdbFile, databases: Mapping[bytes, Database]) -> dict[str, Any]:
    """Return what changes whenever a value may have moved: the transaction, and each tree's root and counts."""
    trees = {name.decode("utf-8", "replace"): db.stamp() for name, db in databases.items() if name != META}
    return {"txnid": file.txnid, "trees": trees}


def was_rewritten(path: str) -> bool:
    """Whether LMDB has written to the pack since, or compacted it: its values lie elsewhere than they were packed."""
    file = LmdbFile(path)
    databases = file.databases()
    return _info(file, _values(file, databases[META])).get("stamp") != stamp_of(file, databases)


def row_spans(file: LmdbFile, database: Database, rows: int) -> tuple[NDArray[np.int64], Entries]:
    """Return the row number of each entry of a database with decimal keys; raise StaleIndexError for other keys."""
    entries = file.entries(database)
    n = len(entries)
    if n == 0:
        return np.zeros(0, np.int64), entries
    if not (entries.key_length == KEY_DIGITS).all():
        raise _changed(file)
    digits = file.data[entries.key_offset[:, None] + np.arange(KEY_DIGITS)].astype(np.int64) - ord("0")
    row: NDArray[np.int64] = digits @ 10 ** np.arange(KEY_DIGITS - 1, -1, -1, dtype=np.int64)
    if ((digits < 0) | (digits > 9)).any() or int(row.max()) >= rows or (np.diff(row) <= 0).any():  # noqa: PLR2004
        raise _changed(file)
    return row, entries


def _values(file: LmdbFile, database: Database) -> dict[bytes, tuple[int, int]]:
    entries = file.entries(database)
    spans = zip(entries.offset.tolist(), entries.length.tolist(), strict=True)
    return dict(zip(file.keys(entries), spans, strict=True))


def _info(file: LmdbFile, values: Mapping[bytes, tuple[int, int]]) -> dict[str, Any]:
    if b"info" not in values:
        msg = (
            f"{file.path} is an incomplete pack: the run that wrote it was stopped before it was finished; pack again "
            "with overwrite (--overwrite)"
        )
        raise IncompletePackError(msg)
    offset, length = values[b"info"]
    try:
        info = parse_json(file.part(offset, length).tobytes())
        version = info["format_version"]
    except (ValueError, KeyError, TypeError) as error:
        msg = f"{file.path}: the pack's info is damaged ({error}); pack again"
        raise StoreFormatError(msg) from error
    if version != FORMAT_VERSION:
        msg = f"{file.path}: a pack of format version {version}; this fastdata reads {FORMAT_VERSION}: update fastdata"
        raise StoreFormatError(msg)
    return info  # type: ignore[no-any-return]


def _columns(
    file: LmdbFile, values: Mapping[bytes, tuple[int, int]], info: Mapping[str, Any]
) -> dict[str, NDArray[Any]]:
    arrays, most = {}, file.size
    try:
        for name, told in info["index"].items():
            offset, length = values[_PREFIX + name.encode()]
            raw = file.part(offset, length)
            column = _column(raw, told["dtype"], told["shape"])
            most -= length
            if most < 0:  # many names for the same pages: summing them all would take for ever
                msg = f"{file.path}: the index is damaged (its columns are longer than the file); pack again"
                raise StoreFormatError(msg)
            if zlib.crc32(raw.data) != told["crc32"]:
                msg = (
                    f"{file.path}: column {name!r} of the index was changed after packing (CRC-32); copy or pack again"
                )
                raise StoreFormatError(msg)
            arrays[name] = column
            file.release()  # the sum has touched it all
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        if isinstance(error, StoreFormatError):
            raise
        msg = f"{file.path}: the index is damaged ({error}); pack again"
        raise StoreFormatError(msg) from error
    return arrays


def _column(raw: NDArray[np.uint8], dtype: str, shape: list[int]) -> NDArray[Any]:
    if dtype not in {"|u1", "<i4", "<u4", "<i8", "<f4", "<f8"}:
        msg = f"a column of type {dtype!r}"
        raise ValueError(msg)
    kind = np.dtype(dtype)
    # Values of less than half a page lie among the keys, at any even address; they are small, so they are copied.
    aligned = raw if raw.__array_interface__["data"][0] % kind.itemsize == 0 else raw.copy()
    return aligned.view(kind).reshape(shape)


def _check_bounds(file: LmdbFile, index: Index) -> None:
    for column in index.fields.values():
        if bool((np.maximum(column.length, 0) > file.size - column.offset).any()):  # a sum could wrap round
            raise file.short_file()


def _found_again(file: LmdbFile, databases: Mapping[bytes, Database], index: Index) -> Index:
    """Return the index with places and lengths as the trees have them now."""
    fields = {}
    for name, column in index.fields.items():
        database = databases.get(field_database(name))
        if database is None:
            raise _changed(file)
        row, entries = row_spans(file, database, len(index))
        if not np.array_equal(row, np.flatnonzero(column.length >= 0)):
            raise _changed(file)
        offset, length = np.zeros(len(index), np.int64), np.full(len(index), -1, np.int64)
        offset[row], length[row] = entries.offset, entries.length
        fields[name] = SpanColumn(column.part, offset, length, column.codec, column.checksum)
    return replace(index, fields=fields)


def _changed(file: LmdbFile) -> StaleIndexError:
    return StaleIndexError(
        f"{file.path}: another program added samples to this pack, removed some or changed their keys: labels and "
        "images may no longer belong together; pack again"
    )
