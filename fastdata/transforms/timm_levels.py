"""timm's augmentations at a magnitude of each sample's own, as values, and the pixel step that the draws make of one.

Numbers and names are those of timm 1.0 (timm/data/auto_augment.py, LEVEL_TO_ARG and NAME_TO_OP).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fastdata.transforms.pixel_steps import (
    Adjust,
    AutoContrast,
    Brighten,
    Equalize,
    Invert,
    PixelStep,
    Posterize,
    Sharpness,
    Solarize,
    Turn,
)
from fastdata.transforms.warp_steps import Mapped

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["NAMES", "Levelled", "step_of"]

_DENOMINATOR = 10.0  # of magnitudes
_HALF_STEP = 2.0**-33  # between two of philox's uniform draws, so that none is 0


@dataclass(frozen=True, slots=True)
class Levelled:
    """timm's AugmentOp: with probability p, at a random magnitude of 0 to ``top``, equal in value given the draws.

    spread: the deviation of a normal magnitude around ``magnitude``; infinite: uniform up to it. shift: how far the
    Translates go, in pixels or as a share. resamplings: Pillow's numbers, of which each sample takes one.
    """

    name: str
    p: float
    magnitude: float
    spread: float
    top: float
    shift: float
    fill: tuple[int, int, int]
    resamplings: tuple[int, ...]
    draws: ClassVar[int] = 5  # whether, two for the magnitude, the sign, the resampling


def step_of(step: Levelled, u: Sequence[float], size: tuple[int, int]) -> PixelStep | None:
    """Return what the uniform draws make of it for a picture of (width, height), or None where it is left alone."""
    if u[0] >= step.p:
        return None
    magnitude = step.magnitude
    if math.isinf(step.spread):
        magnitude *= u[1]
    elif step.spread > 0:
        # Box, Muller: "A note on the generation of random normal deviates", 1958.
        magnitude += step.spread * math.sqrt(-2 * math.log(u[1] + _HALF_STEP)) * math.cos(2 * math.pi * u[2])
    level = max(0.0, min(magnitude, step.top)) / _DENOMINATOR
    how = step.resamplings[int(u[4] * len(step.resamplings))]
    return _MAKERS[step.name](level, -1.0 if u[3] < 0.5 else 1.0, _Look(step, how, size))  # noqa: PLR2004  a coin


@dataclass(frozen=True, slots=True)
class _Look:
    """What those that move pixels need beside level and sign."""

    step: Levelled
    resampling: int
    size: tuple[int, int]

    def mapped(self, *numbers: float) -> Mapped:
        return Mapped(numbers, self.step.fill, self.resampling)

    def turned(self, degrees: float) -> Turn:
        return Turn(degrees, self.step.fill, self.resampling)


_Maker = Callable[[float, float, _Look], PixelStep]


def _kept(bits: int) -> Posterize:
    return Posterize(max(0, min(8, bits)))


def _enhanced(make: Callable[[float], PixelStep]) -> _Maker:
    return lambda level, _, __: make(level * 1.8 + 0.1)


def _enhanced_more(make: Callable[[float], PixelStep]) -> _Maker:
    return lambda level, sign, _: make(max(0.1, 1.0 + sign * level * 0.9))


_ENHANCED: dict[str, Callable[[float], PixelStep]] = {
    "Brightness": lambda factor: Adjust(0, factor),
    "Contrast": lambda factor: Adjust(1, factor),
    "Color": lambda factor: Adjust(2, factor),
    "Sharpness": Sharpness,
}

_MAKERS: dict[str, _Maker] = {
    "AutoContrast": lambda *_: AutoContrast(),
    "Equalize": lambda *_: Equalize(),
    "Invert": lambda *_: Invert(),
    "Rotate": lambda level, sign, look: look.turned(sign * (level * 30.0)),
    "Posterize": lambda level, _, __: _kept(int(level * 4)),
    "PosterizeIncreasing": lambda level, _, __: _kept(4 - int(level * 4)),
    "PosterizeOriginal": lambda level, _, __: _kept(int(level * 4) + 4),
    "Solarize": lambda level, _, __: Solarize(min(256, int(level * 256))),
    "SolarizeIncreasing": lambda level, _, __: Solarize(256 - min(256, int(level * 256))),
    "SolarizeAdd": lambda level, _, __: Brighten(min(128, int(level * 110)), 128),
    "Desaturate": lambda level, _, __: Adjust(2, 1.0 - max(0.5, min(1.0, 0.5 + 0.5 * level))),
    "ShearX": lambda level, sign, look: look.mapped(1, sign * (level * 0.3), 0, 0, 1, 0),
    "ShearY": lambda level, sign, look: look.mapped(1, 0, 0, sign * (level * 0.3), 1, 0),
    "TranslateX": lambda level, sign, look: look.mapped(1, 0, sign * (level * look.step.shift), 0, 1, 0),
    "TranslateY": lambda level, sign, look: look.mapped(1, 0, 0, 0, 1, sign * (level * look.step.shift)),
    "TranslateXRel": lambda level, sign, look: look.mapped(
        1, 0, sign * (level * look.step.shift) * look.size[0], 0, 1, 0
    ),
    "TranslateYRel": lambda level, sign, look: look.mapped(
        1, 0, 0, 0, 1, sign * (level * look.step.shift) * look.size[1]
    ),
    **{name: _enhanced(make) for name, make in _ENHANCED.items()},
    **{f"{name}Increasing": _enhanced_more(make) for name, make in _ENHANCED.items()},
}

#: The operations that are known; the others of timm's are blurs by Pillow.
NAMES = frozenset(_MAKERS)
