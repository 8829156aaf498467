from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fastdata.converters.statistics import ChannelSums, channel_sums


@given(st.integers(1, 90), st.integers(1, 90), st.sampled_from([1, 3]), st.integers(0, 99))
def test_the_sums_are_exact_and_add_up_in_any_order(width, height, channels, seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, channels), np.uint8)
    sums = channel_sums(pixels)
    wide = pixels.reshape(-1, channels).astype(int)
    assert sums == ChannelSums(width * height, tuple(wide.sum(0).tolist()), tuple((wide**2).sum(0).tolist()))
    picture = Image.fromarray(pixels[:, :, 0] if channels == 1 else pixels)
    assert channel_sums(picture) == sums
    half = height // 2
    parts = [channel_sums(part) for part in (pixels[:half], pixels[half:]) if len(part)]
    assert sum(parts, ChannelSums()) == sums == sum(reversed(parts), ChannelSums())


def test_large_pictures_go_in_strips():
    pixels = np.random.default_rng(0).integers(0, 256, (700, 900, 3), np.uint8)
    sums = channel_sums(pixels)
    assert sums.values == tuple(pixels.reshape(-1, 3).astype(int).sum(0).tolist())
    assert sums.std == pytest.approx((pixels / 255).reshape(-1, 3).std(0), abs=1e-12)
