"""Slots: memory that batches are decoded into, used again when nobody looks at it any more."""

from __future__ import annotations

import math
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["SlotRing"]


class SlotRing:
    """Lends arenas of bytes; each comes back when the last tensor, view, numpy array or graph over it is gone.

    A batch that somebody keeps is never overwritten: its arena just does not come back, and another is made. With
    ``pinned`` the arenas are page-locked, so that copies to a CUDA device need no staging. At most ``spare`` arenas
    lie unused. Safe for many threads.
    """

    def __init__(self, *, pinned: bool = False, spare: int = 4) -> None:
        """Allocate nothing yet."""
        self._pinned = pinned
        # A bounded deque drops the oldest arena by itself; append and pop are atomic, and a finaliser may run in the
        # middle of anything, so no lock is taken here.
        self._free: deque[torch.Tensor] = deque(maxlen=spare)
        self._size = 0

    def lease(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return an array of this shape and dtype over an arena, holding anything.

        Give this very object to ``torch.from_numpy``: the arena comes back when it dies, and the tensor's storage
        keeps it. Views of it taken by numpy do not.
        """
        size = math.prod(shape) * dtype.itemsize
        self._size = max(self._size, size)
        arena = self._take(size)
        array: NDArray[Any] = np.ndarray(shape, dtype, buffer=arena.numpy().data)
        weakref.finalize(array, self._free.append, arena).atexit = False
        return array

    def _take(self, size: int) -> torch.Tensor:
        while True:
            try:
                arena = self._free.pop()
            except IndexError:
                # Room to grow: batches of changing sizes settle on one size of arena after a few of them.
                return torch.empty(max(size, self._size), dtype=torch.uint8, pin_memory=self._pinned)
            if arena.numel() >= size:
                return arena
