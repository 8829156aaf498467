"""An order for media that are read in sequence: random inside windows, each of a few contiguous runs of the pack."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastdata.order import permute, permute_each
from fastdata.sampling.strata import key_of_each

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Windows", "runs_of_bytes", "runs_of_samples"]

_STREAM = 9  # philox stream: the order inside a window


def runs_of_samples(length: int, window: int, runs: int) -> NDArray[np.int64]:
    """Return where each run of window / runs samples begins (the last may be shorter), and the end."""
    step = max(1, -(-window // runs))
    return np.append(np.arange(0, length, step, dtype=np.int64), length)


def runs_of_bytes(sizes: NDArray[np.int64], window: float, runs: int) -> NDArray[np.int64]:
    """Return the same for runs of about window / runs bytes, one sample at least; sizes: of the samples, in bytes."""
    ends = np.cumsum(sizes)
    step = max(1.0, window / runs)
    inner = np.searchsorted(ends, np.arange(1, int(ends[-1] / step) + 1) * step, "right")
    return np.unique(np.concatenate(([0], inner, [len(sizes)])))


class Windows:
    """A permutation: the runs in random order (with one run a window: in that of the pack), ``runs`` of them a window.

    The state of an epoch is two numbers a run, computed when it is first asked for; the last one is kept.
    """

    def __init__(self, bounds: NDArray[np.int64], runs: int) -> None:
        """Borrow where runs begin, and the end behind the last."""
        self._bounds, self._runs = bounds, runs
        self._latest: tuple[int, int, NDArray[np.int64], NDArray[np.int64]] | None = None

    def __len__(self) -> int:
        """Return the number of positions."""
        return int(self._bounds[-1])

    def ahead(self, seed: int, epoch: int, since: int, last: int, *, fresh: bool) -> NDArray[np.int64]:
        """Return which samples to read when the positions up to ``last`` are due: each window a window ahead, in order.

        since: the last position up to which this was asked, or the first one due where it was not (fresh).
        """
        order, starts = self._known(seed, epoch)
        windows = (np.searchsorted(starts, [since, last], "right") - 1) // self._runs
        parts = [np.empty(0, np.int64)]
        for window in range(int(windows[0]) + (0 if fresh else 2), int(windows[1]) + 2):
            runs = np.sort(order[window * self._runs : (window + 1) * self._runs]).tolist()
            parts += [np.arange(self._bounds[run], self._bounds[run + 1]) for run in runs]
        return np.concatenate(parts)

    def indices(self, seed: int, epoch: int, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the samples at these positions."""
        order, starts = self._known(seed, epoch)
        run = np.searchsorted(starts, positions, "right") - 1
        window = run // self._runs
        begin = starts[window * self._runs]
        length = starts[np.minimum((window + 1) * self._runs, len(order))] - begin
        place = begin + permute_each(length, key_of_each(seed, epoch, window, _STREAM), positions - begin)
        run = np.searchsorted(starts, place, "right") - 1
        samples: NDArray[np.int64] = self._bounds[order[run]] + place - starts[run]
        return samples

    def _known(self, seed: int, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return of the runs: which come, and at which position each would begin unshuffled."""
        kept = self._latest
        if kept is None or kept[:2] != (seed, epoch):
            kept = self._latest = (seed, epoch, *self._epoch(seed, epoch))
        return kept[2:]

    def _epoch(self, seed: int, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        order = np.arange(len(self._bounds) - 1, dtype=np.int64)
        if self._runs > 1:
            order = permute(len(order), seed, epoch, order)
        return order, np.concatenate(([0], np.cumsum(np.diff(self._bounds)[order])))
