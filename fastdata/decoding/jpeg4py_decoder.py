"""jpeg4py: the system's libturbojpeg by cffi."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import jpeg4py
import numpy as np

from fastdata.decoding.jpeg_adapter import AdaptedDecoder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastdata.decoding.header_fields import Header

__all__ = ["make_decoder"]


def make_decoder() -> AdaptedDecoder:
    """Return a Decoder by jpeg4py; importing this module raises OSError where the system has no libturbojpeg."""
    return AdaptedDecoder(_decode)


def _decode(data: bytes | memoryview, header: Header) -> NDArray[np.uint8]:
    grey = header.channels == 1
    job = jpeg4py.JPEG(np.frombuffer(data, np.uint8))
    try:
        pixels = job.decode(pixfmt=jpeg4py.TJPF_GRAY if grey else jpeg4py.TJPF_RGB)
    except Exception:
        # jpeg4py keeps its handles for the next file, and one that failed repeats its error for every file after it
        # (seen with 0.1.4 and libturbojpeg 2.1.5): this one is not kept.
        job.decompressor = None
        raise
    return cast("NDArray[np.uint8]", pixels.reshape(header.height, header.width, header.channels))
