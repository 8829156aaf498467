"""Floats of 16 bits in numpy, rounded to nearest even, as torch's .to() rounds float32.

numpy knows float16 but not bfloat16, so those are carried as their bits, in uint16: an array of uint16 pixels holds
bfloat16 wherever pixels are floats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastdata.types import FloatType, Levels

__all__ = ["bfloat16_bits", "rounded", "stored"]

_NAN = np.uint16(0x7FC0)


def bfloat16_bits(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Return the bits of float32 values rounded to bfloat16."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    half = (bits >> np.uint32(16)) & np.uint32(1)
    half += np.uint32(0x7FFF)
    half += bits
    half >>= np.uint32(16)
    result = half.astype(np.uint16)
    result[np.isnan(values)] = _NAN
    return result


def rounded(values: NDArray[np.float32], dtype: FloatType) -> NDArray[np.float32]:
    """Return float32 values that ``dtype`` can hold; what is too large becomes inf."""
    match dtype:
        case "float32":
            return values
        case "float16":
            with np.errstate(over="ignore"):
                return values.astype(np.float16).astype(np.float32)
        case "bfloat16":
            return (bfloat16_bits(values).astype(np.uint32) << np.uint32(16)).view(np.float32)


def stored(values: NDArray[np.float32], dtype: FloatType) -> Levels:
    """Return float32 values as pixels of ``dtype`` are carried: float32, float16, or bfloat16's bits in uint16."""
    match dtype:
        case "float32":
            return values.copy()
        case "float16":
            with np.errstate(over="ignore"):
                return values.astype(np.float16)
        case "bfloat16":
            return bfloat16_bits(values)
