"""The reference: what Pillow makes of a file is what every other backend is held to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastdata.decoding.header import probe
from fastdata.decoding.pillow_arrays import own_array
from fastdata.decoding.pillow_files import check_pixels, guarded, open_image
from fastdata.errors import UnsupportedImageError
from fastdata.types import TORCHVISION_PIXELS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

    from fastdata.decoding.header_fields import Header
    from fastdata.types import Mode

__all__ = ["convert", "decode_with_pillow", "make_decoder"]


def make_decoder() -> PillowDecoder:
    """Return the reference decoder."""
    return PillowDecoder()


class PillowDecoder:
    """Decodes whatever Pillow reads: the pixels of ``Image.open(...).convert("RGB")``, first frame."""

    def __init__(self) -> None:
        """Begin with the usual limit; ``max_pixels`` may be set to another, or to None."""
        self.max_pixels = TORCHVISION_PIXELS.max_pixels

    def __call__(self, data: bytes | memoryview, mode: Mode = "RGB") -> NDArray[np.uint8]:
        """Return uint8 HWC, C-contiguous, own memory; raise DecodeError."""
        header = probe(data)
        check_pixels(header, self.max_pixels)
        return decode_with_pillow(data, mode, header)


def decode_with_pillow(data: bytes | memoryview, mode: Mode, header: Header) -> NDArray[np.uint8]:
    """Return uint8 HWC, C-contiguous, own memory: 3 channels for RGB, 1 for L, the stored ones for native.

    The header was read from the same data, and found not too large, before. native keeps the indices of a palette and
    the 0 and 1 of a bitmap; pixels of more than 8 bits are refused there.
    """

    def work() -> NDArray[np.uint8]:
        with open_image(data, header) as image:
            image.load()
            return own_array(convert(image, mode))

    return guarded(work, f"{header.codec} of {len(data)} bytes", header.pixels)


def convert(image: Image, mode: Mode) -> Image:
    """Return the loaded picture in ``mode`` as Pillow converts it, alpha dropped, without its warnings."""
    if mode == "native":
        if image.mode not in {"1", "L", "P", "LA", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV"}:
            msg = f"pixels of mode {image.mode} do not fit into 8 bits; ask for mode RGB or L"
            raise UnsupportedImageError(msg)
        return image
    if image.mode == mode:
        return image
    # A transparent colour changes no RGB value, but Pillow warns when it is bytes.
    image.info.pop("transparency", None)
    if image.mode == "LAB" and mode == "L":
        image = image.convert("RGB")
    return image.convert(mode)
