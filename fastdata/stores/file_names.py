"""Names of files in one buffer, and the keys of samples made from them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from fastdata.stores.index import KeyColumn

__all__ = ["FileNames", "keys_of"]


class FileNames(Sequence[str]):
    """Paths under one folder; a million names cost their bytes, no objects."""

    def __init__(self, root: str, names: KeyColumn) -> None:
        """Hold ``names`` (relative to ``root``, or absolute)."""
        self._root, self._names = root, names

    def __len__(self) -> int:
        """Return the number of files."""
        return len(self._names)

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: int | slice) -> str | list[str]:
        """Return one path, or the paths of a slice."""
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        if not -len(self) <= i < len(self):
            msg = f"file {i} of {len(self)}"
            raise IndexError(msg)
        return os.path.join(self._root, self._names[i % len(self)])  # noqa: PTH118  twice as fast, once per read


def keys_of(names: Sequence[str]) -> list[str]:
    """Return the keys of the files of ONE folder: the name without its last ending, in full where two would be one."""
    stems = [_stem(name) for name in names]
    keys = stems
    while True:
        count = Counter(keys)
        if len(count) == len(keys):
            return keys
        # Full names differ, so each round that finds two alike lengthens some, and the rounds come to an end.
        longer = [name if count[key] > 1 else key for name, key in zip(names, keys, strict=True)]
        if longer == keys:
            return keys  # one file named twice: the caller says what that means
        keys = longer


def _stem(name: str) -> str:
    dot = name.rfind(".")
    return name[:dot] if dot > 0 else name
