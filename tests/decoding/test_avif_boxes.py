"""AVIF files that lie about their size are refused before anything is decoded; honest ones, of any make, are not."""

from __future__ import annotations

import io
import struct

import pytest
from PIL import Image, features

from fastdata.decoding.av1_sizes import largest_picture
from fastdata.decoding.avif_boxes import check_avif
from fastdata.decoding.facade import decode
from fastdata.decoding.header import probe
from fastdata.errors import DecodeError, ImageTooLargeError

pytestmark = pytest.mark.skipif(not features.check("avif"), reason="this Pillow has no AVIF")


def avif(size=(400, 300), mode="RGB", **how) -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, size, 90).save(buffer, "AVIF", speed=10, **how)
    return buffer.getvalue()


def sequence(size=(400, 300)) -> bytes:
    return avif(size, save_all=True, append_images=[Image.new("RGB", size, shade) for shade in (5, 200)])


def lying(data: bytes, mark: bytes, skip: int, *, shift: int = 0) -> bytearray:
    """The file with 8 x 8 where its first box ``mark`` has width and height."""
    made = bytearray(data)
    at = made.index(mark) + skip
    made[at : at + 8] = struct.pack(">II", 8 << shift, 8 << shift)
    return made


@pytest.mark.parametrize("size", [(1, 1), (17, 5), (64, 64), (333, 257)])
@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
def test_honest_files_are_read(size, mode):
    for how in ({}, {"subsampling": "4:4:4"}, {"subsampling": "4:0:0"}, {"quality": 100}):
        data = avif(size, mode, **how)
        check_avif(data)
        assert decode(data).shape == (size[1], size[0], 3)
    assert decode(sequence(size)).shape == (size[1], size[0], 3)


def test_the_coded_size_is_found():
    for size in ((1, 1), (16, 9), (511, 2), (513, 300), (1024, 1024)):
        data = avif(size)
        assert largest_picture(memoryview(data)[data.index(b"mdat") + 4 :]) == size


@pytest.mark.parametrize(
    "made",
    [lambda: lying(avif(), b"ispe", 8), lambda: lying(avif(mode="RGBA"), b"ispe", 8),
     lambda: lying(sequence(), b"ispe", 8), lambda: lying(sequence(), b"tkhd", 4 + 88, shift=16)],
    ids=["picture", "alpha", "sequence", "track"],
)  # fmt: skip
def test_a_smaller_claim_is_refused(made):  # C025
    data = bytes(made())
    for look in (check_avif, probe, decode):
        with pytest.raises(ImageTooLargeError, match="8 x 8 pixels by its header, with 120000 pixels"):
            look(data)


def box(kind: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return struct.pack(">I4s", 8 + len(body), kind) + body


def grid(tiles: int, *, wide: bool, in_idat: bool) -> bytes:
    """A grid of 8 x 8 pixels by its header, made of one honest picture of 128 x 96, again and again."""
    data = avif((128, 96))
    coded = data[data.index(b"mdat") + 4 :]
    number, version = ("I", 2) if wide else ("H", 0)
    kinds = [box(b"infe", struct.pack(f">I{number}H4s", (version and 3) << 24 or 2 << 24, i + 1, 0, kind))
             for i, kind in enumerate((b"grid", b"av01"))]  # fmt: skip
    count = struct.pack(f">I{number}", (1 if wide else 0) << 24, 2)
    places = struct.pack(">IH", (version or 1) << 24, 0x4400) + struct.pack(f">{number}", 1)
    places += struct.pack(f">{number}HHHII", 2, int(in_idat), 0, 1, 0 if in_idat else 16, len(coded))
    refers = box(b"dimg", struct.pack(f">{number}H{tiles}{number}", 1, tiles, *[2] * tiles))
    sizes = box(b"ipco", box(b"ispe", struct.pack(">III", 0, 8, 8)), box(b"ispe", struct.pack(">III", 0, 128, 96)))
    links = b"".join(struct.pack(f">{number}B{'H' if wide else 'B'}", i + 1, 1, i + 1) for i in range(2))
    links = struct.pack(">II", (1 if wide else 0) << 24 | int(wide), 2) + links
    meta = box(
        b"meta", bytes(4), box(b"iinf", count, *kinds), box(b"iloc", places), box(b"idat", coded if in_idat else b""),
        box(b"iref", struct.pack(">I", int(wide) << 24), refers), box(b"iprp", sizes, box(b"ipma", links)),
    )  # fmt: skip
    return b"\0\0\0\x08free" + box(b"mdat", coded) + meta


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("in_idat", [False, True])
def test_tiles_of_a_grid_count_together(wide, in_idat):
    check_avif(grid(5, wide=wide, in_idat=in_idat))  # 61,440 pixels are never too many
    with pytest.raises(ImageTooLargeError, match="73728 pixels in its tiles"):
        check_avif(grid(6, wide=wide, in_idat=in_idat))


def unit(kind: int, fields: list[tuple[int, int]]) -> bytes:
    """An OBU of these (value, bits)."""
    text = "".join(f"{value:0{bits}b}" for value, bits in fields if bits)
    body = int(text.ljust(-(-len(text) // 8) * 8, "0"), 2).to_bytes(-(-len(text) // 8), "big")
    return bytes([kind << 3 | 2, len(body)]) + body


def video(*, own_size: bool, timing: bool = False, tools: bool = False, ids: bool = False) -> bytes:
    """A sequence header of 100 x 60 pixels with 12 bits for each, and a frame's header."""
    model = [(1, 1), (0, 64), (0, 1), (1, 1), (9, 5), (0, 32), (0, 5), (4, 5)]  # frame times of 5 bits
    point = [(0, 12), (9, 5), (1, 1)] + ([(1, 1), (0, 21)] if timing else [])
    header = [
        (0, 3), (0, 1), (0, 1), *(model if timing else [(0, 1)]), (1, 1), (0, 5), *point, (1, 1), (3, 4),
        (11, 4), (11, 4), (99, 12), (59, 12), *([(1, 1), (5, 4), (2, 3)] if ids else [(0, 1)]), (0, 7), (1, 1), (0, 2),
        *([(1, 1), (1, 1)] if tools else [(0, 1), (0, 1)]),
    ]  # fmt: skip
    frame = [
        (0, 1), (0, 2), (1, 1), (0, 5 if timing else 0), (0, 1), *([(1, 1), (0, 1)] if tools else []),
        (0, 10 if ids else 0), (int(own_size), 1), (0, 30),
    ]  # fmt: skip
    return b"\x12\0" + unit(1, header) + unit(6, frame)


@pytest.mark.parametrize("timing", [False, True])
@pytest.mark.parametrize("tools", [False, True])
@pytest.mark.parametrize("ids", [False, True])
def test_a_frame_may_have_a_size_of_its_own(timing, tools, ids):
    for own_size, size in ((False, (100, 60)), (True, (4096, 4096))):
        assert largest_picture(memoryview(video(own_size=own_size, timing=timing, tools=tools, ids=ids))) == size


def test_items_over_each_other_are_not_walked_again_and_again():
    data = avif((64, 64))
    coded = data[data.index(b"mdat") + 4 :]
    kinds = [box(b"infe", struct.pack(">IHH4s", 2 << 24, i, 0, b"av01")) for i in range(1000)]
    places = struct.pack(">IHH", 0, 0x4400, 1000)
    places += b"".join(struct.pack(">HHHII", i, 0, 1, 0, 0) for i in range(1000))
    meta = box(b"meta", bytes(4), box(b"iinf", struct.pack(">IH", 0, 1000), *kinds), box(b"iloc", places))
    with pytest.raises(DecodeError, match="over each other"):
        check_avif(meta + coded)


def test_small_files_that_count_to_billions_or_nest_for_ever():
    """The first was found by the fuzzer: extents of no bytes each."""
    entry = struct.pack(">HHH", 1, 0, 0xFFFF)
    for widths in (
        0,
        1,
        15,
    ):  # sizes of offset and length, base and index: nothing but an index, in version 0 not even it
        places = box(b"iloc", struct.pack(">IHH", 0, widths, 0xFFFF), entry * 10_000)
        with pytest.raises(DecodeError, match="too early"):
            check_avif(box(b"meta", bytes(4), places))
    nested = b""
    for _ in range(20_000):
        nested = struct.pack(">I4s", 8 + len(nested), b"iprp") + nested
    check_avif(box(b"meta", bytes(4), nested))


def test_a_file_cut_or_changed_anywhere_is_read_or_refused():
    for data in (avif((40, 30), "RGBA"), sequence((40, 30)), grid(3, wide=True, in_idat=False)):
        for at in range(len(data)):
            for broken in (data[:at], data[:at] + b"\xff" + data[at + 1 :], data[:at] + b"\0" + data[at + 1 :]):
                try:
                    check_avif(broken)
                except DecodeError as error:
                    assert "avif" in str(error).lower()  # noqa: PT017
