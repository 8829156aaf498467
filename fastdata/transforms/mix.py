"""MixUp and CutMix of whole batches: which of them, with which numbers; torchvision's objects, read into values.

Nothing here touches a tensor: device_ops.py does what a ``Mixture`` says.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdata.errors import OptionError
from fastdata.philox import uniforms
from fastdata.transforms.attributes import integer, number
from fastdata.transforms.composition import RefusedError
from fastdata.transforms.known_types import check_untouched

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MIX_STREAM", "Mix", "MixKind", "Mixture", "draw_mixture", "read_mix", "symmetric_beta"]

#: The philox stream of mixtures; part of what a seed means.
MIX_STREAM = 5
_DRAWS = 6  # which one, three of lambda, the box's middle
_HALF_STEP = 2.0**-33  # between two of philox's uniform draws, so that none is 0
_EXPECTED = "expected torchvision.transforms.v2's MixUp, CutMix, or RandomChoice of them"


@dataclass(frozen=True, slots=True)
class MixKind:
    """One of MixUp (cut: False) and CutMix (True), its Beta(alpha, alpha), and the share of batches that it gets."""

    cut: bool
    alpha: float
    share: float


@dataclass(frozen=True, slots=True)
class Mix:
    """What ``mix=`` asks for. num_classes: None where no object names it. described: the objects' own words."""

    kinds: tuple[MixKind, ...]
    num_classes: int | None
    described: str

    @property
    def needs_floats(self) -> bool:
        """Return whether some batch has weighted sums of pixels."""
        return any(not kind.cut for kind in self.kinds)


@dataclass(frozen=True, slots=True)
class Mixture:
    """What happens to one batch: each sample gets ``weight`` of itself and the rest of the sample before it.

    box: left, top, right, bottom of the pixels that come from the sample before (CutMix), or None: weighted sums of
    all pixels (MixUp). Labels are weighted sums either way.
    """

    weight: float
    box: tuple[int, int, int, int] | None


def read_mix(mix: object) -> Mix:
    """Return what torchvision's objects ask for; raise OptionError for what is not theirs, or was changed."""
    found = list(_kinds(mix, 1.0))
    counts = {count for _, count in found if count is not None}
    if len(counts) > 1:
        msg = f"mix={mix!r}: they have different num_classes, {sorted(counts)}"
        raise OptionError(msg)
    total = sum(kind.share for kind, _ in found)
    kinds = tuple(MixKind(kind.cut, kind.alpha, kind.share / total) for kind, _ in found)
    return Mix(kinds, counts.pop() if counts else None, " ".join(repr(mix).split()))


def _kinds(mix: Any, share: float) -> Iterator[tuple[MixKind, int | None]]:  # noqa: ANN401
    """Yield each object with its share of ``share``, RandomChoices opened."""
    v2 = sys.modules.get("torchvision.transforms.v2")
    name = type(mix).__name__
    if v2 is None or name not in {"MixUp", "CutMix", "RandomChoice"} or getattr(v2, name) is not type(mix):
        msg = f"mix={mix!r}: {_EXPECTED}"
        raise OptionError(msg)
    try:
        check_untouched(mix)
        if name == "RandomChoice":
            for inner, p in zip(mix.transforms, mix.p, strict=True):
                yield from _kinds(inner, share * number(p, "p"))
            return
        if mix._labels_getter.__module__.partition(".")[0] != "torchvision":  # noqa: SLF001  where v2 keeps it
            msg = f"mix: {name} has a labels_getter of its own; the loader's batches are [images, labels]"
            raise OptionError(msg)
        alpha = number(mix.alpha, "alpha")
        if alpha <= 0:
            msg = f"mix: alpha {alpha} is not above 0"
            raise OptionError(msg)
        count = None if mix.num_classes is None else integer(mix.num_classes, 1, "num_classes")
    except RefusedError as error:
        msg = f"mix: {name}: {error}"
        raise OptionError(msg) from None
    yield MixKind(name == "CutMix", alpha, share), count


def draw_mixture(mix: Mix, key: tuple[int, int], batch: int, size: tuple[int, int]) -> Mixture:
    """Return what happens to the batch at global position ``batch``: a pure function, equal in distribution to v2's.

    key: (seed, epoch). size: (width, height) of the images. The box is torchvision's for the same lambda and middle.
    """
    u = uniforms(key[0], key[1], np.array([batch]), _DRAWS, MIX_STREAM)[0].tolist()
    kind = mix.kinds[-1]
    upto = 0.0
    for one in mix.kinds:
        upto += one.share
        if u[0] < upto:
            kind = one
            break
    weight = symmetric_beta(kind.alpha, u[1], u[2], u[3])
    return cut_box(weight, (int(u[4] * size[0]), int(u[5] * size[1])), size) if kind.cut else Mixture(weight, None)


def cut_box(weight: float, middle: tuple[int, int], size: tuple[int, int]) -> Mixture:
    """Return CutMix's box about ``middle``, cut to the picture, and the weight that its true area leaves.

    torchvision 0.29: transforms/v2/_augment.py, CutMix.make_params.
    """
    (x, y), (width, height) = middle, size
    r = 0.5 * math.sqrt(1.0 - weight)
    half_width, half_height = int(r * width), int(r * height)
    left, top = max(x - half_width, 0), max(y - half_height, 0)
    right, bottom = min(x + half_width, width), min(y + half_height, height)
    return Mixture(1.0 - (right - left) * (bottom - top) / (width * height), (left, top, right, bottom))


def symmetric_beta(alpha: float, u: float, v: float, w: float) -> float:
    """Return a draw of Beta(alpha, alpha), any alpha above 0, from three uniform draws of [0, 1).

    Devroye: "Random variate generation in one line of code" (Winter Simulation Conference 1996); nothing is rejected,
    so every batch takes as many draws. What is nearer to 0 or 1 than 1e-16 is 0 or 1.
    """
    # u ** (-1 / alpha) - 1, which leaves the floats where alpha is small.
    odds = math.expm1(min(-math.log(u + _HALF_STEP) / alpha, 700.0))
    across = odds * math.cos(2 * math.pi * v) ** 2
    off = 0.5 / math.sqrt(1.0 + 1.0 / across) if across > 0 else 0.0
    return 0.5 + off if w < 0.5 else 0.5 - off  # noqa: PLR2004  a fair coin
