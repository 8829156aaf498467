"""Several batches prepared at once: what a numpy call costs beside its rows is shared by the rows of all of them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

from fastdata.types import Encoded, Geometry

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Group", "Prepared"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """The encoded bytes, the draws and the geometry of n samples, row by row."""

    encoded: Encoded
    draws: NDArray[np.float64]
    geometry: Geometry

    def rows(self, start: int, stop: int) -> Prepared:
        """Return rows ``start`` to ``stop``: views."""
        at, e, g = slice(start, stop), self.encoded, self.geometry
        encoded = Encoded(
            e.address[at], e.length[at], e.codec[at], e.width[at], e.height[at], _Part(e.views, start, stop), e.keep
        )
        geometry = Geometry(  # dataclasses.replace takes three times as long
            g.box[at], g.window[at], g.size[at], g.rect[at], g.hflip[at], g.vflip[at],
            g.fill, g.interpolation, g.antialias,
        )  # fmt: skip
        return Prepared(encoded, self.draws[at], geometry)


class Group:
    """The samples of several batches; prepared by whichever thread needs one of them first. Safe for many threads."""

    __slots__ = ("_ahead", "_asked", "_done", "_lock", "_prepared", "indices", "positions")

    def __init__(
        self, indices: NDArray[np.int64], positions: NDArray[np.int64], ahead: NDArray[np.int64] | None = None
    ) -> None:
        """Borrow sample indices and global positions, int64 (n,); ahead: what to ask the kernel for in their place."""
        self.indices, self.positions, self._ahead = indices, positions, ahead
        self._lock = threading.Lock()
        self._done, self._asked = False, 0
        self._prepared: Prepared | None = None

    def prepared(self, prepare: Callable[[Group], Prepared | None]) -> Prepared | None:
        """Return what ``prepare`` makes of this group, made once; None where its batches must go one by one."""
        with self._lock:
            if not self._done:
                self._prepared, self._done = prepare(self), True
            return self._prepared

    def not_asked(self, stop: int) -> NDArray[np.int64]:
        """Return the samples before row ``stop``, or those ahead, that no call before this one has returned."""
        with self._lock:
            if self._ahead is not None:
                ahead, self._ahead = self._ahead, self._ahead[:0]
                return ahead
            start, self._asked = self._asked, max(self._asked, stop)
        return self.indices[start:stop]


class _Part(Sequence[memoryview]):
    """A slice of a sequence of views that makes them only when they are asked for."""

    __slots__ = ("_start", "_stop", "_views")

    def __init__(self, views: Sequence[memoryview], start: int, stop: int) -> None:
        self._views, self._start, self._stop = views, start, min(stop, len(views))

    def __len__(self) -> int:
        return self._stop - self._start

    @overload
    def __getitem__(self, i: int) -> memoryview: ...
    @overload
    def __getitem__(self, i: slice) -> list[memoryview]: ...
    def __getitem__(self, i: int | slice) -> memoryview | list[memoryview]:
        if isinstance(i, slice):
            return [self[at] for at in range(*i.indices(len(self)))]
        if not -len(self) <= i < len(self):
            msg = f"view {i} of {len(self)}"
            raise IndexError(msg)
        return self._views[self._start + i % len(self)]
