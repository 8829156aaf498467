"""What DataLoader's own workers see of a map-style data set, and what is known of the batches that they give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fastdata.engine.batches import BatchInfo, Keys
from fastdata.engine.bucket_sizes import BucketDataset
from fastdata.engine.guarded import GuardedCollate, GuardedDataset
from fastdata.engine.seeded import SeededCollate, SeededDataset, UsersDatasetInit

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fastdata.engine.guarded import Unguarded
    from fastdata.engine.resume import Progress
    from fastdata.engine.source import Keyed

__all__ = ["drawn_info", "seen_by_workers", "taken_valid"]


def seen_by_workers(
    dataset: Any,  # noqa: ANN401
    collate_fn: Callable[[Any], Any],
    worker_init_fn: Callable[[int], None] | None,
    *,
    seeded: bool,
    on_error: str,
    one: bool,
) -> dict[str, Any]:
    """Return which attributes of the DataLoader are others for its workers, and what they are there.

    seeded: indices come as (index, seed). on_error: other than "raise", what workers give is for an Unguarded. one:
    samples come one by one, unbatched.
    """
    changes: dict[str, Any] = {"dataset": dataset} if isinstance(dataset, BucketDataset) else {}
    if on_error != "raise":
        dataset = GuardedDataset(dataset)
        collate_fn = GuardedCollate(collate_fn, dataset, replace=on_error == "replace", one=one)
        changes |= {"dataset": dataset, "collate_fn": collate_fn}
    if seeded:
        changes |= {"dataset": SeededDataset(dataset), "collate_fn": SeededCollate(collate_fn)}
    if changes:
        changes["worker_init_fn"] = UsersDatasetInit(worker_init_fn)
    return changes


def drawn_info(progress: Progress, keyed: Keyed, guard: Unguarded | None) -> BatchInfo:
    """Return what is known of the workers' next batch: what was asked for, less what failed."""
    indices, valid = progress.drawn.popleft()
    valid = np.ones(len(indices), bool) if valid is None else valid
    if guard is not None:
        indices, valid = guard.delivered(indices, valid)
    return BatchInfo(indices, valid, Keys(keyed, indices))


def taken_valid(progress: Progress, guard: Unguarded | None, batch: int) -> NDArray[np.bool_] | None:
    """Return which samples count of the batch that was taken from the workers last, by its number; None: all."""
    indices, valid = progress.drawn_as(batch)
    if guard is None:
        return valid
    return guard.taken(indices, np.ones(len(indices), bool) if valid is None else valid)[1]
