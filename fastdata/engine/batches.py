"""The values of the engine: jobs go in, batches come out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from fastdata.engine.groups import Group
    from fastdata.engine.source import Keyed
    from fastdata.faults import Fault

__all__ = ["Batch", "BatchInfo", "Job", "Keys"]


@dataclass(frozen=True, slots=True)
class Job:
    """One batch to be made: sample indices and global positions, int64 (n,), and what keys their draws.

    group: the samples that this batch may be prepared with, of which it is those from row ``first`` on.
    """

    indices: NDArray[np.int64]
    positions: NDArray[np.int64]
    seed: int
    epoch: int
    valid: NDArray[np.bool_] | None = None
    group: Group | None = None
    first: int = 0


class Keys(Sequence[str]):
    """The keys of a batch's samples, each looked up when it is asked for."""

    def __init__(self, source: Keyed, indices: NDArray[np.int64]) -> None:
        """Borrow both."""
        self._source, self._indices = source, indices

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._indices)

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: int | slice) -> str | list[str]:
        """Return one key, or a list of them."""
        if isinstance(i, slice):
            return [self._source.key(int(index)) for index in self._indices[i]]
        return self._source.key(int(self._indices[i]))


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """What is known of a batch beside its tensors.

    indices: int64 (n,), positions in the data set. valid: bool (n,), False for samples that only fill up (a rank's
    padding, a replacement for a sample that failed). keys: a sequence of n strings.
    """

    indices: NDArray[np.int64]
    valid: NDArray[np.bool_]
    keys: Keys


@dataclass(frozen=True, slots=True)
class Batch:
    """images: (n, C, H, W) uint8 or floats, over a slot that returns when its last user is gone; labels: (n, ...).

    faults: the samples that failed, which the log is to hear of in the order of the batches.
    """

    images: torch.Tensor
    labels: torch.Tensor | None
    info: BatchInfo
    faults: Sequence[Fault] = ()
