"""Pictures larger than their header says, which Pillow would unfold before anyone could look at their size."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from fastdata.errors import ImageTooLargeError

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

__all__ = ["check_icon", "check_tiles"]

_MOST_SIDE = 4096  # pixels; with 8 bytes each, 128 MiB
_TILE_SIDES = (322, 323)  # TIFF 6.0, section 15: TileWidth, TileLength
_ENTRY = 16  # bytes of an icon's directory entry; offset u32 at 12


def check_icon(data: bytes | memoryview) -> None:
    """Raise ImageTooLargeError where a picture inside an icon is too large; its directory counts to 256 only.

    Pillow decodes the picture when it opens the icon. Layout: ICONDIR of 6 bytes, then its entries; a picture is a PNG,
    or a BITMAPINFOHEADER and what follows it.
    """
    count = int.from_bytes(data[4:6], "little")
    for at in range(6, min(6 + count * _ENTRY, len(data) - _ENTRY + 1), _ENTRY):
        (start,) = struct.unpack_from("<I", data, at + 12)
        is_png = bytes(data[start : start + 4]) == b"\x89PNG"
        sides = bytes(data[start + 16 : start + 24] if is_png else data[start + 4 : start + 12])
        width, height = struct.unpack(">II" if is_png else "<ii", sides.ljust(8, b"\0"))
        if max(width, abs(height)) > 2 * _MOST_SIDE:  # a bitmap is as high as the picture and its mask together
            msg = f"an icon with {width} x {height} pixels inside; icons have sides of at most {_MOST_SIDE}"
            raise ImageTooLargeError(msg)


def check_tiles(image: ImageFile) -> None:
    """Raise ImageTooLargeError where the tiles of an opened TIFF are far larger than it: each is unfolded whole."""
    tags = getattr(image, "tag_v2", None)
    if tags is None:
        return
    tile = tuple(tags.get(tag, 0) for tag in _TILE_SIDES)
    if any(isinstance(side, int) and side > max(_MOST_SIDE, max(image.size) + 15) for side in tile):
        msg = f"a TIFF of {image.width} x {image.height} pixels in tiles of {tile[0]} x {tile[1]}"
        raise ImageTooLargeError(msg)
