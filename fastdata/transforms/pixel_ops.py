"""What each pixel step does to a picture, given its draws: Pillow's arithmetic, to the bit where a step says so.

numpy only: a torch operator would start threads of its own inside the engine's. The calls are few and large, so that
numpy lets other threads run meanwhile.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import permutations
from math import factorial
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from fastdata.transforms.erasing import erase
from fastdata.transforms.hue import shift_hue, turn_hue
from fastdata.transforms.neighbours import blend, blur, sharpen, store
from fastdata.transforms.pixel_steps import (
    Adjust,
    AutoContrast,
    Blur,
    Brighten,
    Equalize,
    Erase,
    Grey,
    Invert,
    Jitter,
    Mirror,
    OneOf,
    Permute,
    Posterize,
    Sharpness,
    Shuffled,
    Solarize,
    Sometimes,
)
from fastdata.transforms.timm_levels import Levelled, step_of
from fastdata.transforms.warp import WARPS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fastdata.transforms.picture import Picture
    from fastdata.transforms.pixel_steps import PixelStep

    Bytes = NDArray[np.uint8]
    Draws = Sequence[float]

__all__ = ["adjustments", "apply", "apply_to_floats", "order_of"]

_GREYS = np.arange(256, dtype=np.uint8)
_LEVELS = np.arange(256, dtype=np.float32)
_ORDERS = tuple(permutations(range(4)))


def apply(step: PixelStep, picture: Picture, u: Draws) -> None:
    """Change ``picture`` as ``step`` says, with its uniform draws of [0, 1), ``step.draws`` of them."""
    _ACTIONS[type(step)](step, picture, u)


def apply_to_floats(step: PixelStep, pixels: NDArray[Any], u: Draws) -> None:
    """Change ``pixels`` (C, H, W; uint16: bfloat16), in place, as a step that may come behind the levels says."""
    match step:
        case Sometimes():
            if u[0] < step.p:
                at = 1
                for inner in step.steps:
                    apply_to_floats(inner, pixels, u[at : at + inner.draws])
                    at += inner.draws
        case Mirror():
            _mirror(step, pixels, u)
        case Erase():
            erase(step, pixels, u)
        case _:
            raise TypeError(f"{type(step).__name__} is no step for floats")


def _mirror(step: Mirror, pixels: NDArray[Any], u: Draws) -> None:
    if u[0] < step.p:
        pixels[...] = pixels[:, :, ::-1] if step.axis == 0 else pixels[:, ::-1]


def _sometimes(step: Sometimes, picture: Picture, u: Draws) -> None:
    if u[0] < step.p:
        at = 1
        for inner in step.steps:
            apply(inner, picture, u[at : at + inner.draws])
            at += inner.draws


def _one_of(step: OneOf, picture: Picture, u: Draws) -> None:
    at = int(u[0] * len(step.steps)) if step.upto is None else bisect_right(step.upto, u[0])
    apply(step.steps[min(at, len(step.steps) - 1)], picture, u[1:])


def order_of(count: int, u: float) -> list[int]:
    """Return the order of ``count`` things that a uniform draw of [0, 1) chooses, each as likely as another."""
    number, left, order = int(u * factorial(count)), list(range(count)), []
    for places in range(count, 0, -1):
        at, number = divmod(number, factorial(places - 1))
        order.append(left.pop(at))
    return order


def _shuffled(step: Shuffled, picture: Picture, u: Draws) -> None:
    starts = [1]
    for inner in step.steps:
        starts.append(starts[-1] + inner.draws)
    for at in order_of(len(step.steps), u[0]):
        apply(step.steps[at], picture, u[starts[at] : starts[at + 1]])


def _permute(step: Permute, picture: Picture, u: Draws) -> None:  # noqa: ARG001
    if picture.channels > 1:
        pixels = picture.settle()
        pixels[...] = pixels[order_of(picture.channels, u[0])]


def _posterize(step: Posterize, picture: Picture, u: Draws) -> None:  # noqa: ARG001  as all actions
    picture.map(_GREYS & np.uint8(256 - (1 << (8 - step.bits))))


def _solarize(step: Solarize, picture: Picture, u: Draws) -> None:  # noqa: ARG001
    picture.map(np.where(step.threshold > _GREYS, _GREYS, 255 - _GREYS))


def _brightened(step: Brighten) -> Bytes:
    return np.where(step.threshold > _GREYS, np.minimum(_GREYS, 255 - step.levels) + np.uint8(step.levels), _GREYS)


def _levelled(step: Levelled, picture: Picture, u: Draws) -> None:
    made = step_of(step, u, (picture.room.width, picture.room.height))
    if made is not None:
        apply(made, picture, ())


# ---------------------------------------------------------------- grey


def _to_grey(step: Grey, picture: Picture, u: Draws) -> None:  # noqa: ARG001
    wanted = step.channels or picture.channels
    if picture.channels != 1:
        picture.settle()
        picture.planes[0] = _grey(picture, tensor=step.tensor)
    elif wanted == 1:
        return
    else:
        picture.settle()
    picture.planes[1:wanted] = picture.planes[0]
    picture.channels = wanted


def _grey(picture: Picture, *, tensor: bool = False) -> Bytes:
    """Return the grey picture (H, W) of a settled one, in the room or its own plane."""
    if picture.channels == 1:
        first: Bytes = picture.planes[0]
        return first
    red, green, blue = picture.planes
    room = picture.room
    grey: Bytes = room.array("grey", np.uint8)
    if tensor:
        # torchvision's _rgb_to_grayscale_image: float32, in this order, cut off.
        total, part = room.array("total", np.float32), room.array("part", np.float32)
        np.multiply(red, np.float32(0.2989), out=total, dtype=np.float32)
        for plane, weight in ((green, 0.587), (blue, 0.114)):
            np.multiply(plane, np.float32(weight), out=part, dtype=np.float32)
            np.add(total, part, out=total)
        np.copyto(grey, total, casting="unsafe")
        return grey
    # Pillow's L24 (src/libImaging/Convert.c): rounded 16-bit weights.
    total, part = room.array("total", np.uint32), room.array("part", np.uint32)
    np.multiply(red, np.uint32(19595), out=total, dtype=np.uint32)
    for plane, factor in ((green, 38470), (blue, 7471)):
        np.multiply(plane, np.uint32(factor), out=part, dtype=np.uint32)
        np.add(total, part, out=total)
    np.add(total, np.uint32(0x8000), out=total)
    np.right_shift(total, np.uint32(16), out=total)
    np.copyto(grey, total, casting="unsafe")
    return grey


# ---------------------------------------------------------------- ColorJitter


def adjustments(step: Jitter, u: Draws) -> list[tuple[int, float]]:
    """Return what ColorJitter does, in order: which (0 brightness, 1 contrast, 2 saturation, 3 hue), and its factor."""
    ranges = step.brightness, step.contrast, step.saturation, step.hue
    order = _ORDERS[int(u[0] * len(_ORDERS))]
    spans = ((number, ranges[number]) for number in order)
    return [(number, span[0] + u[1 + number] * (span[1] - span[0])) for number, span in spans if span is not None]


def _jitter(step: Jitter, picture: Picture, u: Draws) -> None:
    for number, factor in adjustments(step, u):
        _ADJUST[number](picture, factor, tensor=step.tensor)


def _brightness(picture: Picture, factor: float, *, tensor: bool) -> None:  # noqa: ARG001  one signature for all
    picture.map(_blend_table(0.0, factor))


def _contrast(picture: Picture, factor: float, *, tensor: bool) -> None:
    picture.settle()
    grey = _grey(picture, tensor=tensor)
    mean = float(grey.sum(dtype=np.uint64)) / grey.size
    if not tensor:
        picture.map(_blend_table(int(mean + 0.5), factor))
        return
    ratio = np.float32(factor)
    table = _LEVELS * ratio + np.float32(mean) * np.float32(1.0 - factor)
    picture.map(np.clip(table, 0, 255).astype(np.uint8))


def _saturation(picture: Picture, factor: float, *, tensor: bool) -> None:
    if picture.channels == 1:
        return
    pixels = picture.settle()
    base = picture.room.array("base", np.float32)
    np.copyto(base, _grey(picture, tensor=tensor))
    work = picture.room.array("work", np.float32, 3)
    np.copyto(work, pixels)
    if tensor:
        np.multiply(work, np.float32(factor), out=work)
        np.multiply(base, np.float32(1.0 - factor), out=base)
        np.add(work, base, out=work)
    else:
        blend(base, work, factor)
    store(work, pixels)


def _hue(picture: Picture, factor: float, *, tensor: bool) -> None:
    if picture.channels == 1:
        return
    picture.settle()
    if tensor:
        turn_hue(picture.planes, factor, picture.room)
    else:
        shift_hue(picture.planes, int(factor * 255), picture.room)


_ADJUST = (_brightness, _contrast, _saturation, _hue)


def _blend_table(base: float, factor: float) -> Bytes:
    """Return what Image.blend makes of each grey level and a picture of one colour."""
    work = _LEVELS.copy()
    blend(np.float32(base), work, factor)
    return np.clip(work, 0, 255, out=work).astype(np.uint8)


# ---------------------------------------------------------------- histograms


def _histogram(plane: Bytes) -> NDArray[np.int64]:
    height, width = plane.shape  # Pillow counts three times as fast as numpy.bincount
    return np.array(Image.frombuffer("L", (width, height), plane, "raw", "L", 0, 1).histogram())


def _stretched(plane: Bytes) -> Bytes:
    """Return ImageOps.autocontrast's table."""
    low, high = int(plane.min()), int(plane.max())
    if high <= low:
        return _GREYS
    scale = 255.0 / (high - low)
    table: Bytes = np.clip(np.trunc(_GREYS * scale + -low * scale), 0, 255).astype(np.uint8)
    return table


def _equalised(plane: Bytes) -> Bytes:
    """Return ImageOps.equalize's table."""
    counts = _histogram(plane)
    filled = counts[counts > 0]
    step = (int(filled.sum()) - int(filled[-1])) // 255
    if len(filled) <= 1 or not step:
        return _GREYS
    before = np.concatenate(([0], np.cumsum(counts)[:-1]))
    table: Bytes = ((before + step // 2) // step).clip(0, 255).astype(np.uint8)
    return table


_ACTIONS: dict[type, Callable[[Any, Picture, Draws], None]] = {
    Adjust: lambda step, picture, _: _ADJUST[step.which](picture, step.factor, tensor=False),
    AutoContrast: lambda _, picture, __: picture.map(np.stack([_stretched(plane) for plane in picture.settle()])),
    Blur: blur,
    Brighten: lambda step, picture, _: picture.map(_brightened(step)),
    Equalize: lambda _, picture, __: picture.map(np.stack([_equalised(plane) for plane in picture.settle()])),
    Erase: lambda step, picture, u: erase(step, picture.settle(), u),
    Grey: _to_grey,
    Invert: lambda _, picture, __: picture.map(255 - _GREYS),
    Jitter: _jitter,
    Levelled: _levelled,
    Mirror: lambda step, picture, u: _mirror(step, picture.planes[: picture.channels], u),
    OneOf: _one_of,
    Permute: _permute,
    Posterize: _posterize,
    Sharpness: sharpen,
    Shuffled: _shuffled,
    Solarize: _solarize,
    Sometimes: _sometimes,
    **WARPS,
}
