"""Random turns, affine maps and perspectives of a picture that keeps its size, as values; warp.py does them.

All are equal in value to torchvision's for PIL images, given the draws. fill: a colour; resampling: Pillow's number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

__all__ = ["Affine", "Mapped", "Perspective", "Rotate"]

Range = tuple[float, float]
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Rotate:
    """RandomRotation: turn counter-clockwise by uniform ``degrees`` about ``centre`` (x, y; None: the middle)."""

    degrees: Range
    centre: Point | None
    fill: tuple[int, int, int]
    resampling: int
    draws: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class Affine:
    """RandomAffine: turn, move, scale and shear about ``centre`` (None: the middle), each uniform in its range.

    translate: shares of width and height, either way. shear: degrees along x, then along y.
    """

    degrees: Range
    translate: Point
    scale: Range
    shear: tuple[Range, Range]
    centre: Point | None
    fill: tuple[int, int, int]
    resampling: int
    draws: ClassVar[int] = 6


@dataclass(frozen=True, slots=True)
class Perspective:
    """RandomPerspective: each corner moves inwards by up to ``distortion`` times half the side."""

    distortion: float
    fill: tuple[int, int, int]
    resampling: int
    draws: ClassVar[int] = 8


@dataclass(frozen=True, slots=True)
class Mapped:
    """A fixed affine map: pixel (x, y) comes from (a x + b y + c, d x + e y + f); equal to Pillow's."""

    numbers: tuple[float, ...]
    fill: tuple[int, int, int]
    resampling: int
    draws: ClassVar[int] = 0
