"""Headers of PNG, WebP, BMP and GIF read from their chunks, without a decoder.

Sources: PNG specification (third edition) 5.2 to 11.3; WebP container specification; BITMAPFILEHEADER and the
BITMAPINFOHEADER family; GIF89a specification, sections 17 to 20.
"""

from __future__ import annotations

import struct

from fastdata.decoding.header_fields import Header, exif_orientation, xmp_orientation
from fastdata.errors import DecodeError, TruncatedImageError

__all__ = ["read_bmp_header", "read_gif_header", "read_png_header", "read_webp_header"]

_PNG_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


def read_png_header(data: bytes | memoryview) -> Header:
    """Return a PNG's Header; the chunks behind the picture are looked at, too (EXIF may stand there)."""
    if len(data) < 33 or data[12:16] != b"IHDR":  # noqa: PLR2004  signature 8, IHDR 25
        msg = f"PNG of {len(data)} bytes has no header"
        raise TruncatedImageError(msg)
    width, height, bits, colour = struct.unpack_from(">IIBB", data, 16)
    if colour not in _PNG_CHANNELS or not width or not height:
        msg = f"PNG header is broken: {width} x {height}, colour type {colour}"
        raise DecodeError(msg)
    orientation = xmp = 0
    transparent, frames, whole = colour in {4, 6}, 1, False
    at, size = 33, len(data)
    while at + 8 <= size:
        (length,) = struct.unpack_from(">I", data, at)
        kind = bytes(data[at + 4 : at + 8])
        if kind == b"IEND":
            whole = True
            break
        if kind != b"IDAT":
            if kind == b"tRNS":
                transparent = True
            elif kind == b"acTL":
                (frames,) = struct.unpack_from(">I", data, at + 8) if at + 12 <= size else (1,)
            elif kind == b"eXIf":
                orientation = exif_orientation(bytes(data[at + 8 : at + 8 + length]))
            elif kind == b"iTXt" and data[at + 8 : at + 25] == b"XML:com.adobe.xmp":
                xmp = xmp_orientation(bytes(data[at + 25 : at + 8 + length]))
        at += length + 12
    return Header(
        "png", width, height, orientation or xmp or 1, frames=frames, channels=_PNG_CHANNELS[colour],
        bits=bits, alpha=transparent, palette=colour == 3, plain=whole,  # noqa: PLR2004  PNG's number
    )  # fmt: skip


def read_webp_header(data: bytes | memoryview) -> Header:
    """Return a WebP's Header (lossy, lossless and extended)."""
    kind = bytes(data[12:16])
    try:
        if kind == b"VP8 ":
            width, height = struct.unpack_from("<HH", data, 26)
            return Header("webp", width & 0x3FFF, height & 0x3FFF)
        if kind == b"VP8L":
            (packed,) = struct.unpack_from("<I", data, 21)
            return Header("webp", (packed & 0x3FFF) + 1, (packed >> 14 & 0x3FFF) + 1, alpha=bool(packed >> 28 & 1))
        if kind == b"VP8X":
            return _extended_webp(data)
    except struct.error:
        msg = f"WebP of {len(data)} bytes has no whole header"
        raise TruncatedImageError(msg) from None
    msg = f"WebP whose first chunk is {kind!r}"
    raise DecodeError(msg)


def _extended_webp(data: bytes | memoryview) -> Header:
    if len(data) < 30:  # noqa: PLR2004  RIFF 12, chunk header 8, VP8X 10
        raise struct.error
    flags = data[20]
    width = int.from_bytes(data[24:27], "little") + 1
    height = int.from_bytes(data[27:30], "little") + 1
    orientation, frames = 1, 0 if flags & 0x02 else 1
    if flags & 0x0C:  # EXIF or XMP is said to be there
        exif = xmp = 0
        at, size = 12, len(data)
        while at + 8 <= size:
            (length,) = struct.unpack_from("<I", data, at + 4)
            kind = bytes(data[at : at + 4])
            if kind == b"EXIF":
                block = bytes(data[at + 8 : at + 8 + length])
                exif = exif_orientation(block.removeprefix(b"Exif\x00\x00"))
            elif kind == b"XMP ":
                xmp = xmp_orientation(bytes(data[at + 8 : at + 8 + length]))
            at += 8 + length + (length & 1)
        orientation = exif or xmp or 1
    alpha = bool(flags & 0x10)
    return Header("webp", width, height, orientation, frames=frames, channels=3 + alpha, alpha=alpha)


def read_bmp_header(data: bytes | memoryview) -> Header:
    """Return a BMP's Header; ``plain`` means uncompressed 24 bit."""
    try:
        (size,) = struct.unpack_from("<I", data, 14)
        if size == 12:  # noqa: PLR2004  BITMAPCOREHEADER
            width, height, _, bits = struct.unpack_from("<HHHH", data, 18)
            compression = 0
        else:
            width, height, _, bits, compression = struct.unpack_from("<iiHHI", data, 18)
    except struct.error:
        msg = f"BMP of {len(data)} bytes has no whole header"
        raise TruncatedImageError(msg) from None
    if width <= 0 or not height:
        msg = f"BMP header is broken: {width} x {height}"
        raise DecodeError(msg)
    palette = bits <= 8  # noqa: PLR2004  deeper pixels are colours
    return Header(
        "bmp", width, abs(height), channels=1 if palette else max(3, bits // 8), alpha=bits == 32,  # noqa: PLR2004
        palette=palette, plain=bits == 24 and compression == 0 and size >= 40,  # noqa: PLR2004
    )  # fmt: skip


def read_gif_header(data: bytes | memoryview) -> Header:
    """Return a GIF's Header; frames are not counted (0 where a loop extension or a second picture is likely)."""
    if len(data) < 13:  # noqa: PLR2004  header 6, logical screen descriptor 7
        msg = f"GIF of {len(data)} bytes has no whole header"
        raise TruncatedImageError(msg)
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    at = 13 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
    alpha = False
    while at + 10 <= len(data):
        if data[at] == 0x21:  # noqa: PLR2004  extension
            if data[at + 1] == 0xF9:  # noqa: PLR2004  graphic control: the first picture's transparency
                alpha = bool(data[at + 3] & 1)
            at += 2
            while at < len(data) and data[at]:
                at += data[at] + 1
            at += 1
            continue
        if data[at] == 0x2C:  # noqa: PLR2004  image: Pillow widens the canvas to it
            left, top, w, h = struct.unpack_from("<HHHH", data, at + 1)
            width, height = max(width, left + w), max(height, top + h)
        break
    if not width or not height:
        msg = f"GIF header is broken: {width} x {height}"
        raise DecodeError(msg)
    return Header("gif", width, height, frames=0, channels=1, alpha=alpha, palette=True)
