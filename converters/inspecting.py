"""What a pack says of itself, and whether its bytes still are what was packed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdata.converters.content import ContentHash
from fastdata.errors import FastdataError
from fastdata.types import CODECS

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastdata.stores.store import Store

__all__ = ["Verdict", "describe", "verify"]

_FACTS = ("mean", "std", "content_hash", "options", "encoder", "made_by", "format_version", "skipped", "ignored")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What verify found. checked: records whose checksum is known; wrong: what is the matter, by key."""

    samples: int
    checked: int
    wrong: tuple[tuple[str, str], ...]


def describe(store: Store) -> dict[str, Any]:
    """Return JSON-able facts: count, classes with their counts, sizes, codecs, bytes, fields, and how it was made."""
    index, image = store.index, store.index.fields["image"]
    facts: dict[str, Any] = {
        "path": store.path,
        "kind": store.kind,
        "samples": len(store),
        "files": len(store.parts),
        "bytes": int(image.length.clip(0).sum()),
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


def verify(store: Store, progress: Callable[[int, int], None] | None = None) -> Verdict:
    """Read every record, compare checksums, and the content hash where the pack has one; raise nothing for damage."""
    wrong: list[tuple[str, str]] = []
    content, checked = ContentHash(), 0
    for i in range(len(store)):
        try:
            for name, column in store.index.fields.items():
                if column.length[i] >= 0:
                    store.check(i, name)
            content.add(store.record(i))
            checked += bool(store.index.fields["image"].checksum[i])
        except FastdataError as error:
            wrong.append((store.key(i), str(error)))
        if progress is not None:
            progress(i + 1, len(store))
    told = store.info.get("content_hash")
    if not wrong and told and told != content.hexdigest():
        wrong.append(("", f"{store.path}: its records are not those it was packed with (content hash {told})"))
    return Verdict(len(store), checked, tuple(wrong))


def _counts(codec: np.ndarray[Any, np.dtype[np.uint8]]) -> dict[str, int]:
    return {CODECS[number]: count for number, count in sorted(Counter(codec.tolist()).items())}


def _range(column: np.ndarray[Any, np.dtype[np.int32]]) -> dict[str, float] | None:
    known = column[column > 0]
    if not len(known):
        return None
    return {"min": int(known.min()), "median": float(np.median(known)), "max": int(known.max())}
