"""Writes packs in HDF5; the layout is described in ``fastdata.stores.hdf5_store``."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from fastdata.converters.atomic import Partial, writing
from fastdata.converters.content import ContentHash
from fastdata.converters.seal import append_seal
from fastdata.errors import OptionError, PackError
from fastdata.stores.hdf5_layout import BLOCK_BYTES, COLUMNS, FIELD_COLUMNS, MARK
from fastdata.stores.hdf5_store import read_hdf5
from fastdata.stores.index import IndexBuilder
from fastdata.types import CODECS

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from fastdata.converters.writers import WriterOptions
    from fastdata.types import Record

__all__ = ["Hdf5Writer"]

_FORMAT_VERSION = 1
_ALIGN = 64  # bytes: columns and blocks of a kilobyte and more begin at such offsets, so that columns can be mapped


class Hdf5Writer:
    """Writes one HDF5 pack. Memory: one or two blocks (64 MiB each, or one larger value) and the Index."""

    def __init__(self, dst: str | os.PathLike[str], options: WriterOptions, *, block_bytes: int = BLOCK_BYTES) -> None:
        """Start under the temporary name; raise DestinationExistsError, PackError. A block has ``block_bytes``."""
        self._partial = Partial(dst, overwrite=options.overwrite)
        self._index, self._hash = IndexBuilder(), ContentHash()
        self._file: Any = None
        self._sink: _Sink | None = None
        with writing(dst):
            self._sink = _Sink(self._partial.path)
            self._file = h5py.File(
                self._sink, "w", alignment_threshold=1024, alignment_interval=_ALIGN, track_order=False
            )
            self._file.attrs[MARK] = _FORMAT_VERSION
        numbers = _Numbers()
        self._images = _Blocks(self._file, numbers, block_bytes)
        self._others = self._images
        self._numbers, self._block_bytes = numbers, block_bytes

    def write(self, record: Record) -> None:
        """Append one record."""
        if self._file is None:
            msg = f"{self._partial.dst}: this writer is finished; open another one"
            raise PackError(msg)
        values = [(field.name, field.codec, field.data) for field in record.fields]
        if record.extras:
            values.append(("extras", "json", json.dumps(dict(record.extras), ensure_ascii=False).encode()))
        for name, _, _ in values:
            if "/" in name or name in {"", "."}:
                msg = f"key {record.key!r}: a field cannot be called {name!r} in HDF5; rename it"
                raise OptionError(msg)
        if len(self._index) == 0 and values[0][1] == "raw":
            # Blocks of pixels take the shape (n, H, W, C), so nothing else may lie in them.
            self._others = _Blocks(self._file, self._numbers, self._block_bytes)
        self._index.add(record.key, record.label, record.width, record.height)
        with writing(self._partial.dst):
            for name, codec, data in values:
                shape = _pixel_shape(record, codec, data) if name == "image" else None
                blocks = self._images if name == "image" else self._others
                part, start = blocks.put(data, shape)
                self._check()
                self._index.add_span(name, codec, (part, start, len(data)), zlib.crc32(data))
        self._hash.add(record)

    def finish(self, info: Mapping[str, Any]) -> None:
        """Write the rest, the index and ``info``; sync, and give the pack its name."""
        if self._file is None:
            return
        with writing(self._partial.dst):
            self._images.flush()
            self._others.flush()
            self._write_index(info)
            self._close()
            self._check()
            append_seal(self._partial.path, read_hdf5(self._partial.path).index)
            self._partial.commit()

    def abort(self) -> None:
        """Remove what was written; may be called twice and after finish."""
        self._close()
        self._partial.abort()

    def _check(self) -> None:
        """Raise what the disk said when HDF5 wrote last."""
        if self._sink is not None and self._sink.error is not None:
            raise self._sink.error

    def _write_index(self, info: Mapping[str, Any]) -> None:
        index = self._index.build()
        arrays, file = index.to_arrays(), self._file
        for stored, ours in COLUMNS.items():
            if ours in arrays:
                file.create_dataset(stored, data=arrays[ours])
        for field in index.fields:
            folder = "" if field == "image" else f"fields/{field}/"
            for column in FIELD_COLUMNS:
                name = "offset" if column == "start" else column
                dataset = file.create_dataset(folder + column, data=arrays[f"{field}/{name}"])
                if column == "codec":
                    dataset.attrs["names"] = " ".join(CODECS)
        text = h5py.string_dtype("utf-8")
        classes = [str(name).encode("utf-8", "replace") for name in info.get("classes", ())]
        file.create_dataset("classes", data=np.array(classes, object), dtype=text)
        told = {
            **info,
            "format": "fastdata",
            "format_version": _FORMAT_VERSION,
            "samples": len(index),
            "fields": list(index.fields),
            "content_hash": self._hash.hexdigest(),
            "columns": {
                name: zlib.crc32(arrays[name].data) for name in arrays if not name.endswith(("/part", "/offset"))
            },
            "sealed": True,
        }
        file.create_dataset("info", data=json.dumps(told), dtype=text)  # last: without it, the pack is unfinished

    def _close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            file.close()
        if self._sink is not None:
            self._sink.close()


class _Sink:
    """The file under HDF5's hands. It remembers the first error of the disk and swallows what comes after.

    HDF5 itself cannot close a file that cannot be written: it tries again and again, and h5py prints each time.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("w+b", buffering=0)
        self.error: OSError | None = None

    def write(self, data: memoryview) -> int:
        whole = memoryview(data)
        done = 0
        while self.error is None and done < len(whole):
            try:
                done += self._file.write(whole[done:])
            except OSError as error:
                self.error = error
        return len(whole)

    def truncate(self, size: int) -> int:
        try:
            return self._file.truncate(size)
        except OSError as error:
            self.error = self.error or error
            return size

    def readinto(self, data: memoryview) -> int:
        read = self._file.readinto(data)
        if read < len(data) and self.error is not None:  # what was never written reads as zeros
            data[read:] = bytes(len(data) - read)
            return len(data)
        return read

    def read(self, size: int) -> bytes:
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        """Do nothing: there is no buffer, and the whole is synced at the end."""

    def close(self) -> None:
        self._file.close()


class _Numbers:
    """Numbers for blocks, from 0."""

    def __init__(self) -> None:
        self._next = 0

    def take(self) -> int:
        self._next += 1
        return self._next - 1


class _Blocks:
    """Collects values in a buffer and writes it as one contiguous dataset when it is full."""

    def __init__(self, file: Any, numbers: _Numbers, block_bytes: int) -> None:  # noqa: ANN401  h5py has no types
        self._file, self._numbers, self._limit = file, numbers, block_bytes
        self._buffer = bytearray()
        self._number: int | None = None
        self._shape: tuple[int, int, int] | None = None
        self._shapes_seen = 0

    def put(self, data: bytes | memoryview, shape: tuple[int, int, int] | None) -> tuple[int, int]:
        """Append a value; return (number of its block, offset in it). Equal shapes share a block of (n, *shape)."""
        if shape != self._shape and self._shapes_seen < 2:  # noqa: PLR2004  one size is worth blocks of its own
            self.flush()
            self._shapes_seen += 1
            self._shape = shape if self._shapes_seen == 1 else None
        if self._buffer and len(self._buffer) + len(data) > self._limit:
            self.flush()
        if self._number is None:
            self._number = self._numbers.take()
        start = len(self._buffer)
        self._buffer += data
        return self._number, start

    def flush(self) -> None:
        """Write what there is."""
        if self._number is None:
            return
        block: NDArray[np.uint8] = np.frombuffer(self._buffer, np.uint8)
        if self._shape is not None:
            block = block.reshape(-1, *self._shape)
        self._file.create_dataset(f"bytes/{self._number:04d}", data=block)
        del block
        self._buffer, self._number = bytearray(), None


def _pixel_shape(record: Record, codec: str, data: bytes | memoryview) -> tuple[int, int, int] | None:
    """Return (H, W, C) of a raw image, None of any other value."""
    pixels = record.width * record.height
    if codec != "raw" or not pixels or len(data) % pixels:
        return None
    return record.height, record.width, len(data) // pixels
