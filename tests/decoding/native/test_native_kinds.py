"""Kinds of JPEG that few files have: the pixels are Pillow's, or the error is typed and stays with its image.

The files in arithmetic/ were made by libjpeg-turbo from random colours blown up with a bicubic filter.
"""

from __future__ import annotations

import importlib
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fastdata.decoding.header import probe
from fastdata.decoding.native_decoder import NativeBatchDecoder, make_decoder, transcode
from fastdata.errors import DecodeError, UnsupportedImageError

ARITHMETIC = sorted((Path(__file__).parent / "arithmetic").glob("*.jpg"))
OK, UNSUPPORTED = 0, 1  # of the core


def whole_by_pillow(blob):
    return np.asarray(Image.open(io.BytesIO(blob)).convert("RGB"))


def status_of(blob, size):
    pixels = np.zeros((size[1], size[0], 3), np.uint8)
    return importlib.import_module("fastdata._native").decode_whole(np.frombuffer(blob, np.uint8), pixels)[0]


def with_frame(blob, marker=None, *, precision=None, components=None):
    """Return the JPEG with another kind of frame, and other numbers in its head."""
    data = bytearray(blob)
    at = next(at for at in range(2, len(data)) if data[at] == 0xFF and data[at + 1] in {0xC0, 0xC1, 0xC2})
    data[at + 1] = marker or data[at + 1]
    data[at + 4] = precision or data[at + 4]
    if components is not None:
        cut = 3 * (data[at + 9] - components)
        del data[at + 10 + 3 * components : at + 10 + 3 * data[at + 9]]
        data[at + 9] = components
        data[at + 3] -= cut
        scan = data.index(b"\xff\xda")
        del data[scan + 5 + 2 * components : scan + 5 + 2 * data[scan + 4]]
        data[scan + 4] = components
        data[scan + 3] = 6 + 2 * components
    return bytes(data)


FRAMES = {
    "12 bits": {"marker": 0xC1, "precision": 12},
    "12 bits, progressive": {"marker": 0xC2, "precision": 12},
    "16 bits": {"precision": 16},
    "lossless": {"marker": 0xC3},
    "hierarchical": {"marker": 0xC5},
    "arithmetic, lossless": {"marker": 0xCB},
    "two components": {"components": 2},
}


def test_there_are_files_of_all_sorts():
    processes = {probe(file.read_bytes()).process for file in ARITHMETIC}
    assert processes == {9, 10}, "SOF9 and SOF10"
    assert len(ARITHMETIC) == 6


@pytest.mark.parametrize("file", ARITHMETIC, ids=lambda file: file.stem)
def test_arithmetic_coding(kit, file, capfd):
    blob = file.read_bytes()
    whole = whole_by_pillow(blob)
    size = (whole.shape[1], whole.shape[0])
    assert status_of(blob, size) in {OK, UNSUPPORTED}, "libjpeg-turbo may be built without it"
    assert np.array_equal(make_decoder()(blob), whole)
    rng = np.random.default_rng(0)
    with NativeBatchDecoder(1) as decoder:
        for _ in range(40):
            left, top = int(rng.integers(0, size[0])), int(rng.integers(0, size[1]))
            box = (left, top, int(rng.integers(left + 1, size[0] + 1)), int(rng.integers(top + 1, size[1] + 1)))
            out = np.zeros((1, box[3] - box[1], box[2] - box[0], 3), np.uint8)
            geometry = kit.crops([box], (out.shape[2], out.shape[1]))
            assert decoder.decode_batch(kit.pack([blob], [size]), geometry, out) == {}
            assert np.array_equal(out[0], whole[box[1] : box[3], box[0] : box[2]]), box
        small = np.zeros((1, 9, 11, 3), np.uint8)
        geometry = kit.crops([(0, 0, *size)], (11, 9))
        assert decoder.decode_batch(kit.pack([blob], [size]), geometry, small) == {}
        assert np.array_equal(small[0], kit.by_pillow(blob, geometry, 0))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("file", ARITHMETIC, ids=lambda file: file.stem)
def test_arithmetic_coding_is_transcoded_to_huffman(file):
    blob = file.read_bytes()
    made = transcode(blob, restart_rows=1)
    assert probe(made).process in {0, 1}
    assert np.array_equal(whole_by_pillow(made), whole_by_pillow(blob))


@pytest.mark.parametrize("file", ARITHMETIC[:3], ids=lambda file: file.stem)
def test_damaged_arithmetic_coding(kit, file, capfd):
    blob = file.read_bytes()
    header = probe(blob)
    size, rng = (header.width, header.height), np.random.default_rng(1)
    damaged = [blob[:at] for at in range(200, len(blob) - 2, 40)]
    for _ in range(100):
        data = bytearray(blob)
        for at in rng.integers(2, len(data), rng.integers(1, 6)):
            data[at] ^= 1 << int(rng.integers(0, 8))
        damaged.append(bytes(data))
    out = np.zeros((len(damaged), 9, 11, 3), np.uint8)
    with NativeBatchDecoder(2) as decoder:
        failures = decoder.decode_batch(
            kit.pack(damaged, [size] * len(damaged)), kit.crops([(0, 0, *size)] * len(damaged), (11, 9)), out
        )
    assert all(isinstance(error, DecodeError) for error in failures.values())
    assert failures
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", FRAMES)
def test_what_nobody_decodes_is_a_typed_error_of_its_image(kit, name, capfd):
    size = (64, 48)
    good = kit.jpeg_of(kit.noisy_photo(*size), "420")
    odd = with_frame(good, **FRAMES[name])
    with pytest.raises((OSError, SyntaxError, ValueError)):
        whole_by_pillow(odd)
    assert status_of(odd, size) != OK
    if name != "two components":  # coefficients can be copied without knowing what they mean
        with pytest.raises(DecodeError):
            transcode(odd, restart_rows=1)
    geometry = kit.crops([(3, 4, 60, 40)] * 3, (32, 24))
    out = np.zeros((3, 24, 32, 3), np.uint8)
    with NativeBatchDecoder(2) as decoder:
        failures = decoder.decode_batch(kit.pack([good, odd, good], [size] * 3), geometry, out)
    assert list(failures) == [1]
    assert isinstance(failures[1], DecodeError)
    for row in (0, 2):
        assert np.array_equal(out[row], kit.by_pillow(good, geometry, row))
    assert capfd.readouterr() == ("", "")


def test_the_core_says_what_it_does_not_take(kit):
    blob = with_frame(kit.jpeg_of(kit.noisy_photo(64, 48), "420"), marker=0xC1, precision=12)
    out = np.zeros((1, 48, 64, 3), np.uint8)
    with NativeBatchDecoder(1) as decoder:
        failures = decoder.decode_batch(kit.pack([blob], [(64, 48)]), kit.crops([(0, 0, 64, 48)], (64, 48)), out)
    assert isinstance(failures[0], UnsupportedImageError)
    assert "12" in str(failures[0])
