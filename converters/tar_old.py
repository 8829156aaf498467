"""What lies where a tar or a set of tars is to be written: the old set, and what a stopped run left."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fastdata.converters.atomic import incomplete_pack, partial_path, writing
from fastdata.errors import DestinationExistsError, OptionError, StoreError
from fastdata.stores.sidecar import read_sidecar
from fastdata.stores.tar_sets import parts_of, shards_there

if TYPE_CHECKING:
    from fastdata.stores.tar_names import ShardPattern

__all__ = ["dali_path", "existing_files"]


def dali_path(path: Path) -> Path:
    """Return where DALI's index of a tar lies."""
    return path.with_name(path.name.removesuffix(".tar") + ".idx")


def existing_files(dst: str, pattern: ShardPattern | None, index: Path, *, overwrite: bool) -> set[Path]:
    """Return the finished files of the old set, which go when the new one is whole; remove unfinished ones.

    Raises DestinationExistsError where there is anything and ``overwrite`` was not given.
    """
    if pattern is None:
        tars = [p for p in (Path(dst), partial_path(dst), partial_path(dali_path(Path(dst)))) if p.exists()]
    else:
        folder, prefix = os.path.split(pattern.prefix)
        name = re.compile(re.escape(prefix) + r"\d+" + re.escape(pattern.suffix) + r"(\.partial)?")
        lists = re.compile(
            re.escape(prefix) + r"\d+" + re.escape(pattern.suffix.removesuffix(".tar")) + r"\.idx\.partial"
        )
        names = list(Path(folder or ".").iterdir()) if Path(folder or ".").is_dir() else []
        tars = [p for p in names if name.fullmatch(p.name) or lists.fullmatch(p.name)]
    if pattern is not None:
        _refuse_another_spelling(dst, pattern, index)
    there = [*tars, *(p for p in (index, partial_path(index)) if p.exists())]
    left = [p for p in (partial_path(index), *there) if p.name.endswith(".partial") and p.exists()]
    if left and not overwrite and (left[0] == partial_path(index) or len(left) == len(there)):
        raise incomplete_pack(dst, left[0])
    if there and not overwrite:
        msg = f"{there[0]} exists already; overwrite (--overwrite) replaces it, or choose another name"
        raise DestinationExistsError(msg)
    with writing(dst):
        for path in tars:
            if path.name.endswith(".partial"):
                path.unlink(missing_ok=True)
                if path.name.endswith(".tar.partial"):
                    partial_path(dali_path(path.with_suffix(""))).unlink(missing_ok=True)
    # A single tar has no files but its own, and they are replaced. Its index may be a copy that names another pack's.
    return set() if pattern is None else _files_of(index) | _shards_of(pattern)


def _refuse_another_spelling(dst: str, pattern: ShardPattern, index: Path) -> None:
    """Raise OptionError where the set that the index names has other names: its files would go, and nobody said so."""
    for path in sorted(_tars_of(index)):
        if not _is_shard(path.name, pattern):
            msg = (
                f"{dst}: the set that lies there, with the index {index.name}, is spelled in another way ({path.name}) "
                "and would be removed: give its own name, remove it, or choose another one"
            )
            raise OptionError(msg)


def _is_shard(name: str, pattern: ShardPattern) -> bool:
    prefix = Path(pattern.prefix + "0").name[:-1]  # "" where the pattern's name begins with its number
    digits = name.removeprefix(prefix).removesuffix(pattern.suffix)
    if not (digits.isascii() and digits.isdigit()):
        return False
    return name == f"{prefix}{int(digits):0{pattern.width}d}{pattern.suffix}"


def _files_of(index: Path) -> set[Path]:
    """Return the files that an old index names, none where it cannot be read."""
    return {file for path in _tars_of(index) for file in (path, dali_path(path))}


def _shards_of(pattern: ShardPattern) -> set[Path]:
    """Return the files called as this set's shards are: an index that was replaced names no longer those before it."""
    whole = replace(pattern, start=0, stop=None)
    tars = [Path(whole.name(number)) for number in shards_there(whole)]
    return {file for path in tars for file in (path, dali_path(path))}


def _tars_of(index: Path) -> set[Path]:
    try:
        names = [shard.name for shard in read_sidecar(os.fspath(index)).shards]
        return {Path(part) for part in parts_of(os.fspath(index), names)}
    except StoreError:
        return set()
