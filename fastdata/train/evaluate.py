"""Accuracy and loss over a set, each sample counted once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from fastdata.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fastdata.train.amp import Amp

__all__ = ["Scores", "evaluate"]


@dataclass(frozen=True, slots=True)
class Scores:
    """Means over ``samples``: cross-entropy, and the shares whose label is the first, or among the first five."""

    loss: float
    top1: float
    top5: float
    samples: int


def evaluate(model: torch.nn.Module, batches: Iterable[Sequence[torch.Tensor]], *, amp: Amp) -> Scores:
    """Return the scores of ``model`` over batches of (images, labels) or (images, labels, valid).

    valid: bool (n,), False for entries that only fill a batch up; they do not count. Runs in eval mode under
    inference_mode and leaves the model in the mode it had. Raises OptionError where no sample came.
    """
    losses, hits1, hits5, counts = [], [], [], []
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            for batch in batches:
                images, labels, valid = _parts(batch, amp.device)
                with amp.autocast():
                    logits = model(images)
                loss = functional.cross_entropy(logits.float(), labels, reduction="none")
                ranked = logits.topk(min(5, logits.shape[1]), dim=1).indices == labels[:, None]
                # sums stay on the device: one wait at the end instead of one a batch
                losses.append(loss.masked_fill(~valid, 0.0).sum())
                hits1.append((ranked[:, 0] & valid).sum())
                hits5.append((ranked.any(dim=1) & valid).sum())
                counts.append(valid.sum())
    finally:
        model.train(was_training)
    samples = int(torch.stack(counts).sum()) if counts else 0
    if not samples:
        msg = "there is nothing to evaluate: no valid sample came"
        raise OptionError(msg)
    loss_sum = float(torch.stack(losses).cpu().double().sum())
    top1, top5 = (int(torch.stack(hits).sum()) / samples for hits in (hits1, hits5))
    return Scores(loss_sum / samples, top1, top5, samples)


def _parts(batch: Sequence[torch.Tensor], device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    images, labels = (part.to(device, non_blocking=True) for part in batch[:2])
    if len(batch) > 2:  # noqa: PLR2004  images, labels, valid
        return images, labels, batch[2].to(device, dtype=torch.bool)
    return images, labels, torch.ones(len(labels), dtype=torch.bool, device=device)
