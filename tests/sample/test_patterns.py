"""The patterns share one palette: no class is brighter than another."""

from __future__ import annotations

import numpy as np
import pytest

from fastdata.sample.patterns import PATTERNS


@pytest.mark.parametrize("name", PATTERNS)
def test_half_of_every_pattern_is_ink_and_half_is_paper(name):
    # eight whole periods each way
    side = np.arange(512, dtype=np.float32) / 64
    u, v = np.broadcast_arrays(side, side[:, None])
    plane = PATTERNS[name](u, v, 0.05)
    assert plane.dtype == np.float32
    assert plane.shape == (512, 512)
    assert plane.min() == 0
    assert plane.max() == 1
    assert abs(plane.mean() - 0.5) < 0.06


def test_no_two_patterns_are_alike():
    side = np.arange(512, dtype=np.float32) / 64
    u, v = np.broadcast_arrays(side, side[:, None])
    planes = [PATTERNS[name](u, v, 0.05) - 0.5 for name in PATTERNS]
    alike = [abs(float((a * b).mean())) for k, a in enumerate(planes) for b in planes[:k]]
    assert max(alike) < 0.2  # 0.25 is equal
