"""Steps that look at a pixel's neighbours, sharpness and blur, and Pillow's blend of two pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fastdata.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fastdata.transforms.picture import Picture
    from fastdata.transforms.pixel_steps import Blur, Sharpness

    Bytes = NDArray[np.uint8]
    Draws = Sequence[float]

__all__ = ["blend", "blur", "sharpen", "store"]


def blend(base: Any, work: NDArray[np.float32], factor: float) -> None:  # noqa: ANN401  an array or a number
    """Make of ``work`` base + factor * (work - base): float32 as in Pillow's Blend.c."""
    np.subtract(work, base, out=work)
    np.multiply(work, np.float32(factor), out=work)
    np.add(work, base, out=work)


def store(work: NDArray[np.float32], pixels: Bytes) -> None:
    """Cut ``work`` to 0..255, and its fractions off, into ``pixels``."""
    np.clip(work, np.float32(0), np.float32(255), out=work)
    np.copyto(pixels, work, casting="unsafe")


def sharpen(step: Sharpness, picture: Picture, u: Draws) -> None:  # noqa: ARG001
    """Pillow's Sharpness: blend with ImageFilter.SMOOTH, (sum of the 8 around + 5 * centre) / 13; edges stay."""
    pixels = picture.settle()
    if min(pixels.shape[1:]) < 3:  # noqa: PLR2004  no pixel has all its neighbours
        return
    base, work = picture.room.array("base", np.float32), picture.room.array("line", np.float32)
    for plane in pixels:
        wide = plane.astype(np.uint16)
        rows = wide[:, :-2] + wide[:, 1:-1]
        rows += wide[:, 2:]
        smooth = rows[:-2] + rows[1:-1]
        smooth += rows[2:]
        smooth += wide[1:-1, 1:-1] * np.uint16(4)
        smooth += np.uint16(6)  # to the nearest: 13 is odd, so there are no halves
        smooth //= np.uint16(13)
        np.copyto(base, plane)
        base[1:-1, 1:-1] = smooth
        np.copyto(work, plane)
        blend(base, work, step.factor)
        store(work, plane)


def blur(step: Blur, picture: Picture, u: Draws) -> None:
    """Convolve rows, then columns, in float32, reflected at the edges, rounded to the nearest even."""
    kernel, sigma = step.kernel, step.sigma[0] + u[0] * (step.sigma[1] - step.sigma[0])
    pixels = picture.settle()
    height, width = pixels.shape[1:]
    across, down = kernel[0] // 2, kernel[1] // 2
    if across >= width or down >= height:
        raise OptionError(
            f"GaussianBlur: a kernel of {kernel} (width, height) reaches over a picture of {width} x {height}"
        )
    for plane in pixels:
        padded = np.pad(plane, ((down, down), (across, across)), mode="reflect").astype(np.float32)
        rows = _convolve(padded.T, _gaussian(kernel[0], sigma)).T if across else padded
        done = _convolve(rows, _gaussian(kernel[1], sigma)) if down else rows
        np.copyto(plane, np.rint(done), casting="unsafe")


def _convolve(pixels: NDArray[np.float32], weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the sums along the first axis, which gets shorter by ``len(weights) - 1``; the weights are symmetric."""
    taps = len(weights)
    count = len(pixels) - taps + 1
    middle = taps // 2
    total: NDArray[np.float32] = pixels[middle : middle + count] * weights[middle]
    part = np.empty_like(total)
    for at in range(middle):
        if weights[at] < _NOTHING:
            continue
        np.add(pixels[at : at + count], pixels[taps - 1 - at : taps - 1 - at + count], out=part)
        np.multiply(part, weights[at], out=part)
        np.add(total, part, out=total)
    return total


# Weights below this move no pixel by more than 255 * 2 * 40 taps of it, 0.002 of a level.
_NOTHING = 1e-7


def _gaussian(taps: int, sigma: float) -> NDArray[np.float32]:
    at = np.arange(taps) - (taps - 1) * 0.5
    weights = np.exp(-0.5 * (at / sigma) ** 2)
    normed: NDArray[np.float32] = (weights / weights.sum()).astype(np.float32)
    return normed
