"""Pictures made in code, and what a Geometry means, in five lines of Pillow."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from fastdata.transforms import Plan, compile_transform, plan_geometry
from fastdata.transforms.edges import extended
from fastdata.transforms.picture import Picture, Room
from fastdata.transforms.pixel_ops import apply

if TYPE_CHECKING:
    from fastdata.types import Geometry

FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "nearest-exact": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "box": Image.Resampling.BOX,
    "hamming": Image.Resampling.HAMMING,
    "lanczos": Image.Resampling.LANCZOS,
}


def make_picture(width: int, height: int, seed: int = 0) -> Image.Image:
    """Smooth waves, edges and noise: every filter mistake shows."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    waves = [np.sin(x / (3 + c) + y / (7 - c)) * 60 + 128 for c in range(3)]
    edges = ((x // 11 + y // 9) % 2)[:, :, None] * 50
    noise = rng.normal(0, 15, (height, width, 3))
    return Image.fromarray(np.clip(np.stack(waves, axis=2) + edges + noise, 0, 255).astype(np.uint8))


def render(plan: Plan, picture: Image.Image, draws: np.ndarray | None = None, *, only_box: bool = False) -> np.ndarray:
    """Return uint8 (H, W, 3); with only_box, pixels outside the box are replaced by noise first."""
    width, height = picture.size
    row = np.zeros((1, plan.draws)) if draws is None else draws.reshape(1, -1)
    geometry = plan_geometry(plan, row, np.array([width], np.int32), np.array([height], np.int32))
    pixels = np.asarray(picture)
    if only_box:
        left, top, right, bottom = geometry.box[0]
        noisy = np.random.default_rng(1).integers(0, 256, pixels.shape).astype(np.uint8)
        noisy[top:bottom, left:right] = pixels[top:bottom, left:right]
        pixels = noisy
    shown = show(geometry, 0, pixels)
    if plan.edges == "constant":
        return shown
    batch = shown.copy()[None]
    extended(lambda _: {}, geometry, plan.edges)(batch)
    return batch[0]


def show(geometry: Geometry, row: int, pixels: np.ndarray) -> np.ndarray:
    """The definition: cut the window (whole here), resample, cut the rectangle, mirror; the fill colour is around."""
    window = [int(edge) for edge in geometry.window[row]]
    assert window == list(geometry.window[row])
    resampled = _cut(Image.fromarray(pixels), window, geometry.fill)
    size = tuple(geometry.size[row].tolist())
    if size != resampled.size:
        resampled = resampled.resize(size, FILTERS[geometry.interpolation])
    left, top, width, height = geometry.rect[row].tolist()
    out = np.asarray(_cut(resampled, [left, top, left + width, top + height], geometry.fill))
    out = out[:, ::-1] if geometry.hflip[row] else out
    return out[::-1] if geometry.vflip[row] else out


def _cut(image: Image.Image, box: list[int], fill: tuple[int, ...]) -> Image.Image:
    left, top, right, bottom = box
    canvas = Image.new("RGB", (right - left, bottom - top), fill)
    canvas.paste(image, (-left, -top))
    return canvas


@pytest.fixture(scope="session")
def compiled():
    """Compile, and fail with the reason where the engine refuses."""

    def compile_it(transform: object) -> Plan:
        plan = compile_transform(transform)
        assert isinstance(plan, Plan), plan
        return plan

    return compile_it


@pytest.fixture(scope="session", name="make_picture")
def _make_picture():
    return make_picture


@pytest.fixture(scope="session", name="render")
def _render():
    return render


@pytest.fixture(scope="session")
def smirnov():
    """Two samples have one distribution if this is below 2.3: it is above with a probability of 5e-5 (Smirnov 1948)."""

    def distance(a, b):
        """Return the largest distance of two empirical distribution functions, over sqrt(1 / n + 1 / m)."""
        a, b = np.sort(a), np.sort(b)
        both = np.concatenate((a, b))
        gap = np.abs(np.searchsorted(a, both, "right") / len(a) - np.searchsorted(b, both, "right") / len(b)).max()
        return gap / math.sqrt(1 / len(a) + 1 / len(b))

    return distance


@pytest.fixture(scope="session")
def changed_by():
    """What pixel steps make of a picture, given their draws: uint8 (H, W, C)."""

    def run(steps, picture, u):
        planes = np.ascontiguousarray(np.asarray(picture).transpose(2, 0, 1))
        work = Picture(planes, Room(*planes.shape[1:]))
        at = 0
        for step in steps:
            apply(step, work, u[at : at + step.draws])
            at += step.draws
        return work.settle().transpose(1, 2, 0).copy()

    return run
