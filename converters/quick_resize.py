"""JPEG to resized picture without the detour over all its pixels in Python's memory.

By the compiled core where it was built: Pillow's very bits, in less than half the time. With ``fidelity="fast"`` JPEGs
are decoded smaller first where the target leaves room, by the core or else by Pillow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

import numpy as np

from fastdata.converters.draft import MARGIN, by_pillow, scale_of
from fastdata.decoding.jpeg_adapter import is_usual_jpeg
from fastdata.decoding.native_decoder import NativeBatchDecoder, available
from fastdata.decoding.pixels import upright
from fastdata.types import CODEC_IDS, Encoded, Geometry

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastdata.converters.options import PackOptions
    from fastdata.decoding.header_fields import Header

__all__ = ["Drafted", "QuickResizer", "Resized"]

#: Who decoded a picture smaller than it is; "": nobody, it was decoded whole.
Drafted = Literal["", "core", "pillow"]


@dataclass(frozen=True, slots=True)
class Resized:
    """A picture in its new size, upright, uint8 HWC, and who decoded it smaller for that."""

    pixels: NDArray[np.uint8]
    drafted: Drafted = ""


class QuickResizer:
    """Decodes and resizes JPEGs in the caller's thread; says None to everything else.

    Exact: upright ones. Fast: all where the target leaves room to decode smaller, with Pillow where the core is not.
    """

    def __init__(self, options: PackOptions) -> None:
        """Make nothing where the core was not built, or where nothing is resized."""
        self._options = options
        self._fast = options.fidelity == "fast"
        self._decoder: NativeBatchDecoder | None = None
        if options.resize is not None and available():
            margin = MARGIN if self._fast else 0
            self._decoder = NativeBatchDecoder(0, margin=margin, max_pixels=options.max_pixels)

    def resized(self, data: bytes, header: Header, size: tuple[int, int]) -> Resized | None:
        """Return the whole picture resampled to ``size`` (upright); None where the usual road must be taken.

        A file that is damaged is one of those, so that all roads refuse the same files with the same words.
        """
        turn = header.orientation if self._options.orientation == "apply" else 1
        stored = size[::-1] if turn in {5, 6, 7, 8} else size
        scale = scale_of(header, stored) if self._fast else 1
        if scale == 1 and turn != 1:
            return None  # resampled before it is turned, it is not Pillow's to the bit
        drafted: Drafted = "core"
        pixels = self._by_core(data, header, stored)
        if pixels is None and scale > 1:
            drafted = "pillow"
            pixels = by_pillow(data, header, stored, self._options)
        if pixels is None:
            return None
        return Resized(pixels if turn == 1 else upright(pixels, turn), drafted if scale > 1 else "")

    def close(self) -> None:
        """Let go of the core; may be called twice."""
        if self._decoder is not None:
            self._decoder.close()

    def __enter__(self) -> Self:
        """Return this."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _by_core(self, data: bytes, header: Header, size: tuple[int, int]) -> NDArray[np.uint8] | None:
        if self._decoder is None or not is_usual_jpeg(data, header):
            return None
        pixels = np.empty((size[1], size[0], len(self._options.mode)), np.uint8)
        failed = self._decoder.attempt(_one(data, header), self._whole(header, size), pixels[np.newaxis])
        return None if failed else pixels

    def _whole(self, header: Header, size: tuple[int, int]) -> Geometry:
        box = np.array([[0, 0, header.width, header.height]], np.int32)
        flip = np.zeros(1, np.bool_)
        rect = np.array([[0, 0, *size]], np.int32)
        return Geometry(
            box,
            box.astype(np.float64),
            rect[:, 2:],
            rect,
            flip,
            flip,
            interpolation=self._options.filter,
            antialias=True,
        )


def _one(data: bytes, header: Header) -> Encoded:
    memory = np.frombuffer(data, np.uint8)
    return Encoded(
        address=np.array([memory.__array_interface__["data"][0]], np.uint64),
        length=np.array([len(data)], np.int64),
        codec=np.array([CODEC_IDS["jpeg"]], np.uint8),
        width=np.array([header.width], np.int32),
        height=np.array([header.height], np.int32),
        views=[memoryview(data)],
        keep=memory,
    )
