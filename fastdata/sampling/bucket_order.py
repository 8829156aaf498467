"""Batches of one bucket each: which samples of which bucket a rank has at each step of an epoch, any step by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fastdata.order import permute, permute_each
from fastdata.sampling.strata import key_of_each

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastdata.order import Uneven

__all__ = ["BucketOrder", "BucketSteps", "nearest_size"]

_STREAM = 10  # philox stream: the order inside a bucket
_CHUNK = 1 << 16  # pictures compared at once with all sizes


def nearest_size(
    widths: NDArray[np.int32], heights: NDArray[np.int32], sizes: tuple[tuple[int, int], ...]
) -> NDArray[np.int64]:
    """Return the number of the (height, width) of ``sizes`` whose aspect is nearest to each picture's: int64 (n,).

    Nearest in the logarithm, so that 2:1 and 1:2 are as far from 1:1; of sizes of one aspect, the one nearest in area.
    """
    wanted = np.log(np.array(sizes, np.float64))
    aspect, area = wanted[:, 1] - wanted[:, 0], wanted.sum(axis=1)
    found = np.empty(len(widths), np.int64)
    for start in range(0, len(widths), _CHUNK):
        rows = slice(start, start + _CHUNK)
        width, height = np.log(widths[rows].astype(np.float64)), np.log(heights[rows].astype(np.float64))
        far = np.abs((width - height)[:, None] - aspect)
        far += 1e-9 * np.abs((width + height)[:, None] - area)
        found[rows] = far.argmin(axis=1)
    return found


class BucketSteps:
    """The samples of each bucket, cut into global batches: 10 bytes a sample, for all epochs.

    A global batch, that of a step over all ranks, has ``batch`` samples of one bucket; the rest of a bucket is a
    shorter one, which goes with drop_last.
    """

    def __init__(self, bucket: NDArray[np.uint16], batch: int, *, world: int, uneven: Uneven, drop_last: bool) -> None:
        """Sort the samples by bucket (the number of each sample's, (n,))."""
        self.bucket, self.batch, self.world, self.uneven, self._drop_last = bucket, batch, world, uneven, drop_last
        self.members = np.argsort(bucket, kind="stable")
        self.sizes = np.bincount(bucket)
        self.starts = np.cumsum(self.sizes) - self.sizes
        whole, rest = np.divmod(self.sizes, batch)
        # Without padding, what is smaller than one sample a rank gives no step to anybody.
        least = world if uneven == "drop" else 1
        self.steps = whole if drop_last else whole + (rest >= least)
        self.ends = np.cumsum(self.steps)

    def __len__(self) -> int:
        """Return the number of steps of an epoch, the same on every rank."""
        return int(self.ends[-1]) if len(self.ends) else 0

    def shared(self, world: int) -> BucketSteps:
        """Return the same for ``world`` ranks, each with batches as large as those of the ranks here."""
        batch = self.batch // self.world * world
        return BucketSteps(self.bucket, batch, world=world, uneven=self.uneven, drop_last=self._drop_last)

    def size(self, number: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many samples each of these global batches has for each rank, padding among them."""
        bucket = np.searchsorted(self.ends, number, "right")
        first = (number - self.ends[bucket] + self.steps[bucket]) * self.batch
        count = np.minimum(self.batch, self.sizes[bucket] - first)
        each: NDArray[np.int64] = count // self.world if self.uneven == "drop" else -(-count // self.world)
        return each


@dataclass(frozen=True, slots=True)
class BucketOrder:
    """The steps of one epoch as one rank sees them.

    A sample's global position is its place among the samples of all buckets, each bucket permuted: the same for any
    number of ranks and any batch size; padding lies behind all of them.
    """

    plan: BucketSteps
    seed: int = 0
    epoch: int = 0
    shuffle: bool = True
    rank: int = 0

    def __len__(self) -> int:
        """Return how many samples this rank gets, padding among them; the same on every rank."""
        return int(self.plan.size(np.arange(self.steps)).sum()) if self.steps else 0

    @property
    def steps(self) -> int:
        """The number of batches."""
        return len(self.plan)

    def batch(self, step: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """Return samples, global positions and what is no padding of this rank's batch at ``step``: (n,) each."""
        plan = self.plan
        number = np.array([step])
        if self.shuffle:
            number = permute(self.steps, self.seed, self.epoch, number)
        bucket = int(np.searchsorted(plan.ends, number, "right")[0])
        first = (int(number[0]) - int(plan.ends[bucket] - plan.steps[bucket])) * plan.batch
        size = int(plan.sizes[bucket])
        count = min(plan.batch, size - first)
        offset = self.rank + plan.world * np.arange(int(plan.size(number)[0]), dtype=np.int64)
        valid = offset < count
        inside = first + offset % count
        positions = plan.starts[bucket] + inside
        # At most world - 1 of a global batch are padding.
        positions[~valid] = len(plan.bucket) + int(number[0]) * plan.world + offset[~valid] - count
        if self.shuffle:
            key = key_of_each(self.seed, self.epoch, np.array([bucket]), _STREAM)
            inside = permute_each(np.full(len(inside), size), np.repeat(key, len(inside)), inside)
        return plan.members[plan.starts[bucket] + inside], positions, valid
