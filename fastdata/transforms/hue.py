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

__all__ = ["shift_hue", "turn_hue"]

_WIDTH = 4  # red, green, blue, and one to make rows of 16 bytes: numpy takes those at once
_OFFSETS = (5.0, 3.0, 1.0)  # of red, green and blue: https://en.wikipedia.org/wiki/HSL_and_HSV#HSV_to_RGB_alternative
# Hue in sixths of the circle is base + sign * (what the middle channel lacks / span), by sector as in _hues.
_BASES = np.array([-1, 1, 3, 1, 3, 5], np.float32)
_SIGNS = np.array([1, -1, -1, 1, 1, -1], np.float32)


def shift_hue(planes: Bytes, shift: int, room: Room) -> None:
    """Add ``shift`` (256 to the circle, modulo 256) to the hue of ``planes`` (3, H, W), in place.

    Equal to Pillow's round trip through HSV, but for a level where its double precision and our single differ.
    """
    high, span, below, sector = _parts(planes, room)
    # Where in the tables: sector, below, span as the bytes of a number; then value, span.
    at, part = room.array("at", np.uint32), room.array("part", np.uint32)
    np.copyto(at, sector)
    np.left_shift(at, 8, out=at)
    for byte in (below, span):
        np.copyto(part, byte)
        np.bitwise_or(at, part, out=at)
        if byte is below:
            np.left_shift(at, 8, out=at)
    hue = room.array("hue", np.uint8)
    np.take(_hues(), at, out=hue, mode="clip")
    np.add(hue, np.uint8(shift % 256), out=hue)
    short = room.array("short", np.uint16)
    np.copyto(short, high)
    np.left_shift(short, 8, out=short)
    np.add(short, span, out=short)
    depth, value, work = (room.array(name, np.float32) for name in ("depth", "value", "tint"))
    np.take(_depths(), short, out=depth, mode="clip")
    np.copyto(value, high)
    np.add(value, np.float32(0.5), out=value)
    weights = room.array("weights", np.float32, last=_WIDTH)
    np.take(_weights(), hue, axis=0, out=weights, mode="clip")
    for number, plane in enumerate(planes):
        np.multiply(weights[:, :, number], depth, out=work)
        np.subtract(value, work, out=work)
        np.copyto(plane, work, casting="unsafe")


def turn_hue(planes: Bytes, factor: float, room: Room) -> None:
    """Turn the hue of ``planes`` (3, H, W) by a share of the circle, in place: torchvision's adjust_hue for tensors.

    Equal within a level; hue and saturation are floats there, and what comes out is cut off, not rounded.
    """
    high, span, below, sector = _parts(planes, room)
    sixth, wide, k, other = (room.array(name, np.float32) for name in ("sixth", "wide", "k", "other"))
    np.copyto(wide, span)
    np.maximum(wide, np.float32(1), out=k)
    np.divide(below, k, out=sixth, dtype=np.float32)
    np.take(_SIGNS, sector, out=k, mode="clip")
    np.multiply(sixth, k, out=sixth)
    np.take(_BASES, sector, out=k, mode="clip")
    np.add(sixth, k, out=sixth)
    for plane, offset in zip(planes, _OFFSETS, strict=True):
        # The weight of this channel, as _weights has it, for k = (offset + 6 * hue) modulo 6.
        np.add(sixth, np.float32(offset + 6.0 * factor), out=k)
        np.multiply(k, np.float32(1 / 6), out=other)
        np.floor(other, out=other)
        np.multiply(other, np.float32(6), out=other)
        np.subtract(k, other, out=k)
        np.subtract(np.float32(4), k, out=other)
        np.minimum(k, other, out=k)
        np.clip(k, np.float32(0), np.float32(1), out=k)
        np.multiply(k, wide, out=k)
        np.subtract(high, k, out=k, dtype=np.float32)
        np.multiply(k, np.float32(255.999 / 255), out=k)  # torchvision's way back to uint8
        np.copyto(plane, k, casting="unsafe")


def _parts(planes: Bytes, room: Room) -> tuple[Bytes, Bytes, Bytes, Bytes]:
    """Return the highest channel, the span to the lowest, what the middle one lacks to the highest, and the sector."""
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
    return high, span, below, sector


def _sector(planes: Bytes, high: Bytes, sector: Bytes, room: Room) -> None:
    """Set ``sector`` to twice the first channel that is the highest, plus 1 where the other two fall: as in _hues."""
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
def _weights() -> NDArray[np.float32]:
    """Return how much of the depth each of 256 hues takes away: 0 the highest channel, 1 the lowest; (256, _WIDTH)."""
    hue = np.arange(256, dtype=np.float32).astype(np.float64) * 6.0 / 255.0
    table = np.zeros((256, _WIDTH), np.float32)
    for channel, offset in enumerate(_OFFSETS):
        k = np.fmod(hue + offset, 6.0)
        table[:, channel] = np.clip(np.minimum(k, 4.0 - k), 0.0, 1.0)
    table.setflags(write=False)
    return table
