"""Padding with the picture's own pixels: what lies outside is taken from inside, after decoding.

The index rules are numpy.pad's, which torchvision calls for PIL images; torch's are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fastdata.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fastdata.types import Edges, Geometry

    Bytes = NDArray[np.uint8]
    Decode = Callable[[Bytes], dict[int, Any]]

__all__ = ["extended"]


def extended(decode: Decode, geometry: Geometry, edges: Edges) -> Decode:
    """Return ``decode`` with the pixels outside the pictures made from those inside; see ``pixel_road.fill``."""

    def run(out: Bytes) -> dict[int, Any]:
        failed = decode(out)
        for row in range(len(out)):
            if row not in failed:
                _extend(out[row], geometry, row, edges)
        return failed

    return run


def _extend(pixels: Bytes, geometry: Geometry, row: int, edges: Edges) -> None:
    """Change (H, W, C) in place."""
    left, top, width, height = geometry.rect[row].tolist()
    full_width, full_height = geometry.size[row].tolist()
    if left < 0 or left + width > full_width:
        columns = _inside(left, width, full_width, edges)
        if geometry.hflip[row]:
            columns = width - 1 - columns[::-1]
        pixels[...] = pixels[:, columns]
    if top < 0 or top + height > full_height:
        rows = _inside(top, height, full_height, edges)
        if geometry.vflip[row]:
            rows = height - 1 - rows[::-1]
        pixels[...] = pixels[rows]


def _inside(start: int, count: int, length: int, edges: Edges) -> NDArray[np.int64]:
    """Return which of ``count`` places from ``start`` on shows what each of them is to show; length: the picture's."""
    at = np.arange(start, start + count)
    if edges == "edge":
        found = at.clip(0, length - 1)
    else:
        off = 0 if edges == "reflect" else 1
        found = np.where(at < 0, -at - off, np.where(at >= length, 2 * (length - 1) - at + off, at))
        if found.min() < 0 or found.max() >= length:
            side = max(-start, start + count - length)
            msg = f"padding_mode={edges!r}: a picture of {length} pixels cannot be padded by {side}; resize it before"
            raise OptionError(msg)
    return found - start
