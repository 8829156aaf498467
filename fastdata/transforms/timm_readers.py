"""timm's RandAugment and RandomErasing, which bear the names of torchvision's: their attributes, checked, as steps."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

from fastdata.transforms.attributes import colour, integer, number, resampling, span
from fastdata.transforms.composition import refuse
from fastdata.transforms.known_types import check_untouched, home_of
from fastdata.transforms.pixel_readers import Coloured, Erasing
from fastdata.transforms.pixel_steps import Erase, OneOf
from fastdata.transforms.timm_levels import NAMES, Levelled

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["TIMM_READERS"]

_HOME = "timm.data.auto_augment"


def _rand(step: Any, v2: bool) -> Coloured:  # noqa: ANN401, ARG001, FBT001  as all readers
    if step.choice_weights is not None:
        refuse("choice_weights: each operation comes once at most, which the engine does not do")
    layers = integer(step.num_layers, 0, "num_layers")
    each = OneOf(tuple(_operation(op) for op in step.ops))
    return Coloured((each,) * layers, "timm's operations take PIL images")


def _operation(op: Any) -> Levelled:  # noqa: ANN401
    if home_of(op) != _HOME or type(op).__name__ != "AugmentOp":
        refuse(f"its operation {op!r} is not timm's")
    check_untouched(op)
    module, name = sys.modules[_HOME], op.name
    if name not in NAMES:
        refuse(f"its operation {name!r} is not known to the engine")
    if op.aug_fn is not module.NAME_TO_OP[name] or op.level_fn is not module.LEVEL_TO_ARG[name]:
        refuse(f"its operation {name!r} was changed")
    how = op.kwargs["resample"]
    spread = op.magnitude_std
    shift = op.hparams.get("translate_pct", 0.45) if name.endswith("Rel") else op.hparams.get("translate_const", 250)
    return Levelled(
        name,
        number(op.prob, "prob"),
        number(op.magnitude, "magnitude"),
        spread if spread == math.inf else number(spread, "magnitude_std"),
        number(op.magnitude_max or 10.0, "magnitude_max"),
        number(shift, "translate"),
        colour(op.kwargs["fillcolor"]),
        tuple(resampling(each) for each in (how if isinstance(how, (list, tuple)) else [how])),
    )


def _erasing(step: Any, v2: bool) -> Erasing:  # noqa: ANN401, ARG001, FBT001
    if (step.min_count, step.max_count) != (1, 1):
        refuse("more than one rectangle")
    if step.rand_color:
        refuse("mode 'rand': one random colour")
    low, high = (number(end, "log_aspect_ratio") for end in step.log_aspect_ratio)
    scale = span((step.min_area, step.max_area), "area")
    found = Erase(scale, (math.exp(low), math.exp(high)), None if step.per_pixel else (0.0,))
    return Erasing(number(step.probability, "probability"), found, on_pil=False)


#: By the name that timm.data.auto_augment and timm.data.random_erasing export.
TIMM_READERS: dict[str, Callable[[Any, bool], Coloured | Erasing]] = {"RandAugment": _rand, "RandomErasing": _erasing}
