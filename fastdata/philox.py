"""A counter-based random generator: any draw of any sample, without a state, in any order.

Philox4x32-10 of Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3" (SC 2011); constants and
known-answer vectors are those of the authors' Random123 library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["philox4x32", "uniforms", "words"]

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW, _SHIFT = np.uint64(0xFFFFFFFF), np.uint64(32)
_ROUNDS = 10


def philox4x32(counter: NDArray[np.uint64], key: tuple[int, int]) -> NDArray[np.uint64]:
    """Return the Philox block of each counter: uint64 (4, ...) holding 32-bit words in, the same shape out."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c2 = (p1 >> _SHIFT) ^ c1 ^ np.uint64(k0), (p0 >> _SHIFT) ^ c3 ^ np.uint64(k1)
        c1, c3 = p1 & _LOW, p0 & _LOW
        k0, k1 = (k0 + _W0) & 0xFFFFFFFF, (k1 + _W1) & 0xFFFFFFFF
    return np.stack((c0, c1, c2, c3))


def words(seed: int, epoch: int, positions: NDArray[np.int64], count: int, stream: int = 0) -> NDArray[np.uint64]:
    """Return ``count`` 32-bit words for each position: uint64 (n, count), a pure function of the arguments.

    ``seed`` counts modulo 2**64, ``epoch`` modulo 2**24, and ``stream`` (0 to 255) separates unrelated uses of the same
    position; up to 1,024 words a position.
    """
    blocks = -(-count // 4)
    at = np.asarray(positions, np.int64).astype(np.uint64)[:, None]
    counter = np.empty((4, len(at), blocks), np.uint64)
    counter[0], counter[1] = at & _LOW, at >> _SHIFT
    counter[2] = np.arange(blocks, dtype=np.uint64)[None, :]
    counter[3] = np.uint64(((stream & 0xFF) << 24) | (epoch & 0xFFFFFF))
    key = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF
    return philox4x32(counter, key).transpose(1, 2, 0).reshape(len(at), 4 * blocks)[:, :count]


def uniforms(seed: int, epoch: int, positions: NDArray[np.int64], count: int, stream: int = 0) -> NDArray[np.float64]:
    """Return ``count`` uniform draws of [0, 1) for each position: float64 (n, count), 32 bits each."""
    return words(seed, epoch, positions, count, stream) * np.float64(2.0**-32)
