"""What a transform does to pixels rather than to places, as values: each says how many uniform draws a sample needs.

The pixels are uint8, as Pillow has them, unless a value says otherwise. "Equal in value" means: given the draws,
torchvision's pixels; every step here is that, and its draws have torchvision's distribution.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = [
    "Adjust",
    "AutoContrast",
    "Blur",
    "Brighten",
    "Equalize",
    "Erase",
    "Grey",
    "Invert",
    "Jitter",
    "Mirror",
    "OneOf",
    "Permute",
    "PixelStep",
    "Posterize",
    "Sharpness",
    "Shear",
    "Shift",
    "Shuffled",
    "Solarize",
    "Sometimes",
    "Turn",
    "WholeBatch",
]

Range = tuple[float, float]


class PixelStep(Protocol):
    """A step of pixels: a frozen value; pixel_ops.py knows what each type does."""

    @property
    def draws(self) -> int:
        """Return how many uniform draws a sample needs."""
        ...


@dataclass(frozen=True, slots=True)
class Sometimes:
    """Take all of ``steps`` with probability p, else none: RandomApply, and every step with a p of its own.

    draws: one for the choice, then the steps' own.
    """

    p: float
    steps: tuple[PixelStep, ...]
    draws: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Count the draws once."""
        object.__setattr__(self, "draws", 1 + sum(step.draws for step in self.steps))


@dataclass(frozen=True, slots=True)
class OneOf:
    """Take one of ``steps``; draws: one for the choice, then as many as any may need.

    upto: up to which draw of [0, 1) each is taken, the last up to 1; None: each is as likely as another.
    """

    steps: tuple[PixelStep, ...]
    upto: tuple[float, ...] | None = None
    draws: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Count the draws once."""
        object.__setattr__(self, "draws", 1 + max((step.draws for step in self.steps), default=0))


@dataclass(frozen=True, slots=True)
class Shuffled:
    """Take all of ``steps``, in random order: RandomOrder; draws: one for the order, then the steps' own."""

    steps: tuple[PixelStep, ...]
    draws: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Count the draws once."""
        object.__setattr__(self, "draws", 1 + sum(step.draws for step in self.steps))


@dataclass(frozen=True, slots=True)
class Permute:
    """Bring the channels into one of their orders; equal to torchvision's given the order."""

    draws: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class Grey:
    """Grey levels in ``channels`` (1 or 3; None: as many as there are) equal channels, equal to torchvision's.

    tensor: torchvision's weights and rounding for tensors, not Pillow's for its images.
    """

    channels: int | None
    tensor: bool = False
    draws: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Invert:
    """255 - v, equal to torchvision's."""

    draws: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Posterize:
    """Keep the ``bits`` (0 to 8) highest bits, equal to torchvision's; 0, which Pillow 13 refuses, gives black."""

    bits: int
    draws: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Solarize:
    """Invert what is at or above ``threshold`` (grey levels), equal to torchvision's."""

    threshold: float
    draws: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Brighten:
    """Add ``levels`` to what is below ``threshold``, up to 255: timm's SolarizeAdd, equal to it."""

    levels: int
    threshold: int
    draws: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class AutoContrast:
    """Stretch each channel to 0..255, equal to torchvision's for PIL images; for tensors within 1 level."""

    draws: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Equalize:
    """Equalise each channel's histogram, equal to torchvision's for PIL images and tensors."""

    draws: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Sharpness:
    """Blend with a 3 x 3 smoothed picture, equal to torchvision's for PIL images."""

    factor: float
    draws: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Jitter:
    """ColorJitter: the four adjustments with a uniform factor of each range (None: left out), in random order.

    Brightness, contrast and saturation equal torchvision's given factors and order, hue within 1 level. tensor:
    torchvision's arithmetic for tensors, each within 1 level.
    """

    brightness: Range | None = None
    contrast: Range | None = None
    saturation: Range | None = None
    hue: Range | None = None
    tensor: bool = False
    draws: ClassVar[int] = 5


@dataclass(frozen=True, slots=True)
class Adjust:
    """One adjustment of Jitter by a fixed factor: 0 brightness, 1 contrast, 2 saturation; equal to torchvision's."""

    which: int
    factor: float
    draws: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Shear:
    """Shear about the upper left corner, by pixels a pixel; equal to torchvision's. fill, resampling: Pillow's."""

    across: float
    down: float
    fill: tuple[int, int, int]
    resampling: int
    draws: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Shift:
    """Move right and down by whole pixels; equal to torchvision's."""

    across: int
    down: int
    fill: tuple[int, int, int]
    resampling: int
    draws: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Turn:
    """Turn about the middle; equal to torchvision's."""

    degrees: float
    fill: tuple[int, int, int]
    resampling: int
    draws: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Blur:
    """Gaussian blur of ``kernel`` (width, height) taps, sigma uniform in a range of pixels; edges are reflected.

    Within 1 level of torchvision's (its sums, in another order, rounded).
    """

    kernel: tuple[int, int]
    sigma: Range
    draws: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class Mirror:
    """A flip behind other pixel steps, with probability p; axis 0 is left and right, 1 top and bottom."""

    axis: int
    p: float
    draws: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class Erase:
    """RandomErasing of a random area and aspect: ten tries, then nothing; uint8 or float pixels.

    value: one number per channel; None: normal noise times ``noise[0]`` plus ``noise[1]``, per channel. The noise is
    equal in distribution to torchvision's, numpy's generator seeded by two of the draws makes it. Areas are equal.
    """

    scale: Range
    ratio: Range
    value: tuple[float, ...] | None
    noise: tuple[tuple[float, ...], tuple[float, ...]] = ((1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
    draws: ClassVar[int] = 24  # ten tries of area and aspect, a place, a seed


@dataclass(frozen=True, slots=True)
class WholeBatch:
    """A user's own function of a whole uint8 batch (n, H, W, C)."""

    function: Callable[[NDArray[Any]], NDArray[Any] | None]
    draws: ClassVar[int] = 0
