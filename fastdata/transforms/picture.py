"""One picture on its way through pixel steps: planes of uint8, and a table of grey levels that waits to be applied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastdata.types import Levels

    Bytes = NDArray[np.uint8]

__all__ = ["Picture", "Room"]


class Room:
    """Working memory for pictures of one size, made when first asked for and used again for each picture.

    A picture of 224 x 224 stays in the cache this way. Not for two threads at once.
    """

    def __init__(self, height: int, width: int, *, copies: bool = False) -> None:
        """Allocate nothing yet. copies: pictures are worked on in a copy, as their memory is the result's."""
        self.height, self.width, self.copies = height, width, copies
        self._arrays: dict[tuple[str, type[np.generic]], NDArray[Any]] = {}

    def array(self, name: str, dtype: type[np.generic], planes: int = 0, *, last: int = 0) -> NDArray[Any]:
        """Return an array (H, W), (planes, H, W) or (H, W, last), that holds anything; the same one for a name."""
        found = self._arrays.get((name, dtype))
        if found is None:
            shape = (*([planes] if planes else []), self.height, self.width, *([last] if last else []))
            found = self._arrays[name, dtype] = np.empty(shape, dtype)
        return found


class Picture:
    """The planes (3, H, W) of a picture, changed in place.

    ``table``, where not None, is to be applied yet: uint8 (C, 256) or (1, 256). Steps that map grey levels only put
    their table behind it; steps that look at pixels call ``settle`` first.
    """

    __slots__ = ("channels", "planes", "room", "table")

    def __init__(self, planes: Bytes, room: Room, channels: int = 3) -> None:
        """Borrow ``planes``, three of them; with channels=1 only the first counts."""
        self.planes, self.room, self.channels = planes, room, channels
        self.table: Bytes | None = None

    def map(self, table: Bytes) -> None:
        """Map grey levels: uint8 (256,), or (C, 256) with a table for each channel."""
        table = table.reshape(-1, 256)
        before = self.table
        if before is None:
            self.table = table
        elif len(table) == 1:
            self.table = table[0][before]
        else:
            rows = np.arange(len(table))[:, None]
            self.table = table[rows, np.broadcast_to(before, table.shape)]

    def settle(self) -> Bytes:
        """Apply the table that waits; return the planes that count, (C, H, W)."""
        pixels = self.planes[: self.channels]
        table, self.table = self.table, None
        if table is not None:
            for row, planes in [(table[0], pixels)] if len(table) == 1 else zip(table, pixels, strict=False):
                _look_up(row, planes)
        return pixels

    def write(self, out: NDArray[Any], levels: Levels | None) -> None:
        """Write to ``out`` (C, H, W), any strides.

        With ``levels`` (C, 256) it is of their dtype, and memory that is not the planes'.
        """
        if levels is None:
            pixels = self.settle()
            if out.ctypes.data != pixels.ctypes.data:
                out[...] = pixels[: len(out)]
            return
        tables = np.broadcast_to(levels, (len(out), 256))
        if self.table is not None:
            tables = np.take_along_axis(tables, np.broadcast_to(self.table, tables.shape).astype(np.intp), axis=1)
        for table, plane, to in zip(tables, self.planes, out, strict=False):
            np.take(table, plane, out=to, mode="clip")


#: From how many pixels on a table of pairs is quicker than one of single ones (65,536 entries are to be made first).
_PAIRS_FROM = 40_000


def _look_up(table: Bytes, pixels: Bytes) -> None:
    """Replace pixels by their entries in ``table``; in place is safe, numpy copies the indices first."""
    if pixels.size < _PAIRS_FROM or pixels.size % 2 or not pixels.flags.c_contiguous:
        np.take(table, pixels, out=pixels, mode="clip")
        return
    wide = table.astype(np.uint16)
    pairs = (wide[:, None] << np.uint16(8) | wide[None]).reshape(-1)
    two_each = pixels.reshape(-1).view(np.uint16)
    np.take(pairs, two_each, out=two_each, mode="clip")
