"""RandomResizedCrop's choice of a rectangle: torchvision's ten tries, for a whole batch at once."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastdata.transforms.plan import RandomResizedCrop

    Pairs = NDArray[np.float64]

__all__ = ["random_area"]

_TRIES = 10  # torchvision.transforms.RandomResizedCrop.get_params
# SplitMix64's constants.
_STEPS = np.arange(1, _TRIES, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
_MIX_A, _MIX_B = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_27, _30, _31, _32, _LOW = (np.uint64(value) for value in (27, 30, 31, 32, 0xFFFFFFFF))


def random_area(step: RandomResizedCrop, u: Pairs, size: Pairs) -> tuple[Pairs, Pairs]:
    """Return offset and size, float64 (2, n), x before y, of the area that four uniform draws (4, n) choose.

    The draws are area, log of aspect, left, top. A rectangle that does not fit is drawn again, nine times at most, then
    the largest central one of allowed aspect is taken; the further draws are a hash of the first two.
    """
    picture = size if size.shape[1] == u.shape[1] else np.broadcast_to(size, (2, u.shape[1]))
    crop = _rectangle(step, u[0], u[1], picture[0] * picture[1])
    misfit = (crop > picture) | (crop < 1.0)
    rows = np.logical_or(misfit[0], misfit[1]).nonzero()[0]
    central = None
    if len(rows):
        crop[:, rows], lost = _again(step, u.take(rows, axis=1), picture.take(rows, axis=1))
        central = rows[lost]
    slack = picture - crop
    offset = np.floor(u[2:4] * (slack + 1.0))
    if central is not None and len(central):
        offset[:, central] = np.floor(slack[:, central] * 0.5)
    return offset, crop


def _rectangle(step: RandomResizedCrop, u_area: Pairs, u_aspect: Pairs, area: Pairs) -> Pairs:
    """Return width and height, rounded half to even as Python's round()."""
    low, high = step.scale
    log_low, log_high = math.log(step.ratio[0]), math.log(step.ratio[1])
    target = u_area * (high - low)
    target += low
    target *= area
    aspect = u_aspect * (log_high - log_low)
    aspect += log_low
    np.exp(aspect, out=aspect)
    crop = np.empty((2, *target.shape))
    np.multiply(target, aspect, out=crop[0])
    np.divide(target, aspect, out=crop[1])
    np.sqrt(crop, out=crop)
    return np.rint(crop, out=crop)


def _again(step: RandomResizedCrop, u: Pairs, picture: Pairs) -> tuple[Pairs, NDArray[np.bool_]]:
    """Return the sizes (2, m) that the tries after the first give, and where none fitted and the centre was taken."""
    area, aspect = _further_draws(u)
    crops = _rectangle(step, area, aspect, (picture[0] * picture[1])[:, None])
    within = (crops <= picture[:, :, None]) & (crops >= 1.0)
    fits = np.logical_and(within[0], within[1])
    chosen = fits.argmax(axis=1)
    crop = crops[:, np.arange(len(chosen)), chosen]
    lost = np.logical_not(np.logical_or.reduce(fits, axis=1))
    if lost.any():
        crop[:, lost] = _central(step, picture[:, lost])
    return crop, lost


def _central(step: RandomResizedCrop, picture: Pairs) -> Pairs:
    """Return the whole picture, cut to the allowed aspect ratio."""
    width, height = picture
    low, high = min(step.ratio), max(step.ratio)
    aspect = width / height
    crop = np.empty_like(picture)
    crop[0] = np.where(aspect > high, np.rint(height * high), width)
    crop[1] = np.where(aspect < low, np.rint(width / low), height)
    np.maximum(crop, 1.0, out=crop)
    return crop


def _further_draws(u: Pairs) -> tuple[Pairs, Pairs]:
    """Return two uniform draws of [0, 1) for each of nine further tries, float64 (m, 9) each.

    SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014) seeded with the 64
    random bits of the first try: a second philox call would cost more than all the rest.
    """
    words = (u[:2] * 2.0**32).astype(np.uint64)
    seed = (words[0] << _32) | words[1]
    z = seed[:, None] + _STEPS
    z ^= z >> _30
    z *= _MIX_A
    z ^= z >> _27
    z *= _MIX_B
    z ^= z >> _31
    return (z >> _32) * 2.0**-32, (z & _LOW) * 2.0**-32
