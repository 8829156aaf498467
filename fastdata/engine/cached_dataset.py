"""``cached(dataset)``: any map-style data set whose samples stay in shared memory after their first use."""

from __future__ import annotations

import copy
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import Dataset, IterableDataset

from fastdata.engine.arena_meeting import meet
from fastdata.engine.cached_source import Hits
from fastdata.engine.flat_values import Unstorable, flatten, restore
from fastdata.engine.loader_cache import cache_size
from fastdata.engine.shared_arena import HEAD_WORDS, SharedArena
from fastdata.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["CacheInfo", "CachedDataset", "cached"]

_HEAD = 8 * HEAD_WORDS
_NUMBER = 6  # of a record's head
#: Data sets whose samples are (image, target), transformed by attributes of that name and by nothing else.
_KNOWN = {
    "fastdata.dataset": {"PackedDataset"},
    "torchvision.datasets.folder": {"DatasetFolder", "ImageFolder"},
    "torchvision.datasets.cifar": {"CIFAR10", "CIFAR100"},
    "torchvision.datasets.mnist": {"EMNIST", "FashionMNIST", "KMNIST", "MNIST"},
    "torchvision.datasets.svhn": {"SVHN"},
    "torchvision.datasets.stl10": {"STL10"},
    "torchvision.datasets.food101": {"Food101"},
    "torchvision.datasets.flowers102": {"Flowers102"},
    "torchvision.datasets.imagenet": {"ImageNet"},
    "torchvision.datasets.coco": {"CocoDetection"},
    "torchvision.datasets.voc": {"VOCDetection", "VOCSegmentation"},
}


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """samples of the data set; records kept, their bytes of ``limit``, by all processes; full: no more are taken.

    hits, misses: of this process (DataLoader's workers count their own). unstorable, large: samples that were passed
    through, because of their types or their size, each time they came.
    """

    samples: int
    records: int
    bytes: int
    limit: int
    full: bool
    hits: int
    misses: int
    unstorable: int
    large: int


def cached(
    dataset: Any,  # noqa: ANN401
    cache_bytes: int | None = None,
    *,
    transform: Callable[[Any], Any] | None = None,
    target_transform: Callable[[Any], Any] | None = None,
    name: str | None = None,
    frozen: bool = False,
) -> CachedDataset:
    """Return ``dataset`` with its samples kept in memory that DataLoader's workers share, however they are started.

    What ``dataset[i]`` gives is computed once and a copy of it comes ever after. cache_bytes: the limit, half of the
    available memory by default; a full cache takes no more. The random steps of a transform must run after the cache:
    those of PackedDataset and of torchvision's common sets are moved there; for other sets give ``transform`` (of the
    sample, or of its first entry where it is a tuple) and ``target_transform`` (of its second) here. A data set with a
    transform of its own that cannot be moved raises OptionError, unless ``frozen`` says that its result may be kept.
    name: ranks of one job whose data sets are equal and that give the same name share one memory.
    """
    return CachedDataset(
        dataset, cache_bytes, transform=transform, target_transform=target_transform, name=name, frozen=frozen
    )


class CachedDataset(Dataset[Any]):
    """What ``cached`` returns: the samples and attributes of the data set it wraps; picklable where that one is."""

    def __init__(
        self,
        dataset: Any,  # noqa: ANN401
        cache_bytes: int | None,
        *,
        transform: Callable[[Any], Any] | None,
        target_transform: Callable[[Any], Any] | None,
        name: str | None,
        frozen: bool,
    ) -> None:
        """Take memory for the table; the rest comes with the samples."""
        if (
            isinstance(dataset, IterableDataset)
            or not hasattr(dataset, "__getitem__")
            or not hasattr(dataset, "__len__")
        ):
            msg = f"cached() needs a map-style data set (with len and [i]); this is a {type(dataset).__name__}"
            raise OptionError(msg)
        self.dataset = dataset
        self._bare = None if frozen else _without_transform(dataset)
        own = [
            key for key in ("transform", "target_transform", "transforms") if getattr(dataset, key, None) is not None
        ]
        if own and self._bare is None and not frozen:
            msg = (
                f"the {type(dataset).__name__} has {own[0]}= of its own, whose result would be kept: random steps "
                "would come out alike in every epoch. Make it without and give cached(dataset, transform=...), or, "
                "where nothing in it is random, cached(dataset, frozen=True)"
            )
            raise OptionError(msg)
        self._transform, self._target_transform = transform, target_transform
        self._samples, self._size, self._name = len(dataset), cache_size(cache_bytes, len(dataset)), name
        self._hits = Hits()
        self._arena: SharedArena | None = None
        self._here()

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401
        """Return sample ``index``, its memory the caller's own."""
        return self._finish(self._kept([index])[0])

    def __getitems__(self, indices: Sequence[Any]) -> list[Any]:
        """Return many samples; DataLoader asks so."""
        return [self._finish(sample) for sample in self._kept(indices)]

    def cache_info(self) -> CacheInfo:
        """Return what the cache holds."""
        state = self._here().state
        return CacheInfo(
            self._samples, state.records, state.bytes, state.limit, state.full, self._hits.hits, self._hits.misses,
            state.unstorable, state.large,
        )  # fmt: skip

    def close(self) -> None:
        """Let go of the memory, which is freed with its last process; samples used from here on begin anew."""
        self._arena = None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        """Return the wrapped data set's attribute (classes, targets, ...)."""
        if name.startswith("__") or name == "dataset":  # not there yet while unpickling
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __repr__(self) -> str:
        """Return what is wrapped and what is kept, in one line."""
        info = self.cache_info()
        return f"CachedDataset({self.dataset!r}, {info.records} of {info.samples} samples in {info.bytes} bytes)"

    def _here(self) -> SharedArena:
        arena = self._arena
        if arena is None:  # two threads may both come here behind a close: one memory too many goes with its samples
            if self._name is None:
                arena = SharedArena.make(self._samples, self._size)
            else:
                arena = meet(self._samples, self._size, ("cached", self._name))
            self._arena = arena
        return arena

    def _kept(self, indices: Sequence[Any]) -> list[Any]:
        """Return the samples before the transforms that run after the cache."""
        arena = self._here()
        numbers = np.array([self._number(index) for index in indices], np.int64)
        places = arena.find(numbers)
        places[numbers < 0] = 0
        samples: list[Any] = [None] * len(indices)
        missing = []
        for row, (place, number) in enumerate(zip(places.tolist(), numbers.tolist(), strict=True)):
            if place:
                head = arena.heads(np.array([place]))[0].tolist()
                if head[_NUMBER] == number:
                    samples[row] = restore(arena.data.data[place + _HEAD : place + _HEAD + head[0]])
                    continue
            missing.append(row)
        self._hits.count(len(indices) - len(missing), len(missing))
        if missing:
            for row, sample in zip(missing, self._made([indices[row] for row in missing]), strict=True):
                samples[row] = sample
                if numbers[row] >= 0 and not arena.full:
                    self._keep(arena, int(numbers[row]), sample)
        return samples

    def _made(self, indices: list[Any]) -> list[Any]:
        source = self.dataset if self._bare is None else self._bare
        many = getattr(source, "__getitems__", None)
        if many is not None and len(indices) > 1:
            return list(many(indices))
        return [source[index] for index in indices]

    def _keep(self, arena: SharedArena, number: int, sample: Any) -> None:  # noqa: ANN401
        try:
            body = flatten(sample)
        except Unstorable:
            arena.count_unstorable()
            return
        head = np.zeros((1, HEAD_WORDS), np.int64)
        head[0, 0], head[0, _NUMBER] = sum(memoryview(part).nbytes for part in body), number
        arena.put([number], head, [body])

    def _number(self, index: Any) -> int:  # noqa: ANN401
        """Return the sample's number, -1 where the data set shall decide what the index means."""
        try:
            number = operator.index(index)
        except TypeError:
            return -1
        if number < 0:
            number += self._samples
        return number if 0 <= number < self._samples else -1

    def _finish(self, sample: Any) -> Any:  # noqa: ANN401
        if self._bare is not None:  # read now: the transform may be another one by now
            both = getattr(self.dataset, "transforms", None)
            first, second = getattr(self.dataset, "transform", None), getattr(self.dataset, "target_transform", None)
            if both is not None and first is None and second is None:
                sample = tuple(both(*sample))
            else:
                sample = _each(sample, first, second)
        return _each(sample, self._transform, self._target_transform)


def _each(sample: Any, first: Callable[[Any], Any] | None, second: Callable[[Any], Any] | None) -> Any:  # noqa: ANN401
    if first is None and second is None:
        return sample
    if not isinstance(sample, (tuple, list)):
        return sample if first is None else first(sample)
    changed = list(sample)
    if first is not None:
        changed[0] = first(changed[0])
    if second is not None:
        changed[1] = second(changed[1])
    return changed if isinstance(sample, list) else tuple(changed)


def _without_transform(dataset: Any) -> Any:  # noqa: ANN401
    """Return a shallow copy of a known data set that gives its samples as they are, or None."""
    kind = type(dataset)
    if kind.__qualname__ not in _KNOWN.get(kind.__module__, ()):
        return None
    bare = copy.copy(dataset)
    for name in ("transform", "target_transform", "transforms"):
        if hasattr(bare, name):
            setattr(bare, name, None)
    return bare
