"""Randomness of code that nobody here wrote: global generators kept, put back, and seeded sample by sample."""

from __future__ import annotations

import random
import struct
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import Dataset, get_worker_info

from fastdata.engine.bucket_sizes import BucketDataset
from fastdata.engine.guarded import GuardedDataset
from fastdata.philox import words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    _Global = tuple[torch.Tensor, Any, tuple[Any, ...]]

__all__ = [
    "SeededCollate",
    "SeededDataset",
    "UsersDatasetInit",
    "global_states",
    "preserved",
    "reseed",
    "restore",
    "seeds",
]

_STREAM = 4  # philox stream of the seeds of workers' samples
_U64 = np.uint64


def seeds(seed: int, epoch: int, positions: NDArray[np.int64]) -> list[int]:
    """Return a 64-bit seed for each global position of an epoch."""
    pair = words(seed, epoch, positions, 2, _STREAM)
    both: list[int] = (pair[:, 0] << _U64(32) | pair[:, 1]).tolist()
    return both


def reseed(seed: int) -> None:
    """Seed the global CPU generators of torch, numpy and random from 64 bits, each in a stream of its own.

    torch.manual_seed would seed CUDA's generators, too, which no data set of a worker may touch.
    """
    torch.default_generator.manual_seed(seed)
    low, high = seed & 0xFFFFFFFF, seed >> 32
    np.random.seed([low, high, 1])  # noqa: NPY002  the generator that data sets use
    random.seed(seed | 2 << 64)


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Samples on their way from SeededDataset to SeededCollate; before: what puts the generators back."""

    samples: Any
    before: _Global | None


class SeededDataset(Dataset[Any]):
    """A map-style data set that takes (index, seed) pairs and seeds the global generators before each sample.

    What it gives is for a SeededCollate, which puts the generators back unless they are a worker process's own.
    """

    def __init__(self, dataset: Any) -> None:  # noqa: ANN401
        """Borrow the user's data set."""
        self.dataset = dataset

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.dataset)

    def __getitem__(self, pair: tuple[Any, int]) -> _Drawn:
        """Return the sample ``pair[0]``, drawn from the seed ``pair[1]``."""
        drawn = self.__getitems__([pair])
        return _Drawn(drawn.samples[0], drawn.before)

    def __getitems__(self, pairs: list[tuple[Any, int]]) -> _Drawn:
        """Return the samples of a batch."""
        before = _now() if get_worker_info() is None else None
        samples = []
        try:
            for index, seed in pairs:
                reseed(seed)
                samples.append(self.dataset[index])
        except BaseException:
            _back(before)
            raise
        return _Drawn(samples, before)


class SeededCollate:
    """The user's collate_fn behind a SeededDataset: what it draws goes on from the batch's last sample."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        """Remember the user's function."""
        self._collate = collate

    def __call__(self, drawn: _Drawn) -> Any:  # noqa: ANN401
        """Return the batch."""
        try:
            return self._collate(drawn.samples)
        finally:
            _back(drawn.before)


class UsersDatasetInit:
    """A worker_init_fn that sees its own data set in get_worker_info(), not what a loader put around it."""

    def __init__(self, init: Callable[[int], None] | None) -> None:
        """Remember the user's function."""
        self._init = init

    def __call__(self, worker: int) -> None:
        """Uncover the data set and call the user's function."""
        info = get_worker_info()
        while info is not None and isinstance(info.dataset, SeededDataset | GuardedDataset | BucketDataset):
            object.__setattr__(info, "dataset", info.dataset.dataset)  # torch lets nobody assign
        if self._init is not None:
            self._init(worker)


def global_states() -> dict[str, torch.Tensor]:
    """Return the states of the global CPU generators of torch, numpy and random: 5 KB of uint8 each."""
    _, key, at, has_gauss, gauss = np.random.get_state(legacy=True)  # noqa: NPY002
    version, internal, next_gauss = random.getstate()
    numpy = np.asarray(key, np.uint32).tobytes() + struct.pack("<qqd", at, has_gauss, gauss)
    plain = np.array(internal, np.uint32).tobytes()
    plain += struct.pack("<qqd", version, next_gauss is not None, next_gauss or 0.0)
    return {"torch": torch.get_rng_state(), "numpy": _tensor(numpy), "python": _tensor(plain)}


def restore(states: dict[str, torch.Tensor]) -> None:
    """Put the global generators into ``states``, those of them that are named there."""
    if "torch" in states:
        torch.set_rng_state(states["torch"])
    if "numpy" in states:
        data = states["numpy"].numpy().tobytes()
        at, has_gauss, gauss = struct.unpack("<qqd", data[-24:])
        np.random.set_state(("MT19937", np.frombuffer(data[:-24], np.uint32), at, has_gauss, gauss))  # noqa: NPY002
    if "python" in states:
        data = states["python"].numpy().tobytes()
        version, has_gauss, gauss = struct.unpack("<qqd", data[-24:])
        internal = tuple(np.frombuffer(data[:-24], np.uint32).tolist())
        random.setstate((version, internal, gauss if has_gauss else None))


@contextmanager
def preserved() -> Iterator[None]:
    """Leave the global generators as they are now, whatever happens within."""
    before = _now()
    try:
        yield
    finally:
        _back(before)


def _now() -> _Global:
    return torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002


def _back(before: _Global | None) -> None:
    if before is not None:
        torch.set_rng_state(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
        random.setstate(before[2])


def _tensor(data: bytes) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(data, np.uint8).copy())
