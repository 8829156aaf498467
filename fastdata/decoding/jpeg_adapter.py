"""What all backends around libjpeg share: which files they get, and one verdict on damage.

A backend decodes the files it is known to decode like Pillow (8-bit, sequential or progressive Huffman JPEGs of one
or three components). Everything else takes the reference road: other formats, CMYK, 12 bit, stray bytes between
segments, data cut short. And whatever a backend refuses or warns of is decided by Pillow, so that no file is good with
one backend and bad with another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from fastdata.decoding.header import probe
from fastdata.decoding.jpeg_markers import is_sound
from fastdata.decoding.pillow_arrays import own_array
from fastdata.decoding.pillow_decoder import decode_with_pillow
from fastdata.decoding.pillow_files import check_pixels
from fastdata.types import TORCHVISION_PIXELS

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fastdata.decoding.header_fields import Header
    from fastdata.types import Mode

    Decode = Callable[[bytes | memoryview, Header], NDArray[np.uint8] | None]

__all__ = ["AdaptedDecoder", "is_sound_jpeg", "is_usual_jpeg"]

_HUFFMAN = frozenset({0, 1, 2})  # SOF numbers: baseline, extended sequential, progressive
_USUAL_BITS = 8


def is_usual_jpeg(data: bytes | memoryview, header: Header) -> bool:  # noqa: ARG001  the signature of ``takes``
    """Return whether every libjpeg decodes such a file alike: 8 bit, grey or colour, nothing odd in its header.

    Enough for a library that raises where libjpeg warns.
    """
    return (
        header.codec == "jpeg"
        and header.process in _HUFFMAN
        and header.bits == _USUAL_BITS
        and header.channels in {1, 3}
        and header.plain
    )


def is_sound_jpeg(data: bytes | memoryview, header: Header) -> bool:
    """Return the same and whether its markers are all there: for a library that is silent where libjpeg warns.

    Such a library fills what is missing with grey, or prints on stderr. A file damaged between two markers still gets
    to it; Pillow takes most of those, too, so the verdict is the same.
    """
    return is_usual_jpeg(data, header) and is_sound(data, header)


class AdaptedDecoder:
    """One Decoder around one library's function.

    ``decode(data, header)`` returns uint8 (H, W, stored channels), or None, or raises, where the library refuses or
    warns. ``takes(data, header)`` says which files the library is asked for at all.
    """

    def __init__(self, decode: Decode, takes: Callable[[bytes | memoryview, Header], bool] = is_usual_jpeg) -> None:
        """Keep both functions; ``max_pixels`` may be set to another limit, or to None."""
        self._decode = decode
        self._takes = takes
        self.max_pixels = TORCHVISION_PIXELS.max_pixels

    def __call__(self, data: bytes | memoryview, mode: Mode = "RGB") -> NDArray[np.uint8]:
        """Return uint8 HWC, C-contiguous, own memory; raise DecodeError."""
        header = probe(data)
        check_pixels(header, self.max_pixels)
        if self._takes(data, header):
            try:
                pixels = self._decode(data, header)
            except Exception:  # noqa: BLE001  each library has its own; the reference decides, and names the reason
                pixels = None
            if pixels is not None and pixels.shape == (header.height, header.width, header.channels):
                return _in_mode(pixels, mode)
        return decode_with_pillow(data, mode, header)


def _in_mode(pixels: NDArray[np.uint8], mode: Mode) -> NDArray[np.uint8]:
    channels = pixels.shape[2]
    if mode == "RGB" and channels == 1:
        return np.repeat(pixels, 3, axis=2)
    if mode == "L" and channels == 3:  # noqa: PLR2004  RGB
        height, width, _ = pixels.shape
        # Pillow's weights; libjpeg's own grey (the Y channel) differs from them by several levels.
        grey = Image.frombuffer("RGB", (width, height), pixels, "raw", "RGB", 0, 1).convert("L")
        return own_array(grey)
    return pixels
