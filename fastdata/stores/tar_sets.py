"""Which tars, and which index, a path, a pattern, a list or a folder stands for."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from fastdata.errors import IncompletePackError, MissingPartError, StoreFormatError, StoreNotFoundError
from fastdata.stores.tar_names import MOST_SHARDS, ShardPattern, shard_pattern

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "INDEX_ENDING",
    "check_there",
    "exists",
    "index_of_set",
    "index_path_of",
    "missing_parts_error",
    "parts_of",
    "resolve",
    "set_of",
    "shards_beside",
    "shards_there",
]

INDEX_ENDING = ".fdindex"
_MOST_DIGITS = 20  # int() reads no endless number


def index_path_of(path: str) -> str:
    """Return where the index of a tar, or of a set named by a pattern, lies."""
    pattern = shard_pattern(path)
    return pattern.index_path if pattern else path.removesuffix(".tar") + INDEX_ENDING


def resolve(
    given: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
) -> tuple[str, list[str] | None, str | None]:
    """Return a name for errors, the tars asked for (None: all the index names), and the index that may be there."""
    if not isinstance(given, (str, os.PathLike)):
        return _resolve_list([os.fspath(p) for p in given])
    path = os.fspath(given)
    if "::" in path and not exists(path):
        return _resolve_list(path.split("::"))
    if path.endswith(INDEX_ENDING):
        return path, None, path
    if Path(path).is_dir():
        return _resolve_folder(path)
    pattern = shard_pattern(path)
    return (path, [path], index_path_of(path)) if pattern is None else _resolve_pattern(path, pattern)


def _resolve_list(paths: list[str]) -> tuple[str, list[str] | None, str | None]:
    if len(paths) == 1:
        return resolve(paths[0])
    if not paths:
        msg = "an empty list of tars"
        raise StoreNotFoundError(msg)
    patterns = [shard_pattern(path) for path in paths]
    if not any(patterns):
        return f"{paths[0]} and {len(paths) - 1} more", paths, index_of_set(paths)
    expanded: list[str] = []
    for path, pattern in zip(paths, patterns, strict=True):
        expanded += [path] if pattern is None else _resolve_pattern(path, pattern)[1] or _numbered(pattern)
    return "::".join(paths), expanded, None


def _resolve_pattern(path: str, pattern: ShardPattern) -> tuple[str, list[str] | None, str]:
    if pattern.stop is not None:
        return path, pattern.names(), pattern.index_path
    if exists(pattern.index_path) or exists(pattern.index_path + ".partial"):
        return path, None, pattern.index_path
    return path, _numbered(pattern), pattern.index_path


def _numbered(pattern: ShardPattern) -> list[str]:
    """Return the shards of an open-ended pattern up to the last that is there, gaps too; the first one in any case."""
    last = max(shards_there(pattern), default=0)
    return [pattern.name(number) for number in range(last + 1)]


def shards_there(pattern: ShardPattern) -> list[int]:
    """Return the numbers, counted from 0, of the shards of an open-ended pattern that are there, in order."""
    folder, prefix = os.path.split(pattern.prefix)
    ending = pattern.suffix.partition("/")[0]
    if not Path(folder or ".").is_dir():
        return []
    name = re.compile(re.escape(prefix) + r"([0-9]+)" + re.escape(ending))
    found = []
    for entry in os.scandir(folder or "."):
        match = name.fullmatch(entry.name)
        number = int(match[1]) - pattern.start if match and len(match[1]) < _MOST_DIGITS else -1
        # A number spelled in another way, or out of all reason (a date), is none of the set.
        is_one = 0 <= number < MOST_SHARDS and f"{int(match[1]):0{pattern.width}d}" == match[1] if match else False
        if is_one and (ending == pattern.suffix or exists(pattern.name(number))):
            found.append(number)
    return sorted(found)


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


def index_of_set(paths: list[str]) -> str | None:
    """Return the index of a set of numbered tars, as its pattern would name it."""
    stem = paths[0].removesuffix(".tar")
    prefix = stem.rstrip("0123456789")
    if prefix == stem:
        return None
    pattern = shard_pattern(f"{prefix}{{{stem[len(prefix) :]}..}}.tar")
    return pattern.index_path if pattern else None


def exists(path: str) -> bool:
    """Whether something lies there, links followed."""
    return Path(path).exists()


def check_there(path: str, paths: list[str] | None) -> None:
    """Raise MissingPartError, IncompletePackError or StoreNotFoundError unless all of these tars are there."""
    missing = [p for p in paths or [] if not exists(p)]
    if paths is None:
        msg = f"{path}: no index lies there"
        raise StoreNotFoundError(msg)
    if not missing:
        return
    unfinished = [p for p in missing if exists(p + ".partial")]
    if unfinished:
        what = f"this is an incomplete pack ({unfinished[0]}.partial is left of it)"
        msg = f"{unfinished[0]}: {what}; pack again with overwrite"
        raise IncompletePackError(msg)
    if len(missing) == len(paths):
        msg = f"{missing[0]}: nothing lies there"
        raise StoreNotFoundError(msg)
    raise missing_parts_error(path, missing)


def missing_parts_error(path: str, missing: list[str]) -> MissingPartError:
    """Return the error that names what is missing."""
    names = ", ".join(missing[:10]) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")  # noqa: PLR2004
    return MissingPartError(f"{path}: {len(missing)} of the set's files are not there: {names}; copy them again")


def parts_of(index_path: str, names: Sequence[str]) -> list[str]:
    """Return where the tars lie that the index at ``index_path`` names.

    A single tar may be renamed, or copied, together with its index: then it is the one that is called as the index is.
    Raises StoreFormatError for a name that leads out of the index's folder.
    """
    if any(name in {"", ".."} or Path(name).name != name for name in names):
        msg = f"{index_path}: the index names a file outside of its folder"
        raise StoreFormatError(msg)
    beside = index_path.removesuffix(INDEX_ENDING) + ".tar"
    named = [str(Path(index_path).parent / name) for name in names]
    is_own = not index_path.endswith(".set" + INDEX_ENDING) or not os.path.lexists(named[0])
    return [beside] if len(names) == 1 and is_own and os.path.lexists(beside) else named


def set_of(path: str) -> str | None:
    """Return the index of the set that the tar at ``path`` is a file of, by its name; None where there is none."""
    index = index_of_set([path])
    return index if index is not None and exists(index) else None


def shards_beside(index_path: str, names: Sequence[str]) -> list[str]:
    """Return the tars that are called as the set's shards are, and that its index does not name."""
    for digits in re.finditer(r"[0-9]+", names[0]):
        start, stop = digits.span()
        prefix = str(Path(index_path).parent / names[0][:start]) if start else f"{Path(index_path).parent}/"
        pattern = ShardPattern(prefix, names[0][stop:], stop - start, 0, None)
        if Path(pattern.index_path) == Path(index_path):
            there = (pattern.name(number) for number in shards_there(pattern))
            return [path for path in there if Path(path).name not in names]
    return []
