"""What every peer is asked for: the settings of a run, and the two helpers that all of them share.

A peer is a module ``peers_NAME``. Its ``open(folder, settings)`` takes a folder of JPEG files in a folder for each
class and returns an iterable; each ``iter`` of it is one shuffled epoch of uint8 batches (N, 3, size, size), the last
incomplete one dropped (of the task "float": float32, normalised). A peer with a format of its own also has
``prepare(folder, settings)``, which is called before, in another process, and writes it below ``settings.scratch``.
Libraries are imported inside the functions: where one is missing, its ImportError tells.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["MEAN", "STD", "Images", "Settings", "random_box", "torch_transform"]

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True, slots=True)
class Settings:
    """How to load.

    task: "train" is RandomResizedCrop(size) and a flip, uint8; "float" the same as float32, normalised; "evaluate" is
    Resize(256) and CenterCrop(size), uint8, in the order of the folder. variant: what the peer offers more than one of.
    workers: threads or processes. scratch: an empty folder of this run's own.
    """

    scratch: Path
    variant: str = ""
    task: Literal["train", "float", "evaluate"] = "train"
    batch_size: int = 64
    size: int = 224
    workers: int = 2


class Images:
    """The images of a loader that gives (images, labels): each ``iter`` is one of its epochs."""

    def __init__(self, loader: Iterable[Any]) -> None:
        """Borrow the loader."""
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        """Start an epoch."""
        for batch in self._loader:
            yield batch[0]


def torch_transform(settings: Settings) -> Any:  # noqa: ANN401  torchvision has no types
    """Return torchvision's pipeline of PIL pictures for the task."""
    from torchvision import transforms as T

    if settings.task == "evaluate":
        return T.Compose([T.Resize(256), T.CenterCrop(settings.size), T.PILToTensor()])
    steps = [T.RandomResizedCrop(settings.size), T.RandomHorizontalFlip()]
    if settings.task == "float":
        return T.Compose([*steps, T.ToTensor(), T.Normalize(MEAN, STD)])
    return T.Compose([*steps, T.PILToTensor()])


def random_box(width: int, height: int, draw: random.Random) -> tuple[int, int, int, int]:
    """Return left, top, width, height of RandomResizedCrop's box, for peers that have none of their own.

    An area of 0.08 to 1 of the picture, an aspect of 3/4 to 4/3; where ten draws do not fit: the middle.
    """
    for _ in range(10):
        area = width * height * draw.uniform(0.08, 1)
        aspect = math.exp(draw.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return draw.randint(0, width - w), draw.randint(0, height - h), w, h
    w, h = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    return (width - w) // 2, (height - h) // 2, w, h
