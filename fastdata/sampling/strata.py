"""An order over groups of samples, each group with its exact share, and gone through without replacement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastdata.order import permute, permute_each
from fastdata.philox import words

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Strata", "key_of_each", "shares"]

_BLOCK_STREAM, _PASS_STREAM = 7, 8  # philox streams: the order inside a block, the order of a group's pass
_LEAST = 4  # samples that the smallest group has in a block
_U64 = np.uint64


def key_of_each(seed: int, epoch: int, numbers: NDArray[np.int64], stream: int) -> NDArray[np.uint64]:
    """Return 64 random bits for each number: what ``permute_each`` is keyed by."""
    pair = words(seed, epoch, numbers, 2, stream)
    return pair[:, 0] << _U64(32) | pair[:, 1]


def shares(total: int, groups: int) -> NDArray[np.int64]:
    """Return ``total`` in whole parts that differ by one at most: int64 (groups,)."""
    return np.diff(np.arange(groups + 1, dtype=np.int64) * total // groups)


class Strata:
    """Positions shared out to groups in blocks: any position is found at once, and no group runs ahead of its share.

    After each block of positions a group has had its share of them, rounded; a block is as long as the smallest group
    needs to come in it some times, and inside it the groups come in random order. The group's j-th place takes sample
    j of its permutation; when that ends, another one begins.
    """

    def __init__(
        self,
        sizes: NDArray[np.int64],
        counts: NDArray[np.int64],
        *,
        members: NDArray[np.int64] | None = None,
        exchanged: bool = False,
    ) -> None:
        """Borrow all.

        sizes: samples of each group; counts: how many places of an epoch are its; members: the samples, group by group
        (None: they lie in the set that way). exchanged: each epoch deals the counts to the groups anew.
        """
        self._sizes, self._members, self._exchanged = sizes, members, exchanged
        self._starts = np.cumsum(sizes) - sizes
        self._ends = np.concatenate(([0], np.cumsum(counts)))
        self._length = int(self._ends[-1])
        smallest = int(counts[counts > 0].min())
        # A quota of a block is a difference of rounded numbers: with four in the mean it cannot become negative.
        self._block = min(-(-_LEAST * self._length // smallest), self._length)
        self._blocks = max(1, self._length // self._block)  # the last one takes the rest, too

    def __len__(self) -> int:
        """Return the number of positions."""
        return self._length

    def indices(self, seed: int, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the samples at these positions."""
        block = np.minimum(positions // self._block, self._blocks - 1)
        found, row = np.unique(block, return_inverse=True)
        begin = found * self._block
        end = np.where(found == self._blocks - 1, self._length, begin + self._block)
        before = self._shared(begin)
        # The places of each block, ordered by group, as one ascending list over all blocks at hand.
        edges = begin[:, None] + self._shared(end) - before
        start, length = begin[row], (end - begin)[row]
        place = start + permute_each(length, key_of_each(seed, epoch, found, _BLOCK_STREAM)[row], positions - start)
        group = np.searchsorted(edges.ravel(), place, "right") - 1 - row * edges.shape[1]
        count = before[row, group + 1] - before[row, group] + place - edges[row, group]
        if self._exchanged:
            group = permute(len(self._sizes), seed, epoch, group)
        size = self._sizes[group]
        number, inside = np.divmod(count, size)
        inside = permute_each(size, key_of_each(seed, epoch, group << 32 | number, _PASS_STREAM), inside)
        at = self._starts[group] + inside
        samples: NDArray[np.int64] = at if self._members is None else self._members[at]
        return samples

    def _shared(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many of the first ``positions`` places are of groups before each: int64 (n, groups + 1)."""
        share = positions[:, None] * (self._ends / self._length)
        return np.where(positions[:, None] == self._length, self._ends, np.floor(share + 0.5).astype(np.int64))
