"""Where the pictures of a foreign HDF5 file lie: in one run, in chunks of whole pictures, or in the global heap.

Layout of the heap: HDF5 File Format Specification version 3.0, III.E "Disk Format: Level 1E - Global Heap".
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastdata.errors import StoreFormatError, TruncatedStoreError
from fastdata.stores.hdf5_layout import contiguous_span

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastdata.stores.mapping import FileBytes

__all__ = ["Places", "encoded_places", "pixel_places", "text_bytes"]

_REFERENCE = np.dtype([("length", "<u4"), ("heap", "<u8"), ("number", "<u4")])  # as a vlen value is stored
_HEAP_HEAD = struct.Struct("<4sB3xQ")
_OBJECT_HEAD = struct.Struct("<HH4xQ")


class Places(NamedTuple):
    """Offsets and lengths in bytes, int64 (n,), of the pictures of one dataset."""

    offset: NDArray[np.int64]
    length: NDArray[np.int64]


def pixel_places(file: Any, name: str, where: str, size: int) -> Places:  # noqa: ANN401  h5py has no types
    """Return the places of the pictures of a uint8 dataset (N, H, W[, C]); raise StoreFormatError without such."""
    dataset = file[name]
    n = int(dataset.shape[0])
    each = int(np.prod(dataset.shape[1:], dtype=object))
    if n * max(each, 1) > size:  # before anything of that size is made: a header may claim what it likes
        msg = (
            f"{where}: {name} claims {n} pictures of {each} bytes, the file has {size}: it was cut short, or its "
            "pictures were never written or are not contiguous (compressed)"
        )
        raise TruncatedStoreError(msg)
    length = np.full(n, each, np.int64)
    if n and dataset.chunks is not None and dataset.chunks[1:] == dataset.shape[1:]:
        return Places(_chunked(file, name, where, size, each), length)
    start = contiguous_span(file, name, where, size).offset
    return Places(start + np.arange(n, dtype=np.int64) * each, length)


def _chunked(file: Any, name: str, where: str, size: int, each: int) -> NDArray[np.int64]:  # noqa: ANN401
    """Return the offsets of pictures that lie whole in unfiltered chunks of one or several of them."""
    dataset = file[name]
    n, per_chunk = int(dataset.shape[0]), int(dataset.chunks[0])
    if dataset.id.get_create_plist().get_nfilters() or file.userblock_size or not hasattr(dataset.id, "chunk_iter"):
        msg = f"{where}: {name} is not contiguous (its chunks are compressed or filtered): write it without filters"
        raise StoreFormatError(msg)
    start = np.full(-(-n // per_chunk), -1, np.int64)

    def note(chunk: Any) -> None:  # noqa: ANN401
        if chunk.size == per_chunk * each and chunk.filter_mask == 0 and 0 <= chunk.chunk_offset[0] < n:
            start[chunk.chunk_offset[0] // per_chunk] = chunk.byte_offset

    dataset.id.chunk_iter(note)
    if bool((start < 0).any()):
        msg = f"{where}: {name} is not contiguous, and some of its chunks were never written"
        raise StoreFormatError(msg)
    picture = np.arange(n, dtype=np.int64)
    offset = start[picture // per_chunk] + picture % per_chunk * each
    if bool((offset > size - each).any()):
        msg = f"{where}: {name} reaches beyond the end of the file: it was cut short; copy it again"
        raise TruncatedStoreError(msg)
    return offset


def encoded_places(file: Any, name: str, data: FileBytes) -> Places:  # noqa: ANN401
    """Return the places of the values of a contiguous dataset (N,) of vlen uint8: encoded images in the global heap."""
    import h5py  # noqa: PLC0415

    dataset, where = file[name], data.path
    n, start = int(dataset.shape[0]), dataset.id.get_offset()
    if not n:
        return Places(np.zeros(0, np.int64), np.zeros(0, np.int64))
    is_plain = dataset.id.get_create_plist().get_layout() == h5py.h5d.CONTIGUOUS and start is not None
    if not is_plain or file.userblock_size or file.id.get_create_plist().get_sizes() != (8, 8):
        msg = f"{where}: {name} is not contiguous (chunked or never written), so its values have no places of their own"
        raise StoreFormatError(msg)
    if start + n * _REFERENCE.itemsize > data.size:
        msg = f"{where}: {name} reaches beyond the end of the file: it was cut short; copy it again"
        raise TruncatedStoreError(msg)
    references = data.part(start, n * _REFERENCE.itemsize).view(_REFERENCE)
    heaps: dict[int, dict[int, tuple[int, int]]] = {}
    offset, room = np.zeros(n, np.int64), data.size
    for i, (length, heap, number) in enumerate(references.tolist()):
        if not length:
            continue
        if heap not in heaps:
            heaps[heap] = _objects(data, heap)
            room -= _HEAP_HEAD.unpack(data.copy(heap, _HEAP_HEAD.size))[2]
            if room < 0:  # or a small file could make us walk one run of bytes from each of its bytes on
                msg = f"{where}: the heaps of {name} lie over each other; the file is damaged, or made to do harm"
                raise StoreFormatError(msg)
        at, held = heaps[heap].get(number, (0, -1))
        if length > held:
            msg = f"{where}: value {i} of {name} is not where it should be; the file is damaged"
            raise StoreFormatError(msg)
        offset[i] = at
    return Places(offset, references["length"].astype(np.int64))


def text_bytes(file: Any, name: str, data: FileBytes) -> bytes:  # noqa: ANN401
    """Return the bytes of a scalar dataset of vlen text; raise StoreFormatError where there is none.

    Read from the global heap by ourselves: over a heap with one damaged byte, libhdf5 2.0 goes round for ever.
    """
    import h5py  # noqa: PLC0415

    dataset = file[name]
    kind = h5py.check_string_dtype(dataset.dtype) if isinstance(dataset, h5py.Dataset) else None
    if kind is not None and kind.length is None and dataset.shape == ():
        start = dataset.id.get_offset()
        is_plain = dataset.id.get_create_plist().get_layout() == h5py.h5d.CONTIGUOUS and start is not None
        if is_plain and not file.userblock_size and file.id.get_create_plist().get_sizes() == (8, 8):
            room = max(0, min(_REFERENCE.itemsize, data.size - start))
            reference = data.copy(start, room)
            if len(reference) == _REFERENCE.itemsize:
                length, heap, number = np.frombuffer(reference, _REFERENCE)[0].tolist()
                at, held = _objects(data, heap).get(number, (0, -1))
                if length <= held:
                    return data.copy(at, length)
    msg = f"{data.path}: {name} is no text, or not where it should be; the file is damaged"
    raise StoreFormatError(msg)


def _objects(data: FileBytes, heap: int) -> dict[int, tuple[int, int]]:
    """Return (offset, size) of each object of one heap collection by its number."""
    found: dict[int, tuple[int, int]] = {}
    if heap + _HEAP_HEAD.size <= data.size:
        magic, version, size = _HEAP_HEAD.unpack(data.copy(heap, _HEAP_HEAD.size))
        if magic == b"GCOL" and version == 1 and heap + size <= data.size:
            at, end = heap + _HEAP_HEAD.size, heap + size
            while at + _OBJECT_HEAD.size <= end:
                number, _, length = _OBJECT_HEAD.unpack(data.copy(at, _OBJECT_HEAD.size))
                at += _OBJECT_HEAD.size
                if number == 0 or at + length > end:  # number 0 is the free space, which comes last
                    return found
                found[number] = (at, length)
                at += -(-length // 8) * 8
            return found
    msg = f"{data.path}: there is no heap at byte {heap}; the file is damaged or was cut short"
    raise StoreFormatError(msg)
