"""webdataset's own pipeline: shards shuffled, a window of samples, batches made in the workers.

Variant "pil" decodes and crops with Pillow and torchvision. Variant "cv2" takes the raw bytes and does all of it with
OpenCV, without antialiasing (INTER_LINEAR): less work than the others do, and the fastest way that webdataset has.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
from peers_settings import Images, random_box, torch_transform

if TYPE_CHECKING:
    from pathlib import Path

    from peers_settings import Settings

_DRAW = random.Random()  # noqa: S311  crops


def prepare(folder: Path, settings: Settings) -> None:
    """Pack as tar shards, two for each worker."""
    from fastdata.converters import pack

    pack(folder, settings.scratch / "shards-{000000..}.tar", shards=2 * settings.workers, shuffle=True)


def open(folder: Path, settings: Settings) -> Any:  # noqa: A001, ANN401, ARG001  the contract's name and arguments
    """Return a WebLoader's images."""
    import webdataset as wds

    names = [str(path) for path in sorted(settings.scratch.glob("shards-*.tar"))]
    data = wds.WebDataset(names, shardshuffle=len(names), seed=0).shuffle(1000)
    if settings.variant == "cv2":
        data = data.to_tuple("jpg", "cls").map_tuple(_Crop(settings.size), int)
    else:
        data = data.decode("pil").to_tuple("jpg", "cls").map_tuple(torch_transform(settings), int)
    data = data.batched(settings.batch_size, partial=False)
    return Images(
        wds.WebLoader(
            data,
            batch_size=None,
            num_workers=settings.workers,
            persistent_workers=True,
            prefetch_factor=4,
            worker_init_fn=_one_thread,
        )
    )


def _one_thread(worker: int) -> None:
    _DRAW.seed(worker)
    try:
        import cv2
    except ImportError:
        return
    cv2.setNumThreads(0)


class _Crop:
    def __init__(self, size: int) -> None:
        self._size = size

    def __call__(self, data: bytes) -> Any:  # noqa: ANN401
        import cv2
        import torch

        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)
        assert pixels is not None
        left, top, width, height = random_box(pixels.shape[1], pixels.shape[0], _DRAW)
        part = cv2.resize(pixels[top : top + height, left : left + width], (self._size, self._size))
        if _DRAW.random() < 0.5:  # noqa: PLR2004  every second one
            part = cv2.flip(part, 1)
        return torch.from_numpy(np.ascontiguousarray(part.transpose(2, 0, 1)))
