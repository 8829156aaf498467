"""The reference for Geometry equals Pillow's crop and resize, whatever part of the result is asked for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastdata.decoding.resample import resample_into
from fastdata.errors import OptionError
from fastdata.types import Geometry

PILLOW = {"nearest": 0, "nearest-exact": 0, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5, "lanczos": 1}


def picture(width: int, height: int, seed: int, channels: int = 3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (height, width, channels), np.uint8)


def row(window, size, rect=None, *, hflip=False, vflip=False, **options) -> Geometry:
    rect = rect or (0, 0, *size)
    return Geometry(
        np.array([window], np.int32).clip(0), np.array([window], float), np.array([size], np.int32),
        np.array([rect], np.int32), np.array([hflip]), np.array([vflip]), **options,
    )  # fmt: skip


def run(pixels: np.ndarray, geometry: Geometry) -> np.ndarray:
    _, _, width, height = geometry.rect[0]
    out = np.zeros((height, width, pixels.shape[2]), np.uint8)
    resample_into(pixels, geometry, 0, out)
    return out


def whole(pixels: np.ndarray, window, size, interpolation: str) -> np.ndarray:
    """What torchvision does with a PIL image: crop the window (integer), then resize it."""
    image = Image.fromarray(pixels if pixels.shape[2] > 1 else pixels[:, :, 0])
    return np.asarray(image.crop(window).resize(size, PILLOW[interpolation])).reshape(size[1], size[0], -1)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_part_of_a_resized_window_equals_the_whole(draw):
    width, height = draw.draw(st.integers(1, 90)), draw.draw(st.integers(1, 90))
    left, top = draw.draw(st.integers(0, width - 1)), draw.draw(st.integers(0, height - 1))
    right, bottom = draw.draw(st.integers(left + 1, width)), draw.draw(st.integers(top + 1, height))
    size = draw.draw(st.integers(1, 70)), draw.draw(st.integers(1, 70))
    x, y = draw.draw(st.integers(0, size[0] - 1)), draw.draw(st.integers(0, size[1] - 1))
    w, h = draw.draw(st.integers(1, size[0] - x)), draw.draw(st.integers(1, size[1] - y))
    interpolation = draw.draw(st.sampled_from(list(PILLOW)))
    hflip, vflip = draw.draw(st.booleans()), draw.draw(st.booleans())
    pixels = picture(width, height, draw.draw(st.integers(0, 9)), draw.draw(st.sampled_from([1, 3])))
    window = (left, top, right, bottom)
    geometry = row(window, size, (x, y, w, h), hflip=hflip, vflip=vflip, interpolation=interpolation)
    expected = whole(pixels, window, size, interpolation)[y : y + h, x : x + w].astype(int)
    expected = expected[:: -1 if vflip else 1, :: -1 if hflip else 1]
    exact = interpolation in {"nearest", "nearest-exact", "box"}
    assert abs(run(pixels, geometry) - expected).max() <= (0 if exact else 1)


def test_any_part_by_the_box_filter_whose_edges_are_all_or_nothing():
    rng = np.random.default_rng(0)
    for _ in range(150):
        size = tuple(int(n) for n in rng.integers(2, 60, 2))
        width, height = size[0] * int(rng.integers(1, 5)) // 2 + 1, size[1] * int(rng.integers(1, 8))
        x, y = (int(rng.integers(0, side - 1)) for side in size)
        w, h = size[0] - x - 1, size[1] - y - 1
        pixels = picture(width, height, 3)
        got = run(pixels, row((0, 0, width, height), size, (x, y, w, h), interpolation="box"))
        assert np.array_equal(got, whole(pixels, (0, 0, width, height), size, "box")[y : y + h, x : x + w])


@settings(max_examples=60, deadline=None)
@given(st.integers(20, 90), st.integers(20, 90), st.integers(8, 64), st.sampled_from(["bilinear", "bicubic"]))
def test_resize_and_centre_crop(width, height, side, interpolation):  # C019
    """Resize(side) + CenterCrop(side): a fractional window, and exactly side x side for every size."""
    short = min(width, height)
    size = (max(side, int(side * width / short)), max(side, int(side * height / short)))
    rect = (round((size[0] - side) / 2), round((size[1] - side) / 2), side, side)
    pixels = picture(width, height, 1)
    got = run(pixels, row((0, 0, width, height), size, rect, interpolation=interpolation))
    expected = whole(pixels, (0, 0, width, height), size, interpolation)
    left, top = rect[:2]
    assert got.shape == (side, side, 3)
    assert abs(got.astype(int) - expected[top : top + side, left : left + side]).max() <= 1


def test_a_fractional_window_equals_pillows_box():
    pixels = picture(100, 80, 2)
    window = (10.25, 7.5, 63.75, 70.1)
    got = run(pixels, row(window, (40, 30)))
    inner = Image.fromarray(pixels).crop((10, 7, 64, 71))  # the pixels of the window, and no others
    expected = np.asarray(inner.resize((40, 30), 2, box=(0.25, 0.5, 53.75, 63.1)))
    assert abs(got.astype(int) - expected).max() <= 1


def test_nothing_outside_the_window_shines_in():
    pixels = np.zeros((60, 60, 3), np.uint8)
    pixels[20:40, 20:40] = 255
    assert (run(pixels, row((20, 20, 40, 40), (7, 7), interpolation="lanczos")) == 255).all()


def test_no_resampling_where_none_is_asked_for():
    pixels = picture(50, 40, 3)
    got = run(pixels, row((5, 6, 25, 36), (20, 30), (2, 3, 10, 20), hflip=True))
    assert np.array_equal(got, pixels[9:29, 7:17][:, ::-1])


def test_a_rectangle_that_leaves_the_picture_is_filled():
    pixels = picture(30, 20, 4)
    got = run(pixels, row((0, 0, 30, 20), (30, 20), (-4, -3, 40, 30), fill=(9, 8, 7)))
    assert np.array_equal(got[3:23, 4:34], pixels)
    got[3:23, 4:34] = (9, 8, 7)
    assert (got == (9, 8, 7)).all()
    assert (run(pixels, row((0, 0, 30, 20), (30, 20), (100, 0, 5, 5), fill=(1, 2, 3))) == (1, 2, 3)).all()


def test_a_window_that_leaves_the_source_is_padded_first():
    pixels = picture(30, 20, 5)
    window = (-6, -2, 34, 26)
    padded = np.full((28, 40, 3), (200, 100, 50), np.uint8)
    padded[2:22, 6:36] = pixels
    got = run(pixels, row(window, (25, 17), fill=(200, 100, 50)))
    assert abs(got.astype(int) - np.asarray(Image.fromarray(padded).resize((25, 17), 2))).max() <= 1


@pytest.mark.parametrize("planar", [True, False])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint16])
def test_levels_and_any_strides(planar, channels, dtype):
    pixels = picture(64, 48, 6, channels)
    levels = np.linspace(0, 2000, 256 * channels).astype(dtype).reshape(channels, 256)
    for window, size in (((4, 4, 60, 44), (31, 23)), ((0, 0, 31, 23), (31, 23))):
        for hflip in (False, True):
            geometry = row(window, size, (-1, 0, 32, 23), hflip=hflip, fill=(3,) * channels)
            plain = run(pixels, geometry)
            memory = np.zeros((channels, 23, 32) if planar else (23, 32, channels), dtype)
            out = memory.transpose(1, 2, 0) if planar else memory
            resample_into(pixels, geometry, 0, out, levels=levels)
            expected = np.stack([levels[channel][plain[:, :, channel]] for channel in range(channels)], 2)
            assert np.array_equal(out, expected)
            small = np.zeros(memory.shape, np.uint8)
            resample_into(pixels, geometry, 0, small.transpose(1, 2, 0) if planar else small)
            assert np.array_equal(small.transpose(1, 2, 0) if planar else small, plain)


def test_without_antialias_bilinear_is_torchs():
    import torch

    pixels = picture(60, 44, 7)
    got = run(pixels, row((0, 0, 60, 44), (17, 13), antialias=False))
    planes = torch.from_numpy(pixels).permute(2, 0, 1)[None].float()
    expected = torch.nn.functional.interpolate(planes, size=(13, 17), mode="bilinear", align_corners=False)
    assert abs(got - expected[0].permute(1, 2, 0).numpy()).max() <= 0.51
    with pytest.raises(OptionError, match="antialias"):
        run(pixels, row((0, 0, 60, 44), (17, 13), antialias=False, interpolation="bicubic"))
