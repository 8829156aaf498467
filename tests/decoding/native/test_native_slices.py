"""Rows outside a crop are passed over where restart markers allow it, with the same pixels; and the fast fidelity."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from fastdata.decoding.native_decoder import NativeBatchDecoder


def jpeg(pixels, **options):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=88, **options)
    return stream.getvalue()


def crop(decoder, kit, blob, size, box):
    width, height = box[2] - box[0], box[3] - box[1]
    out = np.zeros((1, height, width, 3), np.uint8)
    assert decoder.decode_batch(kit.pack([blob], [size]), kit.crops([box], (width, height)), out) == {}
    return out[0]


def restart_markers(blob):
    scan = blob.index(b"\xff\xda")
    return [at for at in range(scan, len(blob) - 1) if blob[at] == 0xFF and 0xD0 <= blob[at + 1] <= 0xD7]


@pytest.mark.parametrize("options", [
    {"restart_marker_rows": 1, "subsampling": 0}, {"restart_marker_rows": 1, "subsampling": 1},
    {"restart_marker_rows": 1, "subsampling": 2}, {"restart_marker_rows": 3, "subsampling": 2},
    {"restart_marker_blocks": 5, "subsampling": 2}, {"restart_marker_blocks": 4, "subsampling": 2},
    {"restart_marker_rows": 1, "subsampling": 2, "optimize": True},
    {"restart_marker_blocks": 2, "subsampling": 2}, {"restart_marker_blocks": 1, "subsampling": 1},
    {"restart_marker_blocks": 1, "subsampling": 0},
    {"restart_marker_rows": 1, "progressive": True},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("grey", [False, True])
@pytest.mark.parametrize("width", [160, 145, 159])
def test_crops_equal_the_whole_decode(kit, options, width, grey):
    size = (width, 333)
    pixels = kit.noisy_photo(*size)
    blob = jpeg(pixels[:, :, 0] if grey else pixels, **options)
    assert restart_markers(blob)
    whole = np.asarray(Image.open(io.BytesIO(blob)).convert("RGB"))
    rng = np.random.default_rng(0)
    tops = [0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 127, 128, 129, 160, 300, 319, 320, 321, 332]
    with NativeBatchDecoder(1) as decoder:
        for top in tops:
            for bottom in {top + 1, min(top + 16, 333), min(top + 31, 333), 332, 333} - {top}:
                left = int(rng.integers(0, width))
                right = int(rng.integers(left + 1, min(left + 40, width) + 1))
                box = (left, top, right, max(bottom, top + 1))
                assert np.array_equal(crop(decoder, kit, blob, size, box), whole[box[1] : box[3], box[0] : box[2]]), box
        assert decoder._reference is None


def test_rows_above_are_not_decoded(kit):
    """Zeros in place of the first rows' data: only a decoder that passes them over gives the right pixels below."""
    size = (160, 320)
    blob = jpeg(kit.noisy_photo(*size), restart_marker_rows=1, subsampling=2)
    whole = np.asarray(Image.open(io.BytesIO(blob)).convert("RGB"))
    markers = restart_markers(blob)
    spoilt = bytearray(blob)
    spoilt[markers[2] + 2 : markers[3]] = bytes(markers[3] - markers[2] - 2)
    with NativeBatchDecoder(1) as decoder:
        box = (20, 200, 140, 280)
        assert np.array_equal(crop(decoder, kit, bytes(spoilt), size, box), whole[200:280, 20:140])
        assert decoder._reference is None


def test_markers_that_are_missing_or_out_of_order_are_no_slices(kit):
    """A file whose markers lie falls back to the whole decode, and what that finds wrong is reported as ever."""
    size = (160, 320)
    blob = jpeg(kit.noisy_photo(*size), restart_marker_rows=1, subsampling=2)
    at = restart_markers(blob)[4]
    swapped = blob[: at + 1] + b"\xd7" + blob[at + 2 :]
    out = np.zeros((1, 80, 120, 3), np.uint8)
    with NativeBatchDecoder(1) as decoder:
        decoder.decode_batch(kit.pack([swapped], [size]), kit.crops([(20, 200, 140, 280)], (120, 80)), out)
        assert decoder._reference is not None


def test_fast_is_near_and_smaller_decodes_keep_the_picture_in_place(kit):
    size = (1200, 900)
    small = Image.fromarray(np.random.default_rng(0).integers(0, 256, (9, 12, 3), dtype=np.uint8))
    pixels = np.asarray(small.resize(size, Image.Resampling.BICUBIC))
    for subsampling in (0, 1, 2):
        blob = jpeg(pixels, subsampling=subsampling)
        boxes = [(0, 0, 1200, 900), (101, 53, 1101, 903 - 50), (7, 9, 300, 250), (600, 450, 1200, 900)]
        geometry = kit.crops(boxes, (112, 112))
        exact, fast = np.zeros((4, 112, 112, 3), np.uint8), np.zeros((4, 112, 112, 3), np.uint8)
        with NativeBatchDecoder(1) as one, NativeBatchDecoder(1, fast=True) as two:
            encoded = kit.pack([blob] * 4, [size] * 4)
            assert one.decode_batch(encoded, geometry, exact) == {}
            assert two.decode_batch(encoded, geometry, fast) == {}
        difference = np.abs(exact.astype(int) - fast)
        assert difference.mean() < 1.5, (subsampling, difference.mean())
        assert difference.max() < 40, (subsampling, difference.max())


def test_fast_in_all_samplings_and_boxes(kit, kind):
    size = (157, 211)
    blob = kit.jpeg_of(np.asarray(Image.fromarray(kit.noisy_photo(20, 27)).resize(size)), kind)
    rng = np.random.default_rng(4)
    boxes = []
    for _ in range(40):
        left, top = int(rng.integers(0, 150)), int(rng.integers(0, 200))
        boxes.append((left, top, int(rng.integers(left + 1, 158)), int(rng.integers(top + 1, 212))))
    geometry = kit.crops(boxes, (24, 24))
    exact, fast = np.zeros((40, 24, 24, 3), np.uint8), np.zeros((40, 24, 24, 3), np.uint8)
    with NativeBatchDecoder(1) as one, NativeBatchDecoder(1, fast=True) as two:
        encoded = kit.pack([blob] * 40, [size] * 40)
        assert one.decode_batch(encoded, geometry, exact) == {}
        assert two.decode_batch(encoded, geometry, fast) == {}
        assert two._reference is None
    assert np.abs(exact.astype(int) - fast).mean() < 6
