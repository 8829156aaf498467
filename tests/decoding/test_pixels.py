"""What packing sees: upright, composited, all 16 bits; and what torchvision sees, bit for bit."""

from __future__ import annotations

import csv
import io
import struct
import warnings
import zlib
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image, ImageOps

from fastdata.decoding.facade import decode
from fastdata.decoding.header import probe
from fastdata.decoding.pixels import load_pixels, needs_encode, upright
from fastdata.errors import DecodeError, ImageTooLargeError, TruncatedImageError, UnsupportedImageError
from fastdata.types import PACK_PIXELS, TORCHVISION_PIXELS

RAW = replace(PACK_PIXELS, orientation="ignore", alpha="drop")


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied_once(orientation, make_photo, encode):  # C016, C017
    exif = Image.Exif()
    exif[0x0112] = orientation
    for kind in ("JPEG", "PNG", "WEBP", "TIFF"):
        data = encode(make_photo(), kind, exif=exif, **({"lossless": True} if kind == "WEBP" else {}))
        pixels = load_pixels(data)
        with Image.open(io.BytesIO(data)) as image:
            viewer = np.asarray(ImageOps.exif_transpose(image.convert("RGB")) if kind != "TIFF" else image)
        assert np.array_equal(pixels.array, viewer)
        assert pixels.array.flags.c_contiguous
        assert pixels.needs_encode == (orientation != 1 or kind == "TIFF")
        if kind != "TIFF":
            raw = load_pixels(data, replace(PACK_PIXELS, orientation="ignore"))
            assert raw.array.shape == (101, 157, 3)
            assert not raw.needs_encode


def test_upright_is_pillows_transpose():
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    for orientation in range(1, 9):
        image = Image.fromarray(pixels)
        image.getexif()[0x0112] = orientation
        assert np.array_equal(upright(pixels, orientation), np.asarray(ImageOps.exif_transpose(image)))


def write_16(mode: str, values: np.ndarray, *, interlaced: bool = False, key: bytes = b"") -> bytes:
    """A 16-bit PNG of any colour type, which Pillow cannot write: filter 0, or Adam7 by passes."""
    colour = {"L": 0, "RGB": 2, "LA": 4, "RGBA": 6}[mode]
    height, width = values.shape[:2]
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    rows = b""
    for x, y, dx, dy in passes if interlaced else [(0, 0, 1, 1)]:
        for row in values[y::dy, x::dx].astype(">u2"):
            rows += b"\x00" + row.tobytes() if row.size else b""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, int(interlaced))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + (chunk(b"tRNS", key) if key else b"")
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))  # fmt: skip


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("mode", ["L", "RGB", "LA", "RGBA"])
def test_16_bit_png_is_scaled_with_all_its_bits(mode, interlaced):  # C014
    rng = np.random.default_rng(3)
    channels = {"L": 1, "RGB": 3, "LA": 2, "RGBA": 4}[mode]
    values = rng.integers(0, 65536, (37, 29, channels))
    pixels = load_pixels(write_16(mode, values, interlaced=interlaced), RAW)
    colours = values[:, :, : 1 if channels < 3 else 3]
    expected = np.broadcast_to(np.rint(colours / 257), (37, 29, 3))
    assert np.array_equal(pixels.array, expected)
    assert pixels.needs_encode
    grey = load_pixels(write_16(mode, values, interlaced=interlaced), replace(RAW, mode="L"))
    assert grey.array.shape == (37, 29, 1)
    if channels in {2, 4}:
        laid = load_pixels(write_16(mode, values, interlaced=interlaced)).array
        weight = values[:, :, -1:] / 65535
        exact = (colours * weight + 65535 * (1 - weight)) / 257
        assert abs(laid - np.broadcast_to(exact, laid.shape)).max() <= 0.51


def test_a_16_bit_ramp_is_neither_clipped_nor_posterised():  # C014
    ramp = np.arange(65536, dtype=np.uint16).reshape(256, 256, 1)
    for mode, repeats in (("L", 1), ("RGB", 3)):
        array = load_pixels(write_16(mode, np.repeat(ramp, repeats, 2))).array
        assert np.array_equal(np.bincount(array[:, :, 0].ravel()), [129, *[257] * 254, 129])


def test_16_bit_colour_keys_become_background():
    values = np.full((3, 4, 3), 40000)
    values[1, 2] = (1000, 2000, 3000)
    values[1, 3] = (1000, 2000, 3001)  # differs in the low byte alone
    key = np.array([1000, 2000, 3000], ">u2").tobytes()
    array = load_pixels(write_16("RGB", values, key=key), replace(PACK_PIXELS, background=(9, 8, 7))).array
    assert array[1, 2].tolist() == [9, 8, 7]
    assert array[1, 3].tolist() == [4, 8, 12]
    grey = load_pixels(write_16("L", values[:, :, :1], key=np.array([1000], ">u2").tobytes())).array
    assert grey[1, 2].tolist() == [255, 255, 255]
    assert grey[0, 0].tolist() == [156, 156, 156]


def test_16_bit_tiff_and_ppm(encode):  # C014
    values = (np.arange(50 * 40).reshape(50, 40) * 32).astype(np.uint16)
    for data in (encode(Image.fromarray(values), "TIFF"), b"P5 40 50 65535\n" + values.astype(">u2").tobytes()):
        assert np.array_equal(load_pixels(data).array[:, :, 1], np.rint(values / 257))
        assert load_pixels(data, TORCHVISION_PIXELS).array.max() == 255


def test_16_bit_colour_tiff_keeps_its_low_bytes():
    tags = [(256, 3, 1, 8), (257, 3, 1, 4), (258, 3, 3, 200), (259, 3, 1, 1), (262, 3, 1, 2), (273, 4, 1, 256),
            (277, 3, 1, 3), (278, 3, 1, 4), (279, 4, 1, 8 * 4 * 6)]  # fmt: skip
    values = np.random.default_rng(0).integers(0, 65536, (4, 8, 3)).astype("<u2")
    head = b"II*\x00" + struct.pack("<IH", 8, len(tags))
    head += b"".join(struct.pack("<HHII", *tag) for tag in tags) + struct.pack("<I", 0)
    data = head.ljust(200, b"\0") + struct.pack("<HHH", 16, 16, 16)
    data = data.ljust(256, b"\0") + values.tobytes()
    assert np.array_equal(load_pixels(data).array, np.rint(values / 257))


def test_a_warning_of_pillows_is_no_reason_to_refuse():
    """Warnings are errors here: the file is read again in silence, and the filters are as they were."""
    tags = [(256, 3, 1, 8), (257, 3, 1, 4), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 256),
            (277, 3, 1, 1), (278, 3, 1, 4), (279, 4, 1, 32), (305, 2, 99, 10**6)]  # fmt: skip
    head = b"II*\x00" + struct.pack("<IH", 8, len(tags)) + b"".join(struct.pack("<HHII", *tag) for tag in tags)
    data = head.ljust(256, b"\0") + bytes(range(32))
    with pytest.warns(UserWarning, match="Truncated"), Image.open(io.BytesIO(data)) as image:
        image.load()
    filters = list(warnings.filters)
    assert np.array_equal(load_pixels(data).array[:, :, 0].ravel(), np.arange(32))
    assert warnings.filters == filters


def test_floats_have_no_range():
    buffer = io.BytesIO()
    Image.fromarray(np.ones((4, 4), np.float32)).save(buffer, "TIFF")
    with pytest.raises(UnsupportedImageError, match="range"):
        load_pixels(buffer.getvalue())


def test_alpha_is_laid_on_the_background(encode, make_photo):
    image = make_photo().convert("RGBA")
    image.putalpha(Image.linear_gradient("L").resize(image.size))
    colours, weight = np.asarray(image)[:, :, :3], np.asarray(image)[:, :, 3:] / 255
    for kind, options in (("PNG", {}), ("WEBP", {"lossless": True, "exact": True})):
        data = encode(image, kind, **options)
        for background in ((255, 255, 255), (0, 128, 255)):
            pixels = load_pixels(data, replace(PACK_PIXELS, background=background))
            exact = colours * weight + np.array(background) * (1 - weight)
            assert abs(pixels.array - exact).max() <= 1
            assert pixels.needs_encode
        assert np.array_equal(load_pixels(data, TORCHVISION_PIXELS).array, colours)


def test_palettes_with_transparency(encode, make_photo):
    palette = make_photo().convert("P", palette=Image.Palette.ADAPTIVE, colors=16)
    index = int(np.asarray(palette)[5, 5])
    for kind in ("PNG", "GIF"):
        data = encode(palette, kind, transparency=index)
        array = load_pixels(data).array
        clear = np.asarray(palette) == index
        assert (array[clear] == 255).all()
        assert np.array_equal(array[~clear], np.asarray(palette.convert("RGB"))[~clear])
    whole = load_pixels(encode(palette, "PNG"))
    assert np.array_equal(whole.array, np.asarray(palette.convert("RGB")))
    assert not whole.needs_encode


def test_bitmaps_become_grey_before_anything_else(encode, make_photo):  # C032
    bitmap = make_photo().convert("1")
    pixels = load_pixels(encode(bitmap, "PNG"), replace(PACK_PIXELS, mode="L"))
    assert pixels.array.shape == (101, 157, 1)
    assert set(np.unique(pixels.array)) == {0, 255}


def test_first_frame_of_an_animation(encode, make_photo):  # C026
    frames = [make_photo(seed=seed) for seed in range(3)]
    for kind in ("WEBP", "TIFF", "PNG", "GIF"):
        options = {"lossless": True} if kind == "WEBP" else {}
        data = encode(frames[0], kind, save_all=True, append_images=frames[1:], **options)
        pixels = load_pixels(data)
        assert pixels.needs_encode, kind
        if kind != "GIF":
            assert np.array_equal(pixels.array, np.asarray(frames[0])), kind
        else:
            assert abs(pixels.array.astype(int) - np.asarray(frames[0])).mean() < 12


def test_which_files_can_stay_as_they_are(jpegs, encode, make_photo):
    for name, data in jpegs.items():
        assert not load_pixels(data).needs_encode, name
    photo = make_photo()
    assert not load_pixels(encode(photo, "PNG")).needs_encode
    assert not load_pixels(encode(photo, "WEBP")).needs_encode
    assert not load_pixels(encode(photo, "BMP")).needs_encode
    assert load_pixels(encode(photo.convert("CMYK"))).needs_encode
    assert load_pixels(encode(photo, "GIF")).needs_encode
    assert load_pixels(encode(photo, "TIFF")).needs_encode
    dirty = encode(photo)
    dirty = dirty[: dirty.index(b"\xff\xdb")] + b"\x07" + dirty[dirty.index(b"\xff\xdb") :]
    assert load_pixels(dirty).needs_encode  # C022: a strict decoder refuses it
    assert needs_encode(probe(encode(photo)), replace(PACK_PIXELS, mode="L"))
    assert not needs_encode(probe(encode(photo.convert("L"))), replace(PACK_PIXELS, mode="L"))


def test_max_pixels_is_an_argument_and_pillows_own_limit_is_not_touched(encode, monkeypatch):  # C025
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    for kind in ("JPEG", "PNG", "BMP", "GIF"):  # the WebP and TIFF plugins look at Pillow's limit themselves
        data = encode(Image.new("RGB", (200, 100), (10, 200, 30)), kind)
        with pytest.raises(ImageTooLargeError, match=r"200 x 100.*max_pixels=19999"):
            load_pixels(data, replace(PACK_PIXELS, max_pixels=19_999))
        assert load_pixels(data, replace(PACK_PIXELS, max_pixels=20_000)).array.shape == (100, 200, 3)
        assert load_pixels(data, replace(PACK_PIXELS, max_pixels=None)).array.shape == (100, 200, 3)
        assert decode(data).shape == decode(data, "pillow").shape == (100, 200, 3)
    assert Image.MAX_IMAGE_PIXELS == 1000


def test_a_200_megapixel_picture_needs_a_raised_limit(encode):  # C025
    data = encode(Image.new("L", (20_000, 10_000), 77), quality=50)
    with pytest.raises(ImageTooLargeError):
        load_pixels(data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pixels = load_pixels(data, replace(PACK_PIXELS, max_pixels=None, mode="L"))
    assert pixels.array.shape == (10_000, 20_000, 1)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "AVIF", "JPEG2000"])
def test_cut_files_raise_one_kind_of_error(kind, encode, make_photo):  # C023
    data = encode(make_photo(), kind)
    for share in (0, 0.02, 0.1, 0.4, 0.7, 0.9):
        with pytest.raises(DecodeError):
            load_pixels(data[: int(len(data) * share)])
    if kind in {"JPEG", "PNG", "BMP"}:
        with pytest.raises(TruncatedImageError):
            load_pixels(data[: len(data) // 2])
    assert load_pixels(data + b"trailing garbage").array.shape == (101, 157, 3)


def test_text_bombs_and_nonsense_are_decode_errors(encode, make_photo):
    for data in (b"", b"hello", b"<svg xmlns='x'/>", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n"):
        with pytest.raises(DecodeError):
            load_pixels(data)
    png = encode(make_photo(), "PNG")
    text = b"k\0\0" + zlib.compress(b"a" * 200_000_000, 9)
    bomb = png[:33] + struct.pack(">I", len(text)) + b"zTXt" + text + struct.pack(">I", zlib.crc32(b"zTXt" + text))
    with pytest.raises(DecodeError):
        load_pixels(bomb + png[33:])


@pytest.mark.shared_data
def test_awkward_files_have_the_means_that_the_manifest_gives(shared_data):  # C013, C014, C026
    compared = 0
    with (shared_data / "awkward" / "MANIFEST.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["expected"].startswith("decode:")]
    for row in rows:
        data = (shared_data / "awkward" / row["file"]).read_bytes()
        packed = load_pixels(data)
        assert packed.array.shape[2] == 3
        raw = load_pixels(data, RAW).array
        if row["reference_mean_rgb"]:
            mean = np.array([float(value) for value in row["reference_mean_rgb"].split()])
            assert abs(raw.reshape(-1, 3).mean(0) - mean).max() < 0.6, row["file"]
            compared += 1
        if packed.header.orientation >= 5:
            assert packed.array.shape[:2] == raw.shape[1::-1], row["file"]
        with Image.open(io.BytesIO(data)) as image:
            image.info.pop("transparency", None)
            expected = np.asarray(image.convert("RGB"))
        assert np.array_equal(load_pixels(data, TORCHVISION_PIXELS).array, expected), row["file"]
    assert compared > 110
