"""Opens a pack to see what is wrong with it: what an ordinary open refuses is named, and the rest is opened.

What cannot be trusted is not guessed: a pack whose keys or labels are damaged has nothing that can be saved.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fastdata.errors import FastdataError, StoreError, StoreNotFoundError
from fastdata.stores.index import Index
from fastdata.stores.opener import open_store
from fastdata.stores.sidecar import Sidecar, read_sidecar, stamp_of
from fastdata.stores.store import Contents, Store
from fastdata.stores.tar_names import shard_pattern
from fastdata.stores.tar_scan import scan_tars
from fastdata.stores.tar_sets import INDEX_ENDING, index_path_of, parts_of, shards_there

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Problem", "Salvaged", "open_for_saving", "tar_index_of"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: its kind, the key it concerns ("" for none), and the text.

    kind: "open" (an ordinary open is refused), "shard" (a file is missing, cut short, swapped, renamed or changed),
    "index" (columns, headers or bytes between the records), "record" (its bytes), "decode", "label", "key".
    """

    kind: str
    key: str
    text: str


@dataclass(frozen=True, slots=True)
class Salvaged:
    """A pack, opened as far as it goes (None: not at all), what was wrong, and whether keys and labels are good.

    uncounted: missing shards of a set without an index, of which nobody knows how many samples they had.
    """

    store: Store | None
    problems: tuple[Problem, ...] = ()
    trusted: bool = True
    uncounted: int = 0


def open_for_saving(path: str | os.PathLike[str]) -> Salvaged:
    """Open a pack; where that is refused, open what can be opened of it, and say what was wrong. Raises nothing.

    A path at which nothing lies at all raises StoreNotFoundError, as it does everywhere.
    """
    name = os.fspath(path)
    try:
        return Salvaged(open_store(name, io="pread"))
    except StoreError as error:
        problems = [Problem("open", "", str(error))]
        if isinstance(error, StoreNotFoundError) and tar_index_of(name) is None:
            raise
    except Exception as error:  # noqa: BLE001  damage raises what it likes in the libraries below
        problems = [Problem("open", "", f"{name}: {type(error).__name__}: {error}")]
    try:
        index = tar_index_of(name)
        store, further, trusted = _open_those_there(name) if index is None else _open_tars(name, index)
    except (FastdataError, OSError) as error:
        return Salvaged(None, (*problems, Problem("index", "", str(error))), trusted=False)
    # What an ordinary open refuses is most often what is then found shard by shard: one thing is one problem.
    told = further if any(p.kind == "shard" for p in further) else (*problems, *further)
    return Salvaged(store, tuple(told), trusted=trusted, uncounted=0 if index else len(further))


def tar_index_of(path: str) -> str | None:
    """Return where the index of a tar or a set of tars lies, None where there is none."""
    if Path(path).is_dir():
        found = [str(p) for p in Path(path).glob("*" + INDEX_ENDING)]
        return found[0] if len(found) == 1 else None
    if not path.endswith((".tar", INDEX_ENDING)):
        return None
    index = path if path.endswith(INDEX_ENDING) else index_path_of(path)
    return index if Path(index).is_file() else None


def _open_tars(path: str, index_path: str) -> tuple[Store | None, list[Problem], bool]:
    try:
        sidecar = read_sidecar(index_path)
        index = Index.from_arrays(sidecar.columns, index_path, len(sidecar.shards))
    except (StoreError, OSError) as error:
        # The tars hold keys and labels themselves; only the class names are lost with the index.
        tars = _tars_beside(path, index_path)
        if not tars:
            raise
        contents = scan_tars(path, tars, "skip")
        note = Problem(
            "index", "", f"{index_path}: {error}; keys and labels are read from the tars, class names are lost"
        )
        return Store(contents, partial(open_store, path), "pread"), [note], True
    parts, problems = _find_parts(index_path, sidecar, _samples_of_parts(index, len(sidecar.shards)))
    contents = Contents(path, "tar", parts, index, sidecar.info)
    return Store(contents, partial(open_store, path), "pread"), problems, True


def _open_those_there(path: str) -> tuple[Store | None, list[Problem], bool]:
    """Open the tars that are there of a pattern without an index; those that are missing are named."""
    pattern = shard_pattern(path)
    if pattern is None or "::" in path or Path(path).is_dir():
        return None, [], False
    numbers = shards_there(pattern)
    there = [pattern.name(number) for number in numbers]
    if not there:
        return None, [], False
    last = numbers[-1] if pattern.stop is None else pattern.stop - pattern.start
    gone = sorted(set(range(last + 1)) - set(numbers))
    names = [pattern.name(number) for number in gone]
    problems = [Problem("shard", "", f"{name}: this shard is missing; copy it again") for name in names]
    contents = scan_tars(path, [name for name in there if name not in names], "skip")
    return Store(contents, partial(open_store, path), "pread"), problems, True


def _samples_of_parts(index: Index, parts: int) -> NDArray[np.int64]:
    """Return how many samples have their image in each part, by the index."""
    part = np.asarray(index.fields["image"].part, np.int64) if "image" in index.fields else np.zeros(0, np.int64)
    return np.bincount(part[(part >= 0) & (part < parts)], minlength=parts)


def _find_parts(index_path: str, sidecar: Sidecar, held: NDArray[np.int64]) -> tuple[list[str], list[Problem]]:
    """Return where each shard lies: by its size and first header, whatever its name is by now."""
    folder = Path(index_path).parent
    there: dict[tuple[int, int], list[str]] = {}
    for file in sorted(folder.glob("*.tar*")):
        if file.is_file():
            there.setdefault((file.stat().st_size, stamp_of(str(file))), []).append(str(file))
    parts, problems = [], []
    names = parts_of(index_path, [shard.name for shard in sidecar.shards])
    for named, shard, samples in zip(names, sidecar.shards, held.tolist(), strict=True):
        found = there.get((shard.size, shard.stamp), [])
        if named in found:
            parts.append(named)
            continue
        parts.append(found[0] if found else named)
        if found:
            text = f"{named}: this shard lies there as {Path(found[0]).name}: it was renamed or swapped; rename it back"
        elif not Path(named).exists():
            text = f"{named}: this shard is missing, with {samples} sample{'s' * (samples != 1)}; copy it again"
        else:
            size = Path(named).stat().st_size
            what = f"another file than the one that was packed ({size} bytes, {shard.size} were packed)"
            text = f"{named}: {what}; the index {index_path} was made for another version of it"
        problems.append(Problem("shard", "", text))
    return parts, problems


def _tars_beside(path: str, index_path: str) -> list[str]:
    """Return the tars of the set whose index is damaged: those its name stands for."""
    if path.endswith(".tar") and Path(path).is_file():
        return [path]
    prefix = Path(index_path).name.removesuffix(INDEX_ENDING).removesuffix(".set")
    name = re.compile(re.escape(prefix) + r"[-_.]?\d*\.tar")
    return sorted(str(p) for p in Path(index_path).parent.glob("*.tar") if name.fullmatch(p.name))
