"""Pixels to bytes: one function per codec that a pack can be written in."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import PIL
from PIL import Image

from fastdata.errors import UnsupportedImageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastdata.converters.options import PackOptions

__all__ = ["encode", "encoder_name"]

_JPEG_LIMIT, _WEBP_LIMIT = 65_500, 16_383  # libjpeg's JPEG_MAX_DIMENSION; WebP's 14 bits


def encode(picture: Image.Image, codec: str, options: PackOptions) -> bytes:
    """Return an RGB or L picture as ``codec``; raise UnsupportedImageError where that cannot hold it."""
    return _ENCODERS[codec](picture, options)


def encoder_name(codec: str) -> str:
    """Return which library at which version writes ``codec``, for the pack's info."""
    if codec in {"jpeg", "keep"}:
        import simplejpeg  # noqa: PLC0415  only its version, and only where JPEG is written

        return f"simplejpeg {simplejpeg.__version__}"
    return "numpy" if codec == "raw" else f"pillow {PIL.__version__}"


def _limit(picture: Image.Image, most: int, name: str) -> None:
    if max(picture.size) > most:
        width, height = picture.size
        msg = f"{width} x {height} pixels: {name} holds sides of at most {most}; resize, or pack as png"
        raise UnsupportedImageError(msg)


def _jpeg(picture: Image.Image, options: PackOptions) -> bytes:
    import simplejpeg  # noqa: PLC0415  only where JPEG is written

    _limit(picture, _JPEG_LIMIT, "JPEG")
    pixels = np.asarray(picture)
    if picture.mode == "L":
        data = simplejpeg.encode_jpeg(pixels[:, :, np.newaxis], options.quality, "GRAY", "Gray", fastdct=False)
    else:
        subsampling = options.subsampling.replace(":", "")
        data = simplejpeg.encode_jpeg(pixels, options.quality, "RGB", subsampling, fastdct=False)
    return bytes(data)


def _saved(picture: Image.Image, name: str, **how: int) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, name, **how)
    return buffer.getvalue()


def _png(picture: Image.Image, _: PackOptions) -> bytes:
    return _saved(picture, "PNG")


def _webp(picture: Image.Image, options: PackOptions) -> bytes:
    _limit(picture, _WEBP_LIMIT, "WebP")
    return _saved(picture, "WEBP", quality=options.quality)


def _bmp(picture: Image.Image, _: PackOptions) -> bytes:
    return _saved(picture, "BMP")


def _raw(picture: Image.Image, _: PackOptions) -> bytes:
    return picture.tobytes()


_ENCODERS: dict[str, Callable[[Image.Image, PackOptions], bytes]] = {
    "jpeg": _jpeg,
    "png": _png,
    "webp": _webp,
    "bmp": _bmp,
    "raw": _raw,
}
