"""What a pack says of itself."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdata.types import CODECS

if TYPE_CHECKING:
    from fastdata.stores.store import Store

__all__ = ["describe"]

_FACTS = (
    "mean",
    "std",
    "content_hash",
    "options",
    "encoder",
    "made_by",
    "format_version",
    "skipped",
    "ignored",
    "without_index",
)


def describe(store: Store) -> dict[str, Any]:
    """Return JSON-able facts: count, classes with their counts, sizes, codecs, bytes, fields, and how it was made."""
    index, image = store.index, store.index.fields["image"]
    facts: dict[str, Any] = {
        "path": store.path,
        "kind": store.kind,
        "samples": len(store),
        "files": len(store.parts),
        "bytes": int(image.length.clip(0).sum()) or None,  # of files as they lie nobody has asked
        "codecs": _counts(image.codec),
        "fields": {name: int((column.length >= 0).sum()) for name, column in index.fields.items()},
        "width": _range(index.width),
        "height": _range(index.height),
        "label": None if index.label is None else f"{index.label.dtype} {list(index.label.shape)}",
        "classes": list(store.classes),
    }
    if store.classes and index.label is not None and index.label.ndim == 1:
        inside = index.label[(index.label >= 0) & (index.label < len(store.classes))].astype(np.int64)
        counts = np.bincount(inside, minlength=len(store.classes)).tolist()
        facts["class_counts"] = dict(zip(store.classes, counts, strict=True))
    return facts | {name: store.info[name] for name in _FACTS if name in store.info}


def _counts(codec: np.ndarray[Any, np.dtype[np.uint8]]) -> dict[str, int]:
    return {CODECS[number]: count for number, count in sorted(Counter(codec.tolist()).items())}


def _range(column: np.ndarray[Any, np.dtype[np.int32]]) -> dict[str, float] | None:
    known = column[column > 0]
    if not len(known):
        return None
    return {"min": int(known.min()), "median": float(np.median(known)), "max": int(known.max())}
