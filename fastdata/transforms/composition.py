"""Which sequences of geometry steps one window, one resampling and one rectangle can express, and their output size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from fastdata.transforms.plan import (
    CenterCrop,
    HorizontalFlip,
    Pad,
    RandomCrop,
    RandomResizedCrop,
    Resize,
    VerticalFlip,
)

if TYPE_CHECKING:
    from fastdata.transforms.plan import Step

__all__ = ["Composition", "RefusedError", "refuse"]


class RefusedError(Exception):
    """The engine cannot take a step; the text says why. Never leaves this package."""


def refuse(reason: str) -> NoReturn:
    """Raise RefusedError."""
    raise RefusedError(reason)


@dataclass(slots=True)
class Composition:
    """Follows a pipeline step by step; a step that cannot follow raises RefusedError.

    size: (width, height) where it is the same for every picture. floor: a lower bound for width and height.
    hidden: something was padded after a crop, so that the window is smaller than what the picture has there.
    extended: by how much, across and down, it was padded with pixels of its own.
    """

    size: tuple[int, int] | None = None
    floor: tuple[int, int] = (1, 1)
    resampled: bool = False
    cropped: bool = False
    flipped: bool = False
    hidden: bool = False
    extended: tuple[int, int] | None = None

    def add(self, step: Step, interpolation: str) -> None:
        """Take one more step; ``interpolation`` is the step's own where it resamples."""
        match step:
            case RandomResizedCrop():
                self._resample(interpolation)
                self._becomes(step.width, step.height)
            case Resize():
                self._resample(interpolation)
                self._resize(step)
            case CenterCrop():
                if self.may_pad(step):
                    self._pad()
                self.cropped = True
                self._becomes(step.width, step.height)
            case RandomCrop():
                if step.if_needed and self.may_pad(step):
                    self._pad()
                self.cropped = True
                self._becomes(step.width, step.height)
            case Pad():
                self._pad()
                across, down = step.left + step.right, step.top + step.bottom
                self.floor = self.floor[0] + across, self.floor[1] + down
                if self.size is not None:
                    self.size = self.size[0] + across, self.size[1] + down
            case HorizontalFlip() | VerticalFlip():
                self.flipped = True

    def may_pad(self, step: CenterCrop | RandomCrop) -> bool:
        """Return whether some picture may be smaller than the crop."""
        return step.width > self.floor[0] or step.height > self.floor[1]

    def extend(self, pad: Pad) -> None:
        """Note that what ``pad`` adds is taken from the picture's own pixels."""
        self.extended = max(pad.left, pad.right), max(pad.top, pad.bottom)

    def check_extended(self, step: Step) -> None:
        """Refuse a step for which pixels of the picture itself, outside it, cannot be made after decoding."""
        if self.extended is None:
            return
        match step:
            case CenterCrop() | RandomCrop():
                # What is mirrored lies as far inside as it shows outside: the crop must hold both.
                if step.width <= 2 * self.extended[0] or step.height <= 2 * self.extended[1]:
                    refuse("a crop that may hold less of the picture than was padded by its own pixels")
                if self.may_pad(step) and (isinstance(step, CenterCrop) or step.if_needed):
                    refuse("a second padding behind one by the picture's own pixels")
            case Pad() | Resize() | RandomResizedCrop():
                refuse("a change of size behind a padding by the picture's own pixels")

    def _becomes(self, width: int, height: int) -> None:
        self.size = self.floor = (width, height)

    def _resize(self, step: Resize) -> None:
        if step.exact is not None:
            self._becomes(*step.exact)
            return
        self.size = None
        side = step.shorter if step.shorter is not None and step.longest is None else 1
        self.floor = (side, side)

    def _resample(self, interpolation: str) -> None:
        if self.resampled:
            refuse("a second resampling")
        if self.hidden:
            refuse("resampling of what was cropped, then padded")
        if self.flipped and interpolation.startswith("nearest"):
            refuse("nearest-neighbour resampling after a flip")
        self.resampled = True
        self.cropped = False

    def _pad(self) -> None:
        # A rectangle that was cut and then grows: the window must end where it was cut, so it cannot move any more.
        if self.cropped and (self.resampled or self.hidden):
            refuse("it may pad what an earlier step has cropped")
        self.hidden |= self.cropped
        self.cropped = False
