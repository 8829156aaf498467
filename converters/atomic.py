"""A pack appears under its name only when it is whole: written under ``DST.partial``, synced, renamed."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fastdata.errors import DestinationExistsError, PackError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Partial", "incomplete_pack", "make_folder", "no_such_disk", "partial_path", "sync_folder", "writing"]

_SUFFIX = ".partial"
_OF_LMDB = frozenset({"data.mdb", "lock.mdb"})  # all that a folder of LMDB holds


def partial_path(dst: str | os.PathLike[str]) -> Path:
    """Return the temporary name beside ``dst``: its name with ``.partial`` behind it."""
    path = Path(dst)
    return path.with_name(path.name + _SUFFIX)


class Partial:
    """One file or folder in the making: write to ``path``, then ``commit``; ``abort`` removes it.

    Raises DestinationExistsError where something lies at ``dst``, or where an unfinished ``dst.partial`` does, unless
    ``overwrite`` is given; and always where a folder lies there that holds more than an LMDB pack. What is overwritten
    stays whole until the commit.
    """

    def __init__(self, dst: str | os.PathLike[str], *, overwrite: bool = False, keep: bool = False) -> None:
        """Claim the temporary name; its folder is made if need be. keep: what lies there already stays for now."""
        self.dst, self.path = Path(dst), partial_path(dst)
        self._done = False
        if not overwrite:
            _refuse_existing(self.dst, self.path)
        _refuse_foreign(self.dst)
        with writing(self.dst):
            make_folder(self.dst.parent)
            if not keep:
                _remove(self.path)

    def commit(self) -> None:
        """Sync everything under ``path`` to disk, give it its name, sync the folder; the pack exists from here on."""
        if self._done:
            return
        with writing(self.dst):
            _sync_tree(self.path)
            _replace(self.path, self.dst)
            sync_folder(self.dst.parent)
        self._done = True

    def abort(self) -> None:
        """Remove what was written; may be called twice, and after commit, where it does nothing.

        What cannot be removed (any more) stays under its temporary name, which says that it is incomplete: the error
        that led here is the one to be seen.
        """
        if not self._done:
            self._done = True
            with suppress(OSError):
                _remove(self.path)


@contextmanager
def writing(dst: str | os.PathLike[str]) -> Iterator[None]:
    """Turn an OSError inside (disk full, no permission, ...) into a PackError that names ``dst``."""
    try:
        yield
    except OSError as error:
        if isinstance(error, PackError):
            raise
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        what = "the disk is full" if full else (error.strerror or str(error))
        hint = "; what lay there before is as it was: free some space, or pack to another disk" if full else ""
        hint = hint or no_such_disk(what)
        msg = f"cannot write {os.fspath(dst)}: {what}{hint}"
        raise PackError(msg) from error


def no_such_disk(what: str) -> str:
    """Return what to do where an error's text says that a file system (often a network's) cannot lock or map files."""
    if any(os.strerror(number) in what for number in (errno.ENOLCK, errno.ENODEV, errno.EOPNOTSUPP)):
        return "; its file system cannot lock or map files: pack to a local disk (TMPDIR), and copy the pack there"
    return ""


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Sync a folder's entries to disk, so that a rename survives a power cut; no-op where folders cannot be opened."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows opens no folders; its rename is durable without
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refuse_existing(dst: Path, partial: Path) -> None:
    if os.path.lexists(dst):
        msg = f"{dst} exists already; overwrite (--overwrite) replaces it, or choose another name"
        raise DestinationExistsError(msg)
    if os.path.lexists(partial):
        raise incomplete_pack(dst, partial)


def incomplete_pack(dst: str | os.PathLike[str], partial: Path) -> DestinationExistsError:
    """Return the error for what a stopped run left at ``partial``, with what can be done about it."""
    kept = os.path.lexists(f"{os.fspath(dst)}.resume")  # what converters.spool keeps
    resume = "resume (--resume) goes on with what it had finished, " if kept else ""
    return DestinationExistsError(
        f"{partial} is an incomplete pack: an earlier run was stopped before it was finished, or another one is at "
        f"work; {resume}overwrite (--overwrite) starts again from nothing, or choose another name"
    )


def _refuse_foreign(path: Path) -> None:
    """Raise DestinationExistsError where a folder lies there with anything that LMDB did not write."""
    if not path.is_dir() or path.is_symlink():
        return
    entries = sorted(path.iterdir())
    foreign = [entry.name for entry in entries if entry.name not in _OF_LMDB or entry.is_dir()]
    if foreign:
        msg = (
            f"{path} is a folder with files of others (the first: {foreign[0]}), and is not removed; "
            "move them elsewhere, or choose another name"
        )
        raise DestinationExistsError(msg)


def _remove(path: Path) -> None:
    _refuse_foreign(path)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _sync_tree(path: Path) -> None:
    files = [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else [path]
    for file in files:
        descriptor = os.open(file, os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    if path.is_dir():
        sync_folder(path)


def make_folder(folder: Path) -> None:
    """Make a folder that a power cut does not take away again, with all above it that are missing."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in missing:
        sync_folder(path.parent)


def _replace(source: Path, dst: Path) -> None:
    # rename replaces a file by a file at once; folders change places at once where the system can do that.
    if not (dst.is_dir() and not dst.is_symlink()) and not (source.is_dir() and os.path.lexists(dst)):
        source.replace(dst)
        return
    old = source
    if not _exchange(source, dst):
        old = partial_path(dst.with_name(dst.name + ".old"))
        _remove(old)
        dst.rename(old)
        source.rename(dst)
    sync_folder(dst.parent)  # before the old one goes: a power cut must not take both
    _remove(old)


def _exchange(one: Path, two: Path) -> bool:
    """Let two paths change places in one step; return False where the system or its file system cannot (Linux can)."""
    at_cwd, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE: linux/fcntl.h, linux/fs.h
    try:
        rename = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    return bool(rename(at_cwd, os.fsencode(one), at_cwd, os.fsencode(two), exchange) == 0)
