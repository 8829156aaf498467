"""Shears, shifts, turns and perspectives of a picture, by Pillow itself, a plane at a time: its pixels to the bit.

The matrices are torchvision's (transforms/functional.py, _get_inverse_affine_matrix and _get_perspective_coeffs).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from fastdata.transforms.pixel_steps import Shear, Shift, Turn
from fastdata.transforms.warp_steps import Affine, Mapped, Perspective, Rotate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fastdata.transforms.picture import Picture

    Draws = Sequence[float]
    Pair = tuple[float, float]

__all__ = ["WARPS", "affine_of", "corners_of", "degrees_of"]


def _shear(step: Shear, picture: Picture, u: Draws) -> None:  # noqa: ARG001  as all actions
    """Shear about the upper left corner."""
    angles = math.radians(math.degrees(math.atan(step.across))), math.radians(math.degrees(math.atan(step.down)))
    _warp(picture, Image.Transform.AFFINE, _inverse(0.0, (0, 0), 1.0, angles, (0.0, 0.0)), step)


def _shift(step: Shift, picture: Picture, u: Draws) -> None:  # noqa: ARG001
    """Move right and down by whole pixels."""
    matrix = _inverse(0.0, (step.across, step.down), 1.0, (0.0, 0.0), _middle(picture))
    _warp(picture, Image.Transform.AFFINE, matrix, step)


def _turn(step: Turn, picture: Picture, u: Draws) -> None:  # noqa: ARG001
    """Turn counter-clockwise about the middle."""
    _rotate(picture, step.degrees, None, step)


def _mapped(step: Mapped, picture: Picture, u: Draws) -> None:  # noqa: ARG001
    _warp(picture, Image.Transform.AFFINE, step.numbers, step)


# ---------------------------------------------------------------- random ones


def degrees_of(step: Rotate, u: Draws) -> float:
    """Return the angle that a uniform draw chooses."""
    return _within(step.degrees, u[0])


def affine_of(step: Affine, u: Draws, size: tuple[int, int]) -> tuple[float, tuple[int, int], float, Pair]:
    """Return degrees, translation in whole pixels, scale, and shears in degrees; size: (width, height)."""
    most = step.translate[0] * size[0], step.translate[1] * size[1]
    moved = round(_within((-most[0], most[0]), u[1])), round(_within((-most[1], most[1]), u[2]))
    shears = _within(step.shear[0], u[4]), _within(step.shear[1], u[5])
    return _within(step.degrees, u[0]), moved, _within(step.scale, u[3]), shears


def corners_of(step: Perspective, u: Draws, size: tuple[int, int]) -> list[tuple[int, int]]:
    """Return where the corners go, clockwise from the upper left one."""
    across, down = (int(step.distortion * (side // 2)) + 1 for side in size)
    inwards = [(int(u[at] * across), int(u[at + 1] * down)) for at in range(0, 8, 2)]
    right, bottom = size[0] - across, size[1] - down
    (a, b), (c, d), (e, f), (g, h) = inwards
    return [(a, b), (right + c, d), (right + e, bottom + f), (g, bottom + h)]


def _within(ends: Pair, u: float) -> float:
    return ends[0] + u * (ends[1] - ends[0])


def _random_rotate(step: Rotate, picture: Picture, u: Draws) -> None:
    _rotate(picture, degrees_of(step, u), step.centre, step)


def _random_affine(step: Affine, picture: Picture, u: Draws) -> None:
    degrees, moved, scale, shears = affine_of(step, u, (picture.room.width, picture.room.height))
    angles = math.radians(shears[0]), math.radians(shears[1])
    matrix = _inverse(math.radians(degrees), moved, scale, angles, step.centre or _middle(picture))
    _warp(picture, Image.Transform.AFFINE, matrix, step)


def _random_perspective(step: Perspective, picture: Picture, u: Draws) -> None:
    right, bottom = picture.room.width - 1, picture.room.height - 1
    ends = corners_of(step, u, (right + 1, bottom + 1))
    starts = [(0, 0), (right, 0), (right, bottom), (0, bottom)]
    rows = []
    for (x, y), (to_x, to_y) in zip(ends, starts, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -to_x * x, -to_x * y], [0, 0, 0, x, y, 1, -to_y * x, -to_y * y]]
    solved = np.linalg.lstsq(np.array(rows, np.float64), np.array(starts, np.float64).ravel(), rcond=None)[0]
    # torchvision rounds the coefficients to float32.
    _warp(picture, Image.Transform.PERSPECTIVE, tuple(solved.astype(np.float32).tolist()), step)


# ---------------------------------------------------------------- Pillow


def _middle(picture: Picture) -> Pair:
    return picture.room.width * 0.5, picture.room.height * 0.5


def _rotate(picture: Picture, degrees: float, centre: Pair | None, step: Turn | Rotate) -> None:
    how = Image.Resampling(step.resampling)
    for plane, fill in zip(picture.settle(), step.fill, strict=False):
        plane[...] = np.asarray(Image.fromarray(plane).rotate(degrees, how, center=centre, fillcolor=fill))


def _warp(
    picture: Picture,
    kind: Image.Transform,
    numbers: tuple[float, ...],
    step: Shear | Shift | Affine | Mapped | Perspective,
) -> None:
    size = picture.room.width, picture.room.height
    for plane, fill in zip(picture.settle(), step.fill, strict=False):
        image = Image.fromarray(plane)
        plane[...] = np.asarray(image.transform(size, kind, numbers, step.resampling, fillcolor=fill))


def _inverse(
    turned: float, moved: tuple[int, int], scale: float, sheared: Pair, centre: Pair
) -> tuple[float, float, float, float, float, float]:
    """Return where each pixel comes from; angles in radians."""
    (sx, sy), (tx, ty), (cx, cy) = sheared, moved, centre
    a = math.cos(turned - sy) / math.cos(sy)
    b = -math.cos(turned - sy) * math.tan(sx) / math.cos(sy) - math.sin(turned)
    c = math.sin(turned - sy) / math.cos(sy)
    d = -math.sin(turned - sy) * math.tan(sx) / math.cos(sy) + math.cos(turned)
    a, b, c, d = a / scale, b / scale, c / scale, d / scale
    x = d * (-cx - tx) + -b * (-cy - ty) + cx
    y = -c * (-cx - tx) + a * (-cy - ty) + cy
    return d, -b, x, -c, a, y


#: What does each step that moves pixels: called with the step, the picture and the draws.
WARPS: dict[type, Callable[[Any, Picture, Draws], None]] = {
    Affine: _random_affine,
    Mapped: _mapped,
    Perspective: _random_perspective,
    Rotate: _random_rotate,
    Shear: _shear,
    Shift: _shift,
    Turn: _turn,
}
