"""One run packs to a destination at a time; the system lets go of the lock of a run that dies."""

from __future__ import annotations

import contextlib
import os
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from fastdata.converters.atomic import make_folder, partial_path, writing
from fastdata.errors import PackError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["RunLock", "lock_path"]


def lock_path(dst: str | os.PathLike[str]) -> Path:
    """Return the file beside ``dst`` that a run holds; of a set of tars, whatever its spelling, beside its index."""
    path = os.fspath(dst)
    if path.lower().endswith(".tar"):
        from fastdata.stores.tar_store import index_path_of  # noqa: PLC0415  tars only

        path = index_path_of(path)
    return partial_path(f"{Path(path)}.lock")


class RunLock:
    """Holds ``DST.lock.partial`` until ``release`` removes it; raises PackError where another run holds it.

    A file that a killed run left is taken over: what locks is flock, not that the file is there. Where the file system
    has no locks (ENOLCK on some network disks), or the system no flock, the run goes on without.
    """

    def __init__(self, dst: str | os.PathLike[str]) -> None:
        """Take the lock, without waiting; the folder of ``dst`` is made if need be."""
        path = lock_path(dst)
        self._end: Callable[[], object] | None = None
        with writing(dst):
            make_folder(path.parent)
            while (descriptor := _locked(path, dst)) is None:
                pass
        if descriptor >= 0:
            self._end = weakref.finalize(self, _release, descriptor, path, os.getpid())

    def release(self) -> None:
        """Let go, and leave nothing behind; may be called twice."""
        if self._end is not None:
            self._end()


def _locked(path: Path, dst: str | os.PathLike[str]) -> int | None:
    """Return the descriptor that holds the lock, -1 where there are no locks, None where its file is gone since."""
    try:
        import fcntl  # noqa: PLC0415  not everywhere
    except ImportError:
        return -1
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        msg = f"{os.fspath(dst)}: another run is packing there; wait for it, or stop it"
        raise PackError(msg) from error
    except OSError:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            path.unlink()
        return -1
    with contextlib.suppress(FileNotFoundError):
        # The run before may have removed the file between our opening and our locking it: then it locks nobody out.
        if os.path.samestat(os.fstat(descriptor), path.lstat()):
            return descriptor
    os.close(descriptor)
    return None


def _release(descriptor: int, path: Path, pid: int) -> None:
    if os.getpid() == pid:  # not in a fork of the run, which has the lock as well
        with contextlib.suppress(OSError):  # before the lock goes: whoever has it by then may not lose its file
            path.unlink()
    os.close(descriptor)
