from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastdata.converters.statistics import ChannelSums, channel_sums


def by_pillow(pixels):
    """As where the core was not built."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastdata.decoding.native_decoder.available", lambda: False)
        return channel_sums(pixels)


@given(st.integers(1, 90), st.integers(1, 90), st.sampled_from([1, 3]), st.integers(0, 99))
def test_the_sums_are_exact_and_add_up_in_any_order(width, height, channels, seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, channels), np.uint8)
    sums = channel_sums(pixels)
    wide = pixels.reshape(-1, channels).astype(int)
    assert sums == ChannelSums(width * height, tuple(wide.sum(0).tolist()), tuple((wide**2).sum(0).tolist()))
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


@pytest.mark.parametrize("channels", [1, 3])
def test_the_brightest_picture_overflows_nothing(channels):
    pixels = np.full((2600, 2600, channels), 255, np.uint8)  # more than 65,536 blocks of 96 bytes
    sums = channel_sums(pixels)
    assert sums.values == (2600 * 2600 * 255,) * channels
    assert sums.squares == (2600 * 2600 * 255**2,) * channels
    assert (sums.mean, sums.std) == ((1.0,) * channels, (0.0,) * channels)


def test_a_view_is_summed_as_what_it_shows():
    pixels = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)
    assert channel_sums(pixels[3:30, 5:45]) == channel_sums(pixels[3:30, 5:45].copy())
