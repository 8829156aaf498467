"""What becomes of each grey level, cast by cast and Normalize by Normalize: to the bit what torch computes on the CPU.

Every step of floats before the batch is a function of one grey level, so 256 numbers a channel say it all, in bfloat16
and float16, too: torch rounds after each operation there (computed in float32), and so does this.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from fastdata.transforms.half_floats import rounded, stored
from fastdata.transforms.pixel_steps import Erase, Sometimes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fastdata.transforms.pixel_steps import PixelStep
    from fastdata.types import FloatType, Levels

    Doubles = NDArray[np.float64]

__all__ = ["GreyLevels", "Scaling"]

Scaling = Literal["divide", "multiply", "keep"]


class GreyLevels:
    """The float that each grey level of three channels has become.

    dtype: what the pixels are by now. divisor, mean, std: the same as a formula, (v / divisor - mean[c]) / std[c].
    """

    def __init__(self) -> None:
        """Begin with pixels as they are, uint8."""
        self.dtype: Literal["uint8"] | FloatType = "uint8"
        self.divisor = 1.0
        self.mean: Doubles = np.zeros(3)
        self.std: Doubles = np.ones(3)
        self._values: NDArray[np.float32] = np.zeros((3, 256), np.float32)

    @property
    def keeps_black(self) -> bool:
        """Whether 0 is still 0 in every channel."""
        return not self._values[:, 0].any()

    def to_float(self, dtype: FloatType, how: Scaling) -> None:
        """Make uint8 a float: divided by 255, times 1/255 (other bits), or as it is; 0..255 are exact in all three."""
        grey = np.arange(256, dtype=np.float32)
        if how == "divide":
            grey = grey / np.float32(255)
        elif how == "multiply":
            grey = grey * np.float32(1 / 255)
        self.dtype, self.divisor = dtype, 1.0 if how == "keep" else 255.0
        self._values[...] = rounded(grey, dtype)

    def narrow(self, dtype: FloatType) -> None:
        """Round float32 to ``dtype``."""
        self.dtype, self._values = dtype, rounded(self._values, dtype)

    def rounds_to_zero(self, values: Sequence[float]) -> bool:
        """Return whether one of them is 0 in the dtype of the pixels."""
        return not self._own(np.asarray(values, np.float64)).all()

    def normalise(self, mean: Doubles, std: Doubles) -> None:
        """Subtract and divide, three values each, which take the dtype of the pixels first."""
        self._values = self._normalised(self._values, mean, std)
        self.mean, self.std = self.mean + self.std * mean, self.std * std

    def normalised(self, step: PixelStep, mean: Doubles, std: Doubles) -> PixelStep:
        """Return a step for pixels that are normalised already: as torch would normalise what it erased."""
        match step:
            case Sometimes():
                return replace(step, steps=tuple(self.normalised(inner, mean, std) for inner in step.steps))
            case Erase(value=None):
                factor, shift = np.array(step.noise)
                return replace(step, noise=(tuple((factor / std).tolist()), tuple(((shift - mean) / std).tolist())))
            case Erase():
                value = self._own(np.array(step.value, np.float64))[:, None]
                return replace(step, value=tuple(self._normalised(value, mean, std)[:, 0].tolist()))
        return step

    def table(self, channels: int) -> Levels | None:
        """Return the levels as they are stored, (channels, 256), read-only; None while the pixels are uint8."""
        if self.dtype == "uint8":
            return None
        table = stored(self._values[:channels], self.dtype)
        table.setflags(write=False)
        return table

    def _normalised(self, values: NDArray[np.float32], mean: Doubles, std: Doubles) -> NDArray[np.float32]:
        with np.errstate(over="ignore", invalid="ignore"):  # what is too large for the dtype becomes inf, as in torch
            less = self._rounded(values - self._own(mean)[:, None])
            return self._rounded(less / self._own(std)[:, None])

    def _own(self, values: Doubles) -> NDArray[np.float32]:
        """Return numbers as torch.as_tensor(values, dtype=...) has them: by way of float32."""
        return self._rounded(values.astype(np.float32))

    def _rounded(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        assert self.dtype != "uint8"
        return rounded(values, self.dtype)
