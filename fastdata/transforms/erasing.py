"""RandomErasing: which rectangle, and what it is filled with."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdata.transforms.half_floats import bfloat16_bits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fastdata.transforms.pixel_steps import Erase

    Draws = Sequence[float]

__all__ = ["erase", "erased_area"]


def erased_area(step: Erase, u: Draws, height: int, width: int) -> tuple[int, int, int, int] | None:
    """Return top, left, height and width as RandomErasing.get_params chooses them, or None where ten tries fail."""
    low, high = math.log(step.ratio[0]), math.log(step.ratio[1])
    for at in range(0, 20, 2):
        area = height * width * (step.scale[0] + u[at] * (step.scale[1] - step.scale[0]))
        aspect = math.exp(low + u[at + 1] * (high - low))
        h, w = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if h < height and w < width:
            return int(u[20] * (height - h + 1)), int(u[21] * (width - w + 1)), h, w
    return None


def erase(step: Erase, pixels: NDArray[Any], u: Draws) -> None:
    """Erase a rectangle of ``pixels`` (C, H, W), uint8 or floats (uint16: bfloat16), in place."""
    channels, height, width = pixels.shape
    area = erased_area(step, u, height, width)
    if area is None:
        return
    top, left, h, w = area
    where = pixels[:, top : top + h, left : left + w]
    if step.value is not None:
        where[...] = _levels_of(np.array(step.value, np.float32), where.dtype)[:channels, None, None]
        return
    seed = [int(u[22] * 2**32), int(u[23] * 2**32)]
    noise = np.random.Generator(np.random.Philox(seed)).standard_normal(where.shape, np.float32)
    factor, shift = (np.array(each, np.float32)[:channels, None, None] for each in step.noise)
    where[...] = _levels_of(noise * factor + shift, where.dtype)


def _levels_of(values: NDArray[np.float32], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return floats as they are stored, or uint8 as torch casts: the fraction is cut off, negatives wrap around."""
    if dtype == np.uint8:
        return values.astype(np.int64).astype(np.uint8)
    return bfloat16_bits(values) if dtype == np.uint16 else values
