"""From draws and picture sizes to what each output shows: pure, and vectorised over a batch.

Positions and sizes travel as float64 arrays (2, n), row 0 for x, row 1 for y: whole numbers, exact in float64. The
rounding rules are torchvision's (0.29: transforms/functional.py, transforms/transforms.py), the filter's reach is
Pillow's (src/libImaging/Resample.c, precompute_coeffs).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastdata.errors import OptionError
from fastdata.transforms.plan import (
    CenterCrop,
    HorizontalFlip,
    Pad,
    RandomCrop,
    RandomResizedCrop,
    Resize,
    VerticalFlip,
)
from fastdata.transforms.random_area import random_area
from fastdata.types import Geometry

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastdata.transforms.plan import Plan, Step

    Pairs = NDArray[np.float64]

__all__ = ["plan_geometry"]

#: Reach of Pillow's filters in pixels at scale 1 (Resample.c); nearest has none, one pixel covers its rounding.
_SUPPORT = {
    "nearest": 1.0, "nearest-exact": 1.0, "box": 0.5, "bilinear": 1.0, "hamming": 1.0, "bicubic": 2.0, "lanczos": 3.0,
}  # fmt: skip


class _Canvas:
    """The state between two steps: a window of the source at a virtual size, and the rectangle of it still in play."""

    __slots__ = ("cropped", "flips", "offset", "origin", "padded", "picture", "rect", "resampled", "size", "span")

    def __init__(self, widths: NDArray[np.int32], heights: NDArray[np.int32]) -> None:
        self.picture: Pairs = np.empty((2, len(widths)))
        self.picture[0], self.picture[1] = widths, heights
        self.origin: Pairs = np.zeros((2, 1))
        self.span = self.size = self.rect = self.picture
        self.offset: Pairs = np.zeros((2, 1))
        self.flips: list[NDArray[np.bool_] | None] = [None, None]
        self.cropped = self.padded = self.resampled = False

    def crop(self, offset: Pairs, size: Pairs) -> None:
        """Keep ``size`` pixels from ``offset`` on, both as seen after the flips so far."""
        for axis, flip in enumerate(self.flips):
            if flip is not None:
                offset = np.array(np.broadcast_to(offset, self.picture.shape))
                mirrored = self.rect[axis] - offset[axis] - size[axis]
                np.copyto(offset[axis], mirrored, where=flip)
        self.offset = self.offset + offset
        self.rect = size
        self.cropped = True

    def settle(self) -> None:
        """Make the rectangle the window: only before resampling, where a virtual pixel is a source pixel."""
        if self.cropped or self.padded:
            self.origin = self.origin + self.offset
            self.span = self.size = self.rect
            self.offset = np.zeros((2, 1))
            self.cropped = False

    def resample(self, size: Pairs) -> None:
        """Scale what is left to ``size``."""
        self.settle()
        self.size = self.rect = size
        self.resampled = True

    def widen(self) -> None:
        """Let the rectangle leave what is left of the picture by now; what an earlier crop cut off stays hidden."""
        if self.cropped:
            assert not self.resampled  # Composition refuses it
            self.settle()
        self.padded = True

    def pad(self, before: Pairs, after: Pairs) -> None:
        """Surround what is left with the fill colour."""
        self.widen()
        for axis, flip in enumerate(self.flips):
            if flip is not None:
                shape = self.picture.shape
                before, after = np.array(np.broadcast_to(before, shape)), np.array(np.broadcast_to(after, shape))
                before[axis], after[axis] = (
                    np.where(flip, after[axis], before[axis]),
                    np.where(flip, before[axis], after[axis]),
                )
        self.offset = self.offset - before
        self.rect = self.rect + (before + after)

    def flip(self, axis: int, where: NDArray[np.bool_]) -> None:
        """Mirror along an axis where asked."""
        before = self.flips[axis]
        self.flips[axis] = where if before is None else before ^ where


def plan_geometry(
    plan: Plan, draws: NDArray[np.float64], widths: NDArray[np.int32], heights: NDArray[np.int32]
) -> Geometry:
    """Return what each of n outputs shows of its picture.

    draws: float64 (n, plan.draws) of [0, 1); widths, heights: (n,), pixels, none of them 0. The arrays of the result
    are new and C-contiguous. Raises OptionError where RandomCrop asks for more pixels than a picture has.
    """
    canvas = _Canvas(widths, heights)
    column = 0
    for step in plan.steps:
        _apply(step, canvas, draws[:, column : column + step.draws].T)
        column += step.draws
    return _finish(canvas, plan, len(widths))


def _apply(step: Step, canvas: _Canvas, u: Pairs) -> None:
    match step:
        case RandomResizedCrop():
            canvas.crop(*random_area(step, u, canvas.rect))
            canvas.resample(_pair(step.width, step.height))
        case HorizontalFlip():
            canvas.flip(0, u[0] < step.p)
        case VerticalFlip():
            canvas.flip(1, u[0] < step.p)
        case Resize():
            canvas.resample(_resized(step, canvas.rect))
        case CenterCrop():
            size = _pair(step.width, step.height)
            if (size > canvas.rect).any():
                canvas.widen()
            canvas.crop(_centred(canvas.rect, size), size)
        case Pad():
            canvas.pad(_pair(step.left, step.top), _pair(step.right, step.bottom))
        case RandomCrop():
            _random_crop(step, canvas, u)


def _pair(x: float, y: float) -> Pairs:
    return np.array(((x,), (y,)), np.float64)


def _resized(step: Resize, size: Pairs) -> Pairs:
    """Return the size after a Resize: torchvision's _compute_resized_output_size, and no side below 1."""
    if step.exact is not None:
        return _pair(*step.exact)
    short, long = size.min(axis=0), size.max(axis=0)
    if step.shorter is None:
        assert step.longest is not None
        new_short, new_long = np.floor(step.longest * short / long), np.full_like(long, step.longest)
    else:
        new_short, new_long = np.full_like(short, step.shorter), np.floor(step.shorter * long / short)
        if step.longest is not None:
            over = new_long > step.longest
            new_short = np.where(over, np.floor(step.longest * new_short / new_long), new_short)
            new_long = np.where(over, step.longest, new_long)
    np.maximum(new_short, 1.0, out=new_short)
    wide = size[0] > size[1]
    return np.stack((np.where(wide, new_long, new_short), np.where(wide, new_short, new_long)))


def _centred(size: Pairs, crop: Pairs) -> Pairs:
    """Return the offset of a centre crop: half the slack, a half rounded to even; rounded down where padding is due."""
    slack = size - crop
    # A picture that is too small gets (crop - size) // 2 pixels before it; python's round() is half to even, as rint.
    return np.where(slack < 0, -np.floor(slack * -0.5), np.rint(slack * 0.5))


def _random_crop(step: RandomCrop, canvas: _Canvas, u: Pairs) -> None:
    crop = _pair(step.width, step.height)
    slack = canvas.rect - crop
    if (slack < 0).any():
        if not step.if_needed:
            row = int(np.flatnonzero((slack < 0).any(axis=0))[0])
            width, height = np.broadcast_to(canvas.rect, canvas.picture.shape)[:, row]
            raise OptionError(
                f"RandomCrop: required crop size {(step.height, step.width)} is larger than the picture "
                f"{(int(height), int(width))} at position {row} of the batch; pad_if_needed=True pads it"
            )
        lack = np.maximum(-slack, 0.0)
        canvas.pad(lack, lack)
        slack = canvas.rect - crop
    canvas.crop(np.floor(u * (slack + 1.0)), crop)


def _finish(canvas: _Canvas, plan: Plan, count: int) -> Geometry:
    window = np.empty((count, 4))
    window[:, :2] = canvas.origin.T
    window[:, 2:] = (canvas.origin + canvas.span).T
    size = np.empty((count, 2), np.int32)
    size[...] = canvas.size.T
    rect = np.empty((count, 4), np.int32)
    rect[:, :2] = canvas.offset.T
    rect[:, 2:] = canvas.rect.T
    box = np.empty((count, 4), np.int32)
    if canvas.cropped or canvas.padded:
        first, last = _reach(canvas, plan)
        box[:, :2], box[:, 2:] = first.T, last.T
    else:
        box[...] = window
    none = np.zeros(count, np.bool_)
    hflip, vflip = (none if flip is None else flip for flip in canvas.flips)
    return Geometry(box, window, size, rect, hflip, vflip, plan.fill, plan.interpolation, plan.antialias)


def _reach(canvas: _Canvas, plan: Plan) -> tuple[Pairs, Pairs]:
    """Return the first source pixel that the rectangle needs, and the one behind the last; never an empty range."""
    top = canvas.size - 1.0
    first = np.clip(canvas.offset, 0.0, top)
    last = np.clip(canvas.offset + canvas.rect - 1.0, first, top)
    if canvas.resampled:
        scale = canvas.span / canvas.size
        # Pillow: [trunc(centre - support + 0.5), trunc(centre + support + 0.5)), cut to the picture.
        support = _SUPPORT[plan.interpolation] * np.maximum(scale, 1.0)
        low, high = np.floor((first + 0.5) * scale - support + 0.5), np.floor((last + 0.5) * scale + support + 0.5)
    else:
        low, high = first, last + 1.0
    low = canvas.origin + np.clip(low, 0.0, canvas.span - 1.0)
    high = canvas.origin + np.clip(high, 1.0, canvas.span)
    low = np.clip(low, 0.0, canvas.picture - 1.0)
    return low, np.clip(high, low + 1.0, canvas.picture)
