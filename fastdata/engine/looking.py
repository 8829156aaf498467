"""Batches of an epoch, to be looked at: nothing is read, no epoch is counted and no generator moves."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import IterableDataset

from fastdata.engine.columns import column
from fastdata.engine.sampler import EpochSampler
from fastdata.engine.seeded import preserved
from fastdata.errors import OptionError
from fastdata.sampling.bucket_order import BucketOrder
from fastdata.sampling.shuffle_quality import quality_of

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch.utils.data import DataLoader

    from fastdata.sampling.shuffle_quality import ShuffleQuality

__all__ = ["shuffle_quality"]

_MOST = 1 << 16  # samples looked at, in batches from all over the epoch
_BATCH = 16  # where samples come one by one


def shuffle_quality(loader: DataLoader[Any]) -> ShuffleQuality:
    """Return how well the loader's next epoch mixes, over all ranks where the order is FastLoader's own."""
    dataset, sampler = loader.dataset, loader.sampler
    if isinstance(dataset, IterableDataset):
        msg = f"a {type(dataset).__name__} has no order that could be looked at without reading it"
        raise OptionError(msg)
    size = loader.batch_size if loader.batch_size and loader.batch_size > 1 else _BATCH
    batches = _own(sampler, size) if isinstance(sampler, EpochSampler) else _drawn(loader, size)
    if not batches:
        msg = "the epoch has no batches to look at"
        raise OptionError(msg)
    return quality_of(batches, column(dataset, "label"))


def _own(sampler: EpochSampler, size: int) -> list[NDArray[np.int64]]:
    order, world = sampler.peek(), sampler.num_replicas
    if isinstance(order, BucketOrder):
        ranks = [replace(order, rank=rank) for rank in range(world)]
        found = []
        for step in _spread(order.steps, size * world):
            parts = [rank.batch(step) for rank in ranks]
            found.append(np.concatenate([indices[valid] for indices, _, valid in parts]))
        return found
    whole, size = replace(order, rank=0, world=1, uneven="exact"), size * world
    number = max(1, len(whole) // size)
    return [whole.indices(at * size, (at + 1) * size) for at in _spread(number, size) if len(whole)]


def _drawn(loader: DataLoader[Any], size: int) -> list[NDArray[np.int64]]:
    """Draw the epoch of a sampler of the user's (or DataLoader's), and put all generators back."""
    sampler = loader.sampler
    inner = [getattr(each, "generator", None) for each in (loader, sampler, loader.batch_sampler)]
    generators = [each for each in inner if isinstance(each, torch.Generator)]
    before = [generator.get_state() for generator in generators]
    batches: Any = loader.batch_sampler
    with preserved():
        try:
            if batches is None or loader.batch_size == 1:
                drawn = iter(sampler)
                batches = iter(lambda: list(islice(drawn, size)), [])
            found = [np.array(batch) for batch in batches]
        finally:
            for generator, state in zip(generators, before, strict=True):
                generator.set_state(state)
    if any(batch.dtype.kind not in "iu" for batch in found):
        msg = f"{type(sampler).__name__} gives no whole numbers: its order cannot be looked at"
        raise OptionError(msg)
    return [found[at] for at in _spread(len(found), size)]


def _spread(number: int, size: int) -> list[int]:
    """Return which of ``number`` batches to look at."""
    count = min(number, max(1, _MOST // size))
    return np.unique(np.linspace(0, max(0, number - 1), count).astype(np.int64)).tolist() if number else []
