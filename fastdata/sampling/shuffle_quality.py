"""How well an order mixes: neighbours of the pack, and classes, inside batches; 1.0 is a true shuffle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["ShuffleQuality", "quality_of"]

_DEALS = 4  # random deals that the order is compared with


@dataclass(frozen=True, slots=True)
class ShuffleQuality:
    """Each number is that of the order over that of the same samples dealt to the same batches at random.

    neighbours: the distance in the pack from a sample to the nearest one of its batch, in the mean. classes: how many
    classes a batch has, in the mean; None where labels are no whole numbers, or there are none. sequence: 1 minus the
    size of the correlation of a batch's place in the epoch with its samples' places in the pack; an epoch that runs
    through the pack from its beginning to its end has 0. batches, samples: how many were looked at. The first two are 1
    for a true shuffle, to within about 2 / sqrt(samples), and above 1 where an order mixes on purpose.
    """

    neighbours: float
    classes: float | None
    sequence: float
    batches: int
    samples: int

    def __str__(self) -> str:
        """Return the numbers in one line."""
        classes = "no classes" if self.classes is None else f"classes {self.classes:.3f}"
        return (
            f"shuffle quality (1.0: a true shuffle): neighbours {self.neighbours:.3f}, {classes}, "
            f"sequence {self.sequence:.3f}; {self.batches} batches, {self.samples} samples"
        )


def quality_of(batches: Sequence[NDArray[np.int64]], labels: NDArray[Any] | None) -> ShuffleQuality:
    """Return the quality of these batches (sample indices, in the order of the epoch), of samples of all the epoch.

    labels: of all samples of the set, (n,), or None.
    """
    ends = np.cumsum([len(batch) for batch in batches])
    row = np.repeat(np.arange(len(batches)), [len(batch) for batch in batches])
    samples = np.concatenate(batches)
    classes = None if labels is None or labels.ndim != 1 or labels.dtype.kind not in "iu" else labels[samples]
    rng = np.random.default_rng(0)
    dealt = [rng.permutation(len(samples)) for _ in range(_DEALS)]
    near = _ratio(_nearest(row, samples), [_nearest(row, samples[deal]) for deal in dealt])
    mixed = None
    if classes is not None:
        mixed = _ratio(_distinct(row, classes), [_distinct(row, classes[deal]) for deal in dealt])
    drift = 0.0
    if len(ends) > 1 and np.ptp(samples):
        drift = abs(float(np.corrcoef(row, samples)[0, 1]))
    return ShuffleQuality(near, mixed, 1.0 - drift, len(batches), len(samples))


def _ratio(found: float, expected: list[float]) -> float:
    mean = float(np.mean(expected))
    return found / mean if mean else 1.0


def _nearest(row: NDArray[np.int64], samples: NDArray[np.int64]) -> float:
    """Return the mean distance to the nearest sample of the same batch; 0 where no batch has two."""
    order = np.lexsort((samples, row))
    gap = np.diff(samples[order]).astype(np.float64)
    gap[np.diff(row[order]) != 0] = np.inf
    nearest = np.minimum(np.append(gap, np.inf), np.insert(gap, 0, np.inf))
    nearest = nearest[np.isfinite(nearest)]
    return float(nearest.mean()) if len(nearest) else 0.0


def _distinct(row: NDArray[np.int64], classes: NDArray[Any]) -> float:
    """Return the mean number of different classes in a batch."""
    order = np.lexsort((classes, row))
    new = (np.diff(classes[order]) != 0) | (np.diff(row[order]) != 0)
    return float((1 + np.count_nonzero(new)) / (row[-1] + 1))
