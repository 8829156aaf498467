"""Small picture files that would be large in memory: refused, or read in little of it, whatever the format."""

from __future__ import annotations

import io
import json
import struct
import zlib

import pytest
from PIL import Image

from fastdata.decoding.facade import decode
from fastdata.decoding.header import probe
from fastdata.errors import DecodeError, ImageTooLargeError

ZEROS = zlib.compress(bytes(400_000_000), 1)  # 2 MB


def encoded(image: Image.Image, kind: str, **how: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **how)
    return buffer.getvalue()


def png_with(kind: bytes, data: bytes) -> bytes:
    whole = encoded(Image.new("RGB", (4, 4)), "PNG")
    made = struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return whole[:33] + made + whole[33:]


def tiff(*entries: tuple[int, int], data: bytes = b"") -> bytes:
    """A deflated RGB TIFF of 10 x 10 pixels, with further entries; a value of -1 is the place of ``data``."""
    rows = sorted([(256, 10), (257, 10), (259, 8), (262, 2), (277, 3), *entries])
    behind = 8 + 2 + 12 * (len(rows) + 1) + 4
    made = b"II*\0" + struct.pack("<IH", 8, len(rows) + 1)
    for tag, value in sorted([*rows, (258, behind)]):
        place = behind + 6 if value == -1 else value
        made += struct.pack("<HHII", tag, 3 if tag == 258 else 4, 3 if tag == 258 else 1, place)
    return made + struct.pack("<IHHH", 0, 8, 8, 8) + data


def tiled(side: int, packed: bytes = b"") -> bytes:
    packed = packed or zlib.compress(bytes(side * side * 3), 1)
    return tiff((322, side), (323, side), (324, -1), (325, len(packed)), data=packed)


def large_png(side: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", ZEROS) + chunk(b"IEND", b"")


def icon(data: bytes) -> bytes:
    return struct.pack("<HHHBBBBHHII", 0, 1, 1, 8, 8, 0, 0, 1, 32, len(data), 22) + data


def many_directories(count: int) -> bytes:
    """A TIFF that names so many pictures, each of them six bytes."""
    made = bytearray(encoded(Image.new("L", (4, 4)), "TIFF"))
    (first,) = struct.unpack_from("<I", made, 4)
    (entries,) = struct.unpack_from("<H", made, first)
    start = len(made)
    struct.pack_into("<I", made, first + 2 + 12 * entries, start)
    for number in range(count):
        made += struct.pack("<HI", 0, start + 6 * (number + 1) if number + 1 < count else 0)
    return bytes(made)


def wide_frame() -> bytes:
    """A WebP of 8 x 8 by its first chunk, with a picture of 8000 x 4000 behind it."""
    body = encoded(Image.new("RGB", (8000, 4000)), "WEBP", quality=1)[12:]
    first = b"VP8X" + struct.pack("<I", 10) + bytes(4) + bytes((7, 0, 0, 7, 0, 0))
    return b"RIFF" + struct.pack("<I", 4 + len(first) + len(body)) + b"WEBP" + first + body


def smaller_claim(kind: str, mark: bytes, skip: int, **how: object) -> bytes:
    """A file whose first header says 8 x 8, while its coded data have 4000 x 3000 pixels."""
    made = bytearray(encoded(Image.new("L", (4000, 3000)), kind, **how))
    at = made.index(mark) + skip
    made[at : at + 8] = struct.pack(">II", 8, 8)
    return bytes(made)


BOMBS = {
    "png xmp": lambda: png_with(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + ZEROS),
    "png exif in text": lambda: png_with(b"zTXt", b"Raw profile type exif\0\0" + ZEROS),
    "png icc": lambda: png_with(b"iCCP", b"x\0\0" + ZEROS),
    "png apng data": lambda: png_with(b"fdAT", b"\0\0\0\1" + ZEROS),
    "tiff strip": lambda: tiff((273, -1), (278, 10), (279, len(ZEROS)), data=ZEROS),
    "tiff tile": lambda: tiled(11_500, ZEROS),
    "tiff directories": lambda: many_directories(1_000_000),
    "gif frames": lambda: encoded(Image.new("L", (16, 16)), "GIF", save_all=True,
                                  append_images=[Image.new("L", (9000, 5000), i) for i in range(2)]),
    "webp": wide_frame,
    "jp2": lambda: smaller_claim("JPEG2000", b"ihdr", 4),
    "avif": lambda: smaller_claim("AVIF", b"ispe", 8, speed=10),
    "ico": lambda: icon(large_png(19_990)),
    "ico bitmap": lambda: icon(struct.pack("<IiiHHI", 40, 60_000, 60_000, 1, 32, 0) + bytes(4000)),
}  # fmt: skip


@pytest.mark.slow
def test_no_format_takes_more_than_it_may(tmp_path, outcomes):  # C025
    for name, make in BOMBS.items():
        folder = tmp_path / name.replace(" ", "-")
        folder.mkdir()
        data = make()
        assert len(data) < 10_000_000
        (folder / f"a.{name.split()[0]}").write_bytes(data)
    folders = sorted(tmp_path.iterdir())
    for folder, (opened, verified, packed) in zip(folders, outcomes(*folders), strict=True):
        assert opened == "ok", folder
        assert verified in {"ok", "problems"}, folder
        assert packed in {"ok", "PackError"}, folder
        if folder.name in {"tiff-tile", "ico", "ico-bitmap", "avif"}:
            assert (verified, packed) == ("problems", "PackError")
        if folder.name in {"tiff-directories", "gif-frames", "tiff-strip"}:  # the picture is whole and small
            assert (verified, packed) == ("ok", "ok")


def test_tiles_and_icons_of_usual_sizes_are_read():
    for side in (16, 256, 1024):
        assert decode(tiled(side)).shape == (10, 10, 3)
    for size in (8, 32, 256):
        assert decode(encoded(Image.new("RGB", (size, size)), "ICO", sizes=[(size, size)])).shape == (size, size, 3)
    with pytest.raises(ImageTooLargeError, match="tiles of 16000 x 16000"):
        decode(tiff((322, 16_000), (323, 16_000), (324, -1), (325, 8), data=bytes(8)))
    with pytest.raises(ImageTooLargeError, match="icon"):
        decode(icon(encoded(Image.new("1", (9000, 9)), "PNG")))
    with pytest.raises(DecodeError):
        decode(icon(b""))


def test_pictures_of_a_tiff_are_not_counted():
    assert probe(many_directories(3)).frames == 0
    assert probe(encoded(Image.new("L", (4, 4)), "TIFF")).frames == 1
    assert json.dumps(probe(many_directories(100_000)).width) == "4"
