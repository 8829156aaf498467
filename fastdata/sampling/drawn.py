"""Orders that are drawn by weight: with replacement position by position, without by a sort of random keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastdata.philox import words

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["DrawnByClass", "DrawnByWeight", "SortedByWeight"]

_POSITION_STREAM, _SAMPLE_STREAM = 5, 6  # philox streams: draws of positions, and of samples' keys
_CHUNK = 1 << 13  # samples whose keys are computed at once: the intermediates stay in the cache
_U64 = np.uint64


def _uniforms(seed: int, epoch: int, at: NDArray[np.int64], count: int, stream: int) -> NDArray[np.float64]:
    """Return ``count`` draws of (0, 1) for each position: float64 (n, count), 53 bits each, never 0 or 1."""
    pairs = words(seed, epoch, at, 2 * count, stream)
    wide = pairs[:, ::2] << _U64(32) | pairs[:, 1::2]
    return ((wide >> _U64(12)).astype(np.float64) + 0.5) * 2.0**-52


class DrawnByWeight:
    """With replacement: each position is drawn by itself, by a search in the cumulative weights."""

    def __init__(self, weights: NDArray[np.float64], count: int) -> None:
        """Sum the weights up: 8 bytes a sample; an epoch has ``count`` positions."""
        self._ends, self._count = np.cumsum(weights), count
        self._last = int(np.flatnonzero(weights)[-1])  # where rounding would lead behind it

    def __len__(self) -> int:
        """Return the number of positions."""
        return self._count

    def indices(self, seed: int, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the samples at these positions."""
        u = _uniforms(seed, epoch, positions, 1, _POSITION_STREAM)[:, 0]
        found: NDArray[np.int64] = np.searchsorted(self._ends, u * self._ends[-1], "right")
        return np.minimum(found, self._last)


class DrawnByClass:
    """With replacement: at each position a class, each equally likely, then one of its samples."""

    def __init__(self, members: NDArray[np.int64], sizes: NDArray[np.int64], count: int) -> None:
        """Borrow the samples sorted by class, and the sizes of the classes, none of them 0."""
        self._members, self._sizes, self._count = members, sizes, count
        self._starts = np.cumsum(sizes) - sizes

    def __len__(self) -> int:
        """Return the number of positions."""
        return self._count

    def indices(self, seed: int, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the samples at these positions."""
        u = _uniforms(seed, epoch, positions, 2, _POSITION_STREAM)
        group = (u[:, 0] * len(self._sizes)).astype(np.int64)
        inside = np.minimum((u[:, 1] * self._sizes[group]).astype(np.int64), self._sizes[group] - 1)
        samples: NDArray[np.int64] = self._members[self._starts[group] + inside]
        return samples


class SortedByWeight:
    """Without replacement: the samples in the order of an exponential key each, of rate equal to its weight.

    Efraimidis, Spirakis: "Weighted random sampling with a reservoir", Information Processing Letters 97 (2006): the
    largest u ** (1 / w) are such a sample, in order; their logarithms are sorted here. The order of an epoch is sorted
    when it is first asked for, and the last one is kept: 8 bytes a sample. Which sample comes at a position depends on
    all keys, so that a resume costs as much as the beginning of an epoch (benchmarks/results/sampling_10m.json).
    """

    def __init__(self, weights: NDArray[np.float64], count: int) -> None:
        """Borrow the weights; ``count`` of those above 0 make an epoch."""
        self._weights, self._count = weights, count
        self._sorted: tuple[int, int, NDArray[np.int64]] | None = None

    def __len__(self) -> int:
        """Return the number of positions."""
        return self._count

    def indices(self, seed: int, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the samples at these positions."""
        kept = self._sorted
        if kept is None or kept[:2] != (seed, epoch):
            kept = self._sorted = (seed, epoch, self._order(seed, epoch))
        return kept[2][positions]

    def _order(self, seed: int, epoch: int) -> NDArray[np.int64]:
        n, count = len(self._weights), self._count
        keys = np.empty(n)
        with np.errstate(divide="ignore", over="ignore"):  # a weight of 0, or nearly so: a key that never comes
            for start in range(0, n, _CHUNK):
                at = np.arange(start, min(start + _CHUNK, n))
                u = _uniforms(seed, epoch, at, 1, _SAMPLE_STREAM)[:, 0]
                keys[start : start + len(at)] = -np.log(u) / self._weights[at]
        keys[self._weights == 0] = np.inf
        if count < n:
            first = np.argpartition(keys, count - 1)[:count]
            return first[np.lexsort((first, keys[first]))]
        order = np.argsort(keys)
        if (np.diff(keys[order]) == 0).any():  # as good as never; a stable sort, three times as slow, gives the rule
            order = np.argsort(keys, kind="stable")
        return order
