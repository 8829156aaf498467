"""simplejpeg (carries its own libjpeg-turbo): the default for JPEGs where the compiled core is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import simplejpeg

from fastdata.decoding.jpeg_adapter import AdaptedDecoder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fastdata.decoding.header_fields import Header

__all__ = ["make_decoder"]


def make_decoder() -> AdaptedDecoder:
    """Return a Decoder by simplejpeg."""
    return AdaptedDecoder(_decode)


def _decode(data: bytes | memoryview, header: Header) -> NDArray[np.uint8]:
    # strict (the default) raises over every warning, so the reference sees those files.
    colours = "GRAY" if header.channels == 1 else "RGB"
    return cast("NDArray[np.uint8]", simplejpeg.decode_jpeg(data, colours))
