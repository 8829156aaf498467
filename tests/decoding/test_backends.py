"""One contract, every backend: the same pixels, the same verdict, own memory, and silence."""

from __future__ import annotations

import csv
import gc
import importlib.util
import io
import os
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fastdata.decoding.facade import BACKENDS, decoder
from fastdata.decoding.header import probe, sniff
from fastdata.decoding.jpeg_adapter import AdaptedDecoder
from fastdata.errors import (
    BackendMissingError,
    DecodeError,
    ImageTooLargeError,
    TruncatedImageError,
    UnsupportedImageError,
)

# Libraries that are silent, or print on stderr, where libjpeg warns: is_sound() keeps most damage from them.
LENIENT = {"opencv", "torchvision", "torchcodec"}


@pytest.fixture(scope="module", params=list(BACKENDS))
def backend(request):
    try:
        return request.param, decoder(request.param)
    except BackendMissingError as error:
        pytest.skip(str(error))


def reference(data: bytes, mode: str = "RGB") -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
        pixels = np.asarray(image.convert(mode))
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def test_made_jpegs_equal_pillow_bit_for_bit(backend, jpegs, capfd):  # C020, C146
    name, decode = backend
    for kind, data in jpegs.items():
        for mode in ("RGB", "L"):
            pixels = decode(data, mode)
            assert np.array_equal(pixels, reference(data, mode)), (name, kind, mode)
        stored = decode(data, "native")
        assert stored.shape[2] == (1 if "grey" in kind else 3)
    assert capfd.readouterr().err == ""


@pytest.mark.shared_data
def test_photographs_equal_pillow_bit_for_bit(backend, shared_data, capfd):  # C146
    _, decode = backend
    files = sorted((shared_data / "photos" / "classes").glob("*/*.jpg"))[::40]
    files += sorted((shared_data / "photos" / "camera").glob("*"))[:1]
    assert len(files) > 20
    for path in files:
        data = path.read_bytes()
        assert np.array_equal(decode(data), reference(data)), path.name
    assert capfd.readouterr().err == ""


def test_result_is_contiguous_writable_and_owned(backend, jpegs, encode, make_photo):
    _, decode = backend
    for data in (jpegs["4:2:0"], jpegs["grey"], encode(make_photo(), "PNG"), memoryview(jpegs["4:4:4"])):
        for mode in ("RGB", "L", "native"):
            pixels = decode(data, mode)
            assert pixels.dtype == np.uint8
            assert pixels.flags.c_contiguous
            assert pixels.flags.writeable
            before = pixels.copy()
            other = decode(jpegs["progressive"], mode)
            other[:] = 0
            gc.collect()
            assert np.array_equal(pixels, before)


def test_red_is_red(backend, encode):  # C028
    _, decode = backend
    for kind, options in (("JPEG", {"quality": 95}), ("PNG", {}), ("WEBP", {"lossless": True}), ("BMP", {})):
        for channel in range(3):
            colour = [0, 0, 0]
            colour[channel] = 255
            pixels = decode(encode(Image.new("RGB", (32, 24), tuple(colour)), kind, **options)).astype(int)
            assert abs(pixels - colour).max() <= 2, (kind, channel)


def test_other_formats_give_what_pillow_gives(backend, encode, make_photo):  # C011, C026
    _, decode = backend
    photo = make_photo()
    rgba = photo.convert("RGBA")
    rgba.putalpha(Image.linear_gradient("L").resize(photo.size))
    grey16 = Image.fromarray((np.arange(64 * 64).reshape(64, 64) * 16).astype(np.uint16))
    files = [
        encode(photo, "PNG"), encode(rgba, "PNG"), encode(photo.convert("P"), "PNG"), encode(photo.convert("1"), "PNG"),
        encode(photo.convert("LA"), "PNG"), encode(grey16, "PNG"), encode(photo, "BMP"), encode(photo, "WEBP"),
        encode(rgba, "WEBP"), encode(photo, "GIF"), encode(photo, "TIFF"), encode(photo, "AVIF"),
        encode(photo, "JPEG2000"), encode(photo, "PPM"),
    ]  # fmt: skip
    for data in files:
        assert np.array_equal(decode(data), reference(data)), probe(data)
        assert np.array_equal(decode(data, "L"), reference(data, "L")), probe(data)


def test_native_mode_keeps_what_is_stored(backend, encode, make_photo):
    _, decode = backend
    palette = make_photo().convert("P")
    assert np.array_equal(decode(encode(palette, "PNG"), "native")[:, :, 0], np.asarray(palette))
    bitmap = make_photo().convert("1")
    assert np.array_equal(decode(encode(bitmap, "PNG"), "native")[:, :, 0], np.asarray(bitmap).astype(np.uint8))
    assert decode(encode(make_photo().convert("RGBA"), "PNG"), "native").shape[2] == 4
    with pytest.raises(UnsupportedImageError, match="8 bits"):
        decode(encode(Image.fromarray(np.zeros((4, 4), np.uint16)), "PNG"), "native")


def test_cmyk_becomes_rgb_as_pillow_has_it(backend, encode, make_photo):  # C013
    _, decode = backend
    data = encode(make_photo().convert("CMYK"), quality=95)
    pixels = decode(data)
    assert np.array_equal(pixels, reference(data))
    assert abs(pixels.astype(int) - np.asarray(make_photo())).mean() < 12  # the picture, not its negative


def test_exif_orientation_is_not_applied(backend, encode, make_photo):  # C016
    _, decode = backend
    plain = decode(encode(make_photo(), quality=90))
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        for kind, options in (("JPEG", {"quality": 90}), ("PNG", {})):
            pixels = decode(encode(make_photo(), kind, exif=exif, **options))
            assert pixels.shape == plain.shape
            if kind == "JPEG":
                assert np.array_equal(pixels, plain)


def test_stray_bytes_before_a_marker_are_harmless(backend, encode, make_photo, capfd):  # C022
    _, decode = backend
    data = encode(make_photo(), quality=90)
    for marker in (b"\xff\xdb", b"\xff\xc0", b"\xff\xda"):
        at = data.index(marker)
        dirty = data[:at] + b"\x01\x02" + data[at:]
        assert np.array_equal(decode(dirty), decode(data)), marker
    assert capfd.readouterr().err == ""


def test_cut_files_are_refused_and_nothing_is_printed(backend, jpegs, encode, make_photo, capfd):  # C023
    _, decode = backend
    files = [jpegs["4:2:0"], jpegs["progressive"], jpegs["restart rows"], jpegs["grey"], encode(make_photo(), "PNG")]
    for data in files:
        for share in (0.999, 0.8, 0.5, 0.3):
            cut = data[: min(int(len(data) * share), len(data) - 2)]
            if probe(data).codec == "png" and share > 0.99:
                continue  # only the end chunk is missing: all pixels are there
            for action in ("error", "ignore"):  # PyTurboJPEG warns and returns what it has
                with warnings.catch_warnings():
                    warnings.simplefilter(action)
                    with pytest.raises(TruncatedImageError):
                        decode(cut)
        for size in (0, 1, 2, 3, 10, 30):
            with pytest.raises(DecodeError):
                decode(data[:size])
    assert capfd.readouterr().err == ""


def by_the_library(decode, data: bytes) -> np.ndarray:
    """The pixels without the reference road, which would hide a library that refuses everything."""
    return decode._decode(data, probe(data)) if isinstance(decode, AdaptedDecoder) else decode(data, "native")


def test_it_is_the_library_that_decodes(backend, jpegs):
    _, decode = backend
    for kind, data in jpegs.items():
        expected = reference(data, "L" if "grey" in kind else "RGB")
        assert np.array_equal(by_the_library(decode, data), expected), kind


def test_bad_pixels_do_not_spoil_the_next_file(backend, jpegs):
    """jpeg4py keeps the handle of a file that failed, and its error with it."""
    _, decode = backend
    broken = bytearray(jpegs["4:4:4"])
    at = broken.index(b"\xff\xc4")
    broken[at + 4 : at + 21] = b"\x00" + b"\xff" * 16  # an impossible Huffman table
    for _ in range(3):
        with pytest.raises(DecodeError):
            decode(bytes(broken))
        assert np.array_equal(by_the_library(decode, jpegs["4:2:0"]), reference(jpegs["4:2:0"]))


def test_damage_between_markers_has_pillows_verdict(backend, encode, make_photo):
    """Flipped, zeroed and lost bytes in the entropy-coded data: Pillow decides, whatever the library thinks."""
    _, decode = backend
    pillow = decoder("pillow")
    rng = np.random.default_rng(7)
    whole = [encode(make_photo(), quality=90), encode(make_photo(), quality=90, restart_marker_rows=1),
             encode(make_photo(), quality=90, progressive=True)]  # fmt: skip
    refused = 0
    for number in range(60):
        data = bytearray(whole[number % 3])
        body = probe(bytes(data)).body
        at = int(rng.integers(body, len(data) - 2))
        if number % 4 == 0:
            data[at] ^= 1 << int(rng.integers(8))
        elif number % 4 == 1:
            data[at : at + 300] = bytes(len(data[at : at + 300]))
        elif number % 4 == 2:
            del data[at : at + 200]
        else:
            data[at : at + 4] = rng.integers(0, 256, 4, np.uint8).tobytes()
        try:
            expected = pillow(bytes(data))
        except DecodeError:
            refused += 1
            with pytest.raises(DecodeError):
                decode(bytes(data))
        else:
            assert np.array_equal(decode(bytes(data)), expected)
    assert 0 < refused < 60


def test_a_bomb_is_refused_by_its_header(backend, jpegs):  # C025
    _, decode = backend
    data = bytearray(jpegs["4:4:4"])
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = b"\xff\xff\xff\xff"
    with pytest.raises(ImageTooLargeError, match="max_pixels"):
        decode(bytes(data))


def test_many_threads_at_once(backend, jpegs):
    _, decode = backend
    names = ["4:4:4", "4:2:0", "grey", "progressive"]
    expected = {name: reference(jpegs[name]) for name in names}
    wrong: list[str] = []

    def work(number: int) -> None:
        for turn in range(20):
            name = names[(number + turn) % 4]
            if not np.array_equal(decode(jpegs[name]), expected[name]):
                wrong.append(name)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_stays_flat(backend, encode, make_photo):  # C151
    name, decode = backend
    image = make_photo(160, 120)
    files = [encode(image, quality=85), encode(image, quality=85)[:-400]]
    if name == "pillow":
        files += [encode(image, "WEBP"), encode(image, "PNG"), encode(image, "GIF"), encode(image, "TIFF")]

    def some(count: int) -> None:
        for number in range(count):
            try:
                decode(files[number % len(files)])
            except DecodeError:
                continue

    some(200)
    gc.collect()
    before = resident()
    some(2000)
    gc.collect()
    # 2,000 pictures are 115 MB: one leaked in twenty would show.
    assert resident() - before < 6_000_000


def slope(decode, data: bytes, count: int) -> float:
    """Bytes that a decode leaves behind, by the resident memory at eight moments of ``count`` decodes."""
    for _ in range(min(count, 300)):
        decode(data)
    at = []
    for _ in range(8):
        for _ in range(count // 8):
            decode(data)
        gc.collect()
        at.append(resident())
    return float(np.polyfit(np.arange(8) * (count // 8), at, 1)[0])


def tiny(kind: str, encode, make_photo) -> bytes:
    how = {"JPEG": {"quality": 85}, "PNG": {}, "WEBP": {"quality": 80}, "GIF": {}, "TIFF": {}, "BMP": {}, "AVIF": {}}
    return encode(make_photo(40, 30), kind, **how[kind])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_two_thousand_decodes_leave_nothing(backend, encode, make_photo, kind):  # C151
    name, decode = backend
    if kind != "JPEG" and name not in {"pillow", "native"}:
        return  # all others take the same road to Pillow for it: the long run has them, too
    # A picture is 3,600 bytes: one leaked in ten would be 360 a decode.
    assert slope(decode, tiny(kind, encode, make_photo), 2000) < 300, name


@pytest.mark.patient
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP", "AVIF"])
def test_twenty_thousand_decodes_leave_nothing(backend, encode, make_photo, kind):  # C151
    name, decode = backend
    left = slope(decode, tiny(kind, encode, make_photo), 20_000)
    assert left < 20, (name, kind)


# Damaged files that are taken, since all their pixels are there or libjpeg calls the damage a warning.
TAKEN = {
    "jpegdec__dc-predictor-overflow.jpg": "libjpeg warns of the end of a data segment, and Pillow takes the picture",
    "pillow__hopper_bad_exif.jpg": "extraneous bytes before a restart marker: a warning in libjpeg, taken by Pillow",
    "pngsuite__xcsn0g01.png": "a wrong checksum of a chunk that Pillow does not verify; the pixels are whole",
}
# The manifest refuses what needs a plugin; where that is installed the file is read.
PLUGINS = {"heic": "pillow_heif", "jxl": "pillow_jxl"}
# Warnings that three libraries print themselves: libjpeg's for damage between two markers, which only a decoder finds.
NOISY = {"jpegdec__dc-predictor-overflow.jpg", "pillow__hopper_bad_exif.jpg"}


@pytest.mark.shared_data
def test_awkward_files(backend, shared_data, capfd):  # C011, C013, C020, C022, C023, C025, C026
    name, decode = backend
    pillow = decoder("pillow")
    with (shared_data / "awkward" / "MANIFEST.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 185
    for row in rows:
        data = (shared_data / "awkward" / row["file"]).read_bytes()
        verdict = row["expected"].split(":")[0]
        if verdict == "decode" or row["file"] in TAKEN:
            pixels = decode(data)
            assert pixels.shape[2] == 3, row["file"]
            if name != "pillow":
                assert np.array_equal(pixels, pillow(data)), row["file"]
            else:
                with Image.open(io.BytesIO(data)) as image:
                    image.info.pop("transparency", None)
                    assert np.array_equal(pixels, np.asarray(image.convert("RGB"))), row["file"]
        elif (plugin := PLUGINS.get(sniff(data))) is None or importlib.util.find_spec(plugin) is None:
            with pytest.raises(DecodeError):
                decode(data)
        noise = capfd.readouterr().err
        if name not in LENIENT or row["file"] not in NOISY:
            assert noise == "", (row["file"], noise)
