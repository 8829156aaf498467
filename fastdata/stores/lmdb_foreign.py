"""LMDB files of other programs, where the values are plain image files; nothing is ever unpickled.

Known key schemes: tensorpack ("%08d"), Efficient-PyTorch (decimal numbers without padding, taken in numeric order),
text recognition ("image-%09d" with "label-%09d", from 1; the text becomes a field "label" of codec text), BasicSR and
others (any name; in the file's order). Keys such as "__keys__", "__len__", "num-samples" and "length" are no samples.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from fastdata.errors import StoreFormatError
from fastdata.stores.image_types import looks_like_image
from fastdata.stores.index import Index, KeyColumn, SpanColumn
from fastdata.stores.store import Contents
from fastdata.types import CODEC_IDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from fastdata.stores.lmdb_file import Database, Entries, LmdbFile

__all__ = ["read_foreign"]

_NO_SAMPLE = re.compile(rb"__.*__|num[-_]samples|length|num[-_]images", re.DOTALL)
_MOST_DIGITS = 18  # longer ones are no numbers here: no counter has them, and Python reads no more than 4,300
_IMAGE, _LABEL = re.compile(rb"image-(\d{1,18})"), re.compile(rb"label-(\d{1,18})")
_LOOKED_AT = 16  # values whose first bytes are looked at, spread over the file: each costs one read of a page


def read_foreign(path: str, file: LmdbFile, databases: Mapping[bytes, Database]) -> Contents:
    """Return the images of an LMDB file that fastdata did not write; labels are None, sizes and codecs unknown."""
    database = _choose(file, databases)
    entries = file.entries(database)
    keys = [key.hex().encode() if database.integer_keys or b"\0" in key else key for key in file.keys(entries)]
    if database.integer_keys and all(len(key) <= 2 * 8 for key in keys):  # size_t, in hexadecimal digits
        keys = [b"%d" % int.from_bytes(bytes.fromhex(key.decode()), "little") for key in keys]
    keep = [i for i, key in enumerate(keys) if not entries.named[i] and not _NO_SAMPLE.fullmatch(key)]
    rows, texts = _text_recognition(keys, keep)
    if rows is None:
        numbered = all(keys[i].isdigit() and len(keys[i]) <= _MOST_DIGITS for i in keep)
        rows = sorted(keep, key=lambda i: int(keys[i])) if numbered else keep
    order = np.array(rows, np.int64)
    _refuse_others(file, entries, order)
    names = KeyColumn.of(keys[i].decode("utf-8", "surrogateescape") for i in rows)
    fields = {"image": _spans(entries, order, "unknown")}
    if texts is not None:
        fields["label"] = _spans(entries, np.array(texts, np.int64), "text")
    none = np.zeros(len(order), np.int32)
    return Contents(path, "lmdb", [file.path], Index(names, None, none, none, fields), {"foreign": True})


def _choose(file: LmdbFile, databases: Mapping[bytes, Database]) -> Database:
    if file.main.entries > len(databases):
        return file.main
    filled = {name: database for name, database in databases.items() if database.entries}
    for name in (b"images", b"image", b"data"):
        if name in filled:
            return filled[name]
    if len(filled) != 1:
        found = ", ".join(repr(name.decode("utf-8", "replace")) for name in databases) or "none"
        msg = f"{file.path}: no samples found in this LMDB file (named databases: {found})"
        raise StoreFormatError(msg)
    return next(iter(filled.values()))


def _text_recognition(keys: list[bytes], keep: list[int]) -> tuple[list[int] | None, list[int] | None]:
    """Return the entries of images and, for each, of its text (-1: none) where keys are image-N and label-N."""
    images = {int(match[1]): i for i in keep if (match := _IMAGE.fullmatch(keys[i]))}
    labels = {int(match[1]): i for i in keep if (match := _LABEL.fullmatch(keys[i]))}
    if not images or len(images) + len(labels) != len(keep):
        return None, None
    numbers = sorted(images)
    return [images[n] for n in numbers], [labels.get(n, -1) for n in numbers] if labels else None


def _spans(entries: Entries, rows: NDArray[np.int64], codec: str) -> SpanColumn:
    there = rows >= 0
    n = len(rows)
    return SpanColumn(
        np.zeros(n, np.int32),
        np.where(there, entries.offset[rows], 0),
        np.where(there, entries.length[rows], -1),
        np.full(n, CODEC_IDS[codec], np.uint8),
        np.zeros(n, np.uint32),
    )


def _refuse_others(file: LmdbFile, entries: Entries, rows: NDArray[np.int64]) -> None:
    """Raise StoreFormatError where the values looked at are no image files."""
    if not len(rows):
        msg = f"{file.path}: no samples found in this LMDB file"
        raise StoreFormatError(msg)
    heads = []
    for row in rows[np.unique(np.linspace(0, len(rows) - 1, _LOOKED_AT).astype(np.int64))].tolist():
        start = int(entries.offset[row])
        heads.append(file.part(start, min(int(entries.length[row]), 64)).tobytes())
    if any(map(looks_like_image, heads)):
        return  # the odd value that is none fails when it is decoded, and is named there
    pickled = any(head[:1] == b"\x80" and head[1:2] <= b"\x05" for head in heads)
    what = "Python pickles, which could run any program and are never read here" if pickled else "no image files"
    msg = (
        f"{file.path}: the values of this LMDB file are {what} (the first begins with {heads[0][:16].hex(' ')}); write "
        "the images out with the program that made it, then pack them"
    )
    raise StoreFormatError(msg)
