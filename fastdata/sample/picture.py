"""One sample picture: a lit background, overlapping surfaces, two of them patterned, texture and sensor noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from fastdata.sample.patterns import PATTERNS

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray

    Plane = NDArray[np.float32]

__all__ = ["Grain", "draw_picture", "make_grain"]


@dataclass(frozen=True, slots=True, eq=False)
class Grain:
    """Noise that all pictures of a set cut their windows from: float32 (side, side), mean 0, deviation 1, periodic.

    soft has an amplitude spectrum of 1/f**2 (clouds, lighting), rough 1/f (surfaces in photographs: Field 1987), white
    a flat one (sensor).
    """

    soft: Plane
    rough: Plane
    white: Plane


def make_grain(seed: int, side: int = 1024) -> Grain:
    """Return the noise for a set; the same for the same seed."""
    white = np.random.default_rng([seed, 0]).standard_normal((side, side), dtype=np.float32)
    spectrum = np.fft.rfft2(white)
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)[None, :])
    frequency[0, 0] = np.inf  # no constant part: the mean is 0
    soft, rough = (np.fft.irfft2(spectrum * frequency**-power, s=(side, side)) for power in (2.0, 1.0))
    return Grain((soft / soft.std()).astype(np.float32), (rough / rough.std()).astype(np.float32), white)


def draw_picture(pattern: str, size: tuple[int, int], rng: Generator, grain: Grain) -> NDArray[np.uint8]:
    """Return a picture of the class ``pattern`` (a name of PATTERNS): uint8 (height, width, 3), memory of its own.

    size: width and height in pixels. Colours, places, lighting and noise are drawn from ``rng`` alone.
    """
    picture = _background(size, rng, grain)
    surfaces = [(rng.uniform(0.15, 0.45), "") for _ in range(int(rng.integers(2, 5)))]
    surfaces += [(rng.uniform(0.6, 0.9), pattern), (rng.uniform(0.3, 0.5), pattern)]
    surfaces += [(rng.uniform(0.08, 0.2), "") for _ in range(int(rng.integers(1, 3)))]
    for share, name in surfaces:
        _lay_surface(picture, share, name, rng, grain)
    light = _slope(size, rng) * np.float32(rng.uniform(0.1, 0.35)) + np.float32(rng.uniform(0.75, 0.95))
    picture *= light
    sensor, tint = np.float32(rng.uniform(2.5, 5.0)), np.float32(rng.uniform(0.5, 2.0))
    picture += _window(grain.white, size, rng) * sensor
    for channel in range(3):
        picture[channel] += _window(grain.white, size, rng) * tint
    np.clip(picture, 0.0, 255.0, out=picture)
    return np.ascontiguousarray(picture.astype(np.uint8).transpose(1, 2, 0))


def _background(size: tuple[int, int], rng: Generator, grain: Grain) -> Plane:
    """Return float32 (3, height, width): two colours that run into each other, clouds and a rough surface."""
    mix = _slope(size, rng) + _window(grain.soft, size, rng) * np.float32(0.15)
    rough = _window(grain.rough, size, rng) * np.float32(rng.uniform(2.0, 14.0))
    one, other = rng.uniform(20.0, 235.0, (2, 3)).astype(np.float32)
    picture: Plane = np.empty((3, *mix.shape), np.float32)
    for channel, from_level, to_level in zip(picture, one, other, strict=True):
        np.multiply(mix, to_level - from_level, out=channel)
        np.add(channel, rough + from_level, out=channel)
    return picture


def _lay_surface(picture: Plane, share: float, pattern: str, rng: Generator, grain: Grain) -> None:
    """Lay one surface over ``picture`` in place: ``share`` of the shorter side wide; plain where pattern is ""."""
    height, width = picture.shape[1:]
    reach = 0.5 * share * min(width, height)
    # large surfaces stay near the middle, so that crops see them; small ones go anywhere
    x, y = (side * (0.5 + rng.uniform(-0.5, 0.5) * (1.0 - share)) for side in (width, height))
    left, top = max(0, int(x - reach)), max(0, int(y - reach))
    right, bottom = min(width, int(x + reach) + 1), min(height, int(y + reach) + 1)
    mask = _outline((right - left, bottom - top), (x - left, y - top), reach, rng)
    size = right - left, bottom - top
    ink, paper = _two_colours(rng)
    shade = _slope(size, rng) * np.float32(rng.uniform(-30.0, 30.0))
    shade += _window(grain.rough, size, rng) * np.float32(rng.uniform(0.5, 10.0))
    printed = _print(pattern, size, min(width, height), rng, grain) if pattern else None
    for channel, ink_level, paper_level in zip(picture[:, top:bottom, left:right], ink, paper, strict=True):
        surface = shade + ink_level if printed is None else printed * (paper_level - ink_level) + (shade + ink_level)
        surface -= channel
        surface *= mask
        np.add(channel, surface, out=channel)


def _print(pattern: str, size: tuple[int, int], shorter: int, rng: Generator, grain: Grain) -> Plane:
    """Return the pattern over a surface of ``size``: turned by up to 14 degrees, bent a little, its period drawn."""
    period = shorter * rng.uniform(0.07, 0.13)
    angle = rng.uniform(-0.25, 0.25)
    across, down = np.float32(np.cos(angle) / period), np.float32(np.sin(angle) / period)
    xs, ys = np.arange(size[0], dtype=np.float32), np.arange(size[1], dtype=np.float32)[:, None]
    bend = _window(grain.soft, size, rng) * np.float32(0.12)
    u = xs * across + ys * down + bend + np.float32(rng.uniform())
    v = ys * across - xs * down + bend + np.float32(rng.uniform())
    return PATTERNS[pattern](u, v, float(rng.uniform(1.5, 3.0) / period))


def _outline(size: tuple[int, int], centre: tuple[float, float], reach: float, rng: Generator) -> Plane:
    """Return float32 (height, width) in 0..1: a polygon of 3 to 8 corners or a rounded blob, with a soft edge."""
    corners = int(rng.integers(3, 9))
    round_ = rng.uniform() < 0.4  # noqa: PLR2004  two shapes in five are blobs
    turns = np.linspace(0.0, 2.0 * np.pi, 48 if round_ else corners, endpoint=False) + rng.uniform(0.0, 2.0 * np.pi)
    radii = reach * (
        1.0 - 0.15 * (1.0 + np.sin(turns * rng.integers(2, 5))) if round_ else rng.uniform(0.75, 1.0, corners)
    )
    points = np.stack([centre[0] + radii * np.cos(turns), centre[1] + radii * np.sin(turns)], axis=1)
    mask = Image.new("L", size)
    ImageDraw.Draw(mask).polygon([(float(x), float(y)) for x, y in points], fill=255)
    soft = mask.filter(ImageFilter.BoxBlur(float(rng.uniform(0.5, 2.0))))
    return np.asarray(soft, np.float32) * np.float32(1.0 / 255.0)


def _two_colours(rng: Generator) -> NDArray[np.float32]:
    """Return float32 (2, 3), levels 15 to 240: two colours at least 70 levels of mean brightness apart."""
    while True:
        pair = rng.uniform(15.0, 240.0, (2, 3)).astype(np.float32)
        if abs(float(pair[0].mean() - pair[1].mean())) >= 70.0:  # noqa: PLR2004  seen in poor light, too
            return pair


def _slope(size: tuple[int, int], rng: Generator) -> Plane:
    """Return float32 (height, width): a plane that rises from 0 to 1 in a direction that is drawn."""
    angle = rng.uniform(0.0, 2.0 * np.pi)
    across, down = (np.linspace(-0.5, 0.5, n, dtype=np.float32) for n in size)
    across, down = across * np.float32(np.cos(angle)), down * np.float32(np.sin(angle))
    return (down[:, None] + across[None, :]) * np.float32(1.0 / 1.42) + np.float32(0.5)


def _window(plane: Plane, size: tuple[int, int], rng: Generator) -> Plane:
    """Return a window (height, width) of periodic noise at a place that is drawn: a view where it fits."""
    side = len(plane)
    x, y = (int(n) for n in rng.integers(0, side, 2))
    width, height = size
    if x + width <= side and y + height <= side:
        return plane[y : y + height, x : x + width]
    rows, columns = np.arange(y, y + height) % side, np.arange(x, x + width) % side
    return plane[rows[:, None], columns]
