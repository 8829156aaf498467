"""Pictures made in code, and folders of them."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

if TYPE_CHECKING:
    from pathlib import Path


def picture(seed: int, size: tuple[int, int] = (64, 48)) -> Image.Image:
    """A smooth picture that JPEG changes little, different for each seed."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (4, 5, 3), np.uint8))
    return small.resize(size, Image.Resampling.BICUBIC)


def encoded(image: Image.Image, name: str = "JPEG", **how: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, name, **how)
    return buffer.getvalue()


class Maker:
    """Writes pictures under a folder; ``put("a/x.png")`` makes the folders, too."""

    picture = staticmethod(picture)
    encoded = staticmethod(encoded)

    def __init__(self, root: Path) -> None:
        self.root = root
        self.count = 0

    def put(self, name: str, image: Image.Image | None = None, **how: object) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        self.count += 1
        kind = {".png": "PNG", ".jpg": "JPEG", ".bmp": "BMP", ".webp": "WEBP", ".gif": "GIF", ".tif": "TIFF"}
        path.write_bytes(encoded(image or picture(self.count), kind[path.suffix.lower()], **how))
        return path


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    return Maker(tmp_path / "src")


@pytest.fixture
def tree(maker: Maker) -> Path:
    """Three classes with four pictures each, JPEG and PNG, no two alike."""
    for name in ("ant", "bee", "cat"):
        for number in range(4):
            maker.put(f"{name}/{number}.{'png' if number % 2 else 'jpg'}")
    return maker.root
