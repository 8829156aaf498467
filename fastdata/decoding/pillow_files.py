"""Image files through Pillow, without its surprises: no global limit, no stray exception types, no external program.

The plugin is chosen from the content and called directly: ``Image.open`` would check ``Image.MAX_IMAGE_PIXELS`` (a
limit for the whole program, where ours is per call) and try formats, EPS among them, that run other programs.
"""

from __future__ import annotations

import importlib
import io
import threading
import warnings
from typing import TYPE_CHECKING, TypeVar

from PIL import Image, JpegImagePlugin

from fastdata.decoding.avif_boxes import check_avif
from fastdata.decoding.bombs import check_icon, check_tiles
from fastdata.decoding.header import sniff
from fastdata.decoding.header_fields import Header
from fastdata.errors import DecodeError, ImageTooLargeError, TruncatedImageError, UnsupportedImageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from PIL.ImageFile import ImageFile

__all__ = ["check_pixels", "guarded", "open_image", "probe_with_pillow"]

_T = TypeVar("_T")
_ORIENTATION = 0x0112
_PLUGINS: dict[str, tuple[str, ...]] = {
    "png": ("PNG",),
    "webp": ("WEBP",),
    "bmp": ("BMP",),
    "gif": ("GIF",),
    "tiff": ("TIFF",),
    "avif": ("AVIF",),
    "jp2": ("JPEG2000",),
    "heic": ("HEIF",),
    "jxl": ("JXL",),
    # No magic number of ours: formats that Pillow reads by itself, from memory, without other programs.
    "unknown": ("PPM", "PCX", "SGI", "DDS", "QOI", "ICO", "TGA"),
}
#: Formats of Pillow plugins that are used where they are installed: module, function that registers it ("" where the
#: import does), distribution.
_EXTERNAL = {
    "heic": ("pillow_heif", "register_heif_opener", "pillow-heif"),
    "jxl": ("pillow_jxl", "", "pillow-jxl-plugin"),
}
_WANTED = {
    **{codec: f"pip install {distribution}" for codec, (_, _, distribution) in _EXTERNAL.items()},
    "avif": "pip install 'pillow>=11.3'",
    "jp2": "a Pillow built with OpenJPEG is needed",
}
#: What is looked at before a plugin may open a file.
_BEFORE: dict[str, Callable[[bytes | memoryview], None]] = {"ICO": check_icon, "AVIF": check_avif}
#: Words of Pillow's for what it lacks, where a file is not to blame.
_LACKING = ("unsupported", "not support", "cannot handle")
#: Held while warnings are silenced: the interpreter's filters belong to all threads.
_quiet = threading.Lock()


class _PlainJpeg(JpegImagePlugin.JpegImageFile):
    """Pillow's JPEG reader without the look for a resolution in EXIF, which costs time and warns of broken EXIF."""

    def _read_dpi_from_exif(self) -> None:
        pass


def guarded(work: Callable[[], _T], what: str, pixels: int = 0) -> _T:
    """Return ``work()``, any exception of a decoder turned into a DecodeError that names ``what``.

    Pillow raises OSError, SyntaxError, ValueError, struct.error, EOFError, IndexError and others over broken files. A
    warning that the program's filters turn into an exception is no reason to refuse a file: it is then done again in
    silence. So is one of more ``pixels`` than Pillow would warn of: our limit was looked at before.
    """
    try:
        if pixels <= (Image.MAX_IMAGE_PIXELS or pixels):
            return work()
    except Warning:
        pass
    except Exception as error:
        raise _named(error, what) from error
    with _quiet, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return work()
        except Exception as error:
            raise _named(error, what) from error


def _named(error: Exception, what: str) -> DecodeError:
    if isinstance(error, DecodeError):
        return error
    text = str(error) or type(error).__name__
    if isinstance(error, Image.DecompressionBombError):
        # WebP and TIFF plugins look at it themselves.
        return ImageTooLargeError(f"{what}: {text} (Pillow's own limit for this format: PIL.Image.MAX_IMAGE_PIXELS)")
    if isinstance(error, EOFError) or "truncated" in text.lower():
        return TruncatedImageError(f"{what} is cut short: {text}")
    if isinstance(error, (MemoryError, OverflowError)):
        return ImageTooLargeError(f"{what}: too large for the memory of this machine: {text}")
    if isinstance(error, NotImplementedError) or any(word in text.lower() for word in _LACKING):
        return UnsupportedImageError(f"{what}: {text}")
    return DecodeError(f"{what} is broken: {text}")


def check_pixels(header: Header, max_pixels: int | None) -> None:
    """Raise ImageTooLargeError where the header promises more pixels than allowed."""
    if max_pixels is not None and header.pixels > max_pixels:
        msg = (
            f"{header.codec} of {header.width} x {header.height} = {header.pixels} pixels, more than "
            f"max_pixels={max_pixels} (pack: --max-pixels); raise it if the file is trusted"
        )
        raise ImageTooLargeError(msg)


def open_image(data: bytes | memoryview, header: Header | None = None) -> ImageFile:
    """Return an opened, not yet loaded Pillow image; raise UnsupportedImageError or whatever Pillow raises."""
    codec = header.codec if header is not None else sniff(data)
    if codec == "jpeg":
        return _PlainJpeg(io.BytesIO(data))
    if not len(data):
        msg = "the file holds no bytes"
        raise DecodeError(msg)
    opened = _by_plugin(data, codec)
    if opened is not None:
        return opened
    if codec == "unknown":
        msg = "no known image format by its first bytes"
        raise UnsupportedImageError(msg)
    msg = f"{codec} is not readable here: {_WANTED.get(codec, 'this Pillow was built without it')}"
    raise UnsupportedImageError(msg)


def _by_plugin(data: bytes | memoryview, codec: str) -> ImageFile | None:
    """Return what the first plugin for ``codec`` that accepts the data opens; raise the last one's refusal."""
    refusal: Exception | None = None
    for name in _PLUGINS.get(codec, ()):
        if name not in Image.OPEN:
            Image.init()
        if name not in Image.OPEN:
            _register(codec)
        if name not in Image.OPEN:
            continue
        factory, accept = Image.OPEN[name]
        try:
            if accept is None or accept(bytes(data[:32])) is True:
                if name in _BEFORE:
                    _BEFORE[name](data)
                image = factory(io.BytesIO(data), "")
                check_tiles(image)
                return image
        except DecodeError:  # ours
            raise
        except (SyntaxError, IndexError, TypeError, ValueError, OSError) as error:
            refusal = error
    if refusal is not None and codec != "unknown":
        raise refusal
    return None


def _register(codec: str) -> None:
    if codec in _EXTERNAL:
        module, function, _ = _EXTERNAL[codec]
        try:
            plugin = importlib.import_module(module)
        except ImportError:
            return
        if function:
            getattr(plugin, function)()


def probe_with_pillow(data: bytes | memoryview, codec: str) -> Header:
    """Return the Header of a format that only Pillow reads here.

    Pillow turns a TIFF upright itself, so width, height and orientation (1) of one are those after that.
    """

    def work() -> Header:
        with open_image(data) as image:
            width, height = image.size
            orientation = 1 if codec == "tiff" else int(image.getexif().get(_ORIENTATION, 1))
            bits = _bits(image)
            return Header(
                codec, width, height, orientation if 1 <= orientation <= 8 else 1,  # noqa: PLR2004  EXIF: 1..8
                # Pillow counts the pictures of a TIFF by reading them all: a small file can name a million.
                frames=0 if getattr(image, "is_animated", False) else 1, channels=len(image.getbands()), bits=bits,
                alpha=image.mode in {"RGBA", "LA", "PA", "La", "RGBa"} or "transparency" in image.info,
                palette=image.mode in {"P", "PA"},
            )  # fmt: skip

    return guarded(work, f"{codec} of {len(data)} bytes")


def _bits(image: ImageFile) -> int:
    tags = getattr(image, "tag_v2", None)
    if tags is not None:
        stored = tags.get(258, (8,))  # TIFF BitsPerSample
        return int(max(stored)) if isinstance(stored, tuple) else int(stored)
    return {"I;16": 16, "I;16B": 16, "I;16L": 16, "I": 32, "F": 32, "1": 1}.get(image.mode, 8)
