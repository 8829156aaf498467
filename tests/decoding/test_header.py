"""Headers without a decoder say what Pillow says, and never raise anything but a DecodeError."""

from __future__ import annotations

import csv
import io
import struct
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastdata.decoding.facade import decode
from fastdata.decoding.header import probe, sniff
from fastdata.decoding.jpeg_markers import is_sound
from fastdata.errors import DecodeError, TruncatedImageError
from fastdata.types import CODECS


@pytest.mark.parametrize(
    ("kind", "codec"),
    [("JPEG", "jpeg"), ("PNG", "png"), ("WEBP", "webp"), ("BMP", "bmp"), ("GIF", "gif"), ("TIFF", "tiff"),
     ("AVIF", "avif"), ("JPEG2000", "jp2"), ("PPM", "unknown")],
)  # fmt: skip
def test_codec_and_size_come_from_the_content(kind, codec, make_photo, encode):  # C011
    data = encode(make_photo(57, 33), kind)
    header = probe(data)
    assert (sniff(data), header.codec, header.width, header.height) == (codec, codec, 57, 33)
    assert sniff(memoryview(data)) == codec


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGB", "RGBA", "I;16"])
@pytest.mark.parametrize("kind", ["PNG", "BMP", "WEBP", "GIF"])
def test_size_in_every_mode(mode, kind, make_photo, encode):
    image = Image.fromarray(np.zeros((9, 11), np.uint16)) if mode == "I;16" else make_photo(11, 9).convert(mode)
    if kind == "BMP" and mode in {"LA", "I;16"}:
        image = image.convert("L")  # a BMP has no such pixels
    data = encode(image, kind)
    header = probe(data)
    assert (header.width, header.height) == (11, 9)
    if kind == "PNG":
        assert header.alpha == (mode in {"LA", "RGBA"})
        assert header.bits == {"1": 1, "I;16": 16}.get(mode, 8)
        assert header.palette == (mode == "P")


@pytest.mark.parametrize("lossless", [True, False])
@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_webp_alpha(lossless, mode, make_photo, encode):
    image = make_photo().convert(mode)
    if mode == "RGBA":
        image.putalpha(100)
    assert probe(encode(image, "WEBP", lossless=lossless)).alpha == (mode == "RGBA")


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_exif_orientation(orientation, kind, make_photo, encode):  # C016
    exif = Image.Exif()
    exif[0x0112] = orientation
    header = probe(encode(make_photo(), kind, exif=exif))
    assert header.orientation == orientation
    assert (header.width, header.height) == (157, 101)  # as stored


@pytest.mark.parametrize("order", ["<", ">"])
def test_orientation_in_both_byte_orders(order, make_photo, encode):
    block = (b"II" if order == "<" else b"MM") + struct.pack(order + "HIHHHIHH", 42, 8, 1, 0x0112, 3, 1, 6, 0)
    data = encode(make_photo())
    segment = b"Exif\x00\x00" + block
    data = data[:2] + b"\xff\xe1" + struct.pack(">H", len(segment) + 2) + segment + data[2:]
    assert probe(data).orientation == 6


def test_stray_bytes_between_segments_are_seen(make_photo, encode):  # C022
    data = encode(make_photo())
    at = data.index(b"\xff\xdb")
    for stray in (b"\x12\x34", b"\x00", b"\x41\xff\x00\x42"):
        dirty = data[:at] + stray + data[at:]
        header = probe(dirty)
        assert not header.plain
        assert (header.width, header.height) == (157, 101)
    filled = data[:at] + b"\xff\xff" + data[at:]  # fill bytes are no stray bytes
    assert probe(filled).plain


def test_a_sound_jpeg_has_all_its_markers(jpegs):
    for name, data in jpegs.items():
        assert is_sound(data, probe(data)), name
        body = probe(data).body
        cut = data[: (body + data.rindex(b"\xff\xd9", 0, len(data))) // 2]
        if name != "after EOI" and len(cut) > body:
            assert not is_sound(cut, probe(cut)), name


def test_a_restart_marker_out_of_turn_is_not_sound(jpegs):
    data = jpegs["restart rows"]
    assert b"\xff\xd1" in data
    assert not is_sound(data.replace(b"\xff\xd1", b"\xff\xd4", 1), probe(data))


def test_a_second_picture_behind_a_lost_end_is_not_sound(jpegs):
    first, second = jpegs["4:2:0"], jpegs["4:4:4"]
    assert is_sound(first + second, probe(first))
    assert not is_sound(first[:-2] + second, probe(first))
    assert not is_sound(first[:-2] + second[2:], probe(first))
    assert not is_sound(first[:-2] + second[second.index(b"\xff\xc4") :], probe(first))  # its SOF is lost, too


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.sampled_from([b"", b"\xff\xd8", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a",
       b"BM", b"RIFF\x00\x00\x00\x00WEBPVP8X", b"RIFF\x00\x00\x00\x00WEBPVP8L", b"II*\x00", b"\x00\x00\x00\x1cftypavif",
       b"P6\n", b"\xff\x0a", b"\x00\x00\x00\x0cjP  \r\n\x87\n"]))  # fmt: skip
def test_garbage_gives_decode_errors_only(tail, magic):  # C023
    data = magic + tail
    assert sniff(data) in CODECS
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            header = probe(data)
        except DecodeError:
            return
    assert header.width > 0
    assert header.height > 0


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_file_cut_anywhere_gives_decode_errors_only(draw):  # C023
    kind = draw.draw(st.sampled_from(["JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF"]))
    buffer = io.BytesIO()
    Image.new("RGB", (20, 10), (9, 99, 199)).save(buffer, kind)
    data = buffer.getvalue()
    cut = data[: draw.draw(st.integers(0, len(data)))]
    try:
        header = probe(cut)
    except DecodeError:
        return
    assert (header.width, header.height) == (20, 10)


def test_empty_and_headless():
    with pytest.raises(DecodeError, match="no bytes"):
        probe(b"")
    with pytest.raises(TruncatedImageError):
        probe(b"\xff\xd8\xff\xe0")


@pytest.mark.shared_data
def test_headers_of_the_awkward_files(shared_data):
    """Widths and heights as Pillow and identify found them. Exception: Pillow turns TIFFs itself."""
    checked = 0
    with (shared_data / "awkward" / "MANIFEST.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["expected"].startswith("decode") and row["width"]]
    for row in rows:
        header = probe((shared_data / "awkward" / row["file"]).read_bytes())
        assert (header.width, header.height) == (int(row["width"]), int(row["height"])), row["file"]
        if header.codec != "tiff":
            assert header.orientation == max(1, int(row["orientation"] or 1)), row["file"]
        checked += 1
    assert checked > 130


def test_a_picture_without_pixels_is_refused(make_photo, encode):
    webp = bytearray(encode(make_photo(16, 16), "WEBP", quality=50))
    assert webp[12:16] == b"VP8 "
    for at in (26, 28):
        broken = bytes(webp[:at]) + bytes(2) + bytes(webp[at + 2 :])
        with pytest.raises(DecodeError, match=" 0 "):
            probe(broken)
    for kind, at, size in (("PNG", 16, 4), ("BMP", 18, 4), ("TGA", 12, 2)):
        data = encode(make_photo(16, 16), kind)
        with pytest.raises(DecodeError):
            decode(data[:at] + bytes(size) + data[at + size :])
