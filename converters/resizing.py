"""Pre-resizing: which size a picture gets, by mode, and the antialiased resampling to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from fastdata.decoding.pillow_arrays import image_of, view_array
from fastdata.errors import ImageTooLargeError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastdata.converters.options import PackOptions

__all__ = ["Placement", "place", "resample", "resized"]

_FILTERS = {
    "bicubic": Image.Resampling.BICUBIC,
    "bilinear": Image.Resampling.BILINEAR,
    "lanczos": Image.Resampling.LANCZOS,
    "box": Image.Resampling.BOX,
    "hamming": Image.Resampling.HAMMING,
}


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a picture goes: resampled to ``size`` (width, height), its corner at ``corner`` of a canvas ``canvas``.

    A negative corner cuts the picture (crop), a positive one leaves a border (pad). All in pixels.
    """

    size: tuple[int, int]
    corner: tuple[int, int]
    canvas: tuple[int, int]

    def changes(self, width: int, height: int) -> bool:
        """Return whether a picture of this size would come out different."""
        return not (self.size == self.canvas == (width, height))


def place(width: int, height: int, options: PackOptions) -> Placement:
    """Return where a picture of this size goes; no side falls to 0, nothing grows unless ``options.upscale``.

    shorter, longer: that side gets exactly ``resize`` pixels, the other keeps the shape (rounded half up).
    exact: both sides; a side shorter than asked stays. crop: covers the box, of which a smaller picture fills less.
    pad: fits in the box, always exactly the box. Raises ImageTooLargeError where the result exceeds max_pixels.
    """
    box = options.box
    if box is None:
        return Placement((width, height), (0, 0), (width, height))
    if options.resize_mode == "exact":
        size = box if options.upscale else (min(box[0], width), min(box[1], height))
        placement = Placement(size, (0, 0), size)
    else:
        size = _scaled(width, height, box, options)
        canvas = size
        if options.resize_mode == "crop":
            canvas = min(box[0], size[0]), min(box[1], size[1])
        elif options.resize_mode == "pad":
            canvas = box
        placement = Placement(size, (_middle(canvas[0], size[0]), _middle(canvas[1], size[1])), canvas)
    _guard(placement, options.max_pixels)
    return placement


def _scaled(width: int, height: int, box: tuple[int, int], options: PackOptions) -> tuple[int, int]:
    # Which side decides: compare box/side without dividing, so that equal shapes never round apart.
    by_width = box[0] * height >= box[1] * width  # the width needs the larger factor: it decides where we cover
    if options.resize_mode in {"longer", "pad"}:
        by_width = box[0] * height <= box[1] * width
    target, side = (box[0], width) if by_width else (box[1], height)
    if target >= side and not options.upscale:
        return width, height
    if by_width:
        return target, _times(height, target, side)
    return _times(width, target, side), target


def _middle(outer: int, inner: int) -> int:
    return (outer - inner) // 2 if outer >= inner else -((inner - outer) // 2)


def _times(value: int, numerator: int, denominator: int) -> int:
    return max(1, (2 * value * numerator + denominator) // (2 * denominator))


def _guard(placement: Placement, max_pixels: int | None) -> None:
    for width, height in (placement.size, placement.canvas):
        if max_pixels is not None and width * height > max_pixels:
            msg = (
                f"it would become {width} x {height} pixels, more than max_pixels ({max_pixels}): raise it to pack this"
            )
            raise ImageTooLargeError(msg)


def resample(pixels: NDArray[np.uint8], placement: Placement, options: PackOptions) -> NDArray[np.uint8]:
    """Return uint8 (H, W, 3 or 1) put where ``placement`` says, antialiased; the array itself where nothing changes.

    The filter is Pillow's, whose support grows with the factor: the reference for antialiased resizing. The result may
    be a view, and read-only.
    """
    height, width, channels = pixels.shape
    if placement.size != (width, height):
        pixels = view_array(resized(image_of(pixels), placement.size, options))
    if placement.canvas == placement.size:
        return pixels
    (left, top), (width, height) = placement.corner, placement.canvas
    if left <= 0 and top <= 0:
        return pixels[-top : height - top, -left : width - left]
    ground = view_array(Image.new("RGB", (1, 1), options.background).convert("L" if channels == 1 else "RGB"))
    canvas = np.broadcast_to(ground, (height, width, channels)).copy()
    canvas[top : top + placement.size[1], left : left + placement.size[0]] = pixels
    return canvas


def resized(
    picture: Image.Image,
    size: tuple[int, int],
    options: PackOptions,
    box: tuple[float, float, float, float] | None = None,
) -> Image.Image:
    """Return an RGB or L picture (or ``box`` of it) in another size, by the filter asked for."""
    return picture.resize(size, _FILTERS[options.filter], box=box)
