"""What a data set knows of all its samples at once: labels, picture sizes, bytes; of what it wraps, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import ConcatDataset, Subset

from fastdata.stores.store import Store

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastdata.stores.index import Index

__all__ = ["column", "labels_of"]


def column(dataset: Any, name: str) -> NDArray[Any] | None:  # noqa: ANN401
    """Return one column, (n,), or None where it is not known for every sample.

    name: "label", "width" or "height" (pixels), or "length" (bytes of the encoded image). A pack has them all, a folder
    the label; of any other data set its ``targets`` are taken for the labels. Borrowed, where it is nobody's copy.
    """
    if type(dataset) is Subset:
        whole = column(dataset.dataset, name)
        return None if whole is None else whole[np.asarray(dataset.indices, np.int64)]
    if type(dataset) is ConcatDataset:
        parts = [column(part, name) for part in dataset.datasets]
        known = [part for part in parts if part is not None]
        return np.concatenate(known) if len(known) == len(parts) else None
    store = getattr(dataset, "store", None)
    if isinstance(store, Store) and len(store) == len(dataset):  # a PackedDataset
        return _of_index(store.index, name)
    targets = getattr(dataset, "targets", None) if name == "label" else None
    if targets is None or len(targets) != len(dataset):
        return None
    array = np.asarray(targets)
    return array if array.dtype.kind in "iuf" else None


def labels_of(dataset: Any) -> NDArray[Any] | None:  # noqa: ANN401
    """Return the labels of all samples if they are whole numbers, (n,), else None."""
    labels = column(dataset, "label")
    if labels is None or labels.ndim != 1 or labels.dtype.kind not in "iu":
        return None
    return labels


def _of_index(index: Index, name: str) -> NDArray[Any] | None:
    if name == "label":
        return index.label
    found: NDArray[Any] = getattr(index if name in {"width", "height"} else index.fields["image"], name)
    return found if bool((found > 0).all()) else None  # 0 is what nobody has looked at yet
