"""Tar files as stores: ours by the index beside them, any other by one pass over its headers."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fastdata.errors import (
    IncompletePackError,
    StaleIndexError,
    StoreFormatError,
    TruncatedStoreError,
)
from fastdata.stores.index import Index
from fastdata.stores.sidecar import Shard, read_sidecar, stamp_of
from fastdata.stores.store import Contents
from fastdata.stores.tar_headers import BLOCK, Header, parse_header
from fastdata.stores.tar_names import MARK, escape, shard_pattern, split_name
from fastdata.stores.tar_scan import OnDuplicate, scan_tars
from fastdata.stores.tar_sets import (
    INDEX_ENDING,
    check_there,
    exists,
    index_path_of,
    missing_parts_error,
    parts_of,
    resolve,
    set_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["INDEX_ENDING", "has_mark", "index_path_of", "read_tars"]

_CHECKED_ROWS = 512  # headers looked at when a set is opened: some milliseconds from a local disk
_CHECKED_STAMPS = 64


def read_tars(
    path_or_paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    mapped: bool = True,
    on_duplicate: OnDuplicate = "raise",
) -> Contents:
    """Find what a tar, or a set of them, holds.

    path_or_paths: one tar; a list of tars; ``out-{000000..000127}.tar`` or ``out-{000000..}.tar``; an index
    (``.fdindex``); or a folder that holds one index or nothing but tars of one set.

    With an index beside it, only that is read, and a sample of the headers compared with it: StaleIndexError where they
    differ. Without, each header is read once. ``on_duplicate="skip"`` keeps the first of two equal members.
    Raises MissingPartError (naming the shards), IncompletePackError, StoreNotFoundError, StoreFormatError.
    """
    path, paths, index = resolve(path_or_paths)
    if index is not None and exists(index + ".partial"):
        msg = f"{path}: this is an incomplete pack ({index}.partial is left of it); pack again with overwrite"
        raise IncompletePackError(msg)
    # A link to an index that is not there is not passed over: the names of the classes would go without a word.
    if index is not None and os.path.lexists(index):
        contents = _by_index(path, index, paths, mapped=mapped)
        if contents is not None:
            return contents
    check_there(path, paths)
    contents = scan_tars(path, paths, on_duplicate)
    whole = _set_with_classes(contents.parts[0])
    if whole is not None:
        what = "one file" if len(contents.parts) == 1 else f"{len(contents.parts)} files"
        text = f"{path} is {what} of the set {whole}, whose index has them"
    elif has_mark(contents.parts[0]):
        text = f"the index of {path} (.fdindex) is missing"
    else:
        return contents
    return replace(contents, info={**contents.info, "without_index": text})


def has_mark(path: str) -> bool:
    """Whether the tar's first header has our mark where a user's name stands: then an index was written, too."""
    with open(path, "rb") as file:  # noqa: PTH123  a str path from start to end
        return file.read(BLOCK)[265:297].rstrip(b"\0") == MARK


def _set_with_classes(path: str) -> str | None:
    """Return the index of the set that names this tar, and has class names; None where there is none."""
    index_path = set_of(path)
    if index_path is None:
        return None
    try:
        sidecar = read_sidecar(index_path)
    except StoreFormatError:  # it may have had them
        return index_path
    named = any(shard.name == Path(path).name for shard in sidecar.shards)
    return index_path if named and sidecar.info.get("classes") else None


def _by_index(path: str, index_path: str, asked: list[str] | None, *, mapped: bool) -> Contents | None:
    """Return what the index says after comparing it with the tars; None where only some of its files were asked for."""
    sidecar = read_sidecar(index_path, mapped=mapped)
    parts = parts_of(index_path, [shard.name for shard in sidecar.shards])
    if asked is not None and [Path(p).absolute() for p in asked] != [Path(p).absolute() for p in parts]:
        check_there(path, asked)
        if _is_part_of(path, asked, parts):
            return None
        more = f" and {len(parts) - 1} more" * (len(parts) > 1)
        msg = f"{path}: the index {index_path} is that of other files ({parts[0]}{more}); give them their names back"
        raise StaleIndexError(msg)
    missing = [part for part in parts if not exists(part)]
    if missing:
        raise missing_parts_error(path, missing)
    index = Index.from_arrays(sidecar.columns, index_path, len(parts))
    _check_sizes(index_path, parts, sidecar.shards)
    _check_rows(index_path, parts, sidecar.shards, index)
    return Contents(path, "tar", parts, index, sidecar.info)


def _is_part_of(path: str, asked: list[str], parts: list[str]) -> bool:
    """Whether these tars are some of the set's; a list may name tars of several sets, and is taken as it stands."""
    known = {Path(p).absolute() for p in parts}
    are = [Path(p).absolute() in known for p in asked]
    return all(are) if len(asked) == 1 or shard_pattern(path) else any(are)


def _check_sizes(index_path: str, parts: list[str], shards: Sequence[Shard]) -> None:
    for part, shard in zip(parts, shards, strict=True):
        status = Path(part).stat()
        if not stat.S_ISREG(status.st_mode):
            msg = f"{part}: neither a tar nor any other file, though {index_path} names it"
            raise StoreFormatError(msg)
        if (size := status.st_size) != shard.size:
            raise _stale(index_path, part, f"it has {size} bytes, not {shard.size}")
    for i in _spread(len(parts), _CHECKED_STAMPS):
        if stamp_of(parts[i]) != shards[i].stamp:
            raise _stale(index_path, parts[i], "its first member is another one")


def _check_rows(index_path: str, parts: list[str], shards: Sequence[Shard], index: Index) -> None:
    """Compare every row with the sizes of the files, and some rows with the headers that lie there."""
    sizes = np.array([shard.size for shard in shards], np.int64)
    for name, column in index.fields.items():
        there = column.length >= 0
        part = column.part[there]
        if bool((column.length[there] > sizes[part] - column.offset[there]).any()):
            msg = f"{index_path}: field {name!r} of a sample lies beyond the end of its file"
            raise TruncatedStoreError(msg)
    rows = np.array(list(_spread(len(index), _CHECKED_ROWS)), np.int64)
    part_of_row = index.fields["image"].part[rows]
    for number in np.unique(part_of_row).tolist():
        descriptor = os.open(parts[number], os.O_RDONLY | getattr(os, "O_BINARY", 0))
        try:
            wrong = [i for i in rows[part_of_row == number].tolist() if not _row_fits(descriptor, index, i)]
        finally:
            os.close(descriptor)
        if wrong:
            what = f"sample {wrong[0]} ({index.keys[wrong[0]]!r}) is not what lies there"
            raise _stale(index_path, parts[number], what)


def _row_fits(descriptor: int, index: Index, i: int) -> bool:
    """Say whether the image's header, and the label behind it, are those of row ``i``."""
    image = index.fields["image"]
    offset, length = int(image.offset[i]), int(image.length[i])
    # Data begin at a multiple of 512; a value may begin later (the array in an .npy), but in the same block.
    data, skipped = offset // BLOCK * BLOCK, offset % BLOCK
    size = skipped + length
    if length < 0 or data < BLOCK:
        return length < 0
    key = escape(index.keys[i])
    header = _header(os.pread(descriptor, BLOCK, data - BLOCK))
    # A name too long for its header block stands before it; the block has only the beginning.
    is_long = len(key.encode("utf-8", "surrogateescape")) > 80  # noqa: PLR2004  100 bytes, less room for the ending
    if header is None or header.size != size or not (is_long or _key_and_field(header)[0] == key):
        return False
    behind = os.pread(descriptor, 2 * BLOCK, data - (-size // BLOCK) * BLOCK)
    follower = _header(behind[:BLOCK])
    label = index.label
    is_number = label is not None and label.ndim == 1 and label.dtype.kind == "i"
    if follower is None or _key_and_field(follower) != (key, "cls") or label is None or not is_number:
        return True
    return behind[BLOCK : BLOCK + follower.size] == b"%d" % int(label[i])


def _header(block: bytes) -> Header | None:
    try:
        return parse_header(block, "")
    except StoreFormatError:
        return None


def _key_and_field(header: Header) -> tuple[str, str]:
    try:
        return split_name(header.name, "") or ("", "")
    except StoreFormatError:
        return "", ""


def _spread(n: int, most: int) -> Iterator[int]:
    """Yield at most ``most`` of n positions, the first and the last among them."""
    if n <= most:
        return iter(range(n))
    return (i * (n - 1) // (most - 1) for i in range(most))


def _stale(index_path: str, part: str, what: str) -> StaleIndexError:
    return StaleIndexError(
        f"the index {index_path} was made for another version of {part}: {what}; copy both again, or save what is "
        f"whole with fastdata repair {part} OUT (without the index, class names and checksums would be lost)"
    )
