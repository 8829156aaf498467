"""What a transform asks for, as a value: geometry steps, pixel steps, then one number per grey level."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from fastdata.transforms.pixel_steps import PixelStep
    from fastdata.types import Edges, FloatType, Interpolation, Levels, Mode

__all__ = [
    "CenterCrop",
    "HorizontalFlip",
    "Pad",
    "Plan",
    "RandomCrop",
    "RandomResizedCrop",
    "Resize",
    "Step",
    "Unsupported",
    "VerticalFlip",
]


@dataclass(frozen=True, slots=True)
class Resize:
    """Resample the whole picture: to ``exact`` (width, height), or by its sides.

    shorter: the shorter side in pixels, the longer in proportion, rounded down; longest: an upper bound for the longer
    side. With neither exact nor shorter, the longer side becomes ``longest``.
    """

    exact: tuple[int, int] | None = None
    shorter: int | None = None
    longest: int | None = None
    draws: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class CenterCrop:
    """Cut width x height pixels from the middle; where the picture is smaller, the fill colour surrounds it."""

    width: int
    height: int
    draws: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Pad:
    """Surround the picture with the fill colour, in pixels."""

    left: int
    top: int
    right: int
    bottom: int
    draws: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class RandomCrop:
    """Cut width x height pixels anywhere; ``if_needed`` pads a smaller picture on both sides by what it lacks."""

    width: int
    height: int
    if_needed: bool = False
    draws: ClassVar[int] = 2


@dataclass(frozen=True, slots=True)
class RandomResizedCrop:
    """Cut a random area (share of the picture) of random aspect and resample it to width x height."""

    width: int
    height: int
    scale: tuple[float, float]
    ratio: tuple[float, float]
    draws: ClassVar[int] = 4


@dataclass(frozen=True, slots=True)
class HorizontalFlip:
    """Mirror left and right with probability p."""

    p: float
    draws: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class VerticalFlip:
    """Mirror top and bottom with probability p."""

    p: float
    draws: ClassVar[int] = 1


Step = Resize | CenterCrop | Pad | RandomCrop | RandomResizedCrop | HorizontalFlip | VerticalFlip


@dataclass(frozen=True, slots=True)
class Plan:
    """All that the engine must know of a transform.

    steps: geometry, in order. pixels: what happens to the uint8 pixels after that, in order; finish: what happens to
    the floats behind the levels. ``draws`` is the number of uniform draws a sample needs: geometry's come first.
    mode: "RGB" or "L", the pixels that are decoded; grey: the pixel steps make one channel of three. dtype: of the
    batch. With floats, ``levels`` (types.Levels, read-only) holds the value of each grey level, to the bit what
    torchvision computes (in bfloat16 and float16 it rounds after each step); for a device that computes it instead, in
    float32, rounded once: (v / divisor - mean[c]) / std[c]. With uint8, levels is None and divisor 1.
    edges: what lies outside a picture: the fill colour, or its own pixels (after decoding, which leaves fill there).
    output_size: (width, height) of every result, or None where it depends on the picture.
    output_kind: "pil" where the pipeline never makes a tensor, so that torchvision's would give PIL images.
    description: one line per step of the user's pipeline, for explain().
    """

    steps: tuple[Step, ...] = ()
    pixels: tuple[PixelStep, ...] = ()
    finish: tuple[PixelStep, ...] = ()
    grey: bool = False
    mode: Mode = "RGB"
    dtype: Literal["uint8"] | FloatType = "uint8"
    levels: Levels | None = field(default=None, compare=False, repr=False)
    divisor: float = 1.0
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    fill: tuple[int, ...] = (0, 0, 0)
    edges: Edges = "constant"
    interpolation: Interpolation = "bilinear"
    antialias: bool = True
    output_size: tuple[int, int] | None = None
    output_kind: Literal["tensor", "pil"] = "tensor"
    description: tuple[str, ...] = ()

    @property
    def channels(self) -> int:
        """Return the number of channels of the result."""
        return 1 if self.mode == "L" or self.grey else 3

    @property
    def draws(self) -> int:
        """Return how many uniform draws a sample needs; 0 for an evaluation pipeline."""
        return sum(step.draws for step in (*self.steps, *self.pixels, *self.finish))


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A transform that the engine leaves to worker processes, and the reason, naming the step."""

    reason: str
