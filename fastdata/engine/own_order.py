"""The sampler that a FastLoader makes itself: of a pack, with a seed, or as ``sampling=`` asks for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch.utils.data import BatchSampler, IterableDataset

from fastdata.engine.asked_order import buckets_of, sequence_of
from fastdata.engine.bucket_sizes import with_size
from fastdata.engine.sampler import BucketBatches, EpochSampler
from fastdata.errors import OptionError
from fastdata.sampling.bucket_order import BucketSteps
from fastdata.sampling.values import Balanced, Buckets, Mixture, Weighted, Windowed

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from fastdata.order import Uneven
    from fastdata.sampling.values import Sampling

__all__ = ["Asked", "batches_of", "own_sampler"]


@dataclass(frozen=True, slots=True)
class Asked:
    """Arguments of a loader. packed: the data set was given as a path or a Store."""

    packed: bool
    batch_size: int | None
    shuffle: bool | None
    sampler: Any
    batch_sampler: Any
    drop_last: bool
    seed: int | None
    uneven: Uneven | None
    generator: torch.Generator | None
    sampling: Sampling | None

    def shared(self) -> Asked:
        """Return the same, but asking for an order that is shared out by rank where there is no sampler."""
        return replace(self, uneven=self.uneven or ("pad" if self.shuffle else "exact"))


def own_sampler(dataset: Any, asked: Asked, place: Callable[[], tuple[int, int]]) -> EpochSampler | None:  # noqa: ANN401
    """Return the loader's own sampler, or None where DataLoader or the user has the order; raise OptionError.

    place: says (rank, world size) of this process. A loader that has its own order shares it out by rank: of a path,
    and of any map-style data set with a seed, with ``sampling``, or, where there are several ranks, with ``uneven``.
    """
    if asked.sampling is not None:
        return _sampled(dataset, asked, place)
    if asked.sampler is not None or asked.batch_sampler is not None or isinstance(dataset, IterableDataset):
        return None
    if not asked.packed and asked.seed is None and (asked.uneven is None or place()[1] == 1):
        return None
    return EpochSampler(
        dataset,
        shuffle=bool(asked.shuffle),
        seed=asked.seed,
        place=place,
        uneven=asked.uneven or ("pad" if asked.shuffle else "exact"),
        generator=asked.generator,
    )


def batches_of(sampler: Any, batch_sampler: Any) -> Any:  # noqa: ANN401
    """Return the batch sampler that a loader of ``sampler`` has: DataLoader's own, but for buckets."""
    if isinstance(sampler, EpochSampler) and isinstance(sampler.drawn, BucketSteps):
        assert isinstance(batch_sampler, BatchSampler)
        return BucketBatches(sampler, batch_sampler.batch_size, batch_sampler.drop_last)
    return batch_sampler


def _sampled(dataset: Any, asked: Asked, place: Callable[[], tuple[int, int]]) -> EpochSampler | None:  # noqa: ANN401
    sampling: Any = asked.sampling
    if not isinstance(sampling, (Balanced, Buckets, Mixture, Weighted, Windowed)):
        msg = f"sampling={sampling!r}: expected a Balanced, Buckets, Mixture, Weighted or Windowed of fastdata's"
        raise OptionError(msg)
    # A loader that is rebuilt from another one's attributes (Lightning does so) is given the other one's sampler, too,
    # or a batch sampler around it, which has the order then.
    before = asked.sampler
    rebuilt = isinstance(before, EpochSampler) and before.sampling is sampling
    if getattr(getattr(asked.batch_sampler, "sampler", None), "sampling", None) is sampling:
        return None
    for name, given in (
        ("shuffle", asked.shuffle and not rebuilt),
        ("sampler", before is not None and not rebuilt),
        ("batch_sampler", asked.batch_sampler is not None),
    ):
        if given:
            msg = f"sampling= says what comes in which order, and so does {name}=: give one of them"
            raise OptionError(msg)
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        msg = f"sampling={sampling!r} chooses samples of a map-style data set; this is a {type(dataset).__name__}"
        raise OptionError(msg)
    shuffle, uneven, world = True, asked.uneven or "pad", place()[1]
    if isinstance(sampling, Buckets):
        if asked.batch_size is None:
            msg = "sampling=Buckets(...) makes batches of one shape: it needs a batch_size"
            raise OptionError(msg)
        for size in sampling.sizes:
            with_size(dataset, size)  # says now what cannot be
        shuffle, uneven = sampling.shuffle, asked.uneven or ("pad" if sampling.shuffle else "exact")
        drawn: Any = BucketSteps(
            buckets_of(sampling, dataset),
            asked.batch_size * world,
            world=world,
            uneven=uneven,
            drop_last=asked.drop_last,
        )
    else:
        drawn = sequence_of(sampling, dataset)
    made = EpochSampler(
        dataset,
        shuffle=shuffle,
        seed=asked.seed,
        place=place,
        uneven=uneven,
        generator=asked.generator,
        sampling=sampling,
        drawn=drawn,
    )
    if rebuilt:
        made.set_epoch(before.epoch)
    return made
