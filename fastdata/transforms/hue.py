"""Hue of RGB planes shifted as Pillow does it through its HSV mode, by tables instead of a division per pixel.

The sources are Pillow's rgb2hsv_row and hsv2rgb (src/libImaging/Convert.c). Hue and saturation become 8 bit on the way,
which torchvision's adjust_hue for PIL images inherits; the tables are computed with that rounding.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastdata.transforms.picture import Room

    Bytes = NDArray[np.uint8]

__all__ = ["shift_hue"]


def shift_hue(planes: Bytes, shift: int, room: Room) -> None:
    """Add ``shift`` (256 to the circle, modulo 256) to the hue of ``planes`` (3, H, W), in place.

    Equal to Pillow's round trip through HSV, but for a level where its double precision and our single differ.
    """
    red, green, blue = planes
    high, low = room.array("high", np.uint8), room.array("low", np.uint8)
    np.maximum(red, green, out=high)
    np.maximum(high, blue, out=high)
    np.minimum(red, green, out=low)
    np.minimum(low, blue, out=low)
    span, below, sector = (room.array(name, np.uint8) for name in ("span", "below", "sector"))
    np.subtract(high, low, out=span)
    # What the middle channel lacks to the highest: 2 * high + low - red - green - blue, exact modulo 256.
    np.add(high, high, out=below)
    np.add(below, low, out=below)
    for plane in planes:
        np.subtract(below, plane, out=below)
    _sector(planes, high, sector, room)
    # Where in the tables: sector, below, span.
    at = room.array("at", np.intp)
    np.multiply(sector, np.intp(65536), out=at, dtype=np.intp)
    part = room.array("part", np.intp)
    np.multiply(below, np.intp(256), out=part, dtype=np.intp)
    np.add(at, part, out=at)
    np.add(at, span, out=at, dtype=np.intp)
    hue = room.array("hue", np.uint8)
    np.take(_hues(), at, out=hue, mode="clip")
    np.add(hue, np.uint8(shift % 256), out=hue)
    np.multiply(high, np.intp(256), out=at, dtype=np.intp)
    np.add(at, span, out=at, dtype=np.intp)
    depth, value, work = (room.array(name, np.float32) for name in ("depth", "value", "tint"))
    np.take(_depths(), at, out=depth, mode="clip")
    np.copyto(value, high)
    np.add(value, np.float32(0.5), out=value)
    np.copyto(at, hue)
    for plane, table in zip(planes, _weights(), strict=True):
        np.take(table, at, out=work, mode="clip")
        np.multiply(work, depth, out=work)
        np.subtract(value, work, out=work)
        np.copyto(plane, work, casting="unsafe")


def _sector(planes: Bytes, high: Bytes, sector: Bytes, room: Room) -> None:
    """Set ``sector`` to twice the first channel that is the highest, plus 1 where the second of the others exceeds.

    The others of red are (green, blue), of green (red, blue)... as _hues has them.
    """
    red, green, blue = planes
    flag, mask = room.array("flag", np.bool_), room.array("mask", np.bool_)
    # Blue the highest is 4, unless green is (2), unless red is (0); each with the order of the other two.
    np.greater(red, green, out=flag)
    np.add(flag, np.uint8(4), out=sector, casting="unsafe", dtype=np.uint8)
    np.equal(green, high, out=mask)
    np.greater(red, blue, out=flag)
    other = room.array("other", np.uint8)
    np.add(flag, np.uint8(2), out=other, casting="unsafe", dtype=np.uint8)
    _choose(sector, other, mask)
    np.equal(red, high, out=mask)
    np.greater(green, blue, out=flag)
    _choose(sector, flag.view(np.uint8), mask)


def _choose(target: Bytes, source: Bytes, mask: NDArray[np.bool_]) -> None:
    """Copy ``source`` where the mask is set; arithmetic of bytes is quicker than a masked copy. ``source`` is lost."""
    np.subtract(source, target, out=source)
    np.multiply(source, mask.view(np.uint8), out=source)
    np.add(target, source, out=target)


@functools.cache
def _hues() -> Bytes:
    """Return Pillow's 8-bit hue by sector (6), distance of the middle to the highest (256), and span (256)."""
    below, span = np.arange(256, dtype=np.float32)[:, None], np.arange(256, dtype=np.float32)[None]
    middle = np.minimum(below / np.maximum(span, 1), np.float32(1)).astype(np.float32)
    one = np.float32(1)
    # (middle, lowest) of the others as rc, gc, bc in Pillow's: the lowest channel's is 1, the highest's 0.
    sectors = np.stack(
        [
            middle - one,  # red the highest, green the lowest: bc - gc
            one - middle,  # red, blue the lowest
            (2.0 + 1.0) - middle.astype(np.float64),  # green the highest, red the lowest: 2 + rc - bc
            2.0 + middle.astype(np.float64) - 1.0,  # green, blue the lowest
            4.0 + middle.astype(np.float64) - 1.0,  # blue the highest, red the lowest: 4 + gc - rc
            (4.0 + 1.0) - middle.astype(np.float64),  # blue, green the lowest
        ]
    ).astype(np.float32)
    turned = np.fmod(sectors.astype(np.float64) / 6.0 + 1.0, 1.0).astype(np.float32)
    table = np.clip(np.trunc(turned.astype(np.float64) * 255.0), 0, 255).astype(np.uint8)
    table[:, :, 0] = 0
    table.setflags(write=False)
    return table.reshape(-1)


@functools.cache
def _depths() -> NDArray[np.float32]:
    """Return value times 8-bit saturation by value (256) and span (256): how far the lowest channel lies below."""
    value, span = np.arange(256, dtype=np.float32)[:, None], np.arange(256, dtype=np.float32)[None]
    saturation = (span / np.maximum(value, 1)).astype(np.float32)
    eight = np.clip(np.trunc(saturation.astype(np.float64) * 255.0), 0, 255)
    table = (value * (eight / 255.0)).astype(np.float32)
    table.setflags(write=False)
    return table.reshape(-1)


@functools.cache
def _weights() -> tuple[NDArray[np.float32], ...]:
    """Return for red, green and blue how much of the depth each of 256 hues takes away: 0 the highest, 1 the lowest."""
    hue = np.arange(256, dtype=np.float32).astype(np.float64) * 6.0 / 255.0
    found = []
    for offset in (5.0, 3.0, 1.0):
        k = np.fmod(hue + offset, 6.0)
        found.append(np.clip(np.minimum(k, 4.0 - k), 0.0, 1.0).astype(np.float32))
    return tuple(found)
