"""One transform for each bucket's size: its sized steps copied with another size, everything else as it is."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import ConcatDataset, Dataset, Subset

from fastdata.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["BucketDataset", "resized", "with_size"]

_SIZED = {"CenterCrop", "RandomCrop", "RandomResizedCrop", "Resize"}
_CONTAINERS = {"Compose", "Sequential"}


def resized(transform: Any, size: tuple[int, int]) -> Any:  # noqa: ANN401
    """Return a copy of a torchvision transform whose result has this (height, width); raise OptionError.

    The last of Resize, RandomResizedCrop, CenterCrop and RandomCrop gets the size; those before it grow and shrink in
    proportion, so Resize(256) before CenterCrop(224) stays an eighth larger (and gives both sides: the bucket's aspect
    is near the picture's). RandomResizedCrop's ratio is taken relative to its own size, so that a bucket distorts no
    more than the transform would.
    """
    steps = _steps(transform)
    sized = [step for step in steps if _is_sized(step)]
    if not sized:
        msg = (
            "Buckets: the transform has no step whose size could be a bucket's: give torchvision's RandomResizedCrop, "
            "Resize, RandomCrop or CenterCrop, in a Compose or by itself"
        )
        raise OptionError(msg)
    height, width = _size_of(sized[-1])
    factors = size[0] / height, size[1] / width
    return _rebuilt(transform, lambda step: _scaled(step, factors) if _is_sized(step) else step)


def _steps(transform: Any) -> list[Any]:  # noqa: ANN401
    inner = _inner(transform)
    return [transform] if inner is None else [step for each in inner for step in _steps(each)]


def _inner(transform: Any) -> list[Any] | None:  # noqa: ANN401
    """Return the steps of a container, None for a step."""
    if type(transform) in (list, tuple):
        return list(transform)
    if type(transform).__name__ not in _CONTAINERS or not _of_torch(transform):
        return None
    return list(transform.transforms if type(transform).__name__ == "Compose" else transform)


def _rebuilt(transform: Any, change: Callable[[Any], Any]) -> Any:  # noqa: ANN401
    inner = _inner(transform)
    if inner is None:
        return change(transform)
    steps = [_rebuilt(step, change) for step in inner]
    if type(transform) in (list, tuple):
        return type(transform)(steps)
    if type(transform).__name__ == "Sequential":
        return type(transform)(*steps)
    made = copy.copy(transform)
    made.transforms = steps
    return made


def _of_torch(step: Any) -> bool:  # noqa: ANN401
    return type(step).__module__.partition(".")[0] in {"torch", "torchvision"}


def _is_sized(step: Any) -> bool:  # noqa: ANN401
    return type(step).__name__ in _SIZED and _of_torch(step)


def _size_of(step: Any) -> tuple[int, int]:  # noqa: ANN401
    sides = list(step.size) if isinstance(step.size, (list, tuple)) else [step.size]
    if sides[0] is None or getattr(step, "max_size", None) is not None:
        msg = f"Buckets: {type(step).__name__} with max_size leaves the size to the picture; give size=(H, W)"
        raise OptionError(msg)
    return int(sides[0]), int(sides[-1])


def _scaled(step: Any, factors: tuple[float, float]) -> Any:  # noqa: ANN401
    height, width = _size_of(step)
    made = copy.copy(step)
    made.size = (
        type(step.size)(_times(height, width, factors))
        if isinstance(step.size, list)
        else _times(height, width, factors)
    )
    if type(step).__name__ == "RandomResizedCrop":
        made.ratio = tuple(limit * factors[1] / factors[0] for limit in step.ratio)
        if hasattr(step, "_log_ratio"):  # what torchvision's v2 draws from
            made._log_ratio = torch.log(torch.tensor(made.ratio))  # noqa: SLF001
    return made


def _times(height: int, width: int, factors: tuple[float, float]) -> tuple[int, int]:
    return max(1, round(height * factors[0])), max(1, round(width * factors[1]))


def with_size(dataset: Any, size: tuple[int, int]) -> Any:  # noqa: ANN401
    """Return a copy of the data set, samples shared, whose transform gives this (height, width); raise OptionError."""
    if type(dataset) is Subset:
        return Subset(with_size(dataset.dataset, size), dataset.indices)
    if type(dataset) is ConcatDataset:
        return ConcatDataset([with_size(part, size) for part in dataset.datasets])
    made = copy.copy(dataset)
    made.transform = resized(getattr(dataset, "transform", None), size)
    return made


class BucketDataset(Dataset[Any]):
    """A map-style data set whose samples go through the transform of their bucket's size."""

    def __init__(self, dataset: Any, sizes: tuple[tuple[int, int], ...], bucket: NDArray[np.uint16]) -> None:  # noqa: ANN401
        """Borrow the user's data set, and the number of each sample's (height, width) of ``sizes``."""
        self.dataset, self.bucket = dataset, bucket
        self._sized = [with_size(dataset, size) for size in sizes]

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.bucket)

    def __getitem__(self, index: int) -> Any:  # noqa: ANN401
        """Return the sample, in its bucket's size."""
        return self._sized[int(self.bucket[index])][index]
