"""The classes of the sample set: patterns that a small network tells apart and a mean colour does not.

Each pattern maps pixel coordinates ``u`` (to the right) and ``v`` (down), float32 arrays of one shape in periods of the
pattern, to float32 in 0..1: 0 shows the first colour, 1 the second. Both colours cover about half of the surface in
every class, so that no class has a colour of its own. Edges are as soft as ``edge`` (periods) says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Plane = NDArray[np.float32]
    Pattern = Callable[[Plane, Plane, float], Plane]

__all__ = ["PATTERNS"]


def _ramp(signed: Plane, edge: float) -> Plane:
    """Return 0 below and 1 above the zero line of ``signed`` (periods), with a straight ramp of width ``edge``."""
    ramp: Plane = np.clip(signed * np.float32(1.0 / edge) + np.float32(0.5), 0.0, 1.0)
    return ramp


def _wave(x: Plane) -> Plane:
    """Return the triangle wave of period 1 as a signed distance: 0.25 in the middle of one half, -0.25 in the other."""
    wave: Plane = np.abs(x - np.floor(x) - np.float32(0.5)) - np.float32(0.25)
    return wave


def _rows(_u: Plane, v: Plane, edge: float) -> Plane:
    return _ramp(_wave(v), edge)


def _columns(u: Plane, _v: Plane, edge: float) -> Plane:
    return _ramp(_wave(u), edge)


def _dots(u: Plane, v: Plane, edge: float) -> Plane:
    # radius sqrt(0.5 / pi) covers half of a unit cell
    x, y = u - np.floor(u) - np.float32(0.5), v - np.floor(v) - np.float32(0.5)
    return _ramp(np.float32(0.399) - np.sqrt(x * x + y * y), edge)


def _checks(u: Plane, v: Plane, edge: float) -> Plane:
    return _ramp(_wave(u) * _wave(v) * np.float32(8.0), edge * 2)


def _zigzags(u: Plane, v: Plane, edge: float) -> Plane:
    return _ramp(_wave(v + _wave(u * np.float32(0.5)) * np.float32(3.0)), edge)


def _rings(u: Plane, v: Plane, edge: float) -> Plane:
    # rings about the middles of cells four periods wide: whole circles fit on a surface
    x, y = (w - np.floor(w * np.float32(0.25)) * np.float32(4.0) - np.float32(2.0) for w in (u, v))
    return _ramp(_wave(np.sqrt(x * x + y * y)), edge)


def _grid(u: Plane, v: Plane, edge: float) -> Plane:
    # lines of 0.293 periods each way leave half of the surface: (1 - 0.293) ** 2 = 0.5
    wide = np.float32(0.1035)
    return _ramp(np.minimum(_wave(u), _wave(v)) + wide, edge)


def _bricks(u: Plane, v: Plane, edge: float) -> Plane:
    row = np.floor(v)
    shifted = u * np.float32(0.5) + (row - np.floor(row * np.float32(0.5)) * np.float32(2.0)) * np.float32(0.5)
    return _ramp(np.minimum(_wave(v) + np.float32(0.05), _wave(shifted) * np.float32(2.0) + np.float32(0.3)), edge)


#: Class names in the order in which a set takes them.
PATTERNS: Mapping[str, Pattern] = {
    "rows": _rows,
    "columns": _columns,
    "dots": _dots,
    "checks": _checks,
    "zigzags": _zigzags,
    "rings": _rings,
    "grid": _grid,
    "bricks": _bricks,
}
