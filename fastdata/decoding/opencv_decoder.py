"""OpenCV: its own libjpeg-turbo, EXIF orientation switched off."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import cv2
import numpy as np

from fastdata.decoding.jpeg_adapter import AdaptedDecoder, is_sound_jpeg

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastdata.decoding.header_fields import Header

__all__ = ["make_decoder"]


def make_decoder() -> AdaptedDecoder:
    """Return a Decoder by OpenCV."""
    return AdaptedDecoder(_decode, is_sound_jpeg)


def _decode(data: bytes | memoryview, header: Header) -> NDArray[np.uint8] | None:
    colours = cv2.IMREAD_GRAYSCALE if header.channels == 1 else cv2.IMREAD_COLOR_RGB
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), colours | cv2.IMREAD_IGNORE_ORIENTATION)
    if pixels is None:  # OpenCV's way to refuse
        return None
    return cast("NDArray[np.uint8]", pixels if header.channels > 1 else pixels[:, :, np.newaxis])
