from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fastdata.converters.options import PackOptions
from fastdata.converters.resizing import place, resample
from fastdata.decoding.pillow_arrays import view_array
from fastdata.errors import ImageTooLargeError

MODES = ("shorter", "longer", "exact", "crop", "pad")
sides = st.integers(1, 5000)


@given(sides, sides, st.integers(1, 600), st.sampled_from(MODES), st.booleans())
def test_no_side_falls_to_nothing_and_nothing_grows_unasked(width, height, target, mode, upscale):  # C020 C029
    placement = place(width, height, PackOptions(resize=target, resize_mode=mode, upscale=upscale, max_pixels=None))
    assert min(placement.size) >= 1
    assert min(placement.canvas) >= 1
    if not upscale:
        assert placement.size[0] <= width
        assert placement.size[1] <= height
    if mode == "pad" or (upscale and mode in {"exact", "crop"}):
        assert placement.canvas == (target, target)


@given(st.integers(224, 4000), st.integers(224, 4000))
def test_shorter_and_crop_hit_the_number_whatever_the_shape(width, height):  # C019
    assert min(place(width, height, PackOptions(resize=224)).size) == 224
    assert place(width, height, PackOptions(resize=224, resize_mode="crop")).canvas == (224, 224)
    longer = place(width, height, PackOptions(resize=224, resize_mode="longer")).size
    assert max(longer) == 224


@given(sides, sides, st.integers(1, 600), st.sampled_from(["shorter", "longer", "pad", "crop"]))
def test_the_shape_is_kept_within_half_a_pixel(width, height, target, mode):  # C029
    got = place(width, height, PackOptions(resize=target, resize_mode=mode, max_pixels=None)).size
    if 1 in got:  # clamped
        return
    factor = max(got[0] / width, got[1] / height), min(got[0] / width, got[1] / height)
    # One side is exact, the other is its rounded product with the same factor.
    assert min(abs(got[0] - width * f) + abs(got[1] - height * f) for f in factor) <= 0.5 + 1e-9


@pytest.mark.parametrize(
    ("mode", "target", "size", "expected"),
    [
        ("shorter", 256, (500, 375), (341, 256)),
        ("longer", 256, (500, 375), (256, 192)),
        ("exact", (100, 50), (500, 375), (100, 50)),
        ("exact", (600, 50), (500, 375), (500, 50)),
        ("crop", (100, 100), (500, 375), (100, 100)),
        ("crop", (400, 400), (500, 375), (400, 375)),
        ("pad", (400, 400), (500, 375), (400, 400)),
        ("shorter", 256, (500, 200), (500, 200)),
        ("shorter", 256, (2000, 1), (2000, 1)),
    ],
)
def test_sizes_by_mode(mode, target, size, expected):
    assert place(*size, PackOptions(resize=target, resize_mode=mode)).canvas == expected


def test_a_result_beyond_max_pixels_is_refused():
    with pytest.raises(ImageTooLargeError, match="max_pixels"):
        place(1, 100_000, PackOptions(resize=256, upscale=True))


def test_resampling_is_pillows_antialiased_resize():
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (90, 120, 3), np.uint8))
    options = PackOptions(resize=30)
    got = resample(view_array(image), place(*image.size, options), options)
    assert got.tobytes() == image.resize((40, 30), Image.Resampling.BICUBIC).tobytes()


def test_pad_lays_the_picture_in_the_middle_of_the_background():
    image = Image.new("RGB", (40, 20), (255, 0, 0))
    options = PackOptions(resize=40, resize_mode="pad", background=(0, 0, 255))
    got = resample(view_array(image), place(*image.size, options), options)
    assert got.shape == (40, 40, 3)
    assert (got[10:30] == (255, 0, 0)).all()
    assert (got[:10] == (0, 0, 255)).all()
    assert (got[30:] == (0, 0, 255)).all()


def test_crop_cuts_the_middle():
    image = Image.fromarray(np.arange(100 * 50, dtype=np.uint8).reshape(50, 100))
    options = PackOptions(resize=50, resize_mode="crop", mode="L")
    got = resample(view_array(image), place(*image.size, options), options)
    assert np.array_equal(got[:, :, 0], np.asarray(image)[:, 25:75])
