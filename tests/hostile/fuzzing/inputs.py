"""Inputs to begin with, for the targets that take a text or a picture."""

from __future__ import annotations

import io
import json

import numpy as np
from PIL import Image

from fuzzing.good_files import picture


def infos() -> list[bytes]:
    """Infos that are not what they should be."""
    values = [5, "x", [], [[1]], {"a": 1}, [1, 2], ["a", "a"], None, True, 1e999, -1, 2**70, [None], "\ud800", ["\0"]]
    made = [json.dumps({name: value}).encode() for name in
            ("classes", "options", "mean", "seals", "columns", "content_hash", "index", "sealed", "stamp", "ignored",
             "format_version", "shards", "fields")
            for value in values]  # fmt: skip
    made += [json.dumps({"options": {"max_pixels": value}}).encode() for value in values]
    texts = [b"{}", b"[]", b"[" * 2000, b"1" * 5000, b"NaN", b'{"classes": NaN}', b'"x"', b"", b"\xff"]
    return [bytes([kind]) + text for text in (*made, *texts) for kind in range(3)]


def manifests() -> list[bytes]:
    """Manifests of all kinds, good and odd."""
    csv = [b"path,label\na.jpg,cat\nb.jpg,dog\n", b"path;label\na.jpg;1\n", b'path,label,x\n"a,b.jpg",1.5,"q""\n"\n',
           b"file_name,label_0,label_1\na.png,1,0\n", b"path\n../../x\n/abs\n", b"path,label\na,[1;2]\na,007\n",
           b"\xef\xbb\xbfpath\na"]  # fmt: skip
    lines = [b'{"path": "a.jpg", "label": 3}\n', b'{"file_name": "a", "label": [1, 2], "x": {"y": []}}\n',
             b'{"path": "a", "label": "cat"}\n{"path": "a", "label": "3"}',
             b'{"path": "a", "label": 1e400}']  # fmt: skip
    made = [bytes([0]) + text for text in csv] + [bytes([2]) + text for text in lines]
    return made + [bytes([1]) + text.replace(b",", b"\t") for text in csv]


def images() -> list[bytes]:
    """Small files of all formats."""
    exif = Image.Exif()
    exif[0x0112] = 6
    made = [picture(1), picture(2, mode="L"), picture(3, mode="CMYK"), picture(4, progressive=True),
            picture(5, restart_marker_rows=1), picture(1, exif=exif)]  # fmt: skip
    made += [picture(1, "PNG", mode, exif=exif) for mode in ("RGB", "L", "P", "1", "RGBA", "LA")]
    made += [picture(1, "WEBP", exif=exif, lossless=True), picture(1, "WEBP", "RGBA"), picture(2, "WEBP")]
    made += [
        picture(1, kind)
        for kind in ("BMP", "GIF", "TIFF", "JPEG2000", "AVIF", "PPM", "PCX", "SGI", "DDS", "ICO", "TGA")
    ]
    made += [
        picture(1, "TIFF", mode, compression=how)
        for mode, how in (("1", "group4"), ("RGB", "tiff_lzw"), ("L", "jpeg"), ("RGB", "tiff_deflate"))
    ]
    frames = [Image.new("P", (9, 8), i) for i in range(3)]
    for kind in ("GIF", "PNG", "WEBP", "TIFF"):
        buffer = io.BytesIO()
        frames[0].save(buffer, kind, save_all=True, append_images=frames[1:])
        made.append(buffer.getvalue())
    wide = io.BytesIO()
    Image.fromarray(np.arange(60, dtype=np.uint16).reshape(6, 10) * 900).save(wide, "PNG")
    return [*made, wide.getvalue()]


def key_names() -> list[bytes]:
    """Names that lead elsewhere."""
    keys = (
        b"a/b",
        b"../x",
        b"/abs",
        b"a/../../x",
        b"",
        b".",
        b"a//b",
        b"con",
        b"x" * 300,
        b"a\\..\\b",
        b"\xff",
        b"a\0b",
    )
    return [
        b"\n".join((key, folder, field))
        for key in keys
        for folder, field in ((b"c", b"f"), (b"..", b"f"), (b"c", b"/../../x"))
    ]
