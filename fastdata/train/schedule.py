"""The learning rate of each step: a pure function of the step's number, so that resuming needs nothing but that."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from fastdata.errors import OptionError

if TYPE_CHECKING:
    import torch

__all__ = ["Schedule", "ScheduleKind"]

ScheduleKind = Literal["onecycle", "cosine", "constant"]

# torch.optim.lr_scheduler.OneCycleLR's defaults, from Smith and Topin, arXiv:1708.07120
_ONECYCLE_RISE, _ONECYCLE_START, _ONECYCLE_END = 0.3, 1.0 / 25.0, 1.0 / 25.0 / 1e4


@dataclass(frozen=True, slots=True)
class Schedule:
    """Learning rates for ``total`` optimizer steps, as factors of each parameter group's own rate.

    onecycle: torch's OneCycleLR with its defaults, momentum left alone. cosine: from 1 to 0 along half a cosine, after
    a straight rise over ``warmup`` steps. constant: 1, after the same rise. Steps past the end keep the last rate.
    """

    kind: ScheduleKind
    total: int
    warmup: int = 0

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        if self.kind not in get_args(ScheduleKind):
            msg = f"schedule is {self.kind!r}; it can be {', '.join(get_args(ScheduleKind))}"
            raise OptionError(msg)
        if self.total < 1 or not 0 <= self.warmup <= self.total:
            msg = f"a schedule needs 1 step or more and a warm-up within them: total {self.total}, warmup {self.warmup}"
            raise OptionError(msg)

    def factor(self, step: int) -> float:
        """Return what the peak rate is multiplied by for the optimizer step number ``step``, counted from 0."""
        step = min(step, self.total - 1)
        if self.kind == "onecycle":
            return self._onecycle(step)
        if step < self.warmup:
            return (step + 1) / (self.warmup + 1)
        if self.kind == "constant":
            return 1.0
        return _between(1.0, 0.0, (step - self.warmup) / max(1, self.total - self.warmup))

    def apply(self, optimizer: torch.optim.Optimizer, step: int) -> None:
        """Set the rates for ``step``; a group's rate at the first call is its peak, kept as torch does (initial_lr)."""
        factor = self.factor(step)
        for group in optimizer.param_groups:
            group["lr"] = group.setdefault("initial_lr", group["lr"]) * factor

    def _onecycle(self, step: int) -> float:
        top, end = _ONECYCLE_RISE * self.total - 1, self.total - 1
        if step <= top:
            return _between(_ONECYCLE_START, 1.0, step / top)
        return _between(1.0, _ONECYCLE_END, (step - top) / (end - top)) if end > top else 1.0


def _between(start: float, end: float, share: float) -> float:
    """Return the value after ``share`` of half a cosine from start to end."""
    return end + (start - end) * 0.5 * (1.0 + math.cos(math.pi * share))
