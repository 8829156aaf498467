"""What the core's tests share: pictures in all samplings, whole batches, and Pillow as the judge."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import PIL
import pytest
from PIL import Image

from fastdata.types import CODEC_IDS, Encoded, Geometry

if TYPE_CHECKING:
    from collections.abc import Sequence

native = pytest.importorskip("fastdata._native", reason="the core was not built")

PILLOW = int(PIL.__version__.split(".")[0])
FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "hamming": Image.Resampling.HAMMING,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


def pack(blobs: Sequence[bytes], sizes: Sequence[tuple[int, int]], codec: str = "jpeg") -> Encoded:
    arrays = [np.frombuffer(blob, np.uint8) for blob in blobs]
    return Encoded(
        address=np.array([array.ctypes.data for array in arrays], np.uint64),
        length=np.array([array.size for array in arrays], np.int64),
        codec=np.full(len(blobs), CODEC_IDS[codec], np.uint8),
        width=np.array([size[0] for size in sizes], np.int32),
        height=np.array([size[1] for size in sizes], np.int32),
        views=[memoryview(blob) for blob in blobs],
        keep=arrays,
    )


def crops(boxes: Sequence[tuple[int, int, int, int]], size: tuple[int, int], **options: object) -> Geometry:
    """Each box, cut out and resampled to ``size`` (RandomResizedCrop)."""
    n, box = len(boxes), np.array(boxes, np.int32)
    values = {
        "box": box,
        "window": box.astype(np.float64),
        "size": np.tile(np.array(size, np.int32), (n, 1)),
        "rect": np.tile(np.array([0, 0, *size], np.int32), (n, 1)),
        "hflip": np.zeros(n, np.bool_),
        "vflip": np.zeros(n, np.bool_),
    }
    return Geometry(**{**values, **options})


def by_pillow(blob: bytes, geometry: Geometry, row: int, channels: int = 3) -> np.ndarray:
    """One row of a geometry whose windows lie in their boxes: crop, resize, take the rectangle, mirror."""
    image = Image.open(io.BytesIO(blob)).convert("RGB")
    image = image if channels == 3 else image.convert("L")
    return picture_by_pillow(image, geometry, row, channels)


def picture_by_pillow(image: Image.Image, geometry: Geometry, row: int, channels: int) -> np.ndarray:
    box, window = geometry.box[row], geometry.window[row]
    origin = np.array([box[0], box[1], box[0], box[1]])
    size = tuple(int(value) for value in geometry.size[row])
    image = image.crop(tuple(int(value) for value in box))
    inner = tuple(float(value) for value in window - origin)
    if PILLOW < 13 and image.height > size[1] and 2 * (image.width - size[0]) < image.height - size[1]:
        # From 13 on Pillow makes the vertical pass first here; which one comes first is part of the result.
        image = image.resize(
            (image.width, size[1]), FILTERS[geometry.interpolation], box=(0, inner[1], image.width, inner[3])
        )
        inner = (inner[0], 0.0, inner[2], float(size[1]))
    image = image.resize(size, FILTERS[geometry.interpolation], box=inner)
    pixels = np.asarray(image).reshape(size[1], size[0], channels)
    left, top, width, height = (int(value) for value in geometry.rect[row])
    out = np.empty((height, width, channels), np.uint8)
    out[:] = np.array(geometry.fill[:channels], np.uint8)
    x0, y0, x1, y1 = max(left, 0), max(top, 0), min(left + width, size[0]), min(top + height, size[1])
    if x0 < x1 and y0 < y1:
        out[y0 - top : y1 - top, x0 - left : x1 - left] = pixels[y0:y1, x0:x1]
    out = out[:, ::-1] if geometry.hflip[row] else out
    return out[::-1] if geometry.vflip[row] else out


def noisy_photo(width: int, height: int, seed: int = 0) -> np.ndarray:
    """Smooth colours under noise, edges in it: chroma differs from pixel to pixel."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (height // 6 + 2, width // 6 + 2, 3), dtype=np.uint8))
    smooth = np.asarray(small.resize((width, height), Image.Resampling.BICUBIC)).astype(np.int16)
    return np.clip(smooth + rng.integers(-25, 26, (height, width, 3)), 0, 255).astype(np.uint8)


def jpeg_of(pixels: np.ndarray, kind: str) -> bytes:
    """kind: a sampling of simplejpeg's ("444", "422", "420", "440", "411", "Gray"), or one of Pillow's options."""
    if kind in {"444", "422", "420", "440", "411"}:
        import simplejpeg

        return simplejpeg.encode_jpeg(np.ascontiguousarray(pixels), 90, "RGB", kind)
    options: dict[str, object] = {
        "grey": {},
        "cmyk": {},
        "ycck": {},
        "progressive 444": {"progressive": True, "subsampling": 0},
        "progressive 420": {"progressive": True, "subsampling": 2},
        "restart rows 420": {"restart_marker_rows": 1, "subsampling": 2},
        "restart blocks 422": {"restart_marker_blocks": 3, "subsampling": 1},
        "rgb stored": {"keep_rgb": True},
    }[kind]
    image = Image.fromarray(pixels)
    image = image.convert({"grey": "L", "cmyk": "CMYK", "ycck": "CMYK"}.get(kind, "RGB"))
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=90, **options)
    blob = stream.getvalue()
    if kind == "ycck":  # the same numbers, said to be YCCK: the last byte of Adobe's segment
        at = blob.index(b"Adobe") + 11
        blob = blob[:at] + b"\x02" + blob[at + 1 :]
    return blob


KINDS = (
    "444", "422", "420", "440", "411", "grey", "cmyk", "ycck", "progressive 444", "progressive 420", "restart rows 420",
    "restart blocks 422", "rgb stored",
)  # fmt: skip


@pytest.fixture(scope="session")
def kit() -> object:
    """The functions above, under one name."""

    class Kit:
        pack = staticmethod(pack)
        crops = staticmethod(crops)
        by_pillow = staticmethod(by_pillow)
        picture_by_pillow = staticmethod(picture_by_pillow)
        noisy_photo = staticmethod(noisy_photo)
        jpeg_of = staticmethod(jpeg_of)

    return Kit


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=["generic", "avx2", "avx512"])
def kernels(request: pytest.FixtureRequest) -> str:
    try:
        native.Pool(1, request.param)
    except ValueError:
        pytest.skip(f"no {request.param} on this processor")
    return request.param
