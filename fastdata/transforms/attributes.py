"""Attributes of somebody else's objects, checked: each function returns a plain value or refuses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fastdata.transforms.composition import refuse

__all__ = ["integer", "number", "probability", "span"]


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
