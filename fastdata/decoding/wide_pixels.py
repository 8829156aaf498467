"""Pictures of more than 8 bits a channel, with all their bits, through Pillow.

Pillow has no mode for 16-bit colour: its readers of such files keep each value's high byte. But they are told which
byte that is (rawmode "RGB;16B" or "RGB;16L"), so that reading twice, the second time with the order turned round, gives
the low bytes, too. Grey with alpha has the layout of 8-bit RGBA (four bytes a pixel) and is read as that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fastdata.decoding.pillow_files import open_image
from fastdata.errors import UnsupportedImageError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.ImageFile import ImageFile

    from fastdata.decoding.header_fields import Header

__all__ = ["load_wide"]

_OTHER_BYTE = {"B": "L", "L": "B", "N": "B"}  # N is the machine's order, little-endian wherever this runs
_SIXTEEN = 65535
_GREY = frozenset({"I;16", "I;16B", "I;16L", "I;16N"})


def load_wide(data: bytes | memoryview, header: Header) -> tuple[NDArray[np.uint16], NDArray[np.uint16] | None] | None:
    """Return colours (H, W, 1 or 3) and alpha (H, W, 1) or None, both 0..65535; None where Pillow gives 8 bits only.

    Raises UnsupportedImageError for floats and for integers beyond 16 bits, whose range nobody knows.
    """
    with open_image(data, header) as image:
        if image.mode in _GREY:
            return _grey(image, header)
        if image.mode in {"I", "F"}:
            return _unbounded(image)
        rawmode = _rawmode(image)
        if rawmode == "LA;16B":
            pairs = _read(image, "RGBA").astype(np.uint8).view(">u2").astype(np.uint16)
            return pairs[:, :, :1], pairs[:, :, 1:]
        if not rawmode.startswith(("RGB;16", "RGBA;16")):
            return None
        key = image.info.get("transparency")
        high = _read(image, rawmode)
    with open_image(data, header) as image:
        low = _read(image, rawmode[:-1] + _OTHER_BYTE[rawmode[-1]])
    return _split(((high << 8) | low).astype(np.uint16), key)


def _read(image: ImageFile, rawmode: str) -> NDArray[np.uint16]:
    """Return the bytes that ``rawmode`` makes of the file, one in each value."""

    def turned(args: Any) -> Any:  # noqa: ANN401  Pillow's: a string, or a tuple that begins with it
        return (rawmode, *args[1:]) if isinstance(args, tuple) else rawmode

    image.tile = [tile._replace(args=turned(tile.args)) for tile in image.tile]
    image.load()
    return np.array(image).astype(np.uint16)


def _split(pixels: NDArray[np.uint16], key: object) -> tuple[NDArray[np.uint16], NDArray[np.uint16] | None]:
    if pixels.shape[2] > 3:  # noqa: PLR2004  RGB
        return pixels[:, :, :3], pixels[:, :, 3:]
    if isinstance(key, tuple):
        clear = (pixels == np.array(key, np.uint16)).all(2, keepdims=True)
        return pixels, np.where(clear, 0, _SIXTEEN).astype(np.uint16)
    return pixels, None


def _grey(image: ImageFile, header: Header) -> tuple[NDArray[np.uint16], NDArray[np.uint16] | None]:
    key = image.info.get("transparency")
    image.load()
    pixels: NDArray[np.uint16] = np.array(image).astype(np.uint16)[:, :, np.newaxis]
    alpha = np.where(pixels == key, 0, _SIXTEEN).astype(np.uint16) if isinstance(key, int) else None
    if header.codec == "tiff" and 8 < header.bits < 16:  # noqa: PLR2004  12 bits lie in the low bits of 16
        top = (1 << header.bits) - 1
        pixels = ((pixels.astype(np.uint32) * _SIXTEEN + top // 2) // top).astype(np.uint16)
    return pixels, alpha


def _unbounded(image: ImageFile) -> tuple[NDArray[np.uint16], None]:
    image.load()
    pixels = np.array(image)
    if image.mode == "I" and pixels.size and pixels.min() >= 0 and pixels.max() <= _SIXTEEN:
        return pixels.astype(np.uint16)[:, :, np.newaxis], None  # 16-bit PPM is handed out so
    msg = f"pixels of Pillow's mode {image.mode} (floats, or integers beyond 16 bits) have no known range; scale them"
    raise UnsupportedImageError(msg)


def _rawmode(image: ImageFile) -> str:
    args: Any = image.tile[0].args if len(image.tile) else ""
    return str(args[0] if isinstance(args, tuple) else args)
