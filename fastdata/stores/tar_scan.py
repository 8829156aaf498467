"""Tars without an index: each header is read once, and the Index is made in memory. Nothing is written beside them."""

from __future__ import annotations

import os
from array import array
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdata.errors import DuplicateKeyError, StoreFormatError, TruncatedStoreError
from fastdata.stores.index import Index, IndexBuilder
from fastdata.stores.store import Contents
from fastdata.stores.tar_groups import LABEL_FIELDS, OnDuplicate, Sample, group, npy_shape
from fastdata.stores.tar_headers import FileSource, Member, members
from fastdata.stores.tar_names import field_codec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

__all__ = ["OnDuplicate", "scan_tars", "store_field"]


def scan_tars(path: str, paths: Sequence[str] | None, on_duplicate: OnDuplicate) -> Contents:
    """Return what the tars hold; ``path`` names the set. Equal keys in two tars are two samples.

    info["ignored"] counts what is no part of a sample, by reason. Raises StoreFormatError, TruncatedStoreError,
    DuplicateKeyError.
    """
    paths = list(paths or ())
    builder, labels, ignored = IndexBuilder(), list[Any](), Counter[str]()
    for part, name in enumerate(paths):
        for sample in _distinct(name, _samples(name, ignored, on_duplicate), ignored, on_duplicate):
            _add(builder, labels, part, sample, ignored)
    if not len(builder) and ignored["no image"]:
        msg = (
            f"{path}: none of the {ignored['no image']} samples has an image with a known ending (jpg, png, webp, ...)"
        )
        raise StoreFormatError(msg)
    index, uneven = _with_labels(builder.build(), labels)
    info: dict[str, Any] = {"ignored": dict(ignored)} if ignored else {}
    if uneven:
        info["labels"] = f"not used: {uneven}"
    return Contents(path, "tar", paths, index, info)


def store_field(name: str) -> str:
    """Return how a Store calls a member's field that is not the image: ``json`` is "extras"."""
    if name == "json":
        return "extras"
    return f"field.{name}" if name in {"image", "extras"} else name


def _samples(path: str, ignored: Counter[str], on_duplicate: OnDuplicate) -> Iterator[Sample]:
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        source = FileSource(descriptor, path)
        yield from group(_inside(source), source, ignored, on_duplicate, whole=False)
    finally:
        os.close(descriptor)


def _inside(source: FileSource) -> Iterator[Member]:
    """Yield the members; refuse one that claims to reach beyond the file before anything is read of it."""
    for member in members(source):
        if member.size > source.size - member.offset:
            msg = (
                f"{source.where}: member {member.name!r} claims {member.size} bytes from {member.offset}, the file has "
                f"{source.size}: it was cut short"
            )
            raise TruncatedStoreError(msg)
        yield member


def _distinct(
    path: str, samples: Iterator[Sample], ignored: Counter[str], on_duplicate: OnDuplicate
) -> Iterator[Sample]:
    """Yield the samples of one tar; a key that comes again later is an error, or skipped."""
    seen: set[str] = set()
    for sample in samples:
        if sample.key in seen:
            if on_duplicate == "raise":
                msg = (
                    f"{path}: the key {sample.key!r} comes twice, with other samples between; make the tar with "
                    "--sort=name, or take the first: on_duplicate='skip' (pack --on-duplicate skip)"
                )
                raise DuplicateKeyError(msg)
            ignored["duplicate"] += len(sample.parts)
            continue
        seen.add(sample.key)
        yield sample


def _add(builder: IndexBuilder, labels: list[Any], part: int, sample: Sample, ignored: Counter[str]) -> None:
    image = sample.image
    if image is None:
        ignored["no image"] += 1
        return
    member = sample.parts[image].member
    before, height, width = (npy_shape(sample.parts[image].data) or (0, 0, 0)) if image.lower() == "npy" else (0, 0, 0)
    builder.add(sample.key, None, width, height)
    codec = "raw" if before else field_codec(image)
    builder.add_span("image", codec, (part, member.offset + before, member.size - before))
    for name, other in sample.parts.items():
        if name != image:
            where = (part, other.member.offset, other.member.size)
            builder.add_span(store_field(name), field_codec(name), where)
    label = sample.label()
    # As numbers of 4 bytes: a mebibyte of JSON would be 16 of Python's floats.
    labels.append(array("f", label) if isinstance(label, tuple) else label)


def _with_labels(index: Index, labels: list[Any]) -> tuple[Index, str]:
    """Return the Index with its label column, and why there is none; the fields the labels came from go with it."""
    column, why = _label_column(labels)
    if column is None:
        if not why and not index.fields.keys().isdisjoint(LABEL_FIELDS):
            why = "cls holds no integers"
        return index, why
    whole = {n: c for n, c in index.fields.items() if n not in LABEL_FIELDS or not bool((c.length >= 0).all())}
    return replace(index, label=column, fields=whole), ""


def _label_column(labels: list[Any]) -> tuple[NDArray[Any] | None, str]:
    missing = sum(label is None for label in labels)
    if missing:
        return None, f"{missing} of {len(labels)} samples have no label" if missing < len(labels) else ""
    if not labels:
        return None, ""
    sizes = {len(label) if isinstance(label, array) else 0 for label in labels}
    if len(sizes) > 1:
        return None, "some labels are numbers, some are vectors, or the vectors differ in length"
    if sizes != {0}:
        return np.array(labels, np.float32), ""
    whole = all(isinstance(label, int) for label in labels)
    return np.array(labels, np.int64 if whole else np.float64), ""
