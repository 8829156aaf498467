"""Which sample comes at which position of an epoch: a pure function of (length, seed, epoch, position, rank, world).

Ten million samples cost a few numbers and no list. Global position p of an epoch holds sample ``permute(p)``; rank r
of w takes the positions r, r + w, r + 2w, ..., so a global batch holds the same samples for every world size.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from fastdata.errors import OptionError
from fastdata.philox import words

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Order", "Uneven", "permute"]

Uneven = Literal["pad", "drop", "exact"]

_STREAM = 2  # philox stream of orders; draws of transforms use another
_SMALL = 1 << 16  # up to here a permutation is sorted out (512 KiB); above, it is computed position by position
_ROUNDS = 10
_U64 = np.uint64


@dataclass(frozen=True, slots=True)
class Order:
    """The order of one epoch as one rank sees it.

    uneven says what happens where length is no multiple of world: "pad" repeats the first samples so that all ranks
    have ceil(length / world), "drop" leaves the last ones out, "exact" pads too, and ``valid`` tells the padding.
    """

    length: int
    seed: int = 0
    epoch: int = 0
    shuffle: bool = True
    rank: int = 0
    world: int = 1
    uneven: Uneven = "pad"

    def __post_init__(self) -> None:
        """Check the numbers; raise OptionError."""
        if self.length < 0 or not 0 <= self.rank < self.world:
            msg = f"length {self.length}, rank {self.rank}, world {self.world}: want length >= 0, 0 <= rank < world"
            raise OptionError(msg)
        if self.uneven not in {"pad", "drop", "exact"}:
            msg = f"uneven={self.uneven!r}: expected 'pad', 'drop' or 'exact'"
            raise OptionError(msg)

    def __len__(self) -> int:
        """Return how many positions this rank has; the same on every rank."""
        return self.length // self.world if self.uneven == "drop" else -(-self.length // self.world)

    def positions(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the global positions of this rank's positions ``start`` to ``stop``: int64 (stop - start,)."""
        return np.arange(start, min(stop, len(self)), dtype=np.int64) * self.world + self.rank

    def indices(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the samples at this rank's positions ``start`` to ``stop``: int64 (stop - start,)."""
        at = self.positions(start, stop)
        if self.world > 1 and self.uneven != "drop" and self.length:
            at %= self.length
        return permute(self.length, self.seed, self.epoch, at) if self.shuffle else at

    def valid(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Return which of these positions are not padding: bool (stop - start,)."""
        return self.positions(start, stop) < self.length


def permute(length: int, seed: int, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sample at each position of a shuffled epoch: a permutation of 0..length-1, int64 like ``positions``.

    Up to 65,536 samples: the argsort of 64-bit Philox numbers, uniform over all permutations. Above: a Feistel network
    over the next even power of two, keyed by Philox, with cycle walking (Black, Rogaway: "Ciphers with arbitrary finite
    domains", CT-RSA 2002): constant memory, any position by itself.
    """
    if length <= _SMALL:
        return _sorted_permutation(length, seed, epoch)[positions]
    half, mask, keys = _feistel_key(length, seed, epoch)
    x = _feistel(positions.astype(np.uint64), half, mask, keys)
    outside = np.flatnonzero(x >= _U64(length))
    while len(outside):  # the domain is under four times the length: a walk ends after a few steps
        x[outside] = _feistel(x[outside], half, mask, keys)
        outside = outside[x[outside] >= _U64(length)]
    return x.astype(np.int64)


@lru_cache(maxsize=4)
def _sorted_permutation(length: int, seed: int, epoch: int) -> NDArray[np.int64]:
    pair = words(seed, epoch, np.arange(length), 2, _STREAM)
    order = np.argsort(pair[:, 0] << _U64(32) | pair[:, 1], kind="stable")
    order.flags.writeable = False
    return order


@lru_cache(maxsize=16)
def _feistel_key(length: int, seed: int, epoch: int) -> tuple[np.uint64, np.uint64, tuple[np.uint64, ...]]:
    half = max(1, -(-(length - 1).bit_length() // 2))
    pair = words(seed, epoch, np.zeros(1, np.int64), 2 * _ROUNDS, _STREAM)[0]
    keys = tuple(pair[:_ROUNDS] << _U64(32) | pair[_ROUNDS:])
    return _U64(half), _U64((1 << half) - 1), keys


def _feistel(
    x: NDArray[np.uint64], half: np.uint64, mask: np.uint64, keys: tuple[np.uint64, ...]
) -> NDArray[np.uint64]:
    left, right = x >> half, x & mask
    for key in keys:
        # The round function is the finaliser of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
        # generators", OOPSLA 2014); any function makes a permutation, a good mixer makes a good one.
        z = right + key
        z = (z ^ (z >> _U64(30))) * _U64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> _U64(27))) * _U64(0x94D049BB133111EB)
        left, right = right, left ^ ((z ^ (z >> _U64(31))) & mask)
    return left << half | right
