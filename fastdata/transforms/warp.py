"""Shears, shifts and turns of a picture, by Pillow itself, a plane at a time: its pixels to the bit.

The matrix is torchvision's (transforms/functional.py, _get_inverse_affine_matrix) with a scale of 1.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastdata.transforms.picture import Picture
    from fastdata.transforms.pixel_steps import Shear, Shift, Turn

__all__ = ["shear", "shift", "turn"]


def shear(step: Shear, picture: Picture, u: Sequence[float]) -> None:  # noqa: ARG001  as all actions
    """Shear about the upper left corner."""
    angles = math.radians(math.degrees(math.atan(step.across))), math.radians(math.degrees(math.atan(step.down)))
    _warp(picture, _inverse(angles, (0, 0), (0.0, 0.0)), step)


def shift(step: Shift, picture: Picture, u: Sequence[float]) -> None:  # noqa: ARG001
    """Move right and down by whole pixels."""
    room = picture.room
    _warp(picture, _inverse((0.0, 0.0), (step.across, step.down), (room.width * 0.5, room.height * 0.5)), step)


def turn(step: Turn, picture: Picture, u: Sequence[float]) -> None:  # noqa: ARG001
    """Turn counter-clockwise about the middle."""
    for plane, fill in zip(picture.settle(), step.fill, strict=False):
        plane[...] = np.asarray(
            Image.fromarray(plane).rotate(step.degrees, Image.Resampling(step.resampling), fillcolor=fill)
        )


def _warp(picture: Picture, matrix: tuple[float, ...], step: Shear | Shift) -> None:
    size = picture.room.width, picture.room.height
    for plane, fill in zip(picture.settle(), step.fill, strict=False):
        image = Image.fromarray(plane)
        plane[...] = np.asarray(image.transform(size, Image.Transform.AFFINE, matrix, step.resampling, fillcolor=fill))


def _inverse(
    angles: tuple[float, float], shift_by: tuple[int, int], centre: tuple[float, float]
) -> tuple[float, float, float, float, float, float]:
    (sx, sy), (tx, ty), (cx, cy) = angles, shift_by, centre
    a = math.cos(-sy) / math.cos(sy)
    b = -math.cos(-sy) * math.tan(sx) / math.cos(sy)
    c = math.sin(-sy) / math.cos(sy)
    d = -math.sin(-sy) * math.tan(sx) / math.cos(sy) + 1.0
    x = d * (-cx - tx) - b * (-cy - ty) + cx
    y = -c * (-cx - tx) + a * (-cy - ty) + cy
    return d, -b, x, -c, a, y
