"""The seal of a pack: a sum over all bytes that are no value of a record, whose own sums are in the Index.

Together they leave no byte of a pack unchecked: headers, trees, padding and indexes, too. A single file has its seal in
its last 24 bytes, which LMDB and HDF5 do not look at::

    bytes 0..7    "FDSEAL" and two NULs
    bytes 8..15   the number of bytes before the seal, uint64
    bytes 16..19  CRC-32 of those that belong to no value, uint32
    bytes 20..23  CRC-32 of the seal's first 20 bytes, uint32

A tar keeps the sums of its files in its index. Nothing is read twice for it: the values are passed over.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastdata.stores.index import Index

__all__ = ["SEAL_BYTES", "append_seal", "broken_seal", "has_seal", "rest_sum", "spans_of"]

_MAGIC = b"FDSEAL\0\0"
_SEAL = struct.Struct("<8sQII")
SEAL_BYTES = _SEAL.size
_STEP = 1 << 20  # bytes read at once


def append_seal(path: str | os.PathLike[str], index: Index) -> None:
    """Write the seal behind a finished file whose only part is ``path``."""
    size = Path(path).stat().st_size
    head = _SEAL.pack(_MAGIC, size, rest_sum(path, *spans_of(index, 0), size), 0)[:-4]
    with Path(path).open("ab") as file:
        file.write(head + struct.pack("<I", zlib.crc32(head)))


def has_seal(path: str | os.PathLike[str]) -> bool:
    """Whether the file's last bytes are, or were, a seal."""
    return _last_bytes(path)[:6] == _MAGIC[:6]


def broken_seal(path: str | os.PathLike[str], index: Index) -> str:
    """Return what is wrong with the file outside of its values, "" where nothing is."""
    size, last = Path(path).stat().st_size, _last_bytes(path)
    if len(last) < SEAL_BYTES or last[:8] != _MAGIC or zlib.crc32(last[:20]) != _SEAL.unpack(last)[3]:
        return "its seal (the last 24 bytes) is missing or damaged: the file was cut short, or changed after packing"
    _, sealed, wanted, _ = _SEAL.unpack(last)
    if sealed != size - SEAL_BYTES:
        return f"it has {size - SEAL_BYTES} bytes before its seal, {sealed} were packed"
    if rest_sum(path, *spans_of(index, 0), sealed) != wanted:
        return "bytes outside of the records (headers, trees, columns or padding) were changed after packing (CRC-32)"
    return ""


def spans_of(index: Index, part: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return offset and length of all values in one file, in the file's order."""
    offsets, lengths = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for column in index.fields.values():
        here = (column.length > 0) & (column.part == part)
        offsets.append(np.asarray(column.offset[here], np.int64))
        lengths.append(np.asarray(column.length[here], np.int64))
    offset, length = np.concatenate(offsets), np.concatenate(lengths)
    order = np.argsort(offset, kind="stable")
    return offset[order], length[order]


def rest_sum(path: str | os.PathLike[str], offset: NDArray[np.int64], length: NDArray[np.int64], size: int) -> int:
    """Return the CRC-32 of the first ``size`` bytes of a file without those of the (sorted) spans."""
    crc, done = 0, 0
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        for start, n in zip(offset.tolist(), length.tolist(), strict=True):
            crc = _sum_of(descriptor, done, min(start, size), crc)
            done = max(done, start + n)
        return _sum_of(descriptor, done, size, crc)
    finally:
        os.close(descriptor)


def _sum_of(descriptor: int, start: int, stop: int, crc: int) -> int:
    while start < stop:
        piece = os.pread(descriptor, min(_STEP, stop - start), start)
        if not piece:
            break
        crc = zlib.crc32(piece, crc)
        start += len(piece)
    return crc


def _last_bytes(path: str | os.PathLike[str]) -> bytes:
    with Path(path).open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - SEAL_BYTES))
        return file.read(SEAL_BYTES)
