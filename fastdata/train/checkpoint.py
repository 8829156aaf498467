"""Checkpoints: one file that is there whole or not at all, and is read without running code."""

from __future__ import annotations

import errno
import os
import pickle
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fastdata.errors import StoreFormatError, StoreNotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["load_checkpoint", "save_checkpoint"]

_FORMAT = "fastdata-checkpoint-1"


def save_checkpoint(path: str | os.PathLike[str], state: Mapping[str, Any]) -> None:
    """Write ``state`` (tensors, numbers, strings, lists and dicts of them) to ``path``, replacing what lay there.

    Whoever reads ``path`` meanwhile, or after a crash, finds the old file or the new one, never half of one.
    """
    target = Path(path)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            torch.save({"format": _FORMAT, "state": dict(state)}, file)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def load_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the state saved at ``path``, tensors on the CPU; raise StoreNotFoundError or StoreFormatError.

    Read with torch.load(weights_only=True): a file from a stranger can fail, not run code.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        msg = f"there is no checkpoint at {path}"
        raise StoreNotFoundError(msg) from error
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # EINVAL: torch seeks before a cut file's start
            raise
        reason = str(error).partition("\n")[0]
        msg = f"{path} is not a checkpoint, or a damaged one: {reason}"
        raise StoreFormatError(msg) from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        msg = f"{path} is no checkpoint of fastdata train"
        raise StoreFormatError(msg)
    state: dict[str, Any] = content["state"]
    return state


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
