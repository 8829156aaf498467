"""Mean and standard deviation of all pixels of a pack, exact and without an order: sums of whole numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ChannelSums", "channel_sums"]

_LEVELS = np.arange(256, dtype=np.int64)
_TOP = 255.0
_STRIP = 1 << 16  # pixels


@dataclass(frozen=True, slots=True)
class ChannelSums:
    """Number of pixels, and per channel the sums of their values and of their squares (0..255)."""

    count: int = 0
    values: tuple[int, ...] = ()
    squares: tuple[int, ...] = ()

    def __add__(self, other: ChannelSums) -> ChannelSums:
        """Return the sums of both."""
        if not self.count or not other.count:
            return self if self.count else other
        return ChannelSums(
            self.count + other.count,
            tuple(a + b for a, b in zip(self.values, other.values, strict=True)),
            tuple(a + b for a, b in zip(self.squares, other.squares, strict=True)),
        )

    @property
    def mean(self) -> tuple[float, ...]:
        """Mean per channel, 0..1, as Normalize takes it."""
        return tuple(value / self.count / _TOP for value in self.values)

    @property
    def std(self) -> tuple[float, ...]:
        """Standard deviation per channel over all pixels, 0..1."""
        both = zip(self.values, self.squares, strict=True)
        # Whole numbers until the last step: the difference of two large floats would lose digits.
        return tuple(math.sqrt(square * self.count - value * value) / self.count / _TOP for value, square in both)


def channel_sums(pixels: Image.Image | NDArray[np.uint8]) -> ChannelSums:
    """Return the sums of one RGB or L picture, or of uint8 HWC pixels. Pillow's histogram is the fastest exact way."""
    if isinstance(pixels, Image.Image):
        histogram = np.array(pixels.histogram(), np.int64)
        size = pixels.width * pixels.height
    else:
        # In strips, so that the copy Pillow needs of them stays small and in the cache.
        height, width, channels = pixels.shape
        flat, rows = pixels[:, :, 0] if channels == 1 else pixels, max(1, _STRIP // width)
        histogram = np.zeros(256 * channels, np.int64)
        for top in range(0, height, rows):
            histogram += np.array(Image.fromarray(np.ascontiguousarray(flat[top : top + rows])).histogram(), np.int64)
        size = height * width
    counts = histogram.reshape(-1, 256)
    values, squares = counts @ _LEVELS, counts @ (_LEVELS * _LEVELS)
    return ChannelSums(size, tuple(values.tolist()), tuple(squares.tolist()))
