"""TrivialAugmentWide, RandAugment and AutoAugment, read into choices among pixel steps.

Their magnitudes are asked of torchvision's own objects, for the size that the pictures have by then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastdata.transforms.attributes import colour, integer, resampling
from fastdata.transforms.composition import refuse
from fastdata.transforms.pixel_readers import Coloured
from fastdata.transforms.pixel_steps import (
    Adjust,
    AutoContrast,
    Equalize,
    Invert,
    OneOf,
    Posterize,
    Sharpness,
    Shear,
    Shift,
    Solarize,
    Sometimes,
    Turn,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastdata.transforms.pixel_steps import PixelStep

__all__ = ["POLICY_READERS", "Sized"]

_ON_TENSOR = "on a tensor it has other pixels than on a PIL image"
_NOTHING = Sometimes(0.0, ())
_AUTO_BINS = 10  # torchvision's AutoAugment.forward


@dataclass(frozen=True, slots=True)
class Sized:
    """Steps that depend on the picture's size: ``make`` takes width and height."""

    make: Callable[[int, int], Coloured]


@dataclass(frozen=True, slots=True)
class _Ladder:
    """An operation by torchvision's name: its magnitudes, and whether each is taken with either sign."""

    name: str
    magnitudes: tuple[float, ...] | None
    signed: bool


def _trivial(step: Any, v2: bool) -> Coloured:  # noqa: ANN401, FBT001  as all readers
    bins = integer(step.num_magnitude_bins, 2, "num_magnitude_bins")
    make = _maker(step)
    rungs = [
        OneOf(tuple(one for value in ladder.magnitudes for one in _signs(ladder, value, make)))
        if ladder.magnitudes is not None
        else make(ladder.name, 0.0)
        for ladder in _ladders(step, bins, (1, 1), v2=v2)
    ]
    return Coloured((OneOf(tuple(rungs)),), _ON_TENSOR)


def _rand(step: Any, v2: bool) -> Sized:  # noqa: ANN401, FBT001
    bins = integer(step.num_magnitude_bins, 2, "num_magnitude_bins")
    magnitude = integer(step.magnitude, 0, "magnitude")
    if magnitude >= bins:
        refuse(f"magnitude {magnitude} is not below num_magnitude_bins {bins}")
    times = integer(step.num_ops, 0, "num_ops")
    make = _maker(step)

    def sized(width: int, height: int) -> Coloured:
        ladders = _ladders(step, bins, (width, height), v2=v2)
        each = OneOf(tuple(_rung(ladder, magnitude, make) for ladder in ladders))
        return Coloured((each,) * times, _ON_TENSOR)

    return Sized(sized)


def _auto(step: Any, v2: bool) -> Sized:  # noqa: ANN401, FBT001
    policies = step._policies if v2 else step.policies  # noqa: SLF001  where v2 keeps them
    make = _maker(step)

    def sized(width: int, height: int) -> Coloured:
        ladders = {ladder.name: ladder for ladder in _ladders(step, _AUTO_BINS, (width, height), v2=v2)}
        chains = [
            Sometimes(1.0, tuple(Sometimes(float(p), (_rung(ladders[name], at, make),)) for name, p, at in policy))
            for policy in policies
        ]
        return Coloured((OneOf(tuple(chains)),), _ON_TENSOR)

    return Sized(sized)


def _ladders(step: Any, bins: int, size: tuple[int, int], *, v2: bool) -> list[_Ladder]:  # noqa: ANN401
    width, height = size
    if not v2:
        arguments = (bins,) if type(step).__name__ == "TrivialAugmentWide" else (bins, (height, width))
        space = step._augmentation_space(*arguments)  # noqa: SLF001  torchvision's own numbers
        return [
            _Ladder(name, tuple(map(float, values.tolist())) if values.ndim else None, bool(signed))
            for name, (values, signed) in space.items()
        ]
    found = []
    for name, (values_of, signed) in step._AUGMENTATION_SPACE.items():  # noqa: SLF001
        values = values_of(bins, height, width)
        scale = 255.0 if name == "Solarize" else 1.0
        found.append(_Ladder(name, None if values is None else tuple(scale * v for v in values.tolist()), signed))
    return found


def _rung(ladder: _Ladder, at: int | None, make: Callable[[str, float], PixelStep]) -> PixelStep:
    if ladder.magnitudes is None or at is None:
        return make(ladder.name, 0.0)
    both = _signs(ladder, ladder.magnitudes[at], make)
    return OneOf(both) if len(both) > 1 else both[0]


def _signs(ladder: _Ladder, value: float, make: Callable[[str, float], PixelStep]) -> tuple[PixelStep, ...]:
    plus = make(ladder.name, value)
    return (plus, make(ladder.name, -value)) if ladder.signed else (plus,)


def _maker(step: Any) -> Callable[[str, float], PixelStep]:  # noqa: ANN401
    """Return what makes a step of a name and a magnitude, as torchvision's _apply_op does."""
    fill, how = colour(step.fill), resampling(step.interpolation)
    makers: dict[str, Callable[[float], PixelStep]] = {
        "Identity": lambda _: _NOTHING,
        "ShearX": lambda m: Shear(m, 0.0, fill, how),
        "ShearY": lambda m: Shear(0.0, m, fill, how),
        "TranslateX": lambda m: Shift(int(m), 0, fill, how),
        "TranslateY": lambda m: Shift(0, int(m), fill, how),
        "Rotate": lambda m: Turn(m, fill, how),
        "Brightness": lambda m: Adjust(0, 1.0 + m),
        "Contrast": lambda m: Adjust(1, 1.0 + m),
        "Color": lambda m: Adjust(2, 1.0 + m),
        "Sharpness": lambda m: Sharpness(1.0 + m),
        "Posterize": lambda m: Posterize(int(m)),
        "Solarize": Solarize,
        "AutoContrast": lambda _: AutoContrast(),
        "Equalize": lambda _: Equalize(),
        "Invert": lambda _: Invert(),
    }

    def make(name: str, magnitude: float) -> PixelStep:
        if name not in makers:
            refuse(f"its operation {name!r} is not known to the engine")
        return makers[name](magnitude)

    return make


#: By the name that torchvision.transforms and torchvision.transforms.v2 export.
POLICY_READERS: dict[str, Callable[[Any, bool], Coloured | Sized]] = {
    "AutoAugment": _auto,
    "RandAugment": _rand,
    "TrivialAugmentWide": _trivial,
}
