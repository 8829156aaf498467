"""``open_writer``: the writer for a destination, by its ending; a new format is one file and one row."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastdata.converters.atomic import partial_path
from fastdata.converters.run_lock import RunLock
from fastdata.errors import OptionError
from fastdata.registry import Row, load

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from fastdata.types import Record, Writer

__all__ = ["WRITERS", "WriterOptions", "is_finished", "is_half", "open_writer"]

#: Endings to writers: each is called with (dst, options).
WRITERS: dict[str, Row] = {
    ".lmdb": Row("fastdata.converters.lmdb_writer:LmdbWriter"),
    ".mdb": Row("fastdata.converters.lmdb_writer:LmdbWriter"),
    ".h5": Row("fastdata.converters.hdf5_writer:Hdf5Writer"),
    ".hdf5": Row("fastdata.converters.hdf5_writer:Hdf5Writer"),
    ".tar": Row("fastdata.converters.tar_writer:TarWriter"),
}


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """What a writer is told beside its destination.

    overwrite: replace what lies there. subdir: LMDB as a folder with data.mdb. shard_bytes, shard_count: where a tar
    set is split, by size or into that many parts (at most one of them). samples: the expected number, None if unknown.
    """

    overwrite: bool = False
    subdir: bool = False
    shard_bytes: int | None = None
    shard_count: int | None = None
    samples: int | None = None


def open_writer(
    dst: str | os.PathLike[str], options: WriterOptions | None = None, *, lock: RunLock | None = None
) -> Writer:
    """Return the writer for ``dst``; raise OptionError for an unknown ending or options that do not go together.

    One is open for a destination at a time (PackError). lock: what the caller has locked it with already.
    """
    options = options or WriterOptions()
    ending = os.path.splitext(os.fspath(dst))[1].lower()  # noqa: PTH122  of a brace set too
    if ending not in WRITERS:
        msg = f"{os.fspath(dst)}: no format has the ending {ending!r}; known: {', '.join(WRITERS)}"
        raise OptionError(msg)
    if options.shard_bytes is not None and options.shard_count is not None:
        msg = "give the size of a shard or the number of shards, not both"
        raise OptionError(msg)
    sharded = options.shard_bytes is not None or options.shard_count is not None
    if sharded and ending != ".tar":
        msg = f"{os.fspath(dst)}: only tar sets are split into shards; drop the option, or pack to a .tar"
        raise OptionError(msg)
    if options.subdir and "lmdb_writer" not in WRITERS[ending].target:
        msg = f"{os.fspath(dst)}: subdir is for LMDB; drop the option, or pack to a .lmdb"
        raise OptionError(msg)
    kind = load(WRITERS[ending])
    lock = lock or RunLock(dst)
    try:
        return _Alone(kind(dst, options), lock)
    except BaseException:
        lock.release()
        raise


class _Alone:
    """A writer, and the lock that keeps other runs from its files until it ends."""

    def __init__(self, writer: Writer, lock: RunLock) -> None:
        self._writer, self._lock = writer, lock

    def write(self, record: Record) -> None:
        """Append one record."""
        self._writer.write(record)

    def finish(self, info: Mapping[str, Any]) -> None:
        """Give the pack its name, and let others have it."""
        self._writer.finish(info)
        self._lock.release()

    def abort(self) -> None:
        """Remove what was written; may be called twice and after finish."""
        try:
            self._writer.abort()
        finally:
            self._lock.release()


def is_finished(dst: str | os.PathLike[str]) -> bool:
    """Whether something whole lies at ``dst`` already, and not only what a run left that was stopped."""
    path = os.fspath(dst)
    if not path.lower().endswith(".tar"):
        return os.path.lexists(path)
    if is_half(dst):
        return False
    from fastdata.stores.tar_names import shard_pattern  # noqa: PLC0415  tars only
    from fastdata.stores.tar_store import index_path_of  # noqa: PLC0415

    pattern = shard_pattern(path)
    return os.path.lexists(index_path_of(path)) or os.path.lexists(pattern.name(0) if pattern else path)


def is_half(dst: str | os.PathLike[str]) -> bool:
    """Whether a run was stopped while the files of a set of tars got their names; one file is never half there."""
    path = os.fspath(dst)
    if not path.lower().endswith(".tar"):
        return False
    from fastdata.stores.tar_store import index_path_of  # noqa: PLC0415  tars only

    return os.path.lexists(partial_path(index_path_of(path)))
