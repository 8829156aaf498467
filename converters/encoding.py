"""Pixels to bytes: one function per codec that a pack can be written in."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import PIL

from fastdata.converters.restarts import pillow_options
from fastdata.decoding.pillow_arrays import image_of
from fastdata.errors import UnsupportedImageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fastdata.converters.options import PackOptions

__all__ = ["encode", "encoder_name"]

_JPEG_LIMIT, _WEBP_LIMIT = 65_500, 16_383  # libjpeg's JPEG_MAX_DIMENSION; WebP's 14 bits


def encode(pixels: NDArray[np.uint8], codec: str, options: PackOptions) -> bytes:
    """Return uint8 (H, W, 3 or 1) as ``codec``; raise UnsupportedImageError where that cannot hold it."""
    return _ENCODERS[codec](np.ascontiguousarray(pixels), options)


def encoder_name(options: PackOptions) -> str:
    """Return which library at which version writes the pack's codec, for its info."""
    if options.codec in {"jpeg", "keep"} and not options.restarts:
        import simplejpeg  # noqa: PLC0415  only its version, and only where JPEG is written

        return f"simplejpeg {simplejpeg.__version__}"
    return "numpy" if options.codec == "raw" else f"pillow {PIL.__version__}"


def _limit(pixels: NDArray[np.uint8], most: int, name: str) -> None:
    height, width, _ = pixels.shape
    if max(width, height) > most:
        msg = f"{width} x {height} pixels: {name} holds sides of at most {most}; resize, or pack as png"
        raise UnsupportedImageError(msg)


def _jpeg(pixels: NDArray[np.uint8], options: PackOptions) -> bytes:
    _limit(pixels, _JPEG_LIMIT, "JPEG")
    _, width, channels = pixels.shape
    if options.restarts:  # simplejpeg has no such option
        markers = pillow_options(width, "L" if channels == 1 else "RGB", options)
        colours = {} if channels == 1 else {"subsampling": options.subsampling}
        return _saved(pixels, "JPEG", quality=options.quality, **colours, **markers)
    import simplejpeg  # noqa: PLC0415  only where JPEG is written

    if channels == 1:
        return bytes(simplejpeg.encode_jpeg(pixels, options.quality, "GRAY", "Gray", fastdct=False))
    subsampling = options.subsampling.replace(":", "")
    return bytes(simplejpeg.encode_jpeg(pixels, options.quality, "RGB", subsampling, fastdct=False))


def _saved(pixels: NDArray[np.uint8], name: str, **how: int | str) -> bytes:
    buffer = io.BytesIO()
    image_of(pixels).save(buffer, name, **how)
    return buffer.getvalue()


def _png(pixels: NDArray[np.uint8], _: PackOptions) -> bytes:
    return _saved(pixels, "PNG")


def _webp(pixels: NDArray[np.uint8], options: PackOptions) -> bytes:
    _limit(pixels, _WEBP_LIMIT, "WebP")
    return _saved(pixels, "WEBP", quality=options.quality)


def _bmp(pixels: NDArray[np.uint8], _: PackOptions) -> bytes:
    return _saved(pixels, "BMP")


def _raw(pixels: NDArray[np.uint8], _: PackOptions) -> bytes:
    return pixels.tobytes()


_ENCODERS: dict[str, Callable[[NDArray[np.uint8], PackOptions], bytes]] = {
    "jpeg": _jpeg,
    "png": _png,
    "webp": _webp,
    "bmp": _bmp,
    "raw": _raw,
}
