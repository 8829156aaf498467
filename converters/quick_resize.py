"""JPEG to resized picture in one call of the compiled core, where it was built: Pillow's very bits, twice as fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np
from PIL import Image

from fastdata.decoding.jpeg_adapter import is_usual_jpeg
from fastdata.decoding.native_decoder import NativeBatchDecoder, available
from fastdata.types import CODEC_IDS, Encoded, Geometry

if TYPE_CHECKING:
    from fastdata.converters.options import PackOptions
    from fastdata.decoding.header_fields import Header

__all__ = ["QuickResizer"]


class QuickResizer:
    """Decodes and resizes upright RGB JPEGs with one thread of the core; says None to everything else."""

    def __init__(self, options: PackOptions) -> None:
        """Start nothing where the core was not built, or where nothing is resized to RGB."""
        self._options = options
        self._decoder: NativeBatchDecoder | None = None
        if options.resize is not None and options.mode == "RGB" and available():
            self._decoder = NativeBatchDecoder(1, max_pixels=options.max_pixels)

    def resized(self, data: bytes, header: Header, size: tuple[int, int]) -> Image.Image | None:
        """Return the whole picture resampled to ``size``; None where the usual road must be taken.

        A file that is damaged is one of those, so that both roads refuse the same files with the same words.
        """
        if self._decoder is None or not self._takes(data, header):
            return None
        pixels = np.empty((1, size[1], size[0], 3), np.uint8)
        if self._decoder.decode_batch(_one(data, header), self._whole(header, size), pixels):
            return None
        return Image.fromarray(pixels[0])

    def close(self) -> None:
        """Stop the thread; may be called twice."""
        if self._decoder is not None:
            self._decoder.close()

    def __enter__(self) -> Self:
        """Return this."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _takes(self, data: bytes, header: Header) -> bool:
        upright = header.orientation == 1 or self._options.orientation == "keep"
        return upright and header.codec == "jpeg" and is_usual_jpeg(data, header)

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
