"""The sampler of a FastLoader: order.py's Order in the shape that torch and its wrappers know."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.utils.data import BatchSampler
from torch.utils.data.distributed import DistributedSampler

from fastdata.engine.batches import Job
from fastdata.engine.groups import Group
from fastdata.errors import OptionError
from fastdata.order import Order
from fastdata.sampling.bucket_order import BucketOrder, BucketSteps
from fastdata.sampling.windows import Windows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sized

    from numpy.typing import NDArray

    from fastdata.order import Sequence, Uneven
    from fastdata.sampling.values import Sampling

__all__ = ["BucketBatches", "EpochSampler", "jobs_of_order", "positions_of"]

# Positions computed at once, and samples prepared at once: the cost of a numpy call is shared by that many, and what it
# does with so many it does without the interpreter. The first batch waits 4 ms for them.
_CHUNK = 8192


class EpochSampler(DistributedSampler[int]):
    """A DistributedSampler that knows the epoch by itself, for one rank or many, without a list of the samples.

    Every ``iter`` is the next epoch; ``set_epoch`` says which. Without a seed, one process draws a new one for each
    epoch from torch's generator, as DataLoader's RandomSampler does; several ranks must agree and take seed 0.
    sampling: what was asked for in place of a permutation or the data set's own order; drawn: the order made of it.
    place: says (rank, world size). Where it told of one process when this was made, it is asked again before each
    order: loaders are often made before the process group is.
    """

    def __init__(  # noqa: PLR0913  the attributes of torch's DistributedSampler
        self,
        dataset: Sized,
        *,
        shuffle: bool,
        seed: int | None,
        place: Callable[[], tuple[int, int]],
        uneven: Uneven = "pad",
        generator: torch.Generator | None = None,
        sampling: Sampling | None = None,
        drawn: Sequence | BucketSteps | None = None,
    ) -> None:
        """Remember the numbers; ``drawn`` is made for the place of now."""
        drop_last, (rank, world) = uneven == "drop", place()
        super().__init__(dataset, world, rank, shuffle, 0 if seed is None else seed, drop_last)  # type: ignore[arg-type]
        self.uneven, self.generator, self._place = uneven, generator, place
        self._draws_seed = seed is None and world == 1
        self.sampling, self.drawn, self._samples = sampling, drawn, len(dataset)
        self._count()

    def __len__(self) -> int:
        """Return how many samples this rank gets in an epoch."""
        return len(self._order())

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next ``iter`` gives."""
        self.epoch = epoch

    def settle(self) -> None:
        """Share the epochs out from now on, where this was made before its process became one of several ranks."""
        if self.num_replicas > 1:
            return
        rank, world = self._place()
        if world == 1:
            return
        self.rank, self.num_replicas = rank, world
        if self._draws_seed:
            self._draws_seed, self.seed = False, 0
        if isinstance(self.drawn, BucketSteps):
            self.drawn = self.drawn.shared(world)
        self._count()

    @property
    def positions(self) -> int:
        """How many global positions an epoch has, without padding."""
        return self._samples if self.drawn is None or isinstance(self.drawn, BucketSteps) else len(self.drawn)

    def next_order(self) -> Order | BucketOrder:
        """Return the order of the next epoch, and count it."""
        self.settle()
        if self._draws_seed and self.shuffle:
            self.seed = int(torch.empty((), dtype=torch.int64).random_(generator=self.generator).item())
        order = self._order()
        self.epoch += 1
        return order

    def peek(self) -> Order | BucketOrder:
        """Return the order of the next epoch, uncounted; where its seed has yet to be drawn, with that of the last."""
        return self._order()

    def order_again(self, seed: int, epoch: int) -> Order | BucketOrder:
        """Return the order of ``epoch`` as it was drawn from ``seed``, and count it."""
        self.settle()
        self.seed, self.epoch = seed, epoch
        order = self._order()
        self.epoch += 1
        return order

    def __iter__(self) -> Iterator[int]:
        """Yield this rank's samples of the next epoch."""
        order = self.next_order()
        if isinstance(order, BucketOrder):
            for step in range(order.steps):
                yield from order.batch(step)[0].tolist()
            return
        for start in range(0, len(order), _CHUNK):
            yield from order.indices(start, start + _CHUNK).tolist()

    def _count(self) -> None:
        self.num_samples = len(self._order())  # which checks the numbers, too
        self.total_size = self.num_samples * self.num_replicas

    def _order(self) -> Order | BucketOrder:
        self.settle()
        n, drawn = len(self.dataset), self.drawn  # type: ignore[arg-type]
        if drawn is None:
            return Order(n, self.seed, self.epoch, self.shuffle, self.rank, self.num_replicas, self.uneven)
        if n != self._samples:
            msg = f"the data set had {self._samples} samples when {self.sampling!r} was set up, and has {n} now"
            raise OptionError(msg)
        if isinstance(drawn, BucketSteps):
            return BucketOrder(drawn, self.seed, self.epoch, self.shuffle, self.rank)
        return Order(len(drawn), self.seed, self.epoch, True, self.rank, self.num_replicas, self.uneven, drawn)  # noqa: FBT003


class BucketBatches(BatchSampler):
    """The batches of an EpochSampler over buckets, for whoever iterates ``loader.batch_sampler``."""

    sampler: EpochSampler

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the sample indices of each batch of the next epoch."""
        order = self.sampler.next_order()
        assert isinstance(order, BucketOrder)
        for step in range(order.steps):
            yield order.batch(step)[0].tolist()

    def __len__(self) -> int:
        """Return the number of batches."""
        self.sampler.settle()
        assert isinstance(self.sampler.drawn, BucketSteps)
        return len(self.sampler.drawn)


def jobs_of_order(
    order: Order | BucketOrder, batch_size: int, *, drop_last: bool, key: tuple[int, int], start: int = 0
) -> Iterator[Job]:
    """Yield the batches of an order from this rank's sample ``start``; ``key`` is (seed, epoch) of the draws.

    They are computed many at a time, and nothing is computed of what lies before ``start``. The batches of buckets are
    cut already: there ``start`` is a batch, and the two options are those that they were cut with.
    """
    if isinstance(order, BucketOrder):
        for step in range(start, order.steps):
            indices, positions, real = order.batch(step)
            yield Job(indices, positions, *key, real if order.plan.uneven == "exact" else None)
        return
    n = start + (len(order) - start) // batch_size * batch_size if drop_last else len(order)
    chunk = max(1, _CHUNK // batch_size) * batch_size
    for begin in range(start, n, chunk):
        end = min(begin + chunk, n)
        indices, positions = order.indices(begin, end), order.positions(begin, end)
        valid = order.valid(begin, end) if order.uneven == "exact" else None
        ahead = None
        if isinstance(order.sequence, Windows):  # read as it lies in the pack, not as it comes
            fresh = begin == start
            since = int(positions[0]) - (0 if fresh else order.world)
            ahead = order.sequence.ahead(order.seed, order.epoch, since, int(positions[-1]), fresh=fresh)
        group = Group(indices, positions, ahead)
        for at in range(0, end - begin, batch_size):
            rows = slice(at, at + batch_size)
            yield Job(indices[rows], positions[rows], *key, None if valid is None else valid[rows], group, at)


def positions_of(count: int, n: int, sampler: object) -> NDArray[np.int64]:
    """Return the global positions of n samples behind ``count`` others: a sample's place in its rank's epoch."""
    world = sampler.num_replicas if isinstance(sampler, DistributedSampler) else 1
    rank = sampler.rank if isinstance(sampler, DistributedSampler) else 0
    return np.arange(count, count + n, dtype=np.int64) * world + rank
