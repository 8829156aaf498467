from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastdata.converters.statistics import ChannelSums, channel_sums
from fastdata.decoding import native_decoder

CHANNELS = pytest.mark.parametrize("channels", [1, 3])


@pytest.fixture(params=["generic", "avx2", "avx512"])
def sums_by_core(request):
    """The core's sums by one instruction set."""
    if not native_decoder.available():
        pytest.skip("the compiled core was not built")

    def sums(pixels):
        values, squares = native_decoder.channel_sums(pixels, kernels=request.param)
        return ChannelSums(pixels.shape[0] * pixels.shape[1], tuple(values), tuple(squares))

    try:
        sums(np.zeros((1, 1, 3), np.uint8))
    except ValueError:
        pytest.skip(f"this processor has no {request.param}")
    return sums


def by_numpy(pixels):
    wide = pixels.reshape(-1, pixels.shape[2]).astype(int)
    return ChannelSums(len(wide), tuple(wide.sum(0).tolist()), tuple((wide**2).sum(0).tolist()))


def by_pillow(pixels):
    """As where the core was not built."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "fastdata._native", None)
        return channel_sums(pixels)


@given(st.integers(1, 90), st.integers(1, 90), st.sampled_from([1, 3]), st.integers(0, 99))
def test_the_sums_are_exact_and_add_up_in_any_order(width, height, channels, seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, channels), np.uint8)
    sums = channel_sums(pixels)
    assert sums == by_numpy(pixels)
    assert by_pillow(pixels) == sums
    half = height // 2
    parts = [channel_sums(part) for part in (pixels[:half], pixels[half:]) if len(part)]
    assert sum(parts, ChannelSums()) == sums == sum(reversed(parts), ChannelSums())


def test_large_pictures_go_in_strips():
    pixels = np.random.default_rng(0).integers(0, 256, (700, 900, 3), np.uint8)
    sums = by_pillow(pixels)
    assert sums == channel_sums(pixels)
    assert sums.values == tuple(pixels.reshape(-1, 3).astype(int).sum(0).tolist())
    assert sums.std == pytest.approx((pixels / 255).reshape(-1, 3).std(0), abs=1e-12)


@CHANNELS
def test_every_instruction_set_gives_the_same_sums(sums_by_core, channels):
    rng = np.random.default_rng(channels)
    sizes = [(1, 1), (1, 63), (1, 64), (2, 191), (64, 129), *rng.integers(1, 300, (40, 2)).tolist()]
    for height, width in sizes:
        pixels = rng.integers(0, 256, (height, width, channels), np.uint8)
        assert sums_by_core(pixels) == by_numpy(pixels), f"{width} x {height}"


@CHANNELS
def test_no_instruction_set_overflows(sums_by_core, channels):
    pixels = np.full((2600, 2600, channels), 255, np.uint8)  # more than 32,768 blocks of 192 bytes
    assert sums_by_core(pixels) == by_numpy(pixels)


@CHANNELS
def test_the_brightest_picture_overflows_nothing(channels):
    pixels = np.full((2600, 2600, channels), 255, np.uint8)
    sums = channel_sums(pixels)
    assert sums.values == (2600 * 2600 * 255,) * channels
    assert sums.squares == (2600 * 2600 * 255**2,) * channels
    assert (sums.mean, sums.std) == ((1.0,) * channels, (0.0,) * channels)


def test_a_view_is_summed_as_what_it_shows():
    pixels = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)
    assert channel_sums(pixels[3:30, 5:45]) == channel_sums(pixels[3:30, 5:45].copy())
