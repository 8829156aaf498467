"""What packing sees of a file: one uint8 picture by a PixelPolicy, and whether the file's own bytes show the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from fastdata.decoding.facade import decoder
from fastdata.decoding.header import probe
from fastdata.decoding.jpeg_adapter import is_usual_jpeg
from fastdata.decoding.pillow_arrays import own_array
from fastdata.decoding.pillow_decoder import convert
from fastdata.decoding.pillow_files import check_pixels, guarded, open_image
from fastdata.decoding.wide_pixels import load_wide
from fastdata.errors import TruncatedImageError
from fastdata.types import PACK_PIXELS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastdata.decoding.header_fields import Header
    from fastdata.types import PixelPolicy

__all__ = ["Pixels", "load_pixels", "needs_encode", "upright"]

_EVERYWHERE = frozenset({"jpeg", "png", "webp", "bmp"})  # codecs that every image library reads alike
_USUAL_PROCESSES = frozenset({0, 1, 2})
_RGB, _BITS = 3, 8
_SIXTEEN = 65535
_END = b"\xff\xd9" * 2  # EOI; the first may complete a marker whose 0xFF is the last byte


@dataclass(frozen=True, slots=True)
class Pixels:
    """One decoded picture.

    array: uint8 (H, W, 3 or 1), C-contiguous, its own memory, upright where the policy says so. header: what the file
    says of itself. needs_encode: the file's own bytes would not show this picture in every plain decoder. cut: what
    is missing of a file that ends too early and was accepted, "" for whole ones.
    """

    array: NDArray[np.uint8]
    header: Header
    needs_encode: bool
    cut: str = ""


def load_pixels(data: bytes | memoryview, policy: PixelPolicy = PACK_PIXELS) -> Pixels:
    """Return the whole first picture of a file by ``policy``; raise a DecodeError, whatever is wrong with it.

    Of a picture with more than ``policy.max_pixels`` nothing is decoded; Pillow's global limit is neither read nor set.
    """
    header = probe(data)
    check_pixels(header, policy.max_pixels)
    cut = ""
    try:
        array = _whole(data, header, policy)
    except TruncatedImageError as error:
        if policy.truncated == "refuse" or header.codec != "jpeg":
            raise
        array, cut = _rest_grey(data, header, policy), str(error)
    if policy.orientation == "apply":
        array = upright(array, header.orientation)
    return Pixels(array, header, bool(cut) or needs_encode(header, policy), cut)


def _whole(data: bytes | memoryview, header: Header, policy: PixelPolicy) -> NDArray[np.uint8]:
    if is_usual_jpeg(data, header):
        return decoder("auto", max_pixels=None)(data, policy.mode)  # all backends give the same pixels of these
    return guarded(lambda: _by_pillow(data, header, policy), f"{header.codec} of {len(data)} bytes", header.pixels)


def _rest_grey(data: bytes | memoryview, header: Header, policy: PixelPolicy) -> NDArray[np.uint8]:
    # At an end that comes too early libjpeg leaves the rest of the blocks as they were before it: zero, which is grey.
    ended = bytes(data) + _END
    return guarded(lambda: _by_pillow(ended, header, policy), f"cut JPEG of {len(data)} bytes", header.pixels)


def needs_encode(header: Header, policy: PixelPolicy = PACK_PIXELS) -> bool:
    """Return whether the stored bytes show other pixels than ``policy`` promises, in this or that plain decoder."""
    return (
        header.codec not in _EVERYWHERE
        or header.bits > _BITS
        or header.alpha
        or not header.plain
        or header.frames != 1
        or (header.orientation != 1 and policy.orientation == "apply")
        or (header.codec == "jpeg" and (header.channels not in {1, _RGB} or header.process not in _USUAL_PROCESSES))
        or (policy.mode == "L" and (header.channels != 1 or header.palette))
    )


def upright(array: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """Return (H, W, C) pixels turned as EXIF orientation 1..8 says, C-contiguous (TIFF 6.0, page 36)."""
    if orientation in {5, 6, 7, 8}:
        array = array.transpose(1, 0, 2)
    if orientation in {2, 3, 6, 7}:
        array = array[:, ::-1]
    if orientation in {3, 4, 7, 8}:
        array = array[::-1]
    return np.ascontiguousarray(array)


def _by_pillow(data: bytes | memoryview, header: Header, policy: PixelPolicy) -> NDArray[np.uint8]:
    if header.bits > _BITS and policy.sixteen == "scale":
        wide = load_wide(data, header)
        if wide is not None:
            return _narrow(*wide, policy)
    with open_image(data, header) as image:
        image.load()
        see_through = image.has_transparency_data if policy.alpha == "composite" else False
        return own_array(_composite(image, policy) if see_through else convert(image, policy.mode))


def _composite(image: Image.Image, policy: PixelPolicy) -> Image.Image:
    layer = image.convert("RGBA")
    ground = Image.new("RGB", layer.size, policy.background)
    ground.paste(layer, mask=layer.getchannel("A"))
    return convert(ground, policy.mode)


def _narrow(colours: NDArray[np.uint16], alpha: NDArray[np.uint16] | None, policy: PixelPolicy) -> NDArray[np.uint8]:
    """Return 0..65535 as 0..255, v / 257 rounded, laid on the background first."""
    if alpha is not None and policy.alpha == "composite":
        ground = np.array(policy.background, np.float32) * np.float32(257)
        weight = alpha.astype(np.float32) / np.float32(_SIXTEEN)
        laid = colours * weight + ground * (1 - weight)
        narrow = np.rint(laid / np.float32(257)).astype(np.uint8)
    else:
        narrow = ((colours.astype(np.uint32) + 128) // 257).astype(np.uint8)
    if policy.mode == "native" or narrow.shape[2] == (1 if policy.mode == "L" else _RGB):
        return np.ascontiguousarray(narrow)
    if policy.mode == "RGB":
        return np.repeat(narrow, _RGB, axis=2)
    return own_array(Image.fromarray(narrow).convert("L"))
