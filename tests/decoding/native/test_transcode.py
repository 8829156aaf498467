"""Restart markers put into a JPEG change no pixel, lose no segment that counts, and need a whole file."""

from __future__ import annotations

import importlib
import io
import struct
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from fastdata.decoding.header import probe
from fastdata.decoding.native_decoder import NativeBatchDecoder, transcode
from fastdata.decoding.restart_markers import blocks_near
from fastdata.errors import (
    DecodeError,
    ImageTooLargeError,
    OptionError,
    TruncatedImageError,
    UnsupportedImageError,
)


def stored(blob):
    """Pixels as they are stored: CMYK stays CMYK."""
    with Image.open(io.BytesIO(blob)) as image:
        return image.mode, np.asarray(image)


def segments(blob):
    """(marker, body) of every segment up to the first scan."""
    found, at = [], 2
    while blob[at + 1] != 0xDA:
        size = int.from_bytes(blob[at + 2 : at + 4], "big")
        found.append((blob[at + 1], blob[at + 4 : at + 2 + size]))
        at += 2 + size
    return found


def interval(blob):
    return next(struct.unpack(">H", body)[0] for marker, body in segments(blob) if marker == 0xDD)


def same(blob, made):
    (mode, before), (mode_after, after) = stored(blob), stored(made)
    return mode == mode_after and np.array_equal(before, after)


WAYS = ({"restart_rows": 1}, {"restart_rows": 3}, {"restart_blocks": 2}, {"restart_blocks": 8})


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("size", [(160, 120), (157, 101), (33, 250), (1, 1), (17, 9)])
def test_no_pixel_changes(kit, kind, size, way):
    blob = kit.jpeg_of(kit.noisy_photo(*size), kind)
    made = transcode(blob, **way)
    assert same(blob, made)
    header = probe(made)
    assert header.process in {0, 1}, "a progressive source becomes sequential"
    columns = -(-size[0] // header.block_width)
    expected = way["restart_rows"] * columns if "restart_rows" in way else blocks_near(columns, way["restart_blocks"])
    assert interval(made) == expected
    assert transcode(made, **way) == made


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_crops_of_the_result_equal_the_whole_decode(kit, kind, way):
    size = (159, 333)
    blob = kit.jpeg_of(kit.noisy_photo(*size), kind)
    whole = np.asarray(Image.open(io.BytesIO(blob)).convert("RGB"))
    made = transcode(blob, **way)
    rng = np.random.default_rng(1)
    corners = zip(rng.integers(0, 119, 8).tolist(), rng.integers(0, 293, 8).tolist(), strict=True)
    boxes = [(x, y, x + 40, y + 40) for x, y in corners]
    out = np.zeros((8, 40, 40, 3), np.uint8)
    with NativeBatchDecoder(1) as decoder:
        assert decoder.decode_batch(kit.pack([made] * 8, [size] * 8), kit.crops(boxes, (40, 40)), out) == {}
        assert decoder._reference is None
    for box, pixels in zip(boxes, out, strict=True):
        assert np.array_equal(pixels, whole[box[1] : box[3], box[0] : box[2]]), box


def test_the_awkward_files_keep_their_pixels_or_are_refused_with_a_typed_error(shared_data):
    done = 0
    for file in sorted((shared_data / "awkward").rglob("*.jp*g")):
        blob = file.read_bytes()
        try:
            made = transcode(blob, restart_blocks=4, max_pixels=20_000_000)
        except (DecodeError, MemoryError):
            continue
        try:
            before = stored(blob)
        except OSError:
            continue  # Pillow is stricter here
        after = stored(made)
        assert before[0] == after[0], file.name
        assert np.array_equal(before[1], after[1]), file.name
        done += 1
    assert done > 20, "too few could be compared"


def test_segments_stay_as_they_are(kit):
    exif = Image.Exif()
    exif[274], exif[271] = 6, "maker"
    profile = bytes(range(256)) * 600  # more than one segment
    stream = io.BytesIO()
    Image.fromarray(kit.noisy_photo(90, 70)).save(
        stream, "JPEG", exif=exif, icc_profile=profile, comment=b"words", dpi=(300, 300)
    )
    blob = stream.getvalue()
    made = transcode(blob, restart_rows=1)
    kept = [entry for entry in segments(blob) if entry[0] == 0xFE or 0xE0 <= entry[0] <= 0xEF]
    assert [entry for entry in segments(made) if entry[0] == 0xFE or 0xE0 <= entry[0] <= 0xEF] == kept
    assert probe(made).orientation == 6
    with Image.open(io.BytesIO(made)) as image:
        assert (image.info["icc_profile"], image.info["comment"], image.info["dpi"]) == (profile, b"words", (300, 300))


@pytest.mark.parametrize("kind", ["cmyk", "rgb stored", "grey"])
def test_no_segment_that_says_the_colours_is_made_up(kit, kind):
    blob = kit.jpeg_of(kit.noisy_photo(90, 70), kind)
    names = [marker for marker, _ in segments(blob) if 0xE0 <= marker <= 0xEF]
    assert [marker for marker, _ in segments(transcode(blob, restart_rows=1)) if 0xE0 <= marker <= 0xEF] == names
    bare = b"\xff\xd8" + b"".join(
        b"\xff" + bytes([marker]) + (len(body) + 2).to_bytes(2, "big") + body
        for marker, body in segments(blob)
        if not 0xE0 <= marker <= 0xEF
    )
    bare += blob[blob.index(b"\xff\xda") :]
    assert same(bare, transcode(bare, restart_rows=1))


def test_the_index_of_further_pictures_goes_with_them(kit):
    stream = io.BytesIO()
    first, second = (Image.fromarray(kit.noisy_photo(64, 48, seed)) for seed in (0, 1))
    first.save(stream, "MPO", save_all=True, append_images=[second])
    blob = stream.getvalue()
    made = transcode(blob, restart_rows=1)
    with Image.open(io.BytesIO(made)) as image:
        assert (image.format, getattr(image, "n_frames", 1)) == ("JPEG", 1)
    assert same(blob, made)


@pytest.mark.parametrize("kind", ["420", "progressive 420", "restart rows 420", "grey", "cmyk"])
def test_a_cut_file_raises(kit, kind):
    blob = kit.jpeg_of(kit.noisy_photo(90, 70), kind)
    for at in range(0, len(blob) - 1, max(len(blob) // 80, 1)):
        with pytest.raises(TruncatedImageError):
            transcode(blob[:at], restart_rows=1)
    for count in (1, 2):
        with pytest.raises(TruncatedImageError):
            transcode(blob[:-count], restart_rows=1)


def test_flipped_bits_raise_or_give_a_jpeg(kit):
    rng = np.random.default_rng(0)
    for kind in ("420", "progressive 444", "restart blocks 422"):
        blob = bytearray(kit.jpeg_of(kit.noisy_photo(90, 70), kind))
        for _ in range(150):
            broken = blob.copy()
            for at in rng.integers(2, len(blob), 3):
                broken[at] ^= 1 << int(rng.integers(0, 8))
            try:
                made = transcode(bytes(broken), restart_blocks=2, max_pixels=10**6)
            except (DecodeError, MemoryError):
                continue
            assert made[:2] == b"\xff\xd8"
            assert made[-2:] == b"\xff\xd9"


def test_a_progressive_file_without_its_last_scans_is_refused(kit):
    """Decoders smooth it, and would not smooth the copy."""
    blob = kit.jpeg_of(kit.noisy_photo(90, 70), "progressive 420")
    scans = [at for at in range(len(blob) - 1) if blob[at : at + 2] == b"\xff\xda"]
    cut = blob.rfind(b"\xff\xc4", 0, scans[3])
    with pytest.raises(UnsupportedImageError, match="scans"):
        transcode(blob[:cut] + b"\xff\xd9", restart_rows=1)


def test_too_many_pixels_are_refused_before_memory_is_taken(kit):
    blob = bytearray(kit.jpeg_of(kit.noisy_photo(90, 70), "420"))
    frame = blob.index(b"\xff\xc0")
    blob[frame + 5 : frame + 9] = struct.pack(">HH", 65_000, 65_000)
    with pytest.raises(ImageTooLargeError, match="65000 x 65000"):
        transcode(bytes(blob), restart_rows=1)


@pytest.mark.parametrize(
    "way",
    [{}, {"restart_rows": 0}, {"restart_rows": 1, "restart_blocks": 1}, {"restart_rows": -1}, {"restart_blocks": -2}],
)
def test_one_of_the_two_must_be_asked_for(kit, way):
    with pytest.raises(OptionError, match="one of them"):
        transcode(kit.jpeg_of(kit.noisy_photo(20, 20), "420"), **way)


def test_an_interval_has_sixteen_bits(kit):
    blob = kit.jpeg_of(kit.noisy_photo(900, 700), "444")
    made = transcode(blob, restart_rows=10**9)
    assert interval(made) == 65_535 // 113 * 113
    assert same(blob, made)


def test_nothing_is_printed_and_nothing_leaks(kit):
    script = """
import sys, resource
from fastdata.decoding.native_decoder import transcode
blob = sys.stdin.buffer.read()
def once(data):
    try:
        transcode(data, restart_rows=1)
    except ValueError:
        pass
for _ in range(30):
    once(blob); once(blob[: len(blob) * 3 // 4])
first = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(300):
    once(blob); once(blob[: len(blob) * 3 // 4])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - first)
"""
    blob = kit.jpeg_of(kit.noisy_photo(400, 300), "420")
    done = subprocess.run([sys.executable, "-c", script], input=blob, capture_output=True, check=True)
    assert done.stderr == b""
    assert int(done.stdout) < 8_000  # kB; one picture's coefficients are 360 kB


def test_the_core_refuses_both_and_none():
    core = importlib.import_module("fastdata._native")
    for rows, blocks in ((0, 0), (1, 1), (-1, 0)):
        with pytest.raises(ValueError, match="above 0"):
            core.transcode(np.zeros(4, np.uint8), rows, blocks, 0)


@pytest.mark.parametrize(
    ("columns", "wanted", "blocks"),
    [(128, 8, 8), (225, 8, 9), (204, 8, 6), (162, 8, 9), (251, 8, 1), (7, 8, 7), (128, 3, 4), (16, 100, 16), (1, 8, 1)],
)
def test_the_nearest_divisor(columns, wanted, blocks):
    assert blocks_near(columns, wanted) == blocks
