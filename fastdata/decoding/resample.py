"""The reference for Geometry: one picture, one row, by Pillow, into one slot of a batch.

Pillow's resize takes a float box, so a part of the virtual picture is computed with the same filter phase as the whole:
the sum over a pixel's support is the same sum, and only its coefficients are rounded from other floats (equal within
one grey level; a test says so).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from fastdata.decoding.pillow_arrays import view_array
from fastdata.errors import OptionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastdata.types import Geometry, Interpolation, Levels

__all__ = ["resample_into"]

_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "nearest-exact": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "box": Image.Resampling.BOX,
    "hamming": Image.Resampling.HAMMING,
    "lanczos": Image.Resampling.LANCZOS,
}
_SUPPORT = {
    "nearest": 0.5,
    "nearest-exact": 0.5,
    "bilinear": 1.0,
    "bicubic": 2.0,
    "box": 0.5,
    "hamming": 1.0,
    "lanczos": 3.0,
}  # fmt: skip  filter radius at scale 1, Pillow's Resample.c
_WHOLE = 1e-6  # a window edge this near to an integer is one


def resample_into(
    pixels: NDArray[np.uint8],
    geometry: Geometry,
    row: int,
    out: NDArray[Any],
    *,
    levels: Levels | None = None,
) -> None:
    """Fill ``out`` (h, w, C; any strides) with what ``geometry``'s ``row`` shows of ``pixels`` (H, W, C uint8, whole).

    out is uint8, or of the dtype of ``levels`` (C, 256), the value of each grey level. C is 1 or 3.
    """
    window = tuple(float(edge) for edge in geometry.window[row])
    size = (int(geometry.size[row, 0]), int(geometry.size[row, 1]))
    left, top, width, height = (int(value) for value in geometry.rect[row])
    # The part of rect that lies in the virtual picture; fill is around it.
    x0, y0, x1, y1 = max(left, 0), max(top, 0), min(left + width, size[0]), min(top + height, size[1])
    target = _mirrored(out, bool(geometry.hflip[row]), bool(geometry.vflip[row]))
    if (x0, y0, x1, y1) != (left, top, left + width, top + height):
        _fill(target, geometry.fill, levels)
        if x0 >= x1 or y0 >= y1:
            return
        target = target[y0 - top : y1 - top, x0 - left : x1 - left]
    part = (x0, y0, x1, y1)
    pixels, window = _padded(pixels, window, geometry.fill)
    picture = _cut(pixels, window, size, part)
    if picture is not None:
        _store(picture, target, levels)
    elif geometry.interpolation.startswith("nearest") or not geometry.antialias:
        _store(_by_points(pixels, window, size, part, geometry), target, levels)
    elif geometry.interpolation == "box":
        # A pixel on the edge of this filter counts wholly or not at all, as the last bit of a float has it: only the
        # same floats give the same result, so the whole is resized.
        image = _resized(pixels, window, size, (0, 0, *size), "box")
        _store_image(image.crop(part), target, levels)
    else:
        _store_image(_resized(pixels, window, size, part, geometry.interpolation), target, levels)


def _mirrored(out: NDArray[Any], hflip: bool, vflip: bool) -> NDArray[Any]:  # noqa: FBT001  two flags of one row
    if hflip:
        out = out[:, ::-1]
    return out[::-1] if vflip else out


def _fill(target: NDArray[Any], fill: tuple[int, ...], levels: Levels | None) -> None:
    channels = target.shape[2]
    for channel in range(channels):
        value = fill[channel] if channel < len(fill) else fill[0]
        target[:, :, channel] = value if levels is None else levels[channel, value]


def _padded(
    pixels: NDArray[np.uint8], window: tuple[float, ...], fill: tuple[int, ...]
) -> tuple[NDArray[np.uint8], tuple[float, ...]]:
    """Return the source with fill around it where the window leaves it, and the window in its coordinates."""
    height, width, channels = pixels.shape
    left, top, right, bottom = window
    before_x, before_y = max(0, math.ceil(-left - _WHOLE)), max(0, math.ceil(-top - _WHOLE))
    after_x, after_y = max(0, math.ceil(right - width - _WHOLE)), max(0, math.ceil(bottom - height - _WHOLE))
    if not (before_x or before_y or after_x or after_y):
        return pixels, window
    wide = np.empty((height + before_y + after_y, width + before_x + after_x, channels), np.uint8)
    wide[:] = np.asarray([fill[c] if c < len(fill) else fill[0] for c in range(channels)], np.uint8)
    wide[before_y : before_y + height, before_x : before_x + width] = pixels
    return wide, (left + before_x, top + before_y, right + before_x, bottom + before_y)


def _cut(
    pixels: NDArray[np.uint8], window: tuple[float, ...], size: tuple[int, int], part: tuple[int, int, int, int]
) -> NDArray[np.uint8] | None:
    """Return the part as a view of the source where nothing is to be resampled, else None."""
    left, top = round(window[0]), round(window[1])
    whole = (left, top, left + size[0], top + size[1])
    if any(abs(a - b) > _WHOLE for a, b in zip(window, whole, strict=True)):
        return None
    return pixels[top + part[1] : top + part[3], left + part[0] : left + part[2]]


def _part_of(
    window: tuple[float, ...], size: tuple[int, int], part: tuple[int, int, int, int]
) -> tuple[float, float, float, float]:
    """Return the box of the source that a part of the virtual picture shows."""
    scale_x, scale_y = (window[2] - window[0]) / size[0], (window[3] - window[1]) / size[1]
    x0, y0, x1, y1 = part
    return (
        window[0] + x0 * scale_x,
        window[1] + y0 * scale_y,
        window[0] + x1 * scale_x if x1 < size[0] else window[2],
        window[1] + y1 * scale_y if y1 < size[1] else window[3],
    )


def _resized(
    pixels: NDArray[np.uint8],
    window: tuple[float, ...],
    size: tuple[int, int],
    part: tuple[int, int, int, int],
    interpolation: Interpolation,
) -> Image.Image:
    height, width, _ = pixels.shape
    box = _part_of(window, size, part)
    # The pixels that the box depends on, and none outside the window: torchvision crops it out before it resizes, so
    # nothing beyond may shine in (Pillow's own box= would let it).
    radius = _SUPPORT[interpolation]
    reach_x = radius * max((window[2] - window[0]) / size[0], 1.0) + 1
    reach_y = radius * max((window[3] - window[1]) / size[1], 1.0) + 1
    low_x = max(0, math.floor(box[0] - reach_x), math.floor(window[0] + _WHOLE))
    low_y = max(0, math.floor(box[1] - reach_y), math.floor(window[1] + _WHOLE))
    high_x = min(width, math.ceil(box[2] + reach_x), math.ceil(window[2] - _WHOLE))
    high_y = min(height, math.ceil(box[3] + reach_y), math.ceil(window[3] - _WHOLE))
    inner = (
        max(box[0] - low_x, 0.0),
        max(box[1] - low_y, 0.0),
        min(box[2] - low_x, float(high_x - low_x)),
        min(box[3] - low_y, float(high_y - low_y)),
    )
    image = _as_image(pixels, low_x, low_y, high_x, high_y)
    extent = (
        math.ceil(window[2] - _WHOLE) - math.floor(window[0]),
        math.ceil(window[3] - _WHOLE) - math.floor(window[1]),
    )
    return _in_order(image, inner, (part[2] - part[0], part[3] - part[1]), interpolation, _vertical_first(extent, size))


def _vertical_first(source: tuple[int, int], size: tuple[int, int]) -> bool:
    """Return whether Pillow 13 resizes the height before the width: its rule, found by experiment.

    Each pass rounds and clips to 8 bits, so the order is part of the result (by up to 3 levels in noise).
    """
    return source[1] > size[1] and (source[0] - size[0]) * 2 < source[1] - size[1]


def _in_order(
    image: Image.Image,
    box: tuple[float, float, float, float],
    size: tuple[int, int],
    interpolation: Interpolation,
    vertical_first: bool,  # noqa: FBT001  one of two orders
) -> Image.Image:
    """Resize a box with the passes in the order that Pillow takes for the whole, of which this is a part."""
    kernel = _FILTERS[interpolation]
    if _vertical_first(image.size, size) == vertical_first:
        return image.resize(size, kernel, box=box)
    if vertical_first:
        image = image.resize((image.width, size[1]), kernel, box=(0, box[1], image.width, box[3]))
        return image.resize(size, kernel, box=(box[0], 0, box[2], size[1]))
    image = image.resize((size[0], image.height), kernel, box=(box[0], 0, box[2], image.height))
    return image.resize(size, kernel, box=(0, box[1], size[0], box[3]))


def _as_image(pixels: NDArray[np.uint8], left: int, top: int, right: int, bottom: int) -> Image.Image:
    """Return a rectangle of the pixels as a Pillow image; the rows of RGB are read where they lie, not copied first."""
    _, width, channels = pixels.shape
    mode = "L" if channels == 1 else "RGB"
    size = (right - left, bottom - top)
    if channels == 1 or not pixels.flags.c_contiguous:  # Pillow maps grey, and wants the last row's full stride then
        return Image.frombuffer(mode, size, np.ascontiguousarray(pixels[top:bottom, left:right]), "raw", mode, 0, 1)
    start = (top * width + left) * channels
    rows = pixels.reshape(-1)[start : ((bottom - 1) * width + right) * channels]
    return Image.frombuffer(mode, size, rows, "raw", mode, width * channels, 1)


def _by_points(
    pixels: NDArray[np.uint8],
    window: tuple[float, ...],
    size: tuple[int, int],
    part: tuple[int, int, int, int],
    geometry: Geometry,
) -> NDArray[np.uint8]:
    """Resample at points, without antialias: nearest, or bilinear with the two neighbours, as torch does on tensors."""
    # Measured from the window's corner pixel: added to a larger number, a last bit would be lost that decides a tie.
    left, top = math.floor(window[0]), math.floor(window[1])
    pixels = pixels[top : math.ceil(window[3]), left : math.ceil(window[2])]
    height, width, _ = pixels.shape
    xs = _points(window[0] - left, window[2] - left, size[0])[part[0] : part[2]]
    ys = _points(window[1] - top, window[3] - top, size[1])[part[1] : part[3]]
    if geometry.interpolation.startswith("nearest"):
        columns = np.clip(np.floor(xs).astype(np.intp), 0, width - 1)
        rows = np.clip(np.floor(ys).astype(np.intp), 0, height - 1)
        return np.asarray(pixels[rows[:, np.newaxis], columns])
    if geometry.interpolation != "bilinear":
        msg = f"interpolation {geometry.interpolation!r} without antialias is not offered; use bilinear or antialias"
        raise OptionError(msg)
    x0, x1, fx = _neighbours(xs, width)
    y0, y1, fy = _neighbours(ys, height)
    high = pixels[y0[:, np.newaxis], x0] * (1 - fx) + pixels[y0[:, np.newaxis], x1] * fx
    low = pixels[y1[:, np.newaxis], x0] * (1 - fx) + pixels[y1[:, np.newaxis], x1] * fx
    fy = fy[:, np.newaxis]
    return np.asarray(high * (1 - fy) + low * fy + 0.5).astype(np.uint8)


def _points(start: float, stop: float, count: int) -> NDArray[np.float64]:
    """Return where the centres of count pixels lie in the source, added up step by step as Pillow does (Geometry.c)."""
    steps = np.full(count, (stop - start) / count)
    steps[0] = start + steps[0] * 0.5
    return np.cumsum(steps)


def _neighbours(
    at: NDArray[np.floating[Any]], length: int
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.floating[Any]]]:
    at = np.clip(at - 0.5, 0, length - 1)
    low = np.floor(at).astype(np.intp)
    return low, np.minimum(low + 1, length - 1), (at - low)[:, np.newaxis]


def _store_image(image: Image.Image, target: NDArray[Any], levels: Levels | None) -> None:
    planar = target.strides[2] > target.strides[1] or levels is not None
    if planar and target.shape[2] > 1:
        # Three planes out of Pillow and three straight copies cost half of one picture and a gathering copy.
        for channel, plane in enumerate(image.split()):
            _store_plane(view_array(plane)[:, :, 0], target[:, :, channel], levels, channel)
    else:
        _store(view_array(image), target, levels)


def _store(picture: NDArray[np.uint8], target: NDArray[Any], levels: Levels | None) -> None:
    if levels is None and target.strides[2] <= target.strides[1]:
        target[...] = picture
        return
    for channel in range(target.shape[2]):
        _store_plane(picture[:, :, channel], target[:, :, channel], levels, channel)


def _store_plane(plane: NDArray[np.uint8], target: NDArray[Any], levels: Levels | None, channel: int) -> None:
    if levels is None:
        target[...] = plane
    elif target.flags.c_contiguous:
        levels[channel].take(plane, out=target, mode="clip")  # clip: take then writes to out without a buffer
    else:
        target[...] = levels[channel].take(plane)
