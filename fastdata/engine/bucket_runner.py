"""Who makes which batch, where batches are of several shapes: a runner, or a data set, for each bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastdata.engine.bucket_sizes import BucketDataset
from fastdata.engine.sampler import EpochSampler
from fastdata.sampling.bucket_order import BucketSteps
from fastdata.sampling.values import Buckets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from fastdata.engine.batches import Batch, Job

__all__ = ["dataset_of_workers", "runner_of", "sizes_of"]


def sizes_of(sampling: object) -> tuple[tuple[int, int], ...]:
    """Return the (height, width) of each bucket, none where batches are all of one kind."""
    return sampling.sizes if isinstance(sampling, Buckets) else ()


def runner_of(runners: Sequence[Callable[[Job], Batch]], batch_sampler: object) -> Callable[[Job], Batch]:
    """Return what makes any batch: the one runner, or that of the batch's bucket. Safe for many threads as they are."""
    bucket = _bucket(batch_sampler)
    return runners[0] if bucket is None else _ByBucket(runners, bucket)


def dataset_of_workers(dataset: Any, batch_sampler: object) -> Any:  # noqa: ANN401
    """Return the data set as worker processes are to see it: with buckets, each sample in its bucket's size."""
    bucket = _bucket(batch_sampler)
    if bucket is None:
        return dataset
    return BucketDataset(dataset, sizes_of(getattr(batch_sampler, "sampler").sampling), bucket)  # noqa: B009


def _bucket(batch_sampler: object) -> NDArray[np.uint16] | None:
    sampler = getattr(batch_sampler, "sampler", None)  # of what a library put around it, too
    if isinstance(sampler, EpochSampler) and isinstance(sampler.drawn, BucketSteps):
        return sampler.drawn.bucket
    return None


class _ByBucket:
    def __init__(self, runners: Sequence[Callable[[Job], Batch]], bucket: NDArray[np.uint16]) -> None:
        self._runners, self._bucket = runners, bucket

    def __call__(self, job: Job) -> Batch:
        return self._runners[int(self._bucket[job.indices[0]])](job)
