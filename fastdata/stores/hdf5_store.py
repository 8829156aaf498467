"""HDF5 files as stores: h5py tells where the bytes lie and is closed again; all reading is our own.

Our layout: contiguous uint8 datasets ``bytes/0000``, ``bytes/0001``, ... hold the values; ``part``, ``start`` and
``length`` say where image i lies in them; ``labels``, ``classes``, ``width``, ``height``, ``codec``, ``checksum``,
``keys/blob``, ``keys/offset`` and ``fields/NAME/...`` are ordinary datasets; ``info`` is JSON.
Foreign files: one uint8 dataset (N, H, W, C) or (N, H, W) of pixels, or one of vlen uint8 (N,), labels beside it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdata.errors import (
    FastdataError,
    IncompletePackError,
    StoreFormatError,
    StoreNotFoundError,
    TruncatedStoreError,
)
from fastdata.stores.hdf5_foreign import read_foreign
from fastdata.stores.hdf5_layout import COLUMNS, FIELD_COLUMNS, MARK, Span, contiguous_span, names_of
from fastdata.stores.hdf5_places import text_bytes
from fastdata.stores.index import Index
from fastdata.stores.json_values import parse_json
from fastdata.stores.mapping import FileBytes
from fastdata.stores.store import Contents

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["read_hdf5"]


def read_hdf5(path: str | os.PathLike[str], *, mapped: bool = True) -> Contents:
    """Find what an HDF5 file holds; no handle of HDF5 stays open, and the file is not locked.

    Raises StoreNotFoundError, IncompletePackError, TruncatedStoreError, or StoreFormatError, which says which layouts
    are understood.
    """
    import h5py  # noqa: PLC0415  heavy, and only needed here

    name = os.fspath(path)
    if not Path(name).exists():
        _raise_absent(name)
    try:
        with h5py.File(name, "r", locking=False) as file:
            with open(name, "rb") as raw:  # noqa: PTH123  a str path from start to end
                data = FileBytes(raw.fileno(), name, mapped=mapped)
            return _read_pack(file, data) if MARK in file.attrs else read_foreign(file, data)
    except FastdataError:
        raise
    except Exception as error:  # over a damaged file h5py raises what it likes
        if name.endswith(".partial"):
            msg = f"{name}: this pack was not finished; pack again with overwrite"
            raise IncompletePackError(msg) from error
        if "truncated file" in str(error):
            msg = f"{name}: the file is shorter than its header says: it was cut short; copy it again or pack again"
            raise TruncatedStoreError(msg) from error
        msg = f"{name}: HDF5 cannot read this file ({error}); copy it again or pack again"
        raise StoreFormatError(msg) from error


def _raise_absent(name: str) -> None:
    if Path(name + ".partial").exists():
        msg = f"{name}: this pack was not finished ({name}.partial is left of it); pack again with overwrite"
        raise IncompletePackError(msg)
    msg = f"{name}: nothing lies there"
    raise StoreNotFoundError(msg)


def _read_pack(file: Any, data: FileBytes) -> Contents:  # noqa: ANN401  h5py has no types
    name, mark = data.path, file.attrs.get_id(MARK)
    # Text would be read from the global heap, which see in ``hdf5_places.text_bytes``.
    version = int(file.attrs[MARK]) if mark.shape == () and mark.dtype.kind in "iu" else -1
    if version != 1:
        msg = f"{name}: version {version} of the HDF5 layout is not known here (1 is); update fastdata, or pack again"
        raise StoreFormatError(msg)
    if "info" not in file:  # written last
        msg = f"{name}: this pack was not finished; pack again with overwrite"
        raise IncompletePackError(msg)
    pack = _Opened(file, data)
    blocks = _blocks(pack)
    arrays = {ours: pack.column(stored) for stored, ours in COLUMNS.items() if stored in file}
    arrays |= _field(pack, "image", "", blocks)
    for field in names_of(file, "fields", name):
        arrays |= _field(pack, field, f"fields/{field}/", blocks)
    index = Index.from_arrays(arrays, name)
    data.release()
    return Contents(name, "hdf5", [name], index, _info(file, data))


class _Opened:
    """A pack while h5py has it open, and the file's bytes for the columns."""

    def __init__(self, file: Any, data: FileBytes) -> None:  # noqa: ANN401  h5py has no types
        self.file, self.name, self._data = file, data.path, data

    def span(self, path: str) -> Span:
        """Return where a dataset lies."""
        return contiguous_span(self.file, path, self.name, self._data.size)

    def column(self, path: str) -> NDArray[Any]:
        """Return a column: a view of the file's bytes, a copy where it is not aligned to its items."""
        span = self.span(path)
        if not span.nbytes:
            return np.zeros(span.shape, span.dtype)
        view = self._data.part(span.offset, span.nbytes).view(span.dtype).reshape(span.shape)
        return view if view.flags.aligned else view.copy()


def _info(file: Any, data: FileBytes) -> dict[str, Any]:  # noqa: ANN401
    name = data.path
    try:
        info = parse_json(text_bytes(file, "info", data))
    except (ValueError, TypeError, AttributeError) as error:
        if isinstance(error, StoreFormatError):
            raise
        msg = f"{name}: the pack's info is damaged ({error}); pack again"
        raise StoreFormatError(msg) from error
    if not isinstance(info, dict):
        msg = f"{name}: the pack's info is no JSON object; pack again"
        raise StoreFormatError(msg)
    return info


def _blocks(pack: _Opened) -> NDArray[np.int64]:
    """Return (offset in the file, length) of each block, shape (n, 2)."""
    name = pack.name
    names = names_of(pack.file, "bytes", name)
    if [int(n) if n.isdecimal() else -1 for n in names] != list(range(len(names))):
        names = sorted(names, key=lambda n: int(n) if n.isdecimal() else -1)  # HDF5 sorts 10000 before 9999
    spans = []
    for number, block in enumerate(names):
        if block != f"{number:04d}":
            msg = f"{name}: the block bytes/{number:04d} is missing; pack again"
            raise StoreFormatError(msg)
        span = pack.span(f"bytes/{block}")
        if span.dtype != np.uint8:
            msg = f"{name}: the block bytes/{block} is {span.dtype} instead of uint8; pack again"
            raise StoreFormatError(msg)
        spans.append((span.offset, span.nbytes))
    return np.array(spans, np.int64).reshape(-1, 2)


def _field(pack: _Opened, field: str, folder: str, blocks: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Return a field's columns with offsets in the file instead of in the blocks."""
    columns, name = {column: pack.column(folder + column) for column in FIELD_COLUMNS}, pack.name
    part, start, length = columns["part"], columns["start"], columns["length"]
    # Index.from_arrays looks at what comes out of this; what goes in must be numbers that can be added.
    is_good = part.dtype == np.int32 and start.dtype == length.dtype == np.int64 and part.ndim == 1
    if not is_good or not part.shape == start.shape == length.shape:
        msg = f"{name}: the columns of field {field!r} have other types or shapes than they should; pack again"
        raise StoreFormatError(msg)
    there = length >= 0
    inside = (part >= 0) & (part < len(blocks)) & (start >= 0)
    if bool((there & ~inside).any()):
        msg = f"{name}: field {field!r} of a sample lies in a block that is not there; pack again"
        raise StoreFormatError(msg)
    offset = np.zeros(len(part), np.int64)
    rows = blocks[part[there]]
    if bool((length[there] > rows[:, 1] - start[there]).any()):
        msg = f"{name}: field {field!r} of a sample reaches beyond its block; pack again"
        raise StoreFormatError(msg)
    offset[there] = rows[:, 0] + start[there]
    found = {**columns, "part": np.zeros(len(part), np.int32), "offset": offset}
    return {f"{field}/{column}": found[column] for column in ("part", "offset", "length", "codec", "checksum")}
