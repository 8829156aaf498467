"""From ``sampling=`` to the order it asks for, with what the data set knows of its samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import ConcatDataset

from fastdata.engine.columns import column, labels_of
from fastdata.errors import OptionError
from fastdata.sampling.bucket_order import nearest_size
from fastdata.sampling.drawn import DrawnByClass, DrawnByWeight, SortedByWeight
from fastdata.sampling.strata import Strata, shares
from fastdata.sampling.values import Balanced, Mixture, Weighted, Windowed
from fastdata.sampling.windows import Windows, runs_of_bytes, runs_of_samples

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastdata.order import Sequence
    from fastdata.sampling.values import Buckets

__all__ = ["buckets_of", "sequence_of"]


def sequence_of(sampling: Balanced | Weighted | Windowed | Mixture, dataset: Any) -> Sequence:  # noqa: ANN401
    """Return the order that is asked for; raise OptionError where the data set does not know enough for it."""
    n = len(dataset)
    if not n:
        msg = f"sampling={sampling!r}: the data set has no samples"
        raise OptionError(msg)
    match sampling:
        case Balanced():
            return _balanced(sampling, dataset)
        case Weighted():
            return _weighted(sampling, n)
        case Windowed():
            return _windowed(sampling, dataset)
        case Mixture():
            return _mixed(sampling, dataset)


def buckets_of(sampling: Buckets, dataset: Any) -> NDArray[np.uint16]:  # noqa: ANN401
    """Return the number of each sample's bucket: uint16 (n,); raise OptionError where sizes are not known."""
    found = sampling.of
    if found is None:
        width, height = column(dataset, "width"), column(dataset, "height")
        if width is None or height is None:
            msg = (
                "Buckets: the data set does not know how large its pictures are (packs do: fastdata pack SRC DST); "
                "pack it, or give the number of each sample's size: Buckets(sizes, of=numbers)"
            )
            raise OptionError(msg)
        found = nearest_size(width, height, sampling.sizes)
    if len(found) != len(dataset):
        msg = f"Buckets: of= has {len(found)} numbers, the data set {len(dataset)} samples: one for each is needed"
        raise OptionError(msg)
    bucket: NDArray[np.uint16] = found.astype(np.uint16)
    return bucket


def _balanced(sampling: Balanced, dataset: Any) -> Sequence:  # noqa: ANN401
    labels = labels_of(dataset)
    if labels is None:
        msg = (
            "Balanced: the data set has no classes (a whole number as label of each sample): pack it with labels, or "
            "give a weight for each sample: Weighted(weights)"
        )
        raise OptionError(msg)
    members = np.argsort(labels, kind="stable")
    _, sizes = np.unique(labels, return_counts=True)  # classes without a sample cannot be given
    count = sampling.num_samples or len(labels)
    if sampling.replacement:
        return DrawnByClass(members, sizes, count)
    return Strata(sizes, shares(count, len(sizes)), members=members, exchanged=True)


def _weighted(sampling: Weighted, n: int) -> Sequence:
    weights: NDArray[np.float64] = sampling.weights
    if len(weights) != n:
        msg = f"Weighted: {len(weights)} weights for a data set of {n} samples: one for each is needed"
        raise OptionError(msg)
    if sampling.replacement:
        return DrawnByWeight(weights, sampling.num_samples or n)
    return SortedByWeight(weights, sampling.num_samples or int(np.count_nonzero(weights)))


def _windowed(sampling: Windowed, dataset: Any) -> Sequence:  # noqa: ANN401
    if sampling.samples is not None:
        return Windows(runs_of_samples(len(dataset), sampling.samples, sampling.runs), sampling.runs)
    assert sampling.megabytes is not None
    sizes = column(dataset, "length")
    if sizes is None:
        msg = (
            "Windowed: the data set does not know how many bytes its samples have (packs do: fastdata pack SRC DST); "
            "pack it, or give the window in samples: Windowed(samples=N)"
        )
        raise OptionError(msg)
    bounds = runs_of_bytes(sizes.astype(np.int64), sampling.megabytes * 1e6, sampling.runs)
    return Windows(bounds, sampling.runs)


def _mixed(sampling: Mixture, dataset: Any) -> Sequence:  # noqa: ANN401
    if not isinstance(dataset, ConcatDataset):
        msg = f"Mixture mixes the parts of a torch.utils.data.ConcatDataset; this is a {type(dataset).__name__}"
        raise OptionError(msg)
    ends: list[int] = dataset.cumulative_sizes
    sizes = np.diff(ends, prepend=0)
    if len(sampling.weights) != len(sizes) or not sizes.all():
        msg = f"Mixture: {len(sampling.weights)} weights for parts of {sizes.tolist()} samples: one each, none empty"
        raise OptionError(msg)
    weights = np.array(sampling.weights)
    if sampling.num_samples is not None:
        places = np.floor(np.cumsum(weights) / weights.sum() * sampling.num_samples + 0.5).astype(np.int64)
        places[-1] = sampling.num_samples
        return Strata(sizes, np.diff(places, prepend=0))
    rounds = sizes / weights
    if sampling.until == "first":
        counts = np.minimum(np.floor(weights * rounds.min() + 0.5).astype(np.int64), sizes)
        counts[rounds.argmin()] = sizes[rounds.argmin()]
    else:
        counts = np.maximum(np.floor(weights * rounds.max() + 0.5).astype(np.int64), sizes)
        counts[rounds.argmax()] = sizes[rounds.argmax()]
    return Strata(sizes, counts)
