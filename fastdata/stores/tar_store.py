"""Tar files as stores: ours by the index beside them, any other by one pass over its headers."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fastdata.errors import (
    IncompletePackError,
    MissingPartError,
    StaleIndexError,
    StoreFormatError,
    StoreNotFoundError,
    TruncatedStoreError,
)
from fastdata.stores.index import Index
from fastdata.stores.sidecar import Shard, read_sidecar, stamp_of
from fastdata.stores.store import Contents
from fastdata.stores.tar_headers import BLOCK, Header, parse_header
from fastdata.stores.tar_names import ShardPattern, escape, shard_pattern, split_name
from fastdata.stores.tar_scan import OnDuplicate, scan_tars

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["INDEX_ENDING", "index_path_of", "read_tars"]

INDEX_ENDING = ".fdindex"
_CHECKED_ROWS = 512  # headers looked at when a set is opened: some milliseconds from a local disk
_CHECKED_STAMPS = 64


def read_tars(
    path_or_paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], *, on_duplicate: OnDuplicate = "raise"
) -> Contents:
    """Find what a tar, or a set of them, holds.

    path_or_paths: one tar; a list of tars; ``out-{000000..000127}.tar`` or ``out-{000000..}.tar``; an index
    (``.fdindex``); or a folder that holds one index or nothing but tars of one set.

    With an index beside it, only that is read, and a sample of the headers compared with it: StaleIndexError where they
    differ. Without, each header is read once. ``on_duplicate="skip"`` keeps the first of two equal members.
    Raises MissingPartError (naming the shards), IncompletePackError, StoreNotFoundError, StoreFormatError.
    """
    path, paths, index = _resolve(path_or_paths)
    if index is not None and _exists(index + ".partial"):
        msg = f"{path}: this is an incomplete pack ({index}.partial is left of it); pack again with overwrite"
        raise IncompletePackError(msg)
    if index is not None and _exists(index):
        contents = _by_index(path, index, paths)
        if contents is not None:
            return contents
    _check_there(path, paths)
    return scan_tars(path, paths, on_duplicate)


def index_path_of(path: str) -> str:
    """Return where the index of a tar, or of a set named by a pattern, lies."""
    pattern = shard_pattern(path)
    return pattern.index_path if pattern else path.removesuffix(".tar") + INDEX_ENDING


def _resolve(
    given: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
) -> tuple[str, list[str] | None, str | None]:
    """Return a name for errors, the tars asked for (None: all the index names), and the index that may be there."""
    if not isinstance(given, (str, os.PathLike)):
        return _resolve_list([os.fspath(p) for p in given])
    path = os.fspath(given)
    if "::" in path and not _exists(path):
        return _resolve_list(path.split("::"))
    if path.endswith(INDEX_ENDING):
        return path, None, path
    if Path(path).is_dir():
        return _resolve_folder(path)
    pattern = shard_pattern(path)
    return (path, [path], index_path_of(path)) if pattern is None else _resolve_pattern(path, pattern)


def _resolve_list(paths: list[str]) -> tuple[str, list[str] | None, str | None]:
    if len(paths) == 1:
        return _resolve(paths[0])
    if not paths:
        msg = "an empty list of tars"
        raise StoreNotFoundError(msg)
    patterns = [shard_pattern(path) for path in paths]
    if not any(patterns):
        return f"{paths[0]} and {len(paths) - 1} more", paths, _index_of_list(paths)
    expanded: list[str] = []
    for path, pattern in zip(paths, patterns, strict=True):
        expanded += [path] if pattern is None else _resolve_pattern(path, pattern)[1] or _numbered(pattern)
    return "::".join(paths), expanded, None


def _resolve_pattern(path: str, pattern: ShardPattern) -> tuple[str, list[str] | None, str]:
    if pattern.stop is not None:
        return path, pattern.names(), pattern.index_path
    if _exists(pattern.index_path) or _exists(pattern.index_path + ".partial"):
        return path, None, pattern.index_path
    return path, _numbered(pattern), pattern.index_path


def _numbered(pattern: ShardPattern) -> list[str]:
    """Return the shards of an open-ended pattern that are there, up to the first gap; the first one in any case."""
    count = 0
    while _exists(pattern.name(count)):
        count += 1
    return [pattern.name(number) for number in range(max(1, count))]


def _resolve_folder(folder: str) -> tuple[str, list[str] | None, str | None]:
    names = sorted(entry.name for entry in Path(folder).iterdir())
    indexes = [n for n in names if n.endswith((INDEX_ENDING, INDEX_ENDING + ".partial"))]
    if len({n.removesuffix(".partial") for n in indexes}) == 1:
        return folder, None, str(Path(folder, indexes[0].removesuffix(".partial")))
    tars = [str(Path(folder, n)) for n in names if n.endswith(".tar")]
    if indexes or not tars:
        what = f"{len(indexes)} indexes of tar sets: name one of them" if indexes else "no tar"
        msg = f"{folder}: this folder holds {what}"
        raise StoreNotFoundError(msg)
    return folder, tars, None


def _index_of_list(paths: list[str]) -> str | None:
    """Return the index of a set of numbered tars, as its pattern would name it."""
    stem = paths[0].removesuffix(".tar")
    prefix = stem.rstrip("0123456789")
    if prefix == stem:
        return None
    pattern = shard_pattern(f"{prefix}{{{stem[len(prefix) :]}..}}.tar")
    return pattern.index_path if pattern else None


def _exists(path: str) -> bool:
    return Path(path).exists()


def _check_there(path: str, paths: list[str] | None) -> None:
    missing = [p for p in paths or [] if not _exists(p)]
    if paths is None:
        msg = f"{path}: no index lies there"
        raise StoreNotFoundError(msg)
    if not missing:
        return
    unfinished = [p for p in missing if _exists(p + ".partial")]
    if unfinished:
        what = f"this is an incomplete pack ({unfinished[0]}.partial is left of it)"
        msg = f"{unfinished[0]}: {what}; pack again with overwrite"
        raise IncompletePackError(msg)
    if len(missing) == len(paths):
        msg = f"{missing[0]}: nothing lies there"
        raise StoreNotFoundError(msg)
    raise _missing(path, missing)


def _missing(path: str, missing: list[str]) -> MissingPartError:
    names = ", ".join(missing[:10]) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")  # noqa: PLR2004
    return MissingPartError(f"{path}: {len(missing)} of the set's files are not there: {names}; copy them again")


def _by_index(path: str, index_path: str, asked: list[str] | None) -> Contents | None:
    """Return what the index says after comparing it with the tars; None where it is another set's."""
    sidecar = read_sidecar(index_path)
    folder = Path(index_path).parent
    if any(shard.name in {"", ".."} or Path(shard.name).name != shard.name for shard in sidecar.shards):
        msg = f"{index_path}: the index names a file outside of its folder"
        raise StoreFormatError(msg)
    parts = [str(folder / shard.name) for shard in sidecar.shards]
    if asked is not None and [Path(p).absolute() for p in asked] != [Path(p).absolute() for p in parts]:
        return None
    missing = [part for part in parts if not _exists(part)]
    if missing:
        raise _missing(path, missing)
    index = Index.from_arrays(sidecar.columns, index_path, len(parts))
    _check_sizes(index_path, parts, sidecar.shards)
    _check_rows(index_path, parts, sidecar.shards, index)
    return Contents(path, "tar", parts, index, sidecar.info)


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
        f"the index {index_path} was made for another version of {part}: {what}; copy both again, or remove the index "
        "(the tar is then indexed when it is opened)"
    )
