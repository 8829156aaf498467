"""Pixels to bytes: one function per codec that a pack can be written in."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import PIL
from PIL import Image

from fastdata.converters.restarts import pillow_options
from fastdata.errors import UnsupportedImageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastdata.converters.options import PackOptions

__all__ = ["encode", "encoder_name"]

_JPEG_LIMIT, _WEBP_LIMIT = 65_500, 16_383  # libjpeg's JPEG_MAX_DIMENSION; WebP's 14 bits


def encode(picture: Image.Image, codec: str, options: PackOptions) -> bytes:
    """Return an RGB or L picture as ``codec``; raise UnsupportedImageError where that cannot hold it."""
    return _ENCODERS[codec](picture, options)


def encoder_name(options: PackOptions) -> str:
    """Return which library at which version writes the pack's codec, for its info."""
    if options.codec in {"jpeg", "keep"} and not options.restarts:
        import simplejpeg  # noqa: PLC0415  only its version, and only where JPEG is written

        return f"simplejpeg {simplejpeg.__version__}"
    return "numpy" if options.codec == "raw" else f"pillow {PIL.__version__}"


def _limit(picture: Image.Image, most: int, name: str) -> None:
    if max(picture.size) > most:
        width, height = picture.size
        msg = f"{width} x {height} pixels: {name} holds sides of at most {most}; resize, or pack as png"
        raise UnsupportedImageError(msg)


def _jpeg(picture: Image.Image, options: PackOptions) -> bytes:
    _limit(picture, _JPEG_LIMIT, "JPEG")
    if options.restarts:  # simplejpeg has no such option
        markers = pillow_options(picture.width, picture.mode, options)
        colours = {} if picture.mode == "L" else {"subsampling": options.subsampling}
        return _saved(picture, "JPEG", quality=options.quality, **colours, **markers)
    import simplejpeg  # noqa: PLC0415  only where JPEG is written

    pixels = np.asarray(picture)
    if picture.mode == "L":
        data = simplejpeg.encode_jpeg(pixels[:, :, np.newaxis], options.quality, "GRAY", "Gray", fastdct=False)
    else:
        subsampling = options.subsampling.replace(":", "")
        data = simplejpeg.encode_jpeg(pixels, options.quality, "RGB", subsampling, fastdct=False)
    return bytes(data)


def _saved(picture: Image.Image, name: str, **how: int | str) -> bytes:
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
