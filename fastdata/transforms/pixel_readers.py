"""One reader per torchvision transform of pixels: its attributes, checked, as pixel steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fastdata.transforms.attributes import integer, number, probability, span
from fastdata.transforms.composition import refuse
from fastdata.transforms.pixel_steps import (
    AutoContrast,
    Blur,
    Equalize,
    Erase,
    Grey,
    Invert,
    Jitter,
    OneOf,
    Permute,
    Posterize,
    Sharpness,
    Solarize,
    Sometimes,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastdata.transforms.pixel_steps import PixelStep

__all__ = ["PIXEL_READERS", "Coloured", "Erasing"]


@dataclass(frozen=True, slots=True)
class Coloured:
    """Steps of uint8 pixels: for a PIL image, and for a tensor, or the reason why a tensor is refused."""

    steps: tuple[PixelStep, ...]
    on_tensor: tuple[PixelStep, ...] | str


@dataclass(frozen=True, slots=True)
class Erasing:
    """RandomErasing; on_pil: whether torchvision takes a PIL image."""

    p: float
    step: Erase
    on_pil: bool


def _same(*steps: PixelStep) -> Coloured:
    return Coloured(steps, steps)


def _grayscale(step: Any, v2: bool) -> Coloured:  # noqa: ANN401, ARG001, FBT001  any object of a known type
    channels = step.num_output_channels
    if channels not in (1, 3):
        refuse(f"num_output_channels {channels!r} is neither 1 nor 3")
    return Coloured((Grey(int(channels)),), (Grey(int(channels), tensor=True),))


def _random_grayscale(step: Any, v2: bool) -> Coloured:  # noqa: ANN401, ARG001, FBT001
    p = probability(step)
    return Coloured((Sometimes(p, (Grey(None),)),), (Sometimes(p, (Grey(None, tensor=True),)),))


def _random_invert(step: Any, v2: bool) -> Coloured:  # noqa: ANN401, ARG001, FBT001
    return _same(Sometimes(probability(step), (Invert(),)))


def _random_posterize(step: Any, v2: bool) -> Coloured:  # noqa: ANN401, ARG001, FBT001
    bits = integer(step.bits, 1, "bits")
    if bits > 8:  # noqa: PLR2004  of a byte
        refuse(f"bits {bits} is above 8")
    return _same(Sometimes(probability(step), (Posterize(bits),)))


def _random_solarize(step: Any, v2: bool) -> Coloured:  # noqa: ANN401, ARG001, FBT001
    threshold = number(step.threshold, "threshold")
    taken = Sometimes(probability(step), (Solarize(threshold),))
    # torchvision refuses a threshold above what a tensor can hold; Pillow takes it.
    return Coloured((taken,), (taken,) if threshold <= 255 else f"threshold {threshold} on a tensor")  # noqa: PLR2004


def _random_autocontrast(step: Any, v2: bool) -> Coloured:  # noqa: ANN401, ARG001, FBT001
    return _same(Sometimes(probability(step), (AutoContrast(),)))


def _random_equalize(step: Any, v2: bool) -> Coloured:  # noqa: ANN401, ARG001, FBT001
    return _same(Sometimes(probability(step), (Equalize(),)))


def _random_sharpness(step: Any, v2: bool) -> Coloured:  # noqa: ANN401, ARG001, FBT001
    factor = number(step.sharpness_factor, "sharpness_factor")
    if factor < 0:
        refuse(f"sharpness_factor {factor} is below 0")
    return Coloured((Sometimes(probability(step), (Sharpness(factor),)),), "sharpness of a tensor has other pixels")


def _color_jitter(step: Any, v2: bool) -> Coloured:  # noqa: ANN401, ARG001, FBT001
    names = ("brightness", "contrast", "saturation")
    brightness, contrast, saturation = (
        None if getattr(step, name) is None else span(getattr(step, name), name) for name in names
    )
    hue = step.hue
    if hue is not None:
        if not isinstance(hue, (list, tuple)) or len(hue) != 2:  # noqa: PLR2004  a range has two ends
            refuse(f"hue {hue!r} is no (min, max)")
        hue = number(hue[0], "hue"), number(hue[1], "hue")
        if not -0.5 <= hue[0] <= hue[1] <= 0.5:  # noqa: PLR2004  half the circle
            refuse(f"hue {hue!r} is not within (-0.5, 0.5)")
    if hue is None and brightness is None and contrast is None and saturation is None:
        return _same()
    found = Jitter(brightness, contrast, saturation, hue)
    return Coloured((found,), (replace(found, tensor=True),))


def _photometric(step: Any, v2: bool) -> Coloured:  # noqa: ANN401, ARG001, FBT001
    """Read v2's RandomPhotometricDistort: contrast before saturation and hue or behind; the channels' order last."""
    p = probability(step)
    spans: dict[str, tuple[float, float]] = {
        name: span(getattr(step, name), name) for name in ("brightness", "contrast", "saturation")
    }
    hue = step.hue
    if not isinstance(hue, (list, tuple)) or len(hue) != 2 or not -0.5 <= hue[0] <= hue[1] <= 0.5:  # noqa: PLR2004
        refuse(f"hue {hue!r} is not within (-0.5, 0.5)")
    spans["hue"] = number(hue[0], "hue"), number(hue[1], "hue")

    def steps(*, tensor: bool) -> tuple[PixelStep, ...]:
        each = {name: Sometimes(p, (Jitter(**{name: ends}, tensor=tensor),)) for name, ends in spans.items()}
        behind = each["saturation"], each["hue"]
        first, last = (each["contrast"], *behind), (*behind, each["contrast"])
        either = OneOf((Sometimes(1.0, first), Sometimes(1.0, last)))
        return each["brightness"], either, Sometimes(p, (Permute(),))

    return Coloured(steps(tensor=False), steps(tensor=True))


def _permutation(step: Any, v2: bool) -> Coloured:  # noqa: ANN401, ARG001, FBT001
    return _same(Permute())


def _gaussian_blur(step: Any, v2: bool) -> Coloured:  # noqa: ANN401, ARG001, FBT001
    kernel = [integer(taps, 1, "kernel_size") for taps in step.kernel_size]
    if len(kernel) != 2 or not all(taps % 2 for taps in kernel):  # noqa: PLR2004  width, height
        refuse(f"kernel_size {step.kernel_size!r} is not two odd numbers")
    sigma = span(step.sigma, "sigma")
    if not sigma[0] > 0:
        refuse(f"sigma {step.sigma!r} reaches 0")
    return _same(Blur((kernel[0], kernel[1]), sigma))


def _random_erasing(step: Any, v2: bool) -> Erasing:  # noqa: ANN401, FBT001
    scale, ratio = span(step.scale, "scale"), span(step.ratio, "ratio")
    if ratio[0] == 0:
        refuse(f"ratio {step.ratio!r} reaches 0")
    if v2 and not np.allclose(np.exp(step._log_ratio.tolist()), ratio, rtol=1e-5):  # noqa: SLF001  what v2 draws from
        refuse("ratio was changed after construction")
    value = step.value
    random = value is None if v2 else value == "random"
    values: tuple[float, ...] | None = None
    if not random:
        each = list(value) if isinstance(value, (list, tuple)) else [value]
        values = tuple(number(one, "value") for one in each)
        if len(values) not in (1, 3):
            refuse(f"value {value!r} has neither one number nor three")
    return Erasing(probability(step), Erase(scale, ratio, values), on_pil=v2)


#: By the name that torchvision.transforms and torchvision.transforms.v2 export.
PIXEL_READERS = cast(
    "dict[str, Callable[[Any, bool], Coloured | Erasing]]",
    {
        "ColorJitter": _color_jitter,
        "GaussianBlur": _gaussian_blur,
        "Grayscale": _grayscale,
        "RandomAdjustSharpness": _random_sharpness,
        "RandomAutocontrast": _random_autocontrast,
        "RandomChannelPermutation": _permutation,
        "RandomEqualize": _random_equalize,
        "RandomErasing": _random_erasing,
        "RandomGrayscale": _random_grayscale,
        "RandomInvert": _random_invert,
        "RandomPhotometricDistort": _photometric,
        "RandomPosterize": _random_posterize,
        "RandomSolarize": _random_solarize,
    },
)
