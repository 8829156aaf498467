"""Whether all ranks share out the same order: found out without waiting for any of them."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from traceback import walk_stack
from typing import TYPE_CHECKING, Any

import torch

from fastdata.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["compare_with_ranks", "where_called"]


def where_called() -> str:
    """Return a name of the place in the program from which this is called, the same on every rank: all its callers."""
    frames = "".join(f"{Path(frame.f_code.co_filename).name}:{line} " for frame, line in walk_stack(None))
    return f"{zlib.crc32(frames.encode()):08x}"


def compare_with_ranks(where: str, values: Mapping[str, Any]) -> None:
    """Raise OptionError where a rank that was here before has other values for the loader that is this one there.

    The rank that comes first leaves its values in the store of torch.distributed's default group, the others compare
    theirs: no collective, so that a rank that iterates alone waits for nobody. Compared are loaders that were made at
    one place of the program (``where``), the n-th of them on one rank with the n-th on another, so that a loader that
    one rank alone has is compared with none.
    """
    store = _store()
    if store is None:
        return
    rank = torch.distributed.get_rank()
    try:
        number = store.add(f"fastdata/{where}/rank {rank}", 1)
        first = json.loads(store.compare_set(f"fastdata/{where}/{number}", "", json.dumps([rank, dict(values)])))
    except RuntimeError:  # whoever held the store has ended, and this rank may go on: there is nobody to differ from
        return
    other, theirs = first
    differing = [name for name in values if values[name] != theirs.get(name)]
    if differing:
        here, there = (", ".join(f"{name}={of[name]}" for name in differing) for of in (values, theirs))
        msg = (
            f"the ranks share out different orders, and samples would come twice or never: {there} on rank {other}, "
            f"{here} on rank {rank}; give each the same data set, arguments and state"
        )
        raise OptionError(msg)


def _store() -> Any:  # noqa: ANN401  torch's Store, which torch does not type
    """Return the store through which the ranks of the default group found each other, or None."""
    dist = torch.distributed
    if not (dist.is_available() and dist.is_initialized()):
        return None
    find = getattr(dist.distributed_c10d, "_get_default_store", None)  # torch's own modules use it; no public name
    return None if find is None else find()  # the mpi backend has none
