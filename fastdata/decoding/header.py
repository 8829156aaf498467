"""What kind of image some bytes are, and what their header says, by content and never by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastdata.decoding.container_headers import (
    read_bmp_header,
    read_gif_header,
    read_png_header,
    read_webp_header,
)
from fastdata.decoding.header_fields import Header
from fastdata.decoding.jpeg_markers import read_jpeg_header
from fastdata.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Header", "probe", "sniff"]

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\xff\xd8\xff", "jpeg"),
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"BM", "bmp"),
    (b"II*\x00", "tiff"),
    (b"MM\x00*", "tiff"),
    (b"II+\x00", "tiff"),
    (b"MM\x00+", "tiff"),
    (b"\x00\x00\x00\x0cjP  \r\n\x87\n", "jp2"),
    (b"\xff\x4f\xff\x51", "jp2"),
    (b"\xff\x0a", "jxl"),
    (b"\x00\x00\x00\x0cJXL \r\n\x87\n", "jxl"),
)
_AVIF_BRANDS = frozenset({b"avif", b"avis"})
_HEIC_BRANDS = frozenset({b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1", b"mif2", b"hevm"})


def sniff(data: bytes | memoryview) -> str:
    """Return the codec (a name of CODECS) that the first bytes show, "unknown" where they show none; never raises."""
    start = bytes(data[:64])
    for magic, codec in _MAGIC:
        if start.startswith(magic):
            return codec
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "webp"
    if start[:2] == b"\xff\xd8":  # stray bytes straight after SOI
        return "jpeg"
    if start[4:8] == b"ftyp":
        size = min(int.from_bytes(start[:4], "big"), len(start))
        brands = {start[8:12], *(start[at : at + 4] for at in range(16, size - 3, 4))}
        if brands & _AVIF_BRANDS:
            return "avif"
        if brands & _HEIC_BRANDS:
            return "heic"
    return "unknown"


def probe(data: bytes | memoryview) -> Header:
    """Return what the header says, without decoding; raise a DecodeError where there is no readable one.

    JPEG, PNG, WebP, BMP and GIF are read here in microseconds, the others by Pillow.
    """
    codec = sniff(data)
    reader = _READERS.get(codec)
    if reader is None:
        from fastdata.decoding.pillow_files import probe_with_pillow  # noqa: PLC0415  PIL only for rare formats

        return _with_pixels(probe_with_pillow(data, codec))
    try:
        return _with_pixels(reader(data))
    except (IndexError, ValueError) as error:
        if isinstance(error, DecodeError):
            raise
        msg = f"{codec} header is broken: {error}"
        raise DecodeError(msg) from error


def _with_pixels(header: Header) -> Header:
    if header.width < 1 or header.height < 1:
        msg = f"{header.codec} header is broken: {header.width} x {header.height} pixels"
        raise DecodeError(msg)
    return header


_READERS: dict[str, Callable[[bytes | memoryview], Header]] = {
    "jpeg": read_jpeg_header,
    "png": read_png_header,
    "webp": read_webp_header,
    "bmp": read_bmp_header,
    "gif": read_gif_header,
}
