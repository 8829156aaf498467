"""A torchvision transform, read into a Plan, or the reason why the engine cannot take it.

Exact types only: a subclass, a patched method or a hook may do anything. torchvision is never imported here: whoever
hands over one of its objects has imported it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdata.transforms.batch_op import BatchOp
from fastdata.transforms.composition import Composition, RefusedError, refuse
from fastdata.transforms.known_types import ContainerError, check_untouched, flat, home_of
from fastdata.transforms.levels import GreyLevels
from fastdata.transforms.nested_readers import NESTED_READERS, makes_three_channels, mirrored
from fastdata.transforms.pixel_readers import PIXEL_READERS, Coloured, Erasing
from fastdata.transforms.pixel_steps import Grey, Sometimes, WholeBatch
from fastdata.transforms.plan import (
    CenterCrop,
    HorizontalFlip,
    Pad,
    Plan,
    RandomCrop,
    RandomResizedCrop,
    Resize,
    Unsupported,
    VerticalFlip,
)
from fastdata.transforms.policy_readers import POLICY_READERS, Sized
from fastdata.transforms.readers import READERS, Cast, Geometric, Normalise, ToTensor
from fastdata.transforms.timm_readers import TIMM_READERS
from fastdata.transforms.warp_readers import WARP_READERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastdata.transforms.levels import Scaling
    from fastdata.transforms.pixel_steps import PixelStep
    from fastdata.transforms.plan import Step
    from fastdata.transforms.readers import Read as GeometryRead
    from fastdata.types import Edges, FloatType, Interpolation

    Read = GeometryRead | Coloured | Erasing | Sized

__all__ = ["compile_transform"]

#: What to say of a few that are asked for often.
_HINTS = {
    "FiveCrop": "it gives several pictures of one",
    "Lambda": "batch_op marks a function of whole batches that the engine may call",
    "TenCrop": "it gives several pictures of one",
    "ToNumpy": "it gives arrays; timm's MaybePILToTensor gives tensors",
    "function": "batch_op marks a function of whole batches that the engine may call",
}


def compile_transform(transform: object) -> Plan | Unsupported:
    """Return what ``transform`` asks for, read anew at each call, or why worker processes must run it.

    Understood: None, one torchvision v1 or v2 transform, their Compose, torch.nn.Sequential, lists or tuples of them,
    and what ``batch_op`` has marked. The plan gives torchvision's pixels for a PIL image within 1 grey level (a few
    pixels of a uint8 tensor that is resized: 2), and its random steps' distribution; pixel_steps.py says it of each
    step of pixels.
    """
    builder = _Builder()
    number, step = 0, transform
    try:
        for number, step in enumerate(flat(transform), start=1):  # noqa: B007  the reason names them
            builder.add(_read(step))
            builder.lines.append(" ".join(repr(step).split()))
    except ContainerError as error:
        return Unsupported(str(error))
    except RefusedError as error:
        return Unsupported(f"step {number}, {type(step).__name__}: {error}")
    return builder.plan()


def _read(step: object) -> Read:
    if type(step) is BatchOp:
        found = (WholeBatch(step.function),)
        return Coloured(found, found)
    home, name = home_of(step), type(step).__name__
    reader: Any = (TIMM_READERS if home in _TIMM_HOMES else _ALL_READERS).get(name)
    nested = NESTED_READERS.get(name)
    if home is None or (reader is None and nested is None):
        hint = _HINTS.get(name)
        refuse("not known to the engine" + (f": {hint}" if hint else ""))
    check_untouched(step)
    try:
        if nested is not None:
            return nested(step, _opened)
        return reader(step, home.endswith(".v2"))  # type: ignore[no-any-return]
    except AttributeError as error:
        refuse(f"not the attributes expected ({error})")


def _opened(steps: object) -> Iterator[tuple[str, Read]]:
    """Yield what is within a step, containers opened, by name and read."""
    for step in flat(steps):
        yield type(step).__name__, _read(step)


_ALL_READERS: dict[str, Any] = {**READERS, **PIXEL_READERS, **WARP_READERS, **POLICY_READERS}
# Their names are torchvision's, their objects are not.
_TIMM_HOMES = {"timm.data.auto_augment", "timm.data.random_erasing"}


class _Builder:
    """Collects what has been read; knows what the picture is by now: a PIL image, a uint8 or a float tensor."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._composition = Composition()
        self._steps: list[Step] = []
        self._pixels: list[PixelStep] = []
        self._finish: list[PixelStep] = []
        self._channels = 3
        self._kind = "pil"
        self._levels = GreyLevels()
        self._interpolation: Interpolation = "bilinear"
        self._fill: tuple[int, ...] | None = None
        self._edges: Edges = "constant"

    def add(self, read: Read) -> None:
        """Take one more step, or refuse it."""
        match read:
            case Geometric():
                for step in read.steps:
                    self._geometry(step, read)
            case Coloured():
                self._coloured(read)
            case Sized():
                if self._composition.size is None:
                    refuse("the size of the pictures is not the same for all, and its magnitudes depend on it")
                self._coloured(read.make(*self._composition.size))
            case Erasing():
                self._erasing(read)
            case ToTensor():
                self._tensor(read)
            case Cast():
                self._cast(read)
            case Normalise():
                self._normalise(read)

    def plan(self) -> Plan:
        """Return what all the steps amount to."""
        channels = self._channels
        return Plan(
            steps=tuple(self._steps),
            pixels=tuple(self._pixels),
            finish=tuple(self._finish),
            grey=channels == 1,
            dtype=self._levels.dtype,
            levels=self._levels.table(channels),
            divisor=self._levels.divisor,
            mean=tuple(self._levels.mean[:channels].tolist()),
            std=tuple(self._levels.std[:channels].tolist()),
            fill=self._fill or (0, 0, 0),
            edges=self._edges,
            interpolation=self._interpolation,
            output_size=self._composition.size,
            output_kind="pil" if self._kind == "pil" else "tensor",
            description=tuple(self.lines),
        )

    def _tensor(self, read: ToTensor) -> None:
        if self._kind != "pil":
            if read.scaled and not read.maybe:
                refuse("the picture is a tensor already")
            return
        self._kind = "uint8"
        if read.scaled:
            self._float("float32", "divide")

    def _geometry(self, step: Step, read: Geometric) -> None:
        if self._pixels or self._finish:
            self._behind_pixels(step)
            return
        self._composition.check_extended(step)
        match step:
            case Resize() | RandomResizedCrop():
                self._check_resampling(read)
                self._interpolation = read.interpolation
            case CenterCrop() | RandomCrop(if_needed=True):
                if self._composition.may_pad(step):
                    self._check_fill(read.fill)
            case Pad() if read.edges != "constant":
                if self._kind != "pil" and len(set(read.fill)) > 1:
                    refuse("a fill colour on a tensor")
                if self._fill is not None:
                    refuse("a padding by the picture's own pixels behind another padding")
                self._composition.extend(step)
                self._edges = read.edges
            case Pad():
                self._check_fill(read.fill)
        self._composition.add(step, read.interpolation)
        self._steps.append(step)

    def _behind_pixels(self, step: Step) -> None:
        """Take a flip behind a step of pixels; other geometry would have to come before it."""
        if not isinstance(step, HorizontalFlip | VerticalFlip):
            refuse("a change of size behind a step of pixels")
        (self._finish or self._pixels).append(mirrored(step))

    def _coloured(self, read: Coloured) -> None:
        if not read.steps:
            return
        if self._kind == "float":
            refuse("a step of uint8 pixels on float pixels")
        steps = read.steps if self._kind == "pil" else read.on_tensor
        if isinstance(steps, str):
            refuse(steps)
        for step in steps:
            if isinstance(step, Grey) and step.channels is not None:
                self._channels = step.channels
            elif self._channels == 1 and makes_three_channels(step):
                refuse("Grayscale(3) inside it, of pictures of one channel")
        self._pixels += steps

    def _erasing(self, read: Erasing) -> None:
        step = read.step
        if self._kind == "pil" and not read.on_pil:
            refuse("the picture is no tensor yet")
        if step.value is not None:
            if len(step.value) not in (1, self._channels):
                refuse(f"value {step.value!r} for {self._channels} channels")
            if self._kind != "float" and not all(0 <= value < 256 for value in step.value):  # noqa: PLR2004  uint8
                refuse(f"value {step.value!r} for uint8 pixels")
            step = replace(step, value=tuple(np.broadcast_to(step.value, 3).tolist()))
        taken = Sometimes(read.p, (step,))
        (self._finish if self._kind == "float" else self._pixels).append(taken)

    def _check_resampling(self, read: Geometric) -> None:
        if self._kind == "float":
            refuse("resampling of float pixels has other values than Pillow's")
        if self._kind == "uint8" and not (read.antialias and read.interpolation == "bilinear"):
            refuse(f"{read.interpolation}, antialias={read.antialias} on a tensor has other pixels than Pillow's")

    def _check_fill(self, fill: tuple[int, ...]) -> None:
        if self._fill is not None and self._fill != fill:
            refuse("a second fill colour")
        if self._kind != "pil" and len(set(fill)) > 1:
            refuse("a fill colour on a tensor")
        # After ToTensor, 0.0 is what the black of the picture became; after Normalize it is some grey.
        if self._kind == "float" and (any(fill) or not self._levels.keeps_black):
            refuse("padding of float pixels")
        self._fill = fill

    def _cast(self, read: Cast) -> None:
        if self._kind == "pil":
            refuse("the picture is no tensor yet")
        dtype, before = read.dtype, self._levels.dtype
        if dtype == before:
            return
        if dtype == "uint8":
            refuse("back to uint8")
        if before == "uint8":
            self._float(dtype, read.how)
        elif before == "float32":
            self._levels.narrow(dtype)
        else:
            refuse(f"{dtype} behind {before}")

    def _float(self, dtype: FloatType, how: Scaling) -> None:
        self._levels.to_float(dtype, how)
        self._kind = "float"

    def _normalise(self, read: Normalise) -> None:
        if self._kind != "float":
            refuse("the picture is no float tensor yet")
        if self._channels == 1 and max(len(read.mean), len(read.std)) > 1:
            refuse("three values for one channel")
        if self._levels.rounds_to_zero(read.std):
            refuse(f"std {read.std!r} has a zero in {self._levels.dtype}")
        mean, std = np.broadcast_to(read.mean, 3), np.broadcast_to(read.std, 3)
        self._finish = [self._levels.normalised(step, mean, std) for step in self._finish]
        self._levels.normalise(mean, std)
