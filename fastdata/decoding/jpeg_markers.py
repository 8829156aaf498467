"""A JPEG's segments: its header without a decoder, and whether its markers are all there.

Markers and segments as in ITU-T T.81, annex B. Stray bytes between segments are skipped, as libjpeg (with a warning)
and Pillow do.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fastdata.decoding.header_fields import Header, exif_orientation, xmp_orientation
from fastdata.errors import DecodeError, TruncatedImageError, UnsupportedImageError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["is_sound", "read_jpeg_header"]

_SOF = frozenset({0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF})
_ALONE = frozenset({0x01, *range(0xD0, 0xD9)})  # TEM, RSTn, SOI: markers without a length
_SOS, _EOI, _APP1 = 0xDA, 0xD9, 0xE1
_PROGRESSIVE = 2
_MARKER = re.compile(rb"\xff[^\x00\xff]")
_FILL, _STUFFED, _BETWEEN_SCANS = 0xFF, 0x00, frozenset({0xC4, 0xDA, 0xDB, 0xDD, 0xFE, *range(0xE0, 0xF0)})
_RST0, _RST7 = 0xD0, 0xD7
_EXIF, _XMP = b"Exif\x00", b"http://ns.adobe.com/xap/1.0/\x00"


def _segments(data: bytes | memoryview) -> Iterator[tuple[int, int, int, bool]]:
    """Yield (marker, start of its 0xFF, end, stray bytes before it) up to and with the first SOS."""
    at, size = 2, len(data)
    while True:
        begin = at
        stray = False
        if at + 1 >= size:
            return
        if data[at] != _FILL or data[at + 1] in {_STUFFED, _FILL}:
            found = _MARKER.search(data, at)
            if found is None:
                return
            stray = bool(bytes(data[begin : found.start()]).strip(b"\xff"))  # 0xFF before a marker is allowed fill
            begin = found.start()
        marker = data[begin + 1]
        if marker in _ALONE:
            at = begin + 2
        elif marker == _EOI:
            return
        else:
            if begin + 4 > size:
                return
            at = begin + 2 + (data[begin + 2] << 8 | data[begin + 3])
        yield marker, begin, at, stray
        if marker == _SOS:
            return


def read_jpeg_header(data: bytes | memoryview) -> Header:
    """Return a JPEG's Header; raise TruncatedImageError, UnsupportedImageError or DecodeError."""
    frame: tuple[int, int, int, int, int] | None = None
    orientation = xmp = body = scanned = across = 0
    plain = True
    for marker, begin, end, stray in _segments(data):
        plain = plain and not stray
        if marker == _SOS:
            body, scanned = end, data[begin + 4] if begin + 4 < len(data) else 0
        elif marker == _APP1:
            if data[begin + 4 : begin + 9] == _EXIF and not orientation:
                orientation = exif_orientation(bytes(data[begin + 10 : end]))
            elif data[begin + 4 : begin + 33] == _XMP and not xmp:
                xmp = xmp_orientation(bytes(data[begin + 33 : end]))
        elif marker in _SOF and frame is None and begin + 10 <= len(data):
            height, width = data[begin + 5] << 8 | data[begin + 6], data[begin + 7] << 8 | data[begin + 8]
            frame = (marker - 0xC0, data[begin + 4], height, width, data[begin + 9])
            across = _across(data[begin + 11 : end : 3], frame[-1])
    if frame is None or not body:
        msg = f"JPEG of {len(data)} bytes ends before its first scan"
        raise TruncatedImageError(msg)
    process, bits, height, width, channels = frame
    if not height:
        msg = "JPEG with its height after the first scan (DNL) is not supported; encode it again"
        raise UnsupportedImageError(msg)
    if not width or not channels:
        msg = f"JPEG header is broken: width {width}, {channels} components"
        raise DecodeError(msg)
    return Header(
        "jpeg", width, height, orientation or xmp or 1,
        channels=channels, bits=bits, process=process, body=body,
        scanned=scanned, block_width=8 * across, plain=plain,
    )  # fmt: skip


def _across(sampling: bytes | memoryview, components: int) -> int:
    """Return how many units of 8 pixels a block is wide: one, where there is one component (T.81, A.2.2)."""
    return 1 if components == 1 else max((factors >> 4 for factors in sampling), default=1) or 1


def is_sound(data: bytes | memoryview, header: Header) -> bool:
    """Return whether the markers from the first scan to the end are those of a whole JPEG, in their order.

    Damage that hits no marker is not seen: only a decoder can.
    """
    at, restart, components = header.body, 0, header.scanned
    while True:
        found = _MARKER.search(data, at)
        if found is None:
            return False
        begin = found.start()
        marker = data[begin + 1]
        if _RST0 <= marker <= _RST7:
            if marker - _RST0 != restart & 7:
                return False
            restart += 1
            at = begin + 2
        elif marker == _EOI:
            return True
        elif marker in _BETWEEN_SCANS and begin + 4 <= len(data):
            at = begin + 2 + (data[begin + 2] << 8 | data[begin + 3])
            restart = 0
            if marker == _SOS:
                components += data[begin + 4] if begin + 4 < len(data) else 0
                if components > header.channels and header.process != _PROGRESSIVE:
                    return False  # another picture begins: the end of this one is gone
        else:
            return False
