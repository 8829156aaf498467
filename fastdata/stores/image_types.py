"""Which files are images: by their ending (folders list names only) and by their first bytes (foreign packs)."""

from __future__ import annotations

import re

__all__ = ["IMAGE_ENDINGS", "is_image_name", "looks_like_image"]

#: Endings of image files, lower case; the first line is torchvision's IMG_EXTENSIONS (datasets/folder.py).
IMAGE_ENDINGS = frozenset({
    ".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp",
    ".jpe", ".jfif", ".jif", ".apng", ".pbm", ".pnm", ".pfm", ".dib", ".gif", ".avif", ".avifs", ".heic", ".heif",
    ".hif", ".jxl", ".jp2", ".j2k", ".j2c", ".jpc", ".jpf", ".jpx", ".tga", ".ico", ".pcx", ".sgi", ".rgb",
    ".dds", ".psd", ".qoi", ".mpo",
})  # fmt: skip

_MAGIC = re.compile(
    rb"\xff\xd8\xff"  # JPEG
    rb"|\x89PNG\r\n\x1a\n"
    rb"|GIF8[79]a"
    rb"|RIFF....WEBP"
    rb"|BM.{8}"
    rb"|II[*+]\0|MM\0[*+]"  # TIFF and BigTIFF
    rb"|....ftyp(?:avif|avis|mif1|msf1|hei[cxms]|hev[cx])"
    rb"|\xff\x0a|\0\0\0\x0cJXL "
    rb"|\0\0\0\x0cjP  |\xff\x4f\xff\x51"  # JPEG 2000
    rb"|P[1-6][\s#]",
    re.DOTALL,
)


def is_image_name(name: str) -> bool:
    """Whether a file of this name is taken for an image."""
    dot = name.rfind(".")
    return dot > 0 and name[dot:].lower() in IMAGE_ENDINGS


def looks_like_image(head: bytes) -> bool:
    """Whether bytes (the first 16 are enough) begin as an image file does."""
    return _MAGIC.match(head) is not None
