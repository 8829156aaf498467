"""The value that says what an image file's first bytes promise; every header reader fills the same one."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

__all__ = ["Header", "exif_orientation", "xmp_orientation"]


@dataclass(frozen=True, slots=True)
class Header:
    """What a file's header says, nothing decoded.

    codec: a name of CODECS. width, height: pixels as stored, before the orientation is applied. orientation: EXIF,
    1..8 (1 where there is none). frames: pictures in the file (0: more than one, not counted). channels: stored
    components (a palette counts as 1); bits: per component. alpha: has an alpha channel or a transparent colour.
    palette: pixels are indices. Of a JPEG, process: the number n of its SOFn (0, 1 sequential, 2 progressive); body:
    the offset of the first scan's entropy-coded bytes; scanned: how many components that scan has; block_width: of a
    block (MCU), in pixels; plain: no stray bytes between its segments. Of others, plain: nothing in the header that a
    simpler reader would stumble over.
    """

    codec: str
    width: int
    height: int
    orientation: int = 1
    frames: int = 1
    channels: int = 3
    bits: int = 8
    alpha: bool = False
    palette: bool = False
    process: int = 0
    body: int = 0
    scanned: int = 0
    block_width: int = 0
    plain: bool = True

    @property
    def pixels(self) -> int:
        """Return width * height."""
        return self.width * self.height


_ORIENTATION_TAG = 0x0112
_XMP_ORIENTATION = re.compile(rb'tiff:Orientation(?:="|>)([1-8])')


def exif_orientation(tiff: bytes) -> int:
    """Return the orientation (1..8) in the first directory of a TIFF block, 0 where it has none or is broken."""
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    if order is None:
        return 0
    try:
        (start,) = struct.unpack_from(order + "I", tiff, 4)
        (count,) = struct.unpack_from(order + "H", tiff, start)
        for number in range(count):
            tag, kind, _, value = struct.unpack_from(order + "HHIH", tiff, start + 2 + 12 * number)
            if tag == _ORIENTATION_TAG:
                return value if kind == 3 and 1 <= value <= 8 else 0  # noqa: PLR2004  EXIF: SHORT, 1..8
    except struct.error:
        return 0
    return 0


def xmp_orientation(packet: bytes) -> int:
    """Return the orientation (1..8) that an XMP packet names, 0 where it names none."""
    found = _XMP_ORIENTATION.search(packet)
    return int(found[1]) if found else 0
