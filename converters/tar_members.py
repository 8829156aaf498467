"""What a record becomes in a tar: which members, under which names, with which headers."""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastdata.errors import OptionError
from fastdata.stores.tar_names import MARK, escape, field_codec

if TYPE_CHECKING:
    from fastdata.types import Record

__all__ = ["BLOCK", "MemberPlan", "Members", "header_of", "padded"]

BLOCK = 512
_ENDING_OF_CODEC = {
    "jpeg": "jpg", "png": "png", "webp": "webp", "bmp": "bmp", "raw": "npy", "gif": "gif", "tiff": "tif",
    "avif": "avif", "heic": "heic", "jxl": "jxl", "jp2": "jp2", "json": "json", "text": "txt",
}  # fmt: skip

_NAME = 100  # bytes of a name in a header block
_USTAR_SIZE = 8 << 30  # bytes: eleven octal digits
_MODE = 0o444
# A header block but for name, size and checksum: mode, user, group; time; flag, link, magic, names, devices, prefix.
_FIXED = (
    b"%07o\0%07o\0%07o\0" % (_MODE, 0, 0),
    b"\0%011o\0" % 0,
    b"\0 0" + bytes(100) + b"ustar\x0000" + 2 * MARK.ljust(32, b"\0") + bytes(16 + 167),
)
_FIXED_SUM = sum(map(sum, _FIXED)) - ord(" ") + 8 * ord(" ")  # the checksum's own 8 bytes count as spaces


@dataclass(frozen=True, slots=True)
class MemberPlan:
    """One member to write: the field of the Index it belongs to ("" for labels), its ending, codec and bytes.

    before: bytes that come before ``data`` in the member and are no part of the value (an .npy's header).
    """

    field: str
    ending: str
    codec: str
    data: bytes | memoryview
    before: bytes = b""
    absent: bool = False

    @property
    def size(self) -> int:
        """The member's size in bytes."""
        return len(self.before) + len(self.data)


class Members:
    """Plans the members of each record, the same ones for all: readers as HF datasets ask for equal samples.

    The first record decides. Integer labels are ``cls``, floats and vectors ``label.json``. ``json`` (extras) is
    written for all samples when the first has extras, ``{}`` where one has none; a field the first has and another
    lacks is an empty member. What the first lacks and a later one has is written from there on, so that nothing is
    lost: such a set is uneven for strangers, not for us.
    """

    def __init__(self) -> None:
        """Start undecided."""
        self._label: str | None = None
        self._json = False
        self._fields: dict[str, str] = {}

    def plan(self, record: Record) -> list[MemberPlan]:
        """Return the record's members in order, the image first; raise OptionError for what a tar cannot hold."""
        members = [self._image(record)]
        members += self._label_members(record)
        members += self._other_members(record)
        self._json = self._json or bool(record.extras)
        if self._json:
            text = json.dumps(dict(record.extras), ensure_ascii=False).encode()
            members.append(MemberPlan("extras", "json", "json", text, absent=not record.extras))
        endings = [member.ending.lower() for member in members]
        if len(set(endings)) < len(endings):
            twice = next(e for e in endings if endings.count(e) > 1)
            msg = f"key {record.key!r}: two of its fields would be called {twice!r} in a tar; rename one"
            raise OptionError(msg)
        return members

    @staticmethod
    def _image(record: Record) -> MemberPlan:
        image = record.fields[0]
        before = _npy_header(record) if image.codec == "raw" else b""
        return MemberPlan("image", _ENDING_OF_CODEC.get(image.codec, "bin"), image.codec, image.data, before)

    def _label_members(self, record: Record) -> list[MemberPlan]:
        label = record.label
        kind = "" if label is None else "cls" if isinstance(label, int) else "label.json"
        if self._label is None:
            self._label = kind
        if kind == "cls" and self._label == "label.json" and isinstance(label, int):
            kind, label = "label.json", float(label)
        if kind != self._label:
            names = {"": "no label", "cls": "integers", "label.json": "floats or vectors"}
            first = f"the first sample has {names[self._label]}"
            msg = f"key {record.key!r}: its label is {label!r}, {first}; give all one kind"
            raise OptionError(msg)
        if not kind:
            return []
        codec = "text" if kind == "cls" else "json"
        return [MemberPlan("", kind, codec, json.dumps(label).encode())]

    def _other_members(self, record: Record) -> list[MemberPlan]:
        members = []
        given = {field.name: field for field in record.fields[1:]}
        for name, field in given.items():
            self._fields.setdefault(name, _ending(name, field.codec, record.key))
        for name, ending in self._fields.items():
            if name in given:
                codec = given[name].codec
                members.append(MemberPlan(name, _ending(name, codec, record.key), codec, given[name].data))
            else:
                members.append(MemberPlan(name, ending, "unknown", b"", absent=True))
        return members


def header_of(key: str, ending: str, size: int) -> bytes:
    """Return the header blocks of a member: USTAR, 512 bytes; PAX only for names and sizes that USTAR cannot hold.

    Times, owners and modes are fixed, so equal records make equal bytes. The user's name marks our packs.
    """
    name = f"{escape(key)}.{ending}"
    raw = name.encode("utf-8", "surrogateescape")
    if len(raw) <= _NAME and size < _USTAR_SIZE and not raw.endswith(b"/"):
        # What tarfile writes, ten times as fast (a test compares them): only name, size and checksum change.
        checksum = _FIXED_SUM + sum(raw) + sum(digits := b"%011o" % size)
        return b"%s%s%s%s%06o%s" % (raw.ljust(_NAME, b"\0"), _FIXED[0], digits, _FIXED[1], checksum, _FIXED[2])
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = size, _MODE, 0
    info.uname = info.gname = MARK.decode()
    try:
        return info.tobuf(tarfile.USTAR_FORMAT, "utf-8", "surrogateescape")
    except ValueError:
        return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def padded(size: int) -> int:
    """Return a size rounded up to whole blocks."""
    return -(-size // BLOCK) * BLOCK


def _ending(name: str, codec: str, key: str) -> str:
    ending = _ENDING_OF_CODEC.get(codec)
    if not name or "/" in name or "\0" in name or name.startswith("."):
        msg = f"key {key!r}: a field cannot be called {name!r} in a tar; rename it"
        raise OptionError(msg)
    return name if ending is None or field_codec(name) == codec else f"{name}.{ending}"


def _npy_header(record: Record) -> bytes:
    """Return the header of an .npy of uint8 (H, W, C): numpy.lib.format, version 1.0."""
    pixels = record.width * record.height
    size = len(record.fields[0].data)
    if not pixels or size % pixels:
        msg = f"key {record.key!r}: raw pixels of {size} bytes do not make a picture of {record.width}x{record.height}"
        raise OptionError(msg)
    shape = (record.height, record.width, size // pixels)
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(10 + len(text) + 1) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
