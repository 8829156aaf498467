"""One reader per torchvision transform that warps a picture and keeps its size: RandomRotation and its kin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastdata.transforms.attributes import colour, number, probability, resampling
from fastdata.transforms.composition import refuse
from fastdata.transforms.pixel_readers import Coloured
from fastdata.transforms.pixel_steps import Sometimes
from fastdata.transforms.warp_steps import Affine, Perspective, Rotate

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["WARP_READERS"]

_ON_TENSOR = "on a tensor it has other pixels than on a PIL image"


def _range(value: object, what: str) -> tuple[float, float]:
    """Return (min, max) of any sign."""
    if not isinstance(value, (list, tuple)) or len(value) != 2:  # noqa: PLR2004  a range has two ends
        refuse(f"{what} {value!r} is no (min, max)")
    low, high = number(value[0], what), number(value[1], what)
    if low > high:
        refuse(f"{what} {value!r} is not min <= max")
    return low, high


def _point(value: object, what: str) -> tuple[float, float] | None:
    if value is None:
        return None
    if not isinstance(value, (list, tuple)) or len(value) != 2:  # noqa: PLR2004  x, y
        refuse(f"{what} {value!r} is no (x, y)")
    return number(value[0], what), number(value[1], what)


def _rotation(step: Any, v2: bool) -> Coloured:  # noqa: ANN401, ARG001, FBT001  as all readers
    if step.expand:
        refuse("expand=True makes pictures of different sizes")
    found = Rotate(
        _range(step.degrees, "degrees"),
        _point(step.center, "center"),
        colour(step.fill),
        resampling(step.interpolation),
    )
    return Coloured((found,), _ON_TENSOR)


def _affine(step: Any, v2: bool) -> Coloured:  # noqa: ANN401, ARG001, FBT001
    shear: list[Any] = [0.0, 0.0, 0.0, 0.0] if step.shear is None else list(step.shear)
    if len(shear) not in (2, 4):
        refuse(f"shear {step.shear!r} is neither two numbers nor four")
    shear += [0.0] * (4 - len(shear))
    scale = (1.0, 1.0) if step.scale is None else _range(step.scale, "scale")
    if not scale[0] > 0:
        refuse(f"scale {step.scale!r} reaches 0")
    found = Affine(
        _range(step.degrees, "degrees"),
        _point(step.translate, "translate") or (0.0, 0.0),
        scale,
        (_range(shear[:2], "shear"), _range(shear[2:], "shear")),
        _point(step.center, "center"),
        colour(step.fill),
        resampling(step.interpolation),
    )
    return Coloured((found,), _ON_TENSOR)


def _perspective(step: Any, v2: bool) -> Coloured:  # noqa: ANN401, ARG001, FBT001
    distortion = number(step.distortion_scale, "distortion_scale")
    if not 0 <= distortion <= 1:
        refuse(f"distortion_scale {distortion} is not within 0 and 1")
    found = Perspective(distortion, colour(step.fill), resampling(step.interpolation))
    return Coloured((Sometimes(probability(step), (found,)),), _ON_TENSOR)


#: By the name that torchvision.transforms and torchvision.transforms.v2 export.
WARP_READERS: dict[str, Callable[[Any, bool], Coloured]] = {
    "RandomAffine": _affine,
    "RandomPerspective": _perspective,
    "RandomRotation": _rotation,
}
