"""Pictures decoded smaller than they are: libjpeg's own scales, chosen as Pillow's draft chooses them."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from fastdata.decoding.native_decoder import NativeBatchDecoder
from fastdata.errors import OptionError

SIZE, SMALL = (403, 301), (25, 18)


def drafted(blob, target, margin, resample):
    """The picture as Pillow drafts it and then resizes it, and the size it was decoded to."""
    image = Image.open(io.BytesIO(blob))
    _, box = image.draft(None, (margin * target[0], margin * target[1]))
    return np.asarray(image.convert("RGB").resize(target, resample, box=box)), image.size


def of_core(kit, decoder, blob, size, target, **how):
    out = np.empty((1, target[1], target[0], 3), np.uint8)
    assert decoder.attempt(kit.pack([blob], [size]), kit.crops([(0, 0, *size)], target, **how), out) == []
    return out[0]


@pytest.mark.parametrize("name", ["bicubic", "lanczos", "box"])
def test_a_margin_gives_the_pixels_of_pillows_draft(kit, kind, name):
    blob = kit.jpeg_of(kit.noisy_photo(*SIZE), kind)
    resample = getattr(Image.Resampling, name.upper())
    seen = set()
    with NativeBatchDecoder(1, margin=2) as decoder:
        for target in (SMALL, (26, 18), (50, 37), (51, 37), (100, 75), (101, 75), (100, 76), (400, 10), (13, 9)):
            expected, size = drafted(blob, target, 2, resample)
            seen.add(-(-SIZE[0] // size[0]))
            assert size[0] >= min(2 * target[0], SIZE[0])
            assert size[1] >= min(2 * target[1], SIZE[1])
            got = of_core(kit, decoder, blob, SIZE, target, interpolation=name, antialias=True)
            assert np.array_equal(got, expected), target
    assert seen == {1, 2, 4, 8}


def test_without_a_margin_nothing_is_decoded_smaller(kit):
    blob = kit.jpeg_of(kit.noisy_photo(*SIZE), "420")
    whole = np.asarray(Image.open(io.BytesIO(blob)).resize(SMALL, Image.Resampling.BICUBIC))
    how = {"interpolation": "bicubic", "antialias": True}
    with NativeBatchDecoder(1) as exact, NativeBatchDecoder(1, margin=2) as near:
        assert np.array_equal(of_core(kit, exact, blob, SIZE, SMALL, **how), whole)
        assert not np.array_equal(of_core(kit, near, blob, SIZE, SMALL, **how), whole)
        # Points are not averages: what is taken at them is never made from a smaller picture.
        points = {"interpolation": "nearest", "antialias": False}
        assert np.array_equal(
            of_core(kit, near, blob, SIZE, SMALL, **points), of_core(kit, exact, blob, SIZE, SMALL, **points)
        )


def test_fast_is_a_margin_of_one_and_plain_colours(kit):
    blob = kit.jpeg_of(kit.noisy_photo(*SIZE), "420")
    how = {"interpolation": "bilinear", "antialias": True}
    with NativeBatchDecoder(1, fast=True) as fast, NativeBatchDecoder(1, margin=1) as near:
        for target in ((200, 150), (100, 75), (50, 37)):  # libjpeg upsamples no 4:2:0 colours that are made smaller
            expected, size = drafted(blob, target, 1, Image.Resampling.BILINEAR)
            assert size[0] == -(-SIZE[0] // (SIZE[0] // target[0]))
            assert np.array_equal(of_core(kit, fast, blob, SIZE, target, **how), expected)
            assert np.array_equal(of_core(kit, near, blob, SIZE, target, **how), expected)
        whole = (202, 151)
        assert not np.array_equal(
            of_core(kit, fast, blob, SIZE, whole, **how), of_core(kit, near, blob, SIZE, whole, **how)
        )


def test_a_part_of_a_picture_is_that_part_of_the_smaller_one(kit):
    """The loader's crops: the margin counts the crop's pixels, not the picture's."""
    blob = kit.jpeg_of(kit.noisy_photo(*SIZE), "444")
    box, target = (40, 16, 296, 272), (60, 60)
    image = Image.open(io.BytesIO(blob))
    image.draft(None, (SIZE[0] // 2, SIZE[1] // 2))
    smaller = image.convert("RGB").crop((20, 8, 148, 136)).resize(target, Image.Resampling.BICUBIC)
    out = np.empty((1, 60, 60, 3), np.uint8)
    with NativeBatchDecoder(1, margin=2) as decoder:
        where = kit.crops([box], target, interpolation="bicubic", antialias=True)
        assert decoder.attempt(kit.pack([blob], [SIZE]), where, out) == []
    assert np.array_equal(out[0], np.asarray(smaller))


def test_what_the_core_leaves_is_named_and_not_decoded_by_others(kit):
    blob = kit.jpeg_of(kit.noisy_photo(*SIZE), "420")
    good, cut = kit.pack([blob], [SIZE]), kit.pack([blob[: len(blob) // 2]], [SIZE])
    where = kit.crops([(0, 0, *SIZE)], SMALL, interpolation="bicubic", antialias=True)
    out = np.empty((1, SMALL[1], SMALL[0], 3), np.uint8)
    with NativeBatchDecoder(1, margin=2) as decoder:
        ((position, status, reason),) = decoder.attempt(cut, where, out)
        assert (position, bool(reason)) == (0, True)
        assert status > 0
        assert decoder.attempt(good, where, out) == []
        assert decoder._reference is None
    with pytest.raises(OptionError, match="closed"):
        decoder.attempt(good, where, out)


def test_a_margin_that_cannot_be_meant():
    with pytest.raises(OptionError, match="margin"):
        NativeBatchDecoder(1, margin=-1)
