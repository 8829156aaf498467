"""A folder of images as a store: an ImageFolder tree (a class per folder) or a flat folder; nothing is opened."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdata.errors import StoreFormatError
from fastdata.stores.file_names import FileNames, keys_of
from fastdata.stores.image_types import is_image_name
from fastdata.stores.index import Index, KeyColumn, SpanColumn
from fastdata.stores.store import Contents

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["file_index", "read_folder"]

_MOST_NAMED = 20  # folders named one by one in the info; the rest are counted


@dataclass(slots=True)
class _Listing:
    """What a walk saw: images by folder in ImageFolder's order, and what it passed over."""

    names: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)
    unreadable: list[str] = field(default_factory=list)


def read_folder(path: str) -> Contents:
    """Return what lies in a folder, in the order and with the class map of torchvision's ImageFolder.

    Classes are the folders directly under ``path``, sorted by name, without those that begin with a dot; a folder with
    no images keeps its number (info["empty_classes"]). With no class folder the labels are None. info["ignored"] counts
    what was passed over: by ending, "hidden" (dot files and folders), "outside the class folders", "broken link",
    "link to a folder above it", "unreadable folder". Nothing is opened: width, height and lengths are 0.
    """
    listing = _Listing()
    beside, classes = _top(path, listing)
    labels: list[int] = []
    empty = []
    for number, name in enumerate(classes):
        before = len(listing.names)
        _take_tree(path, name, listing)
        labels.extend([number] * (len(listing.names) - before))
        if len(listing.names) == before:
            empty.append(name)
    info: dict[str, Any]
    if listing.names:
        info = {"classes": classes, "empty_classes": empty}
        outside = sum(map(is_image_name, beside))
        listing.ignored.update({"outside the class folders": outside} if outside else {})
        _count_others(beside, listing)
    else:
        info = {}
        _take("", beside, listing)
    info |= {"ignored": dict(sorted(listing.ignored.items())), "unreadable": listing.unreadable[:_MOST_NAMED]}
    if not listing.names:
        seen = ", ".join(f"{count} {what}" for what, count in info["ignored"].items()) or "nothing at all"
        msg = f"{path}: this folder holds no images (it holds {seen}); give a folder of images, or the file of a pack"
        raise StoreFormatError(msg)
    index = file_index(KeyColumn.of(listing.keys), np.array(labels, np.int64) if labels else None)
    parts = FileNames(path, KeyColumn.of(listing.names))
    return Contents(path, "folder", parts, index, info, whole_files=True)


def file_index(keys: KeyColumn, label: NDArray[Any] | None) -> Index:
    """Return the Index of a store whose part i is the whole of sample i: nothing but keys and labels is known."""
    n = len(keys)
    none = np.zeros(n, np.int32)
    nowhere = np.zeros(n, np.int64)
    image = SpanColumn(np.arange(n, dtype=np.int32), nowhere, nowhere, np.zeros(n, np.uint8), np.zeros(n, np.uint32))
    return Index(keys, label, none, none, {"image": image})


def _top(path: str, listing: _Listing) -> tuple[list[str], list[str]]:
    """Return the names of the files in the root, and of its class folders, sorted."""
    try:
        folders, files = _scan(path, listing)
    except OSError as error:
        msg = f"{path}: this folder cannot be listed: {error.strerror}"
        raise StoreFormatError(msg) from error
    return files, folders


def _take_tree(root: str, name: str, listing: _Listing) -> None:
    # torchvision sorts os.walk's tuples: by the folder's full path as a string, not level by level.
    status = os.stat(root)  # noqa: PTH116  strings all through, see below
    for folder, files in sorted(_walk(root, name, ((status.st_dev, status.st_ino),), listing)):
        _take(folder, files, listing)


def _walk(
    root: str, name: str, above: tuple[tuple[int, int], ...], listing: _Listing
) -> Iterator[tuple[str, list[str]]]:
    """Yield (folder relative to root, its files), links followed, but none that leads back to a folder above it."""
    path = os.path.join(root, name)  # noqa: PTH118  strings: one per folder and file, of which there may be millions
    try:
        status = os.stat(path)  # noqa: PTH116
        here = status.st_dev, status.st_ino
        if here in above:
            listing.ignored["link to a folder above it"] += 1
            return
        folders, files = _scan(path, listing)
    except OSError:
        listing.ignored["unreadable folder"] += 1
        listing.unreadable.append(path)
        return
    yield name, files
    for folder in folders:
        yield from _walk(root, f"{name}/{folder}", (*above, here), listing)


def _scan(path: str, listing: _Listing) -> tuple[list[str], list[str]]:
    """Return the sorted names of folders and of files in ``path``; what is neither, or hidden, is counted."""
    folders, files = [], []
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                listing.ignored["hidden"] += 1
                continue
            try:
                is_folder, is_file = entry.is_dir(), entry.is_file()
            except OSError:  # a link to itself
                is_folder = is_file = False
            if is_folder:
                folders.append(entry.name)
            elif is_file:
                files.append(entry.name)
            else:
                listing.ignored["broken link" if entry.is_symlink() else "not a file"] += 1
    return sorted(folders), sorted(files)


def _take(folder: str, files: list[str], listing: _Listing) -> None:
    """Append the images among the files of one folder."""
    prefix = f"{folder}/" if folder else ""
    images = [name for name in files if is_image_name(name)]
    listing.names.extend(prefix + name for name in images)
    listing.keys.extend(prefix + key for key in keys_of(images))
    _count_others(files, listing)


def _count_others(files: list[str], listing: _Listing) -> None:
    listing.ignored.update(_kind(name) for name in files if not is_image_name(name))


def _kind(name: str) -> str:
    dot = name.rfind(".")
    return name[dot:].lower() if dot > 0 else "without ending"
