"""Writes packs in LMDB; the layout is described in ``fastdata.stores.lmdb_store``."""

from __future__ import annotations

import errno
import json
import os
import shutil
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import lmdb
import numpy as np

from fastdata.converters.atomic import Partial, no_such_disk, writing
from fastdata.converters.content import ContentHash
from fastdata.converters.seal import append_seal
from fastdata.errors import OptionError, PackError
from fastdata.stores.index import IndexBuilder
from fastdata.stores.lmdb_file import LmdbFile
from fastdata.stores.lmdb_store import FORMAT_VERSION, IMAGES, KEY_DIGITS, META, field_database, row_spans, stamp_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from fastdata.converters.writers import WriterOptions
    from fastdata.stores.index import Index
    from fastdata.types import Record

__all__ = ["LmdbWriter"]

_FIRST_MAP = 1 << 20  # bytes; grows by itself
# Bytes held back and written in one transaction. 16 microseconds a value of 28 kB; 50 with 2 MiB or more, whose memory
# is given back to the system in between.
_BATCH = 1 << 20
_FULL = 16 << 20  # bytes left on a disk that was full a moment ago, at most
_MOST_DATABASES = 128  # named databases: one a field, and two
_LARGEST = (1 << 32) - 1  # bytes of a value: LMDB stores sizes in 32 bits


class LmdbWriter:
    """Writes one LMDB pack: a file, or with ``options.subdir`` a folder with data.mdb.

    Memory: one batch of records (1 MiB, or one larger record) and the Index.
    """

    def __init__(self, dst: str | os.PathLike[str], options: WriterOptions) -> None:
        """Start under the temporary name; raise DestinationExistsError, PackError."""
        self._partial = Partial(dst, overwrite=options.overwrite)
        self._subdir = options.subdir
        self._index, self._hash = IndexBuilder(), ContentHash()
        self._batch: list[tuple[bytes, bytes, bytes]] = []  # database, key, value
        self._batch_bytes = 0
        self._databases: dict[bytes, Any] = {}
        self._env: lmdb.Environment | None = None
        with self._failing():
            self._env = self._open(_FIRST_MAP)
            # A database without "info" says "incomplete" to whoever opens the file, under whatever name.
            self._write([(META, b"state", b"incomplete")])

    def write(self, record: Record) -> None:
        """Append one record."""
        env = self._env
        if env is None:
            msg = f"{self._partial.dst}: this writer is finished; open another one"
            raise PackError(msg)
        row = len(self._index)
        key = b"%0*d" % (KEY_DIGITS, row)
        values = [(field.name, field.codec, bytes(field.data)) for field in record.fields]
        if record.extras:
            values.append(("extras", "json", json.dumps(dict(record.extras), ensure_ascii=False).encode()))
        for name, _, data in values:
            if len(data) > _LARGEST:
                msg = (
                    f"key {record.key!r}: field {name!r} has {len(data)} bytes, LMDB takes {_LARGEST}; use HDF5 or tar"
                )
                raise OptionError(msg)
        self._index.add(record.key, record.label, record.width, record.height)
        for name, codec, data in values:
            self._index.add_span(name, codec, (0, 0, len(data)), zlib.crc32(data))
            self._batch.append((field_database(name), key, data))
            self._batch_bytes += len(data)
        self._hash.add(record)
        if self._batch_bytes >= _BATCH:
            with self._failing():
                self._flush()

    def finish(self, info: Mapping[str, Any]) -> None:
        """Write the rest, the index and ``info``; sync, and give the pack its name."""
        if self._env is None:
            return
        with self._failing():
            self._flush()
            if IMAGES not in self._databases:
                self._databases[IMAGES] = self._env.open_db(IMAGES)
            self._env.sync(True)  # noqa: FBT003  py-lmdb's own signature: the records lie on the disk before the info does
            index = self._with_places(self._index.build())
            self._write_meta(index, info)
            self._close()
            self._fill()
            append_seal(self._file, index)
            self._partial.commit()  # syncs it all

    def abort(self) -> None:
        """Remove what was written; may be called twice and after finish."""
        self._close()
        self._partial.abort()

    @property
    def _file(self) -> str:
        path = os.fspath(self._partial.path)
        return os.path.join(path, "data.mdb") if self._subdir else path  # noqa: PTH118

    def _failing(self) -> Any:  # noqa: ANN401  a context manager
        return _Failing(self)

    def _open(self, map_size: int) -> lmdb.Environment:
        # No lock file: nobody else knows the temporary name. Synced once, at the end: a killed run leaves no pack.
        return lmdb.open(
            os.fspath(self._partial.path),
            map_size=map_size,
            subdir=self._subdir,
            max_dbs=_MOST_DATABASES,
            lock=False,
            sync=False,
            metasync=False,
            meminit=True,
        )

    def _flush(self) -> None:
        if self._batch:
            self._write(self._batch)
        self._batch, self._batch_bytes = [], 0

    def _write(self, items: list[tuple[bytes, bytes, bytes]]) -> int:
        """Put items in one transaction, doubling the map until they fit; return the transaction's number."""
        env = self._env
        assert env is not None
        while True:
            try:
                for name in {name for name, _, _ in items} - self._databases.keys():
                    self._databases[name] = env.open_db(name)
                with env.begin(write=True) as txn:
                    for name, key, value in items:
                        # Row numbers ascend, so appending fills pages whole; the few other keys are sorted in.
                        txn.put(key, value, db=self._databases[name], append=name != META)
                    return int(txn.id())
            except lmdb.MapFullError:
                env.set_mapsize(2 * env.info()["map_size"])

    def _with_places(self, index: Index) -> Index:
        """Return the index with each value's place in the file, found with the reader that will read it."""
        file = LmdbFile(self._file)
        databases = file.databases()
        fields = {}
        for name, column in index.fields.items():
            row, entries = row_spans(file, databases[field_database(name)], len(index))
            if not np.array_equal(entries.length, column.length[row]) or len(row) != int((column.length >= 0).sum()):
                msg = f"{self._partial.dst}: field {name!r} was not written as it was given; pack again"
                raise PackError(msg)
            column.offset[row] = entries.offset
            fields[name] = column
        return replace(index, fields=fields)

    def _write_meta(self, index: Index, info: Mapping[str, Any]) -> None:
        arrays = index.to_arrays()
        columns, items = {}, []
        for name, array in arrays.items():
            raw = array.tobytes()
            if len(raw) > _LARGEST:
                msg = (
                    f"{self._partial.dst}: column {name!r} has {len(raw)} bytes, LMDB takes {_LARGEST}; use HDF5 or tar"
                )
                raise PackError(msg)
            columns[name] = {"dtype": array.dtype.str, "shape": list(array.shape), "crc32": zlib.crc32(raw)}
            items.append((META, b"index/" + name.encode(), raw))
        self._write(items)
        del items, arrays
        file = LmdbFile(self._file)
        stamp = stamp_of(file, file.databases())
        # The info is the last transaction: its number is the next one.
        stamp["txnid"] += 1
        told = {
            **info,
            "format": "fastdata",
            "format_version": FORMAT_VERSION,
            "samples": len(index),
            "fields": list(index.fields),
            "content_hash": self._hash.hexdigest(),
            "index": columns,
            "sealed": True,
            "stamp": stamp,
        }
        written = self._write([(META, b"info", json.dumps(told).encode())])
        if written != stamp["txnid"]:
            msg = f"{self._partial.dst}: transaction {written} came where {stamp['txnid']} was due; pack again"
            raise PackError(msg)

    def _fill(self) -> None:
        """Give the file the length its header names: LMDB leaves out last pages that were given back unwritten."""
        file = LmdbFile(self._file)
        if file.is_short:
            os.truncate(self._file, (file.last_page + 1) * file.page_size)

    def _close(self) -> None:
        if self._env is not None:
            self._env.close()
            self._env = None
        self._databases.clear()


class _Failing:
    """Turns what LMDB and the disk say into PackError naming the pack, and removes the half-written file."""

    def __init__(self, writer: LmdbWriter) -> None:
        self._writer = writer

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Abort on any error; raise PackError for LMDB's and the system's."""
        if error is None:
            return
        dst = self._writer._partial.dst  # noqa: SLF001  one file, one reason
        full = isinstance(error, lmdb.Error) and _is_full(error, dst)
        self._writer.abort()
        if full:
            with writing(dst):
                raise OSError(errno.ENOSPC, str(error)) from error
        if isinstance(error, lmdb.Error):
            msg = f"cannot write {dst}: {error}{no_such_disk(str(error))}"
            raise PackError(msg) from error
        with writing(dst):
            raise error


def _is_full(error: lmdb.Error, dst: Path) -> bool:
    """Whether the disk being full is what LMDB means: a write that was cut short is an input/output error to it."""
    text = str(error)
    if os.strerror(errno.ENOSPC) in text or os.strerror(errno.EDQUOT) in text:
        return True
    if os.strerror(errno.EIO) not in text:
        return False
    try:
        return shutil.disk_usage(dst.parent).free < _FULL
    except OSError:
        return False
