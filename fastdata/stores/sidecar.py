"""The index beside a tar or a set of tars: one file whose columns are mapped, so that a million records open at once.

::

    bytes 0..7    "FDINDEX" and the format's version, one byte
    bytes 8..15   length of the header in bytes, its CRC-32; two uint32, little-endian
    header        JSON: info, shards [{name, size, stamp}], columns {name: {dtype, shape, offset, crc}}, size
    columns       each at a multiple of 64 bytes, little-endian, C order

It is written last and names every shard, so a set without it was not finished. While the files of a new pack get their
names, the index stands there as ``.partial``: whoever opens the set then is told that it is incomplete.
"""

from __future__ import annotations

import json
import math
import os
import struct
import zlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdata.errors import StoreFormatError, StoreNotFoundError, TruncatedStoreError
from fastdata.stores.json_values import parse_json
from fastdata.stores.mapping import FileBytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["MAGIC", "Shard", "Sidecar", "padding_is_zero", "read_sidecar", "stamp_of", "write_sidecar"]

MAGIC = b"FDINDEX\x01"
_PREFIX = struct.Struct("<8sII")
_ALIGN = 64
_STAMP = 512  # bytes that a stamp covers: the first header, no pixels (records have checksums of their own)
_DTYPES = {"|u1", "<i4", "<i8", "<u4", "<f4", "<f8"}


@dataclass(frozen=True, slots=True)
class Shard:
    """One tar of the set: file name, size in bytes, CRC-32 of its first 512 bytes."""

    name: str
    size: int
    stamp: int


@dataclass(frozen=True, slots=True, eq=False)
class Sidecar:
    """What the index says: the pack's info, its shards, and the Index's columns, views of the mapped file."""

    info: Mapping[str, Any]
    shards: Sequence[Shard]
    columns: Mapping[str, NDArray[Any]]


def write_sidecar(path: Path, sidecar: Sidecar) -> None:
    """Write the index to ``path``, which must not be there yet under this name."""
    arrays = {name: np.ascontiguousarray(a, a.dtype.newbyteorder("<")) for name, a in sidecar.columns.items()}
    rows: dict[str, dict[str, Any]] = {}
    offset = 0
    for name, array in arrays.items():
        crc = zlib.crc32(array.tobytes())
        rows[name] = {"dtype": array.dtype.str, "shape": list(array.shape), "offset": offset, "crc": crc}
        offset += -(-array.nbytes // _ALIGN) * _ALIGN
    header = json.dumps(
        {
            "info": dict(sidecar.info),
            "shards": [asdict(shard) for shard in sidecar.shards],
            "columns": rows,
            "size": offset,
        },
        separators=(",", ":"),
    ).encode()
    with path.open("wb") as file:
        file.write(_PREFIX.pack(MAGIC, len(header), zlib.crc32(header)))
        file.write(header)
        for array in arrays.values():
            file.write(bytes(-file.tell() % _ALIGN))
            file.write(array.tobytes())
        file.write(bytes(-file.tell() % _ALIGN))


def read_sidecar(path: str, *, mapped: bool = True) -> Sidecar:
    """Map, or read, the index at ``path``; raise StoreFormatError unless all of it is as it was written (CRC-32s)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    except FileNotFoundError as error:
        msg = f"{path}: no index lies there"
        raise StoreNotFoundError(msg) from error
    try:
        size = os.fstat(descriptor).st_size
        header, start = _read_header(descriptor, path)
        data = FileBytes(descriptor, path, mapped=mapped)
        try:
            shards = [Shard(str(s["name"]), int(s["size"]), int(s["stamp"])) for s in header["shards"]]
            if size != start + int(header["size"]):
                raise _damaged(path, f"it has {size} bytes instead of {start + int(header['size'])}")
            columns, most = {}, size
            for name, row in header["columns"].items():
                columns[name] = _column(data, descriptor, row, start)
                most -= columns[name].nbytes
                if most < 0:  # many names for the same bytes: summing them all would take for ever
                    raise _damaged(path, "its columns are longer than the file")
            return Sidecar(dict(header["info"]), shards, columns)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            if isinstance(error, StoreFormatError):
                raise
            raise _damaged(path, str(error)) from error
    finally:
        os.close(descriptor)


def padding_is_zero(path: str) -> bool:
    """Whether the bytes that no sum covers, between the columns of the (good) index at ``path``, are all zero."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        header, start = _read_header(descriptor, path)
        at = _PREFIX.size + len(
            os.pread(descriptor, _PREFIX.unpack(os.pread(descriptor, _PREFIX.size, 0))[1], _PREFIX.size)
        )
        spans = [(start, start)]
        for row in header["columns"].values():
            nbytes = np.dtype(row["dtype"]).itemsize * math.prod(row["shape"])
            spans.append((start + row["offset"], start + row["offset"] + nbytes))
        for first, behind in [*sorted(spans), (os.fstat(descriptor).st_size,) * 2]:
            if any(os.pread(descriptor, max(0, first - at), at)):
                return False
            at = max(at, behind)
        return True
    finally:
        os.close(descriptor)


def stamp_of(path: str) -> int:
    """Return the CRC-32 of the first 512 bytes of a tar, which are its first member's header."""
    with open(path, "rb") as file:  # noqa: PTH123  a str path from start to end
        return zlib.crc32(file.read(_STAMP))


def _read_header(descriptor: int, path: str) -> tuple[dict[str, Any], int]:
    """Return the header and the offset at which the columns begin."""
    prefix = os.pread(descriptor, _PREFIX.size, 0)
    if len(prefix) < _PREFIX.size or prefix[:7] != MAGIC[:7]:
        msg = f"{path}: this is no index of fastdata; remove it, or pack again"
        raise StoreFormatError(msg)
    magic, length, crc = _PREFIX.unpack(prefix)
    if magic != MAGIC:
        msg = f"{path}: version {magic[7]} of the index is not known here (1 is); update fastdata, or pack again"
        raise StoreFormatError(msg)
    # A hostile length must not make a buffer of its size.
    text = os.pread(descriptor, min(length, os.fstat(descriptor).st_size), _PREFIX.size)
    if len(text) < length:
        msg = f"{path}: the index ends inside its header; copy it again, or pack again"
        raise TruncatedStoreError(msg)
    if zlib.crc32(text) != crc:
        raise _damaged(path, "CRC-32 of the header")
    try:
        header = parse_json(text)
    except ValueError as error:
        raise _damaged(path, str(error)) from error
    if not isinstance(header, dict):
        raise _damaged(path, "its header is no object")
    return header, -(-(_PREFIX.size + length) // _ALIGN) * _ALIGN


def _column(data: FileBytes, descriptor: int, row: Mapping[str, Any], start: int) -> NDArray[Any]:
    dtype, shape, offset = str(row["dtype"]), tuple(int(n) for n in row["shape"]), int(row["offset"])
    if dtype not in _DTYPES or len(shape) not in {1, 2} or min(shape) < 0 or offset < 0:
        msg = f"a column has dtype {dtype}, shape {shape}, offset {offset}"
        raise ValueError(msg)
    count = 1
    for n in shape:  # Python's integers do not wrap, numpy's product does
        count *= n
    nbytes = count * np.dtype(dtype).itemsize
    if start + offset + nbytes > data.size:
        msg = f"a column of {nbytes} bytes at {start + offset} reaches beyond the end"
        raise ValueError(msg)
    if _crc(descriptor, start + offset, nbytes) != int(row["crc"]):
        msg = "CRC-32 of a column"
        raise ValueError(msg)
    return data.part(start + offset, nbytes).view(dtype).reshape(shape) if count else np.zeros(shape, dtype)


def _crc(descriptor: int, offset: int, nbytes: int) -> int:
    """Return the CRC-32 of a span, read past the mapping: pages that nobody asked for stay out of the process."""
    crc, end, step = 0, offset + nbytes, 1 << 20
    while offset < end:
        piece = os.pread(descriptor, min(step, end - offset), offset)
        if not piece:
            return -1
        crc = zlib.crc32(piece, crc)
        offset += len(piece)
    return crc


def _damaged(path: str, what: str) -> StoreFormatError:
    return StoreFormatError(f"{path}: the index is damaged ({what}); copy it again, or pack again")
