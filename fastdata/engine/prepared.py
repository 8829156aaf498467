"""Hugging Face accelerate: a loader that ``accelerator.prepare`` leaves as it is, and that does what it would do.

accelerate rebuilds a loader as a plain DataLoader, and the engine would be gone. One that says that it is prepared is
kept; then its batches have to arrive on accelerate's device, and accelerate's GradientState has to know when an epoch
is under way and which batch is its last (gradient accumulation and gather_for_metrics ask).
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any

from torch.utils.data import IterableDataset
from torch.utils.data.distributed import DistributedSampler

from fastdata.engine.over import Over
from fastdata.engine.sampler import BucketBatches, EpochSampler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

    from fastdata.engine.resume import Progress

__all__ = ["Preparable"]


class Preparable:
    """What accelerate asks of a loader; for a class that is a DataLoader, too."""

    device: str | torch.device | None
    dataset: Any
    sampler: Any
    batch_sampler: Any
    batch_size: int | None
    drop_last: bool
    use_stateful_dataloader = True  # accelerate's save_state and load_state take the loader's own state
    _prepared = False

    def _share_out(self) -> None:
        """Take an order of the loader's own, shared out by rank, where DataLoader's would give each rank everything."""
        raise NotImplementedError

    @property
    def _is_accelerate_prepared(self) -> bool:
        """Whether accelerate, which asks when it prepares a loader, is to keep it; False says that it rebuilds it.

        A loader that is kept gets accelerate's device, unless it has one.
        """
        state = sys.modules.get("accelerate.state")
        if state is None or isinstance(self.dataset, IterableDataset):
            return False
        processes = state.PartialState().num_processes
        self._share_out()
        shares = self.sampler.num_replicas if isinstance(self.sampler, DistributedSampler) else 1
        if shares != processes:
            warnings.warn(
                f"accelerate rebuilds this loader as a plain DataLoader, to share it out to {processes} processes, and "
                "FastLoader's engine, seed= and state_dict() are gone; one that shares itself out is kept: without "
                'sampler= and batch_sampler=, and unshuffled with uneven="exact" (gather loader.last.valid, too)',
                stacklevel=2,
            )
            return False
        device = state.PartialState().device
        if self.device is None and device.type != "cpu":
            self.device = device
        self._prepared = True
        return True

    @_is_accelerate_prepared.setter
    def _is_accelerate_prepared(self, prepared: bool) -> None:
        """Let accelerate note what it was told."""

    def _announced(self, batches: Iterator[Any], progress: Progress, length: Callable[[], int]) -> Iterator[Any]:
        """Return ``batches``, with accelerate's GradientState told of them where it asked."""
        if not self._prepared:
            return batches

        def left() -> int:
            if not (progress.rank_length and self.batch_size):
                return length() - progress.before
            samples = progress.rank_length - progress.first
            return samples // self.batch_size if self.drop_last else -(-samples // self.batch_size)

        return _Announced(batches, left, self._rows_before_padding)

    def _rows_before_padding(self) -> int:
        """Return how many rows of an epoch's last step, gathered rank by rank, count: 0 all, -1 not the first ones."""
        sampler, size = self.sampler, self.batch_size or 1
        if not isinstance(sampler, DistributedSampler) or sampler.drop_last:
            return 0
        positions = sampler.positions if isinstance(sampler, EpochSampler) else len(self.dataset)
        padding = sampler.num_samples * sampler.num_replicas - positions
        if not padding or (self.drop_last and sampler.num_samples % size):
            return 0
        if padding > 1 or isinstance(self.batch_sampler, BucketBatches):  # each bucket has a last batch
            warnings.warn(
                f"{padding} of the last rows over {sampler.num_replicas} ranks are padding, and accelerate's "
                "gather_for_metrics cannot leave them out: gather loader.last.valid beside the predictions",
                stacklevel=2,
            )
            return -1
        return ((sampler.num_samples - 1) % size + 1) * sampler.num_replicas - 1


class _Announced(Over):
    """Gives batches on; is itself what accelerate's GradientState knows as the data loader under way."""

    def __init__(self, batches: Iterator[Any], left: Callable[[], int], remainder: Callable[[], int]) -> None:
        """Borrow all. left: gives the number of batches, once the first is there. remainder: see there."""
        super().__init__(batches)
        self._left, self._remainder = left, remainder
        self._count = 0
        self._state = sys.modules["accelerate.state"].GradientState()
        self.end_of_dataloader = False

    @property
    def remainder(self) -> int:
        """How many rows of the last step, gathered, count: 0 for all, -1 where they are not the first ones."""
        return self._remainder()

    def __next__(self) -> Any:  # noqa: ANN401
        """Return the next batch."""
        if not self._count:
            self._state._add_dataloader(self)  # noqa: SLF001  as its own loaders do
        self._count += 1
        try:
            batch = next(self._batches)
        except StopIteration:
            self._state._remove_dataloader(self)  # noqa: SLF001
            raise
        self.end_of_dataloader = self._count >= self._left()
        return batch
