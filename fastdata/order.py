"""Which sample comes at which position of an epoch: a pure function of (length, seed, epoch, position, rank, world).

Ten million samples cost a few numbers and no list. Global position p of an epoch holds sample ``permute(p)``; rank r
of w takes the positions r, r + w, r + 2w, ..., so a global batch holds the same samples for every world size.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from fastdata.errors import OptionError
from fastdata.philox import words

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Order", "Sequence", "Uneven", "permute", "permute_each"]

Uneven = Literal["pad", "drop", "exact"]

_STREAM = 2  # philox stream of orders; draws of transforms use another
_SMALL = 1 << 16  # up to here a permutation is sorted out (512 KiB); above, it is computed position by position
_ROUNDS = 10
_GAMMA = 0x9E3779B97F4A7C15  # SplitMix64's step
# A Feistel network with halves of two bits does not reach all permutations of 16 alike: six samples come in some orders
# 12 % too often, whatever the number of rounds (measured). Up to here permutations are sorted out, too.
_TINY = 16
_U64 = np.uint64


class Sequence(Protocol):
    """Which sample comes at which global position, where it is no permutation of all of them; pure, as all here."""

    def __len__(self) -> int:
        """Return how many positions an epoch has."""
        ...

    def indices(self, seed: int, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the samples at these positions, each within the epoch: int64 like ``positions``."""
        ...


@dataclass(frozen=True, slots=True)
class Order:
    """The order of one epoch as one rank sees it.

    uneven says what happens where length is no multiple of world: "pad" repeats the first samples so that all ranks
    have ceil(length / world), "drop" leaves the last ones out, "exact" pads too, and ``valid`` tells the padding.
    sequence: gives the samples in place of the permutation (``shuffle``); length is the sequence's own then.
    """

    length: int
    seed: int = 0
    epoch: int = 0
    shuffle: bool = True
    rank: int = 0
    world: int = 1
    uneven: Uneven = "pad"
    sequence: Sequence | None = None

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
        if self.sequence is not None:
            return self.sequence.indices(self.seed, self.epoch, at)
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


def permute_each(
    lengths: NDArray[np.int64], keys: NDArray[np.uint64], positions: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the sample at each position of a permutation of its own: of 0..lengths[i]-1, keyed by keys[i].

    ``permute`` for many permutations at once, whatever their lengths; all arrays (n,), positions below their lengths,
    keys any 64 bits (of a good generator), from which SplitMix64 makes the rest. Up to 16 samples are sorted, more go
    through the Feistel network.
    """
    found = np.empty(len(positions), np.int64)
    tiny = lengths <= _TINY
    found[tiny] = _sort_each(lengths[tiny], keys[tiny], positions[tiny])
    wide = ~tiny
    found[wide] = _walk_each(lengths[wide], keys[wide], positions[wide])
    return found


def _sort_each(lengths: NDArray[np.int64], keys: NDArray[np.uint64], positions: NDArray[np.int64]) -> NDArray[np.int64]:
    numbers = np.arange(1, lengths.max(initial=1) + 1)
    drawn = _mixed(keys[:, None] + numbers.astype(np.uint64) * _U64(_GAMMA))
    drawn[numbers > lengths[:, None]] = _U64(0xFFFFFFFFFFFFFFFF)
    order = np.argsort(drawn, axis=1, kind="stable")
    return np.take_along_axis(order, positions[:, None], axis=1)[:, 0]


def _walk_each(lengths: NDArray[np.int64], keys: NDArray[np.uint64], positions: NDArray[np.int64]) -> NDArray[np.int64]:
    bits = np.frexp((lengths - 1).astype(np.float64))[1]  # bit_length, exact below 2**53
    half = np.maximum(1, (bits + 1) // 2).astype(np.uint64)
    mask = (_U64(1) << half) - _U64(1)
    numbers = np.arange(1, _ROUNDS + 1, dtype=np.uint64)[:, None]
    rounds = _mixed(keys + numbers * _U64(_GAMMA))
    limit, x, walking = lengths.astype(np.uint64), positions.astype(np.uint64), np.arange(len(positions))
    while len(walking):
        x[walking] = _feistel(x[walking], half[walking], mask[walking], tuple(rounds[:, walking]))
        walking = walking[x[walking] >= limit[walking]]
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
    x: NDArray[np.uint64],
    half: np.uint64 | NDArray[np.uint64],
    mask: np.uint64 | NDArray[np.uint64],
    keys: tuple[np.uint64, ...] | tuple[NDArray[np.uint64], ...],
) -> NDArray[np.uint64]:
    left, right = x >> half, x & mask
    for key in keys:
        left, right = right, left ^ (_mixed(right + key) & mask)
    return left << half | right


def _mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the finaliser of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).

    As a round function: any function makes a permutation, a good mixer makes a good one.
    """
    z = (z ^ (z >> _U64(30))) * _U64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> _U64(27))) * _U64(0x94D049BB133111EB)
    return z ^ (z >> _U64(31))
