"""FFCV 1.0.2 from a .beton file, JPEG or raw pixels, in memory (os_cache), truly shuffled.

Its writer decodes and encodes again (OpenCV, quality 90), so its JPEGs are a second generation of nearly the same size.
It resizes with OpenCV's INTER_AREA. ToTorchImage stays channels_last, which costs it no copy. The first epoch compiles
with numba for some 8 to 15 s, which shows in the column of the first batch.

    apt-get install -y pkg-config libopencv-dev libturbojpeg0-dev g++
    pip install --no-build-isolation --no-deps ffcv
    pip install numba opencv-python-headless pandas psutil tqdm pytorch_pfn_extras fastargs terminaltables assertpy
"""

from __future__ import annotations

import contextlib
import io
from typing import TYPE_CHECKING, Any

import numpy as np
from peers_settings import Images

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from peers_settings import Settings


def prepare(folder: Path, settings: Settings) -> None:
    """Write the .beton; the variant is its mode, "jpg" or "raw"."""
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter

    fields = {"image": RGBImageField(write_mode=settings.variant, jpeg_quality=90), "label": IntField()}
    writer = DatasetWriter(str(settings.scratch / "data.beton"), fields, num_workers=1)
    with contextlib.redirect_stderr(io.StringIO()):  # its progress bar
        writer.from_indexed_dataset(_Pictures(folder))


def open(folder: Path, settings: Settings) -> Any:  # noqa: A001, ANN401, ARG001  the contract's name and arguments
    """Return a Loader's images."""
    from ffcv.fields.basics import IntDecoder
    from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import RandomHorizontalFlip, ToTensor, ToTorchImage

    crop = RandomResizedCropRGBImageDecoder((settings.size, settings.size))
    return Images(
        Loader(
            str(settings.scratch / "data.beton"),
            batch_size=settings.batch_size,
            num_workers=settings.workers,
            order=OrderOption.RANDOM,
            os_cache=True,
            drop_last=True,
            pipelines={
                "image": [crop, RandomHorizontalFlip(), ToTensor(), ToTorchImage()],
                "label": [IntDecoder(), ToTensor()],
            },
        )
    )


class _Pictures:
    def __init__(self, folder: Path) -> None:
        self._paths = sorted(folder.rglob("*.jpg"))
        self._classes = sorted({path.parent.name for path in self._paths})

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, i: int) -> tuple[NDArray[np.uint8], int]:
        from PIL import Image

        path = self._paths[i]
        return np.asarray(Image.open(path).convert("RGB")), self._classes.index(path.parent.name)
