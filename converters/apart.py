"""Keeps what is written apart from what is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fastdata.errors import OptionError
from fastdata.stores.tar_names import ShardPattern, shard_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["keep_apart"]


def keep_apart(places: Iterable[str], dst: str) -> None:
    """Raise OptionError where writing ``dst`` would write into a source, or replace one (of a set: a shard).

    places: the files and folders of the sources.
    """
    target = (Path(dst).absolute().parent.resolve() / Path(dst).name).resolve()
    pattern = shard_pattern(target.name)
    for name in places:
        place = Path(name).resolve()
        shard = pattern is not None and place.parent == target.parent and _is_shard(pattern, place.name)
        if shard or target == place or target in place.parents or place in target.parents:
            msg = f"the destination {dst} lies in the source {name}, or holds it: nothing is written there"
            raise OptionError(msg)


def _is_shard(pattern: ShardPattern, name: str) -> bool:
    return name.startswith(pattern.prefix) and name.removeprefix(pattern.prefix).removesuffix(pattern.suffix).isdigit()
