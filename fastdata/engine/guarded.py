"""Samples of a user's data set that fail in DataLoader's own workers: caught there, settled, and told to the parent."""

from __future__ import annotations

import errno
import operator
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch.utils.data import Dataset

from fastdata.engine.over import Over
from fastdata.errors import OptionError, SampleError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from fastdata.faults import FaultLog

__all__ = ["FILLING_TRIES", "Guarded", "GuardedCollate", "GuardedDataset", "Unguarded"]

FILLING_TRIES = 16  # how far to look for samples in place of a batch of which none is good

# What says that the code is wrong, or the machine at its end, and nothing about a sample.
_NEVER = (MemoryError, NameError, AttributeError, ImportError, NotImplementedError, OptionError)
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC}


@dataclass(frozen=True, slots=True)
class _Failed:
    """In the place of a sample: its index, and why it failed (the error's class, then its text)."""

    index: Any
    reason: str


class Guarded(NamedTuple):
    """A batch on its way to the parent: a named tuple, so that torch pins what is in it.

    rows: which of the indices asked for are in it, in order; None: all. others: the indices that are in it instead,
    where none was good. faults: (index, reason) of each sample that failed.
    """

    batch: Any
    rows: list[int] | None
    others: list[int] | None
    faults: list[tuple[Any, str]]


class GuardedDataset(Dataset[Any]):
    """A map-style data set whose samples may fail; what it gives is for a GuardedCollate."""

    def __init__(self, dataset: Any) -> None:  # noqa: ANN401
        """Borrow the user's data set."""
        self.dataset = dataset

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401
        """Return the sample, or what stands in the place of one that failed."""
        try:
            return self.dataset[index]
        except Exception as error:  # noqa: BLE001  a user's code; the reason is noted, and too many raise
            return _Failed(index, _reason(error))

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        """Return the samples of a batch, one by one where they cannot be had together."""
        together = getattr(self.dataset, "__getitems__", None)
        if callable(together):
            try:
                return together(indices)  # type: ignore[no-any-return]
            except Exception as error:  # noqa: BLE001  as above: which of them it was is found out below
                _reason(error)
        return [self[index] for index in indices]


class GuardedCollate:
    """The user's collate_fn behind a GuardedDataset: a batch without its failed samples, or with others in their place.

    replace: good samples of the batch stand in for failed ones. A batch never ends up empty: where no sample is good,
    it is filled with the samples that follow in the data set, and where they fail, too, SampleError is raised.
    """

    def __init__(self, collate: Callable[[Any], Any], dataset: GuardedDataset, *, replace: bool, one: bool) -> None:
        """Remember all. one: samples come one by one, unbatched."""
        self._collate, self._dataset, self._replace, self._one = collate, dataset, replace, one

    def __call__(self, samples: Any) -> Guarded:  # noqa: ANN401
        """Return the batch, and what is to be told of it."""
        rows = [samples] if self._one else samples
        failed = [sample for sample in rows if isinstance(sample, _Failed)]
        if not failed:
            return Guarded(self._collate(samples), None, None, [])
        faults = [(sample.index, sample.reason) for sample in failed]
        good = [row for row, sample in enumerate(rows) if not isinstance(sample, _Failed)]
        if good:
            taken = np.resize(good, len(rows)).tolist() if self._replace else good
            return Guarded(self._collate([rows[row] for row in taken]), taken, None, faults)
        filling, others = self._filled([sample.index for sample in failed], faults)
        return Guarded(self._collate(filling[0] if self._one else filling), None, others, faults)

    def _filled(self, indices: list[Any], faults: list[tuple[Any, str]]) -> tuple[list[Any], list[int]]:
        """Return as many samples from behind these, and their indices."""
        size = len(self._dataset) if hasattr(self._dataset.dataset, "__len__") else 0
        try:
            numbers = [operator.index(index) for index in indices]
        except TypeError:
            size = 0  # nobody knows what comes behind a key
        for step in range(1, 1 + min(FILLING_TRIES, size - 1)):
            others = [(number + step) % size for number in numbers]
            got = dict(zip(others, self._dataset.__getitems__(others), strict=True))
            faults += [(index, sample.reason) for index, sample in got.items() if isinstance(sample, _Failed)]
            good = [index for index in others if not isinstance(got[index], _Failed)]
            if good:
                taken = np.resize(good, len(indices)).tolist()
                return [got[index] for index in taken], taken
        named = ", ".join(map(str, indices[:3])) + (", ..." if len(indices) > 3 else "")  # noqa: PLR2004
        msg = (
            f"every sample of a batch failed (index {named}), and so did those that were tried in their place; the "
            f"first: {faults[0][1]}"
        )
        raise SampleError(msg)


class Unguarded(Over):
    """An iterator over the batches of a guarded DataLoader, in the parent: faults go to the log, batches to the user.

    ``delivered`` says for each batch, or failure, what is in it.
    """

    def __init__(self, batches: Iterator[Guarded], faults: FaultLog, key: Callable[[int], str]) -> None:
        """Borrow all; key: gives the key of a sample by its index."""
        super().__init__(batches)
        self._faults, self._key = faults, key
        self._rows: deque[tuple[list[int] | None, list[int] | None]] = deque()

    def __next__(self) -> Any:  # noqa: ANN401
        """Return the next batch; raise SampleError where more samples failed than may."""
        try:
            batch, rows, others, faults = next(self._batches)
        except StopIteration:
            raise
        except Exception:
            self._rows.append((None, None))
            raise
        self._rows.append((rows, others))
        for index, reason in faults:
            number = index if isinstance(index, int) else -1
            self._faults.note(str(index) if number < 0 else self._key(number), number, reason)
        return batch

    def delivered(
        self, indices: NDArray[np.int64], valid: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return indices and valid entries of the next batch, from those that were asked for."""
        return self._settled(indices, valid, *self._rows.popleft())

    def taken(
        self, indices: NDArray[np.int64], valid: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return indices and valid entries of the batch that was given last, from those that were asked for."""
        return self._settled(indices, valid, *self._rows[-1])

    @staticmethod
    def _settled(
        indices: NDArray[np.int64], valid: NDArray[np.bool_], rows: list[int] | None, others: list[int] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        if others is not None:
            return np.array(others, np.int64), np.zeros(len(others), bool)
        if rows is None:
            return indices, valid
        first = np.r_[True, np.diff(rows) > 0].cumprod(dtype=bool)  # behind the good ones they begin anew
        return indices[rows], valid[rows] & first


def _reason(error: Exception) -> str:
    """Return why a sample failed; raise what is not a sample's fault."""
    if isinstance(error, _NEVER) or (isinstance(error, OSError) and error.errno in _EXHAUSTED):
        raise error
    cause = error.__cause__
    if isinstance(error, SampleError) and cause is not None:  # a data set of ours has said which sample it was
        return f"{type(cause).__name__}: {cause}"
    return f"{type(error).__name__}: {error}"
