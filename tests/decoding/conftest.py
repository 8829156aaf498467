"""Pictures made in code: every kind of JPEG that the backends must agree on, and other formats."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image


def photo(width: int = 157, height: int = 101, seed: int = 0) -> Image.Image:
    """Smooth colours, edges and noise, with odd sides so that blocks at the border are partial."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = [120 + 90 * np.sin(x / (9 + 3 * c) + seed) * np.cos(y / (7 + 2 * c)) for c in range(3)]
    picture = np.stack(planes, 2) + rng.normal(0, 12, (height, width, 3))
    picture[height // 3 : height // 2, width // 4 : width // 2] = (250, 20, 60)
    return Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8))


def encoded(image: Image.Image, kind: str = "JPEG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def sampling_440(data: bytes) -> bytes:
    """A 4:2:2 JPEG of a square picture made into 4:4:0 by its header: its blocks mean other pixels, but are valid."""
    at = data.index(b"\xff\xc0") + 11
    assert data[at] == 0x21
    return data[:at] + b"\x12" + data[at + 1 :]


@pytest.fixture(scope="session")
def jpegs() -> dict[str, bytes]:
    """Name to bytes of 8-bit JPEGs that all libjpegs decode to the same pixels."""
    image, square = photo(), photo(96, 96)
    return {
        "4:4:4": encoded(image, quality=92, subsampling=0),
        "4:2:2": encoded(image, quality=85, subsampling=1),
        "4:2:0": encoded(image, quality=75, subsampling=2),
        "4:4:0": sampling_440(encoded(square, quality=85, subsampling=1)),
        "grey": encoded(image.convert("L"), quality=80),
        "progressive": encoded(image, quality=85, progressive=True),
        "progressive grey": encoded(image.convert("L"), quality=85, progressive=True),
        "restart rows": encoded(image, quality=90, restart_marker_rows=1),
        "optimised": encoded(image, quality=60, optimize=True),
        "rgb stored": encoded(image, quality=90, keep_rgb=True),
        "1x1": encoded(photo(1, 1), quality=90),
        "1x2000": encoded(photo(1, 2000), quality=90),
        "2000x1": encoded(photo(2000, 1), quality=90),
        "3x900": encoded(photo(3, 900), quality=90),
        "after EOI": encoded(image, quality=90) + b"\x00trailing garbage \xff\xd8",
    }


@pytest.fixture(scope="session")
def make_photo() -> object:
    return photo


@pytest.fixture(scope="session")
def encode() -> object:
    return encoded
