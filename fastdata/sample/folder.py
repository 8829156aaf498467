"""A folder of sample pictures, one folder a class, as JPEG files that weigh what photographs weigh."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from fastdata.errors import DestinationExistsError, OptionError
from fastdata.sample.patterns import PATTERNS
from fastdata.sample.picture import draw_picture, make_grain

if TYPE_CHECKING:
    import os

    from numpy.random import Generator
    from numpy.typing import NDArray

__all__ = ["SampleReport", "draw_samples"]

_MIN_SIDE = 32


@dataclass(frozen=True, slots=True)
class SampleReport:
    """What was drawn: the folder, the number of pictures, the class names in ImageFolder's order, the bytes of all."""

    folder: str
    pictures: int
    classes: tuple[str, ...]
    bytes: int


def draw_samples(
    folder: str | os.PathLike[str],
    *,
    count: int = 300,
    classes: int = 4,
    seed: int = 0,
    size: tuple[int, int] = (500, 375),
    overwrite: bool = False,
) -> SampleReport:
    """Draw ``count`` labelled pictures into ``folder``/class/number.jpg; the same pixels for the same arguments.

    size: width and height in pixels of a middling picture; each differs a little, two in five stand upright. A picture
    depends on seed, size, classes and its number only, so a longer set begins like a shorter one. overwrite removes
    the pictures of an earlier set; any other file in the folder is left alone. Raises OptionError and
    DestinationExistsError.
    """
    _check(count, classes, size)
    root = Path(folder)
    _make_room(root, overwrite=overwrite)
    names = tuple(PATTERNS)[:classes]
    for name in names:
        (root / name).mkdir(parents=True, exist_ok=True)
    grain = make_grain(seed)
    total = 0
    for number in range(count):
        rng = np.random.default_rng([seed, number + 1])
        name = names[number % classes]
        data = _encode(draw_picture(name, _vary(size, rng), rng, grain), rng)
        (root / name / f"{number:05d}.jpg").write_bytes(data)
        total += len(data)
    return SampleReport(str(root), count, tuple(sorted(names)), total)


def _check(count: int, classes: int, size: tuple[int, int]) -> None:
    if not 2 <= classes <= len(PATTERNS):  # noqa: PLR2004  one class is no task
        msg = f"classes is {classes}; from 2 to {len(PATTERNS)} can be drawn: {', '.join(PATTERNS)}"
        raise OptionError(msg)
    if count < classes:
        msg = f"count is {count}; it takes at least one picture for each of {classes} classes"
        raise OptionError(msg)
    if min(size) < _MIN_SIDE:
        msg = f"size is {size[0]}x{size[1]}; both sides must have {_MIN_SIDE} pixels or more"
        raise OptionError(msg)


def _make_room(root: Path, *, overwrite: bool) -> None:
    if not root.exists():
        return
    if not root.is_dir() or (any(root.iterdir()) and not overwrite):
        msg = f"{root} exists and is not an empty folder; name another one, or ask to overwrite"
        raise DestinationExistsError(msg)
    for name in PATTERNS:
        for old in (root / name).glob("[0-9][0-9][0-9][0-9][0-9].jpg"):
            old.unlink()
        if (root / name).is_dir() and not any((root / name).iterdir()):
            (root / name).rmdir()


def _vary(size: tuple[int, int], rng: Generator) -> tuple[int, int]:
    """Return a width and height near ``size``: the area up to 15 % off, the shape a little, 40 % upright."""
    longer, shorter = size if rng.uniform() < 0.6 else size[::-1]  # noqa: PLR2004  three in five as asked
    scale, stretch = rng.uniform(0.92, 1.07), rng.uniform(0.93, 1.07)
    return max(_MIN_SIDE, round(longer * scale * stretch)), max(_MIN_SIDE, round(shorter * scale / stretch))


def _encode(pixels: NDArray[np.uint8], rng: Generator) -> bytes:
    """Return baseline JPEG bytes: two in five 4:4:4 at high quality, the others 4:2:0, as photographs on the web."""
    full = rng.uniform() < 0.4  # noqa: PLR2004  0.37 of the pixels in the photographs this was fitted to
    quality = int(rng.integers(88, 95) if full else rng.integers(80, 90))
    # in bytes a pixel: 30 to 120 kB at 500x375, and at the 15 % more or less that _vary makes of it
    low, high = (0.43, 0.55) if full else (0.195, 0.3)
    image, step = Image.fromarray(pixels), 0
    area = pixels.shape[0] * pixels.shape[1]
    for _ in range(16):
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=quality, subsampling=0 if full else 2)
        data = buffer.getvalue()
        wanted = (len(data) < low * area) - (len(data) > high * area)
        if not wanted or wanted * step < 0:  # inside, or just stepped over it
            break
        step, quality = wanted, min(96, max(50, quality + 2 * wanted))
    return data
