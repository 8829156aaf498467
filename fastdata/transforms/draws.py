"""The random numbers of each sample: a pure function of seed, epoch and position."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastdata.philox import uniforms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastdata.transforms.plan import Plan

__all__ = ["GEOMETRY_STREAM", "draw"]

#: The philox stream of crops and flips; others (order, jitter) take other numbers. Part of what a seed means.
GEOMETRY_STREAM = 1


def draw(plan: Plan, seed: int, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the uniform draws of [0, 1) that ``plan`` needs: float64 (n, plan.draws), a row per global position."""
    count = plan.draws
    if not count:
        return np.empty((len(positions), 0))
    return uniforms(seed, epoch, positions, count, GEOMETRY_STREAM)
