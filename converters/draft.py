"""Where ``fidelity="fast"`` decodes a JPEG smaller than it is, and Pillow's road to such a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastdata.converters.resizing import resized
from fastdata.decoding.pillow_arrays import own_array
from fastdata.decoding.pillow_decoder import convert
from fastdata.decoding.pillow_files import check_pixels, guarded, open_image
from fastdata.errors import DecodeError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fastdata.converters.options import PackOptions
    from fastdata.decoding.header_fields import Header

__all__ = ["MARGIN", "by_pillow", "scale_of"]

#: A picture is never decoded to less than this many times its target: reducing_gap's default in Pillow's thumbnail.
MARGIN = 2
_SCALES = (8, 4, 2)  # libjpeg's quick ones
_BITS = 8


def scale_of(header: Header, size: tuple[int, int]) -> int:
    """Return by how many times (8, 4, 2; 1: not at all) a JPEG is decoded smaller to become ``size`` (stored axes)."""
    if header.codec != "jpeg" or header.bits != _BITS:
        return 1
    room = min(header.width // (MARGIN * size[0]), header.height // (MARGIN * size[1]))
    return next((scale for scale in _SCALES if room >= scale), 1)


def by_pillow(data: bytes, header: Header, size: tuple[int, int], options: PackOptions) -> NDArray[np.uint8] | None:
    """Return the picture in ``size`` (stored axes, not turned), uint8 HWC, decoded smaller; None where Pillow cannot.

    The pixels are those of the compiled core with the same margin. What is wrong with a file, the usual road says.
    """

    def work() -> NDArray[np.uint8] | None:
        check_pixels(header, options.max_pixels)
        with open_image(data, header) as image:
            drafted = image.draft(None, (MARGIN * size[0], MARGIN * size[1]))
            if drafted is None:
                return None
            image.load()
            # The box is not whole where the scale does not divide the sides: the last column holds a part of a pixel.
            return own_array(resized(convert(image, options.mode), size, options, box=drafted[1]))

    try:
        return guarded(work, f"{header.codec} of {len(data)} bytes", header.pixels)
    except DecodeError:
        return None
