"""One reader per torchvision transform: its attributes, checked, as a value of ours.

A reader takes the object and whether it is of torchvision.transforms.v2, and refuses parameters
that the engine cannot honour to the pixel.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np

from fastdata.transforms.attributes import colour, integer, interpolation, number, probability, span
from fastdata.transforms.composition import refuse
from fastdata.transforms.plan import (
    CenterCrop,
    HorizontalFlip,
    Pad,
    RandomCrop,
    RandomResizedCrop,
    Resize,
    VerticalFlip,
)
from fastdata.types import Edges

if TYPE_CHECKING:
    from fastdata.transforms.levels import Scaling
    from fastdata.transforms.plan import Step
    from fastdata.types import FloatType, Interpolation

__all__ = ["READERS", "Cast", "Geometric", "Normalise", "Nothing", "Read", "ToTensor"]


@dataclass(frozen=True, slots=True)
class Geometric:
    """Steps of geometry; antialias is the flag that counts where the picture is a tensor already."""

    steps: tuple[Step, ...]
    interpolation: Interpolation = "bilinear"
    antialias: bool = True
    fill: tuple[int, ...] = (0, 0, 0)
    edges: Edges = "constant"


@dataclass(frozen=True, slots=True)
class ToTensor:
    """A PIL image becomes a tensor: uint8, or float32 divided by 255; maybe: a tensor is left as it is."""

    scaled: bool
    maybe: bool = False


@dataclass(frozen=True, slots=True)
class Cast:
    """A tensor changes its dtype; how uint8 becomes a float: divided by 255, times 1/255 (other bits), as it is."""

    dtype: Literal["uint8"] | FloatType
    how: Scaling = "keep"


@dataclass(frozen=True, slots=True)
class Normalise:
    """(x - mean) / std in the dtype of the pixels, one value or one per channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Nothing:
    """A step that changes nothing."""


Read = Geometric | ToTensor | Cast | Normalise | Nothing
Reader = Callable[[Any, bool], Read]


def _size(value: object) -> tuple[int, int]:
    """Return (width, height) of a size that torchvision stores as (height, width), (side,) or side."""
    sides = list(value) if isinstance(value, (list, tuple)) else [value]
    if len(sides) not in (1, 2):
        refuse(f"size {value!r} is neither a side nor (height, width)")
    return integer(sides[-1], 1, "size"), integer(sides[0], 1, "size")


def _padding(value: object, *, torch_order: bool) -> Pad | None:
    """Return the padding of an int or a sequence of 1, 2 or 4; v2 stores left, right, top, bottom."""
    if value is None:
        return None
    sides = list(value) if isinstance(value, (list, tuple)) else [value]
    if len(sides) not in (1, 2, 4):
        refuse(f"padding {value!r} is no 1, 2 or 4 numbers")
    whole = [integer(side, 0, "padding") for side in sides]
    if torch_order:
        left, right, top, bottom = whole
    else:
        left, top, right, bottom = (whole * (4 // len(whole)))[:4]
    return Pad(left, top, right, bottom) if any(whole) else None


def _edges(step: Any, *, if_needed: bool = False) -> Edges:  # noqa: ANN401  any object of a known type
    for mode in get_args(Edges):
        if step.padding_mode == mode:
            if mode != "constant" and if_needed:
                refuse(f"pad_if_needed with padding_mode {mode!r}")
            return cast("Edges", mode)
    return refuse(f"padding_mode {step.padding_mode!r} is not known to the engine")


def _resize(step: Any, v2: bool) -> Read:  # noqa: ANN401, FBT001
    how = interpolation(step.interpolation)
    longest = None if step.max_size is None else integer(step.max_size, 1, "max_size")
    size = step.size
    sides = list(size) if isinstance(size, (list, tuple)) else [size]
    if size is None and v2 and longest is not None:
        found = Resize(longest=longest)
    elif len(sides) == 1:
        shorter = integer(sides[0], 1, "size")
        if longest is not None and longest <= shorter:
            refuse(f"max_size {longest} is not above size {shorter}")
        found = Resize(shorter=shorter, longest=longest)
    elif longest is None:
        found = Resize(exact=_size(size))
    else:
        refuse("max_size together with (height, width)")
    return Geometric((found,), how, bool(step.antialias))


def _center_crop(step: Any, v2: bool) -> Read:  # noqa: ANN401, ARG001, FBT001
    return Geometric((CenterCrop(*_size(step.size)),))


def _random_crop(step: Any, v2: bool) -> Read:  # noqa: ANN401, FBT001
    pad = _padding(step.padding, torch_order=v2)
    crop = RandomCrop(*_size(step.size), if_needed=bool(step.pad_if_needed))
    if pad is None and not crop.if_needed:
        return Geometric((crop,))
    edges = _edges(step, if_needed=crop.if_needed)
    return Geometric((crop,) if pad is None else (pad, crop), fill=colour(step.fill), edges=edges)


def _pad(step: Any, v2: bool) -> Read:  # noqa: ANN401, ARG001, FBT001
    edges = _edges(step)
    pad = _padding(step.padding, torch_order=False)
    return Nothing() if pad is None else Geometric((pad,), fill=colour(step.fill), edges=edges)


def _random_resized_crop(step: Any, v2: bool) -> Read:  # noqa: ANN401, FBT001
    ratio = span(step.ratio, "ratio")
    if ratio[0] == 0:
        refuse(f"ratio {step.ratio!r} reaches 0")
    if v2 and not np.allclose(np.exp(step._log_ratio.tolist()), ratio, rtol=1e-5):  # noqa: SLF001  what v2 draws from
        refuse("ratio was changed after construction")
    found = RandomResizedCrop(*_size(step.size), scale=span(step.scale, "scale"), ratio=ratio)
    return Geometric((found,), interpolation(step.interpolation), bool(step.antialias))


def _timm_crop(step: Any, v2: bool) -> Read:  # noqa: ANN401, ARG001, FBT001
    """Read timm's RandomResizedCropAndInterpolation, which draws as torchvision's does."""
    if isinstance(step.interpolation, (list, tuple)):
        refuse("its interpolation differs from sample to sample; name one: interpolation='bilinear'")
    ratio = span(step.ratio, "ratio")
    if ratio[0] == 0:
        refuse(f"ratio {step.ratio!r} reaches 0")
    found = RandomResizedCrop(*_size(step.size), scale=span(step.scale, "scale"), ratio=ratio)
    return Geometric((found,), interpolation(step.interpolation))


def _horizontal_flip(step: Any, v2: bool) -> Read:  # noqa: ANN401, ARG001, FBT001
    return Geometric((HorizontalFlip(probability(step)),))


def _vertical_flip(step: Any, v2: bool) -> Read:  # noqa: ANN401, ARG001, FBT001
    return Geometric((VerticalFlip(probability(step)),))


def _to_tensor(step: Any, v2: bool) -> Read:  # noqa: ANN401, ARG001, FBT001
    default = sys.modules["torch"].get_default_dtype()
    if str(default) != "torch.float32":
        refuse(f"torch's default dtype is {default}")
    return ToTensor(scaled=True)


def _maybe_to_tensor(step: Any, v2: bool) -> Read:  # noqa: ANN401, FBT001  timm's
    _to_tensor(step, v2)  # the default dtype is the same question
    return ToTensor(scaled=True, maybe=True)


def _to_uint8(step: Any, v2: bool) -> Read:  # noqa: ANN401, ARG001, FBT001
    return ToTensor(scaled=False)


def _to_dtype(step: Any, v2: bool) -> Read:  # noqa: ANN401, ARG001, FBT001
    if isinstance(step.dtype, dict):
        refuse("a dtype for each type")
    return _cast(step.dtype, "multiply" if step.scale else "keep")


def _convert_image_dtype(step: Any, v2: bool) -> Read:  # noqa: ANN401, FBT001
    return _cast(step.dtype, "multiply" if v2 else "divide")


def _cast(dtype: object, how: Scaling) -> Read:
    match str(dtype):
        case "torch.float32":
            return Cast("float32", how)
        case "torch.bfloat16":
            return Cast("bfloat16", how)
        case "torch.float16":
            return Cast("float16", how)
        case "torch.uint8":
            return Cast("uint8", how)
    return refuse(f"dtype {dtype} is neither uint8, float32, bfloat16 nor float16")


def _normalise(step: Any, v2: bool) -> Read:  # noqa: ANN401, ARG001, FBT001
    mean, std = _per_channel(step.mean, "mean"), _per_channel(step.std, "std")
    if not np.asarray(std, np.float32).all():
        refuse(f"std {step.std!r} has a zero")
    return Normalise(mean, std)


def _per_channel(value: object, what: str) -> tuple[float, ...]:
    if hasattr(value, "tolist"):  # a tensor or an array
        value = value.tolist()
    values = value if isinstance(value, Sequence) else [value]
    if len(values) not in (1, 3):
        refuse(f"{what} {value!r} has neither one value nor three")
    return tuple(number(each, what) for each in values)


def _nothing(step: Any, v2: bool) -> Read:  # noqa: ANN401, ARG001, FBT001
    return Nothing()


#: By the name that torchvision.transforms, torchvision.transforms.v2, torch.nn or timm.data.transforms exports.
READERS: dict[str, Reader] = {
    "CenterCrop": _center_crop,
    "ConvertImageDtype": _convert_image_dtype,
    "Identity": _nothing,
    "MaybePILToTensor": _to_uint8,
    "MaybeToTensor": _maybe_to_tensor,
    "Normalize": _normalise,
    "PILToTensor": _to_uint8,
    "Pad": _pad,
    "RandomCrop": _random_crop,
    "RandomHorizontalFlip": _horizontal_flip,
    "RandomResizedCrop": _random_resized_crop,
    "RandomResizedCropAndInterpolation": _timm_crop,
    "RandomVerticalFlip": _vertical_flip,
    "RGB": _nothing,  # the pixels are RGB already
    "Resize": _resize,
    "ToDtype": _to_dtype,
    "ToImage": _to_uint8,
    "ToPureTensor": _nothing,
    "ToTensor": _to_tensor,
}
