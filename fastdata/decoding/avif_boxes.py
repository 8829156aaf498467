"""AVIF files whose coded pictures are larger than their headers say: libavif would decode them first, and shrink them.

Sources: ISO/IEC 14496-12 (boxes, items, sample tables), ISO/IEC 23008-12 (ispe, grids) and the AVIF specification 1.1.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from fastdata.decoding.av1_sizes import largest_picture
from fastdata.errors import DecodeError, ImageTooLargeError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["check_avif"]

_MOST_TIMES = 4  # a grid's tiles may stick out by almost a tile each way, and layers have a power of two for their size
_SMALL = 1 << 16  # pixels that are never too many
_FOLDERS = {b"moov", b"trak", b"mdia", b"minf", b"stbl", b"iprp", b"ipco"}
_Size = tuple[int, int]


def check_avif(data: bytes | memoryview) -> None:
    """Raise ImageTooLargeError where coded pictures are far larger than the file says, DecodeError where it is broken.

    Looks at every AV1 item with its own size, at the tiles of a grid together, and at each track's first sample.
    """
    view = memoryview(data)
    try:
        for kind, body in _boxes(view):
            if kind == b"meta":
                _check_items(view, _Items(body[4:]))
            elif kind == b"moov":
                for inner, track in _boxes(body):
                    if inner == b"trak":
                        _check_track(view, track)
    except (struct.error, IndexError) as error:
        msg = f"avif of {len(view)} bytes is broken: a box or header that ends too early"
        raise DecodeError(msg) from error


def _compare(pixels: int, declared: _Size, what: str) -> None:
    if pixels > max(_SMALL, _MOST_TIMES * declared[0] * declared[1]):
        msg = f"an AVIF of {declared[0]} x {declared[1]} pixels by its header, with {pixels} pixels in {what}"
        raise ImageTooLargeError(msg)


def _boxes(data: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    at = 0
    while at + 8 <= len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        start = at + 8
        if size == 1:
            (size,) = struct.unpack_from(">Q", data, start)
            start += 8
        end = at + size if size else len(data)
        if end < start:
            raise struct.error
        yield kind, data[start:end]
        at = end


def _flat(data: memoryview, depth: int = 0) -> Iterator[tuple[bytes, memoryview]]:
    """Yield the boxes in a box, and those in the plain folders among them."""
    for kind, body in _boxes(data):
        yield kind, body
        if kind in _FOLDERS and depth < len(_FOLDERS):  # none of them has one of its own kind inside
            yield from _flat(body, depth + 1)


class _Fields:
    """Big-endian numbers, one after the other; raises struct.error behind the end."""

    def __init__(self, data: memoryview) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> int:
        end = self.at + size
        if end > len(self.data):
            raise struct.error
        value, self.at = int.from_bytes(self.data[self.at : end], "big"), end
        return value


class _Items:
    """The items of a meta box: kinds, sizes, places and what grids are made of."""

    def __init__(self, meta: memoryview) -> None:
        self.kinds: dict[int, bytes] = {}
        self.sizes: dict[int, _Size] = {}
        self.places: dict[int, list[tuple[bool, int, int]]] = {}  # in idat, offset, length (0: to the end)
        self.parts: list[tuple[int, list[int]]] = []
        self.idat = memoryview(b"")
        properties: list[_Size | None] = []
        for kind, body in _flat(meta):
            if kind == b"ipco":
                properties = [_ispe(inner) if name == b"ispe" else None for name, inner in _boxes(body)]
            elif kind == b"idat":
                self.idat = body
            elif kind == b"iinf":
                self._read_kinds(body)
            elif kind == b"iloc":
                self._read_places(_Fields(body))
            elif kind == b"iref":
                self._read_parts(body)
            elif kind == b"ipma":
                self._read_sizes(_Fields(body), properties)

    def _read_kinds(self, body: memoryview) -> None:
        for kind, entry in _boxes(body[6 if body[0] == 0 else 8 :]):
            if kind == b"infe":
                fields = _Fields(entry)
                wide = fields.take(4) >> 24 > 2  # noqa: PLR2004  version 3 has numbers of 4 bytes
                number = fields.take(4 if wide else 2)
                fields.take(2)
                self.kinds[number] = bytes(entry[fields.at : fields.at + 4])

    def _read_places(self, fields: _Fields) -> None:
        version = fields.take(4) >> 24
        widths = fields.take(2)
        offset, length, base, index = widths >> 12, widths >> 8 & 15, widths >> 4 & 15, widths & 15
        for _ in range(fields.take(2 if version < 2 else 4)):  # noqa: PLR2004
            number = fields.take(2 if version < 2 else 4)  # noqa: PLR2004
            in_idat = version > 0 and fields.take(2) & 15 == 1
            fields.take(2)
            start = fields.take(base)
            extents, count = [], fields.take(2)
            if count > 1 and not (offset or length):  # of no bytes each: a small file could have millions
                raise struct.error
            for _ in range(count):
                fields.take(index if version else 0)
                extents.append((in_idat, start + fields.take(offset), fields.take(length)))
            self.places[number] = extents

    def _read_parts(self, body: memoryview) -> None:
        width = 2 if body[0] == 0 else 4
        for kind, reference in _boxes(body[4:]):
            fields = _Fields(reference)
            whole = fields.take(width)
            if kind == b"dimg":
                self.parts.append((whole, [fields.take(width) for _ in range(fields.take(2))]))

    def _read_sizes(self, fields: _Fields, properties: list[_Size | None]) -> None:
        head = fields.take(4)
        wide = bool(head & 1)
        for _ in range(fields.take(4)):
            number = fields.take(4 if head >> 24 else 2)
            for _ in range(fields.take(1)):
                which = fields.take(2) & 0x7FFF if wide else fields.take(1) & 0x7F
                size = properties[which - 1] if 0 < which <= len(properties) else None
                if size is not None:
                    self.sizes.setdefault(number, size)


def _ispe(body: memoryview) -> _Size:
    width, height = struct.unpack_from(">II", body, 4)
    return width, height


def _check_items(data: memoryview, items: _Items) -> None:
    most = max(items.sizes.values(), key=lambda size: size[0] * size[1], default=(0, 0))
    room = _MOST_TIMES * len(data)
    coded: dict[int, int] = {}
    for number, kind in items.kinds.items():
        if kind != b"av01":
            continue
        pieces = []
        for in_idat, start, length in items.places.get(number, ()):
            whole = items.idat if in_idat else data
            pieces.append(whole[start : start + length] if length else whole[start:])
            room -= len(pieces[-1])
        if room < 0:  # many items over the same bytes: looking through them all would take for ever
            msg = "an AVIF whose items lie over each other"
            raise DecodeError(msg)
        width, height = largest_picture(memoryview(b"".join(pieces)) if len(pieces) != 1 else pieces[0])
        coded[number] = width * height
        _compare(coded[number], items.sizes.get(number, most), "its data")
    for whole_item, parts in items.parts:
        if items.kinds.get(whole_item) == b"grid":
            _compare(sum(coded.get(part, 0) for part in parts), items.sizes.get(whole_item, most), "its tiles")


def _check_track(data: memoryview, track: memoryview) -> None:
    size, length, start = (0, 0), 0, None
    for kind, body in _flat(track):
        if kind == b"tkhd":
            width, height = struct.unpack_from(">II", body, len(body) - 8)  # 16.16
            size = width >> 16, height >> 16
        elif kind == b"stsz":
            same, count = struct.unpack_from(">II", body, 4)
            length = same or (struct.unpack_from(">I", body, 12)[0] if count else 0)
        elif kind in {b"stco", b"co64"} and struct.unpack_from(">I", body, 4)[0]:
            (start,) = struct.unpack_from(">I" if kind == b"stco" else ">Q", body, 8)
    if start is not None and length:
        width, height = largest_picture(data[start : start + length])
        _compare(width * height, size, "its first frame")
