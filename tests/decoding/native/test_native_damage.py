"""Damage stays with its image: typed errors, nothing on stderr, no crash, and nobody's pixels but its own suffer."""

from __future__ import annotations

import importlib
import io
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from PIL import Image

from fastdata.decoding.native_decoder import NativeBatchDecoder
from fastdata.errors import DecodeError, ImageTooLargeError, TruncatedImageError


def native():
    return importlib.import_module("fastdata._native")


def status_of(blob, size=(90, 70)):
    out = np.zeros((size[1], size[0], 3), np.uint8)
    return native().decode_whole(np.frombuffer(blob, np.uint8), out)


OK, UNSUPPORTED, CORRUPT, TRUNCATED, TOO_LARGE, MISMATCH = range(6)


def test_statuses_of_the_core(kit):
    blob = kit.jpeg_of(kit.noisy_photo(90, 70), "420")
    assert status_of(blob)[0] == OK
    assert status_of(blob[: len(blob) // 2])[0] == TRUNCATED
    assert status_of(blob[:-2])[0] == TRUNCATED  # no end marker: as Pillow has it
    assert status_of(b"")[0] == TRUNCATED
    assert status_of(b"\x89PNG\r\n\x1a\n" + bytes(50))[0] == UNSUPPORTED
    assert status_of(blob, (91, 70))[0] == MISMATCH
    middle = len(blob) * 2 // 3
    assert status_of(blob[:middle] + b"\xff\xd9" + blob[middle + 2 :])[0] == CORRUPT  # ends early


def test_stray_bytes_before_a_marker_are_harmless(kit):  # C022
    blob = kit.jpeg_of(kit.noisy_photo(90, 70), "420")
    assert status_of(blob[:-2] + b"\x00\x11\x22" + blob[-2:])[0] == OK
    at = blob.index(b"\xff\xdb")
    assert status_of(blob[:at] + b"\x00\x00" + blob[at:])[0] == OK


@pytest.mark.parametrize("kind", ["420", "progressive 420", "restart rows 420", "grey"])
def test_cut_anywhere_never_crashes_and_never_passes_as_whole(kit, kind):
    size = (90, 70)
    blob = kit.jpeg_of(kit.noisy_photo(*size), kind)
    cuts = [blob[:at] for at in range(0, len(blob) - 2, max(len(blob) // 60, 1))]
    cuts.append(blob)
    geometry = kit.crops([(0, 0, *size)] * len(cuts), (30, 20))
    out = np.zeros((len(cuts), 20, 30, 3), np.uint8)
    with NativeBatchDecoder(2) as decoder:
        failures = decoder.decode_batch(kit.pack(cuts, [size] * len(cuts)), geometry, out)
    # The last cuts miss only the very end of the data; the rows a whole decode needs may all be there.
    assert set(range(len(cuts) - 4)) <= set(failures)
    assert len(cuts) - 1 not in failures
    assert all(isinstance(error, DecodeError) for error in failures.values())
    assert any(isinstance(error, TruncatedImageError) for error in failures.values())
    assert np.array_equal(out[-1], kit.by_pillow(blob, geometry, len(cuts) - 1))


@pytest.mark.parametrize("kind", ["420", "444", "progressive 420", "restart blocks 422", "411", "cmyk"])
def test_flipped_bits_never_crash(kit, kind):
    size = (90, 70)
    blob = kit.jpeg_of(kit.noisy_photo(*size), kind)
    rng = np.random.default_rng(0)
    damaged = []
    for _ in range(150):
        data = bytearray(blob)
        for at in rng.integers(2, len(data), rng.integers(1, 6)):
            data[at] ^= 1 << int(rng.integers(0, 8))
        damaged.append(bytes(data))
    boxes = [(int(rng.integers(0, 40)), int(rng.integers(0, 30)), 80, 60) for _ in damaged]
    out = np.zeros((len(damaged), 20, 30, 3), np.uint8)
    pool = native().Pool(2)
    encoded, geometry = kit.pack(damaged, [size] * len(damaged)), kit.crops(boxes, (30, 20))
    failed = pool.decode_batch(
        encoded.address, encoded.length, encoded.codec, encoded.width, encoded.height, geometry.box, geometry.window,
        geometry.size, geometry.rect, geometry.hflip, geometry.vflip, (0, 0, 0), (2, True, 10**8, False, 1), out, None,
    )  # fmt: skip
    assert all(status in range(1, 7) and message for _, status, message in failed)
    pool.close()


def test_damage_below_the_crop_is_not_looked_at(kit):
    size = (160, 200)
    blob = kit.jpeg_of(kit.noisy_photo(*size), "420")
    cut = blob[: len(blob) * 3 // 4]
    geometry = kit.crops([(10, 5, 100, 60)], (40, 30))
    out = np.zeros((1, 30, 40, 3), np.uint8)
    with NativeBatchDecoder(1) as decoder:
        assert decoder.decode_batch(kit.pack([cut], [size]), geometry, out) == {}
    assert np.array_equal(out[0], kit.by_pillow(blob, geometry, 0))


def test_one_bad_image_leaves_its_neighbours_alone(kit):
    size = (64, 64)
    blobs = [kit.jpeg_of(kit.noisy_photo(*size, seed), "420") for seed in range(9)]
    good = list(blobs)
    blobs[4] = blobs[4][:300]
    blobs[7] = b"not an image"
    geometry = kit.crops([(0, 0, 64, 64)] * 9, (32, 32))
    out = np.zeros((9, 32, 32, 3), np.uint8)
    with NativeBatchDecoder(2) as decoder:
        failures = decoder.decode_batch(kit.pack(blobs, [size] * 9), geometry, out)
    assert sorted(failures) == [4, 7]
    for row in set(range(9)) - {4, 7}:
        assert np.array_equal(out[row], kit.by_pillow(good[row], geometry, row))


def test_other_formats_take_the_reference_road_in_the_same_call(kit):
    size = (64, 48)
    pixels = kit.noisy_photo(*size)
    blobs, codecs = [], []
    for codec, kind in ((1, "JPEG"), (2, "PNG"), (3, "WEBP"), (4, "BMP")):
        stream = io.BytesIO()
        Image.fromarray(pixels).save(stream, kind, **({"lossless": True} if kind == "WEBP" else {}))
        blobs.append(stream.getvalue())
        codecs.append(codec)
    encoded = kit.pack(blobs, [size] * 4)
    encoded.codec[:] = codecs
    geometry = kit.crops([(3, 4, 60, 40)] * 4, (32, 24))
    out = np.zeros((4, 24, 32, 3), np.uint8)
    with NativeBatchDecoder(2) as decoder:
        assert decoder.decode_batch(encoded, geometry, out) == {}
    for row, blob in enumerate(blobs):
        assert np.array_equal(out[row], kit.by_pillow(blob, geometry, row))


def test_pixels_do_not_depend_on_whether_a_picture_is_in_its_file_or_raw(kit):
    size, pixels, rng = (90, 70), kit.noisy_photo(90, 70), np.random.default_rng(5)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    corners = rng.random((20, 2)) * 30
    window = np.concatenate((corners, corners + 8 + rng.random((20, 2)) * 30), axis=1)
    box = np.concatenate((np.floor(window[:, :2]), np.ceil(window[:, 2:])), axis=1).astype(np.int32)
    rect = np.tile(np.array([-2, 3, 23, 16], np.int32), (20, 1))
    geometry = kit.crops(box, (23, 21), window=window, rect=rect, hflip=rng.random(20) < 0.5)
    outs = np.zeros((2, 20, 16, 23, 3), np.uint8)
    with NativeBatchDecoder(2) as decoder:
        for out, blob, codec in zip(outs, (stream.getvalue(), pixels.tobytes()), ("png", "raw"), strict=True):
            assert decoder.decode_batch(kit.pack([blob] * 20, [size] * 20, codec), geometry, out) == {}
    assert outs[0].any()
    assert np.array_equal(*outs)


def test_close_lets_the_reference_end_first(kit):
    """Its threads give the core work: a batch that is under way is finished, and no thread is left."""
    stream = io.BytesIO()
    Image.fromarray(kit.noisy_photo(300, 200)).save(stream, "PNG")
    encoded, geometry = (
        kit.pack([stream.getvalue()] * 40, [(300, 200)] * 40, "png"),
        kit.crops([(0, 0, 300, 200)] * 40, (32, 24)),
    )
    outs = np.zeros((2, 40, 24, 32, 3), np.uint8)
    decoder, before = NativeBatchDecoder(2), set(os.listdir("/proc/self/task"))
    assert decoder.decode_batch(encoded, geometry, outs[0]) == {}
    caller = threading.Thread(target=decoder.decode_batch, args=(encoded, geometry, outs[1]))
    caller.start()
    while not outs[1].any():
        time.sleep(0.001)
    decoder.close()
    caller.join()
    end = time.monotonic() + 10
    while not set(os.listdir("/proc/self/task")) <= before:  # a thread that was joined is seen for a moment more
        assert time.monotonic() < end
        time.sleep(0.01)
    assert np.array_equal(*outs)


def test_a_window_that_leaves_the_picture_takes_the_reference_road(kit):
    blob = kit.jpeg_of(kit.noisy_photo(64, 48), "420")
    geometry = kit.crops([(0, 0, 64, 48)], (40, 30), window=np.array([[-8.0, -8.0, 72.0, 56.0]]), fill=(255, 0, 0))
    out = np.zeros((1, 30, 40, 3), np.uint8)
    with NativeBatchDecoder(1) as decoder:
        assert decoder.decode_batch(kit.pack([blob], [(64, 48)]), geometry, out) == {}
    assert tuple(out[0, 0, 0]) == (255, 0, 0)


def test_an_index_that_does_not_fit_the_file(kit):
    blob = kit.jpeg_of(kit.noisy_photo(64, 48), "420")
    out = np.zeros((1, 30, 40, 3), np.uint8)
    with NativeBatchDecoder(1) as decoder:
        failures = decoder.decode_batch(kit.pack([blob], [(128, 128)]), kit.crops([(0, 0, 100, 100)], (40, 30)), out)
        assert "64 x 48" in str(failures[0])
        failures = decoder.decode_batch(kit.pack([blob], [(64, 48)]), kit.crops([(0, 0, 100, 100)], (40, 30)), out)
        assert "box" in str(failures[0])


def test_too_many_pixels(kit):
    blob = kit.jpeg_of(kit.noisy_photo(64, 48), "420")
    out = np.zeros((1, 30, 40, 3), np.uint8)
    with NativeBatchDecoder(1, max_pixels=1000) as decoder:
        failures = decoder.decode_batch(kit.pack([blob], [(64, 48)]), kit.crops([(0, 0, 64, 48)], (40, 30)), out)
    assert isinstance(failures[0], ImageTooLargeError)


def test_arguments_that_do_not_fit_are_refused_before_anything_runs(kit):
    blob = kit.jpeg_of(kit.noisy_photo(64, 48), "420")
    encoded, geometry = kit.pack([blob], [(64, 48)]), kit.crops([(0, 0, 64, 48)], (40, 30))
    with NativeBatchDecoder(1) as decoder:
        for out in (np.zeros((1, 30, 41, 3), np.uint8), np.zeros((1, 30, 40, 4), np.uint8),
                    np.zeros((1, 30, 40, 3), np.float32), np.zeros((2, 30, 40, 3), np.uint8)):  # fmt: skip
            with pytest.raises(ValueError, match=r"out|rect"):
                decoder.decode_batch(encoded, geometry, out)


def test_nothing_is_printed(kit, tmp_path):
    blob = kit.jpeg_of(kit.noisy_photo(64, 48), "420")
    file = tmp_path / "damaged.jpg"
    half = len(blob) // 2
    file.write_bytes(blob[:half] + bytes(20) + blob[half + 20 :])
    script = (
        "import sys, numpy as np\nfrom fastdata import _native\n"
        "data = np.frombuffer(open(sys.argv[1], 'rb').read(), np.uint8)\n"
        "for cut in (len(data), len(data) // 2, 100, 3):\n"
        "    _native.decode_whole(data[:cut], np.zeros((48, 64, 3), np.uint8))\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(file)], capture_output=True, check=True, env=os.environ)
    assert done.stdout == b""
    assert done.stderr == b""
