"""Mean and standard deviation of all pixels of a pack, exact and without an order: sums of whole numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fastdata.decoding import native_decoder
from fastdata.decoding.pillow_arrays import image_of
from fastdata.types import by_fields

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

    __reduce__ = by_fields

    def __add__(self, other: ChannelSums) -> ChannelSums:
        """Return the sums of both."""
        if not self.count or not other.count:
            return self if self.count else other
        return ChannelSums(
            self.count + other.count,
            _sum(self.values, other.values),
            _sum(self.squares, other.squares),
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


def _sum(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([a + b for a, b in zip(one, other, strict=True)])  # half of a generator's price


def channel_sums(pixels: NDArray[np.uint8]) -> ChannelSums:
    """Return the sums of one picture, uint8 (H, W, 1 or 3); by the compiled core where it was built."""
    height, width, _ = pixels.shape
    values, squares = native_decoder.channel_sums(np.ascontiguousarray(pixels)) or _by_histogram(pixels)
    return ChannelSums(height * width, tuple(values), tuple(squares))


def _by_histogram(pixels: NDArray[np.uint8]) -> tuple[list[int], list[int]]:
    """Return the sums by Pillow's histogram, numpy's fastest exact rival; in strips, whose copies stay in the cache."""
    _, width, channels = pixels.shape
    rows = max(1, _STRIP // width)
    histogram = np.zeros(256 * channels, np.int64)
    for top in range(0, len(pixels), rows):
        histogram += np.array(image_of(np.ascontiguousarray(pixels[top : top + rows])).histogram(), np.int64)
    counts = histogram.reshape(-1, 256)
    return (counts @ _LEVELS).tolist(), (counts @ (_LEVELS * _LEVELS)).tolist()
