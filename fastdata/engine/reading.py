"""Which Source the engine reads a data set by that wraps others: Subset and ConcatDataset, nested as they may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import ConcatDataset, Subset

from fastdata.engine.source import ConcatSource, SubsetSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastdata.engine.source import Source

    LeafReader = Callable[[Any], Source | str]

__all__ = ["leaf_of", "source_of"]


def leaf_of(dataset: Any) -> Any:  # noqa: ANN401
    """Return the data set (of several: the first) that has the transform: what Subset and ConcatDataset wrap."""
    while True:
        if type(dataset) is Subset:
            dataset = dataset.dataset
        elif type(dataset) is ConcatDataset:
            dataset = dataset.datasets[0]
        else:
            return dataset


def source_of(dataset: Any, read_leaf: LeafReader) -> Source | str:  # noqa: ANN401
    """Return the source of exactly these types, or why there is none; read_leaf says so of every other data set."""
    if type(dataset) is Subset:
        return _subset(dataset, read_leaf)
    if type(dataset) is ConcatDataset:
        return _concat(dataset, read_leaf)
    return read_leaf(dataset)


def _subset(dataset: Subset[Any], read_leaf: LeafReader) -> Source | str:
    whole = source_of(dataset.dataset, read_leaf)
    if isinstance(whole, str):
        return whole
    if {"__getitem__", "__getitems__", "__len__"} & set(vars(dataset)):
        return "the Subset's __getitem__ was replaced"
    indices = np.asarray(dataset.indices)
    if indices.ndim != 1 or (len(indices) and indices.dtype.kind not in "iu"):
        return "the Subset's indices are no integers"
    if len(indices) and not 0 <= indices.min() <= indices.max() < len(whole):
        return f"the Subset's indices are not all among 0 to {len(whole) - 1}"
    return SubsetSource(whole, indices.astype(np.int64, copy=False))


def _concat(dataset: ConcatDataset[Any], read_leaf: LeafReader) -> Source | str:
    if {"__getitem__", "__getitems__", "__len__"} & set(vars(dataset)):
        return "the ConcatDataset's __getitem__ was replaced"
    parts: list[Source] = []
    for part in dataset.datasets:
        source = source_of(part, read_leaf)
        if isinstance(source, str):
            return source
        parts.append(source)
    leaves = [leaf_of(part) for part in dataset.datasets]
    for name in ("transform", "target_transform", "decoder"):
        first = getattr(leaves[0], name, None)
        if any(getattr(leaf, name, None) is not first for leaf in leaves[1:]):
            return f"the parts of the ConcatDataset do not share one {name}"
    if len({_kind_of_labels(source) for source in parts if len(source)}) > 1:
        return "the parts of the ConcatDataset have labels of different kinds"
    return ConcatSource(parts)


def _kind_of_labels(source: Source) -> object:
    labels = source.labels(np.zeros(1, np.int64))
    return None if labels is None else (labels.dtype, labels.shape)
