"""What ``resume`` keeps: finished samples in ``DST.resume``, until the pack is whole; a kill costs a few at most.

One file, appended to. Each entry is complete in itself, so a torn end is cut off and the rest is good::

    bytes 0..3    "FDSP"
    bytes 4..15   length of the head, CRC-32 of head and values, length of the values (uint32 each)
    head          JSON: the sample, and how its source looked when it was read
    values        the bytes of its fields, one behind the other

The first entry's head says what the samples depend on: options, encoder and version.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastdata.converters.atomic import writing
from fastdata.converters.content import DigestedRecord
from fastdata.converters.report import Skipped
from fastdata.converters.statistics import ChannelSums
from fastdata.converters.work import Packed
from fastdata.errors import OptionError, PackError
from fastdata.types import Field

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastdata.converters.sources import Row

__all__ = ["Spool", "look_of", "remove_spool", "spool_path"]

_HEAD = struct.Struct("<4sIII")
_MAGIC, _FILE = b"FDSP", "samples"
_MOST = (1 << 32) - 1  # bytes of a sample's values; larger ones are packed again


def spool_path(dst: str | os.PathLike[str]) -> Path:
    """Return the folder beside ``dst`` that holds finished work: its name with ``.resume`` behind it."""
    path = Path(dst)
    return path.with_name(path.name + ".resume")


def remove_spool(dst: str | os.PathLike[str]) -> None:
    """Remove the folder beside ``dst``, and nothing in it that is not ours: the pack is whole."""
    folder = spool_path(dst)
    with contextlib.suppress(OSError):
        (folder / _FILE).unlink(missing_ok=True)
        folder.rmdir()


def look_of(row: Row) -> list[Any]:
    """Return what tells a changed source: where its values lie, their sums, and the files' sizes and times."""
    look: list[Any] = []
    for value in row.values:
        status = os.stat(value.path)  # noqa: PTH116  a string per image
        place = value.name, value.codec, value.path, value.offset, value.length, value.checksum
        look.append([*place, status.st_size, status.st_mtime_ns])
    return look


class Spool:
    """Finished samples on the disk: ``take`` gives what an earlier run finished, ``keep`` adds to it.

    ``taken`` counts what was given.

    Memory: the place of each finished sample, by its key. One run has it at a time (PackError for another one).
    """

    def __init__(self, dst: str | os.PathLike[str], depends_on: Mapping[str, Any]) -> None:
        """Open or begin the folder; raise OptionError where an earlier run was begun with other options."""
        self.path = spool_path(dst)
        self.taken = 0
        self._places: dict[str, tuple[int, int, int]] = {}
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self._file = (self.path / _FILE).open("a+b", buffering=0)
            try:
                self._lock(dst)
                self._read(json.loads(json.dumps(dict(depends_on))))
            except BaseException:
                self._file.close()
                raise

    def take(self, row: Row) -> Packed | None:
        """Return what an earlier run made of the row, None where it made nothing or the source looks other by now."""
        place = self._places.get(row.key)
        if place is None:
            return None
        try:
            head, values = self._entry(*place)
            if head["look"] != look_of(row):
                return None
            packed = _packed(row, head, values)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        self.taken += 1
        return packed

    def keep(self, row: Row, packed: Packed) -> None:
        """Write a finished sample down; raise PackError where the disk is full."""
        record = packed.record
        try:
            look = look_of(row)
        except OSError:  # gone since: a later run shall see that for itself
            return
        head = {
            "key": row.key,
            "look": look,
            "size": [record.width, record.height],
            "fields": [[f.name, f.codec, len(f.data)] for f in record.fields],
            "bytes_in": packed.bytes_in,
            "sums": [packed.sums.count, packed.sums.values, packed.sums.squares],
            "differs": packed.differs,
            "smaller": packed.smaller,
            "kept": packed.kept,
            "unmarked": packed.unmarked,
            "drafted": packed.drafted,
            "truncated": packed.truncated and [packed.truncated.path, packed.truncated.key, packed.truncated.reason],
        }
        values = b"".join(bytes(f.data) for f in record.fields)
        if len(values) <= _MOST:
            with writing(self.path):
                self._append(head, values)

    def close(self) -> None:
        """Let go of the file, which stays for the next run; may be called twice."""
        self._file.close()

    def _append(self, head: Mapping[str, Any], values: bytes) -> None:
        text = json.dumps(head).encode()
        data = _HEAD.pack(_MAGIC, len(text), zlib.crc32(values, zlib.crc32(text)), len(values)) + text + values
        while data:
            written = self._file.write(data)
            data = data[written:]

    def _lock(self, dst: str | os.PathLike[str]) -> None:
        try:
            import fcntl  # noqa: PLC0415  not everywhere
        except ImportError:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            msg = f"{os.fspath(dst)}: another run is packing there with resume; wait for it, or stop it"
            raise PackError(msg) from error
        except OSError:  # a file system without locks
            return

    def _read(self, depends_on: dict[str, Any]) -> None:
        """Find the entries and cut off a torn end."""
        at, size = 0, os.fstat(self._file.fileno()).st_size
        while (entry := self._place_at(at, size)) is not None:
            place, head = entry
            if at == 0:
                self._compare(head, depends_on)
            else:
                self._places[head["key"]] = place
            at = place[0] + place[1] + place[2]
        os.ftruncate(self._file.fileno(), at)
        if at == 0:
            self._append({"depends_on": depends_on}, b"")

    def _place_at(self, at: int, size: int) -> tuple[tuple[int, int, int], dict[str, Any]] | None:
        prefix = os.pread(self._file.fileno(), _HEAD.size, at)
        if len(prefix) < _HEAD.size:
            return None
        magic, length, _, values = _HEAD.unpack(prefix)
        if magic != _MAGIC or at + _HEAD.size + length + values > size:
            return None
        try:
            head = json.loads(os.pread(self._file.fileno(), length, at + _HEAD.size))
        except (ValueError, RecursionError):
            return None
        if not isinstance(head, dict) or not ({"key", "depends_on"} & head.keys()):
            return None
        return (at + _HEAD.size, length, values), head

    def _entry(self, start: int, length: int, values: int) -> tuple[dict[str, Any], bytes]:
        """Return head and values of an entry; raise ValueError where they are not those that were written."""
        descriptor = self._file.fileno()
        data = os.pread(descriptor, length + values, start)
        crc = _HEAD.unpack(os.pread(descriptor, _HEAD.size, start - _HEAD.size))[2]
        if zlib.crc32(data) != crc:
            msg = "CRC-32"
            raise ValueError(msg)
        return json.loads(data[:length]), data[length:]

    def _compare(self, head: dict[str, Any], depends_on: dict[str, Any]) -> None:
        before = head.get("depends_on")
        if before == depends_on:
            return
        names = sorted(
            name for name in depends_on if not isinstance(before, dict) or before.get(name) != depends_on[name]
        )
        old = before if isinstance(before, dict) else {}
        what = ", ".join(f"{name} was {old.get(name)!r} and is {depends_on[name]!r}" for name in names)
        msg = (
            f"{self.path} holds the work of a run with other options ({what}): give the same ones to go on, or remove "
            "that folder (overwrite, --overwrite, does) to begin anew"
        )
        raise OptionError(msg)


def _packed(row: Row, head: dict[str, Any], values: bytes) -> Packed:
    fields, at = [], 0
    for name, codec, length in head["fields"]:
        fields.append(Field(name, codec, values[at : at + length]))
        at += length
    count, sums, squares = head["sums"]
    width, height = head["size"]
    return Packed(
        # Label and extras are the source's, as it is now.
        DigestedRecord.of(row.key, tuple(fields), row.label, (width, height), row.extras),
        head["bytes_in"],
        ChannelSums(count, tuple(sums), tuple(squares)),
        tuple(head["differs"]),
        head["smaller"],
        head["kept"],
        head["unmarked"],
        head["drafted"],
        Skipped(*head["truncated"]) if head["truncated"] else None,
    )
