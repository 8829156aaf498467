"""Attributes of somebody else's objects, checked: each function returns a plain value or refuses."""

from __future__ import annotations

import math
from typing import Any, cast, get_args

import numpy as np

from fastdata.transforms.composition import refuse
from fastdata.types import Interpolation

__all__ = ["colour", "integer", "interpolation", "number", "probability", "resampling", "span"]

# Pillow's constants (PIL.Image.Resampling), which torchvision takes for its own enum as well.
_PILLOW: dict[int, Interpolation] = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
_TURNS = {"nearest": 0, "nearest-exact": 0, "bilinear": 2, "bicubic": 3}


def integer(value: object, least: int, what: str) -> int:
    """Return a whole number of at least ``least``."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= least:
        return int(value)
    return refuse(f"{what} {value!r} is no whole number of at least {least}")


def number(value: object, what: str) -> float:
    """Return a finite number."""
    if isinstance(value, (int, float, np.integer, np.floating)) and math.isfinite(value):
        return float(value)
    return refuse(f"{what} {value!r} is no finite number")


def span(value: object, what: str) -> tuple[float, float]:
    """Return (min, max) with 0 <= min <= max and max above 0."""
    if not isinstance(value, (list, tuple)) or len(value) != 2:  # noqa: PLR2004  a range has two ends
        refuse(f"{what} {value!r} is no (min, max)")
    low, high = number(value[0], what), number(value[1], what)
    if not 0 <= low <= high or high == 0:
        refuse(f"{what} {value!r} is not 0 <= min <= max")
    return low, high


def probability(step: Any) -> float:  # noqa: ANN401  any object of a known type
    """Return the step's p."""
    return number(step.p, "p")


def interpolation(value: object) -> Interpolation:
    """Return the name of what torchvision stores as its enum, a string or Pillow's number."""
    value = getattr(value, "value", value)
    if isinstance(value, int) and not isinstance(value, bool):
        value = _PILLOW.get(value, value)
    for name in get_args(Interpolation):
        if value == name:
            return cast("Interpolation", name)
    return refuse(f"interpolation {value!r} is not known to the engine")


def resampling(value: object) -> int:
    """Return Pillow's number of an interpolation that it can turn pictures with."""
    name = interpolation(value)
    if name not in _TURNS:
        refuse(f"interpolation {name!r} turns no pictures")
    return _TURNS[name]


def colour(value: object) -> tuple[int, int, int]:
    """Return the fill colour as Pillow takes it: whole numbers, one for all channels or one for each."""
    if isinstance(value, dict):
        refuse(f"fill {value!r} differs by type")
    values = list(value) if isinstance(value, (list, tuple)) else [0 if value is None else value]
    levels = [
        integer(int(level) if isinstance(level, float) and level.is_integer() else level, 0, "fill") for level in values
    ]
    if len(levels) == 1:
        levels *= 3
    if len(levels) != 3 or max(levels) > 255:  # noqa: PLR2004  RGB, uint8
        refuse(f"fill {value!r} is no colour of 8 bit")
    return levels[0], levels[1], levels[2]
