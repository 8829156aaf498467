"""What is wrong with a pack's files as wholes: seals, columns, shards, and what lies between the records."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from fastdata.converters.salvage import Problem, tar_index_of
from fastdata.converters.seal import broken_seal, has_seal, rest_sum, spans_of
from fastdata.errors import StoreError
from fastdata.stores.tar_sets import shards_beside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastdata.stores.store import Store

__all__ = ["missing_parts", "pack_problems"]


def pack_problems(store: Store) -> tuple[list[Problem], list[str], bool]:
    """Return what is wrong with whole files, what could not be checked, and whether keys and labels are good."""
    if store.kind == "tar":
        return _tar_problems(store)
    if store.kind in {"lmdb", "hdf5"}:
        return _file_problems(store)
    return [], [f"{store.path}: no pack of fastdata, so there are no checksums to compare with"], True


def missing_parts(store: Store) -> frozenset[int]:
    """Return the numbers of a set's shards that are not there; its samples are lost with them."""
    if store.kind != "tar":
        return frozenset()
    return frozenset(part for part, path in enumerate(store.parts) if not Path(path).exists())


def _file_problems(store: Store) -> tuple[list[Problem], list[str], bool]:
    path = store.parts[0]
    sealed = has_seal(path)
    if "content_hash" not in store.info and not sealed:
        return [], [f"{store.path}: no pack of fastdata, so there are no checksums to compare with"], True
    problems = [Problem("index", "", f"{path}: {text}") for text in _wrong_columns(store)]
    trusted = not problems
    if not sealed and (not store.info.get("sealed") or (store.kind == "lmdb" and _was_rewritten(path))):
        note = f"{path}: written by another version or program since: bytes outside of the records cannot be checked"
        return problems, [note], trusted
    try:
        text = broken_seal(path, store.index)
    except OSError as error:
        text = str(error)
    if text:
        problems.append(Problem("index", "", f"{path}: {text}"))
    return problems, [], trusted


def _wrong_columns(store: Store) -> Iterator[str]:
    """Yield what is wrong with the columns of an HDF5 pack; those of the other formats are summed when opened."""
    told = store.info.get("columns")
    if not isinstance(told, dict):
        return
    arrays = store.index.to_arrays()
    for name, wanted in told.items():
        if name not in arrays or zlib.crc32(arrays[name].data) != wanted:
            yield f"column {name!r} of the index was changed after packing (CRC-32)"


def _was_rewritten(path: str) -> bool:
    """Whether LMDB itself has written to the file, or copied it with compaction, since it was packed."""
    from fastdata.stores.lmdb_store import was_rewritten  # noqa: PLC0415  LMDB only

    try:
        return was_rewritten(path)
    except StoreError:
        return False


def _tar_problems(store: Store) -> tuple[list[Problem], list[str], bool]:
    index_path = tar_index_of(store.path)
    seals = store.info.get("seals")
    if not isinstance(seals, list) or len(seals) != len(store.parts) or not all(map(_is_seal, seals)):
        if "content_hash" in store.info:
            return (
                [],
                [f"{store.path}: written by an older version: bytes outside of the records are not checked"],
                True,
            )
        text = "no index lies beside it, so there are no checksums to compare with"
        told = store.info.get("without_index")
        if told and index_path is None:
            lost = "class names and checksums" if store.index.label is not None else "checksums"
            return [Problem("index", "", f"{store.path}: {lost} are lost: {told}")], [], True
        if told:  # its index is damaged, which was said when it was opened
            return [], [], True
        return [], [f"{store.path}: {text}"], True
    problems: list[Problem] = []
    gone = missing_parts(store)  # named when the set was opened
    for part, (path, (rest, idx)) in enumerate(zip(store.parts, seals, strict=True)):
        if part not in gone:
            problems += _shard_problems(store, part, path, (rest, idx))
    for path in shards_beside(index_path, [Path(part).name for part in store.parts]) if index_path else ():
        text = f"{path}: this tar lies beside the set, whose index says {len(seals)} and does not name it; remove it"
        problems.append(Problem("shard", "", text))
    problems += _padding_problems(index_path)
    return problems, [], True


def _is_seal(seal: object) -> bool:
    return isinstance(seal, list) and [type(part) for part in seal] == [int, int]


def _shard_problems(store: Store, part: int, path: str, wanted: tuple[int, int]) -> Iterator[Problem]:
    if Path(path).exists() and not Path(path).is_file():
        yield Problem("shard", "", f"{path}: a pipe, a device or a folder, where a shard should be")
        return
    try:
        if rest_sum(path, *spans_of(store.index, part), Path(path).stat().st_size) != wanted[0]:
            text = f"{path}: bytes outside of the records (headers, labels or padding) were changed (CRC-32)"
            yield Problem("shard", "", text)
    except OSError as error:
        yield Problem("shard", "", f"{path}: cannot be read ({error.strerror})")
    idx = path.removesuffix(".tar") + ".idx"
    try:
        if zlib.crc32(Path(idx).read_bytes()) != wanted[1]:
            yield Problem("shard", "", f"{idx}: DALI's index of this shard was changed (CRC-32); repair writes it anew")
    except OSError as error:
        yield Problem("shard", "", f"{idx}: DALI's index of this shard cannot be read ({error.strerror})")


def _padding_problems(index_path: str | None) -> Iterator[Problem]:
    from fastdata.stores.sidecar import padding_is_zero  # noqa: PLC0415  tars only

    if index_path is not None and not padding_is_zero(index_path):
        yield Problem("index", "", f"{index_path}: bytes between its columns were changed after packing")
