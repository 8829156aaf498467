"""One training step: forward, backward, and after every ``accumulate`` batches an update that may be skipped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from fastdata.errors import OptionError

if TYPE_CHECKING:
    from fastdata.train.amp import Amp
    from fastdata.train.schedule import Schedule

__all__ = ["StepResult", "Stepper"]


@dataclass(frozen=True, slots=True, eq=False)
class StepResult:
    """What a call did. loss: the batch's mean, on the device, detached (reading it waits for the device).

    status: "accumulated" (no update due), "updated", or "skipped" (a gradient was inf or NaN under fp16: weights,
    schedule and step count stand still). grad_norm: the norm before clipping, on the device; None without clipping.
    """

    loss: torch.Tensor
    status: str
    grad_norm: torch.Tensor | None = None


class Stepper:
    """Trains ``model`` by batches. An update equals that of one batch of all samples since the last one.

    (BatchNorm excepted, which sees each batch alone.) ``updates`` counts the updates that were made; it is what the
    schedule goes by.
    """

    def __init__(  # noqa: PLR0913  the parts of a step
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        amp: Amp,
        schedule: Schedule,
        accumulate: int = 1,
        clip: float | None = None,
        label_smoothing: float = 0.0,
    ) -> None:
        """Take the parts. accumulate: batches for an update; clip: the largest norm of all gradients together."""
        if accumulate < 1 or (clip is not None and not clip > 0):
            msg = f"accumulate must be 1 or more and clip above 0, not {accumulate} and {clip}"
            raise OptionError(msg)
        self.model, self.optimizer, self.amp, self.schedule = model, optimizer, amp, schedule
        self.accumulate, self.clip, self.label_smoothing = accumulate, clip, label_smoothing
        self.updates = self.skipped = 0
        self._batches = self._samples = self._unit = 0
        self._loss: torch.Tensor | None = None

    def __call__(self, images: torch.Tensor, labels: torch.Tensor) -> StepResult:
        """Learn from one batch on the model's device: images (n, C, H, W), labels int64 (n,)."""
        if not self._batches:
            self.optimizer.zero_grad(set_to_none=True)
            self._unit = len(labels)
        with self.amp.autocast():
            loss = functional.cross_entropy(self.model(images), labels, label_smoothing=self.label_smoothing)
        # Weighted so that full groups of equal batches need no correction at the update.
        self.amp.backward(loss * (len(labels) / (self._unit * self.accumulate)))
        self._batches += 1
        self._samples += len(labels)
        self._loss = loss.detach()
        return self._update() if self._batches == self.accumulate else StepResult(self._loss, "accumulated")

    def flush(self) -> StepResult | None:
        """Update with what was accumulated, if anything was: at the end of an epoch that is no multiple."""
        return self._update() if self._batches else None

    def _update(self) -> StepResult:
        assert self._loss is not None
        planned = self._unit * self.accumulate
        norm = None
        if self._samples != planned or self.clip is not None:
            self.amp.unscale(self.optimizer)  # before anything looks at the gradients
            gradients = [p.grad for group in self.optimizer.param_groups for p in group["params"] if p.grad is not None]
            if self._samples != planned:
                torch._foreach_mul_(gradients, planned / self._samples)  # what torch's own clipping uses
            if self.clip is not None:
                norm = torch.nn.utils.clip_grad_norm_(self._parameters(), self.clip)
        self.schedule.apply(self.optimizer, self.updates)
        updated = self.amp.step(self.optimizer)
        self.updates += updated
        self.skipped += not updated
        self._batches = self._samples = 0
        return StepResult(self._loss, "updated" if updated else "skipped", norm)

    def _parameters(self) -> list[torch.Tensor]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
