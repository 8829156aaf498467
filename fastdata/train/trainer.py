"""The loop: epochs of batches through a Stepper, with honest numbers, and states to go on from."""

from __future__ import annotations

import math
import time
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch

from fastdata.errors import OptionError
from fastdata.train.amp import Amp, choose_precision
from fastdata.train.checkpoint import save_checkpoint
from fastdata.train.evaluate import evaluate
from fastdata.train.schedule import Schedule, ScheduleKind
from fastdata.train.step import Stepper

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from fastdata.train.evaluate import Scores

    Batches = Iterable[Sequence[torch.Tensor]]

__all__ = ["Progress", "TrainOptions", "Trainer"]


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """How to train. steps: optimizer steps in all; None means ``epochs`` whole epochs.

    lr: the peak rate of SGD with Nesterov momentum. warmup: steps (cosine, constant). amp: auto, off, bf16 or fp16.
    report_every: optimizer steps between two reports.
    """

    epochs: int = 1
    steps: int | None = None
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-5
    schedule: ScheduleKind = "onecycle"
    warmup: int = 0
    accumulate: int = 1
    clip: float | None = None
    label_smoothing: float = 0.0
    amp: str = "auto"
    channels_last: bool = True
    report_every: int = 10


@dataclass(frozen=True, slots=True)
class Progress:
    """What happened since the last report.

    loss: the mean over the batches. seconds: waiting, steps and updates; evaluation and saving not. waiting: the share
    of that time in which the loop waited for a batch. skipped: updates that fp16 has skipped so far.
    """

    step: int
    steps: int
    epoch: int
    loss: float
    lr: float
    images: int
    seconds: float
    waiting: float
    skipped: int

    @property
    def images_per_second(self) -> float:
        """Images trained on in a second."""
        return self.images / self.seconds if self.seconds else math.inf


class Trainer:
    """Trains a classifier on any iterable of (images, labels) batches, and can go on from a saved state.

    The order of the data is the iterable's business: one that has ``set_epoch`` is told the epoch, and a run resumed
    within an epoch passes over the batches that were learned already: at once where it has ``load_state_dict`` (a
    FastLoader), else by making them again.
    """

    def __init__(
        self, model: torch.nn.Module, options: TrainOptions, *, device: torch.device, batches_per_epoch: int | None
    ) -> None:
        """Move the model to ``device``; batches_per_epoch may be None where options.steps is given."""
        self.options, self.device, self._batches_per_epoch = options, device, batches_per_epoch
        self.steps = _total_steps(options, batches_per_epoch)
        self.model = model.to(device)
        if options.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(
            model.parameters(),
            lr=options.lr,
            momentum=options.momentum,
            weight_decay=options.weight_decay,
            nesterov=options.momentum > 0,
        )
        self.amp = Amp(choose_precision(options.amp, device), device)
        self._stepper = Stepper(
            self.model,
            optimizer,
            amp=self.amp,
            schedule=Schedule(options.schedule, self.steps, min(options.warmup, self.steps)),
            accumulate=options.accumulate,
            clip=options.clip,
            label_smoothing=options.label_smoothing,
        )
        self.epoch = self._batch = 0
        self._epoch_rng: torch.Tensor | None = None
        self._resumed_rng: torch.Tensor | None = None
        self._data: Batches | None = None
        self._resumed_data: Mapping[str, Any] | None = None

    @property
    def step(self) -> int:
        """Optimizer steps made so far, skipped ones included."""
        return self._stepper.updates + self._stepper.skipped

    def fit(
        self,
        batches: Batches,
        *,
        val: Batches | None = None,
        report: Callable[[Progress | Scores], None] = lambda _: None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        """Train to the last step. After each epoch, and at the end: evaluate on ``val`` and save to ``checkpoint``.

        Raises OptionError where an epoch of ``batches`` is empty.
        """
        window = _Window()
        with _cudnn_benchmark():
            while self.step < self.steps:
                self._run_epoch(batches, window, report)
                with window.paused():
                    if val is not None:
                        report(evaluate(self.model, val, amp=self.amp))
                    if checkpoint is not None:
                        save_checkpoint(checkpoint, self.state_dict())

    def _run_epoch(self, batches: Batches, window: _Window, report: Callable[[Progress | Scores], None]) -> None:
        self.model.train()
        first = self._batch
        for images, labels in window.timed(self._start(batches)):
            self._batch += 1
            result = self._stepper(self._to_device(images), labels.to(self.device, non_blocking=True))
            window.add(result.loss, len(labels))
            if result.status != "accumulated":
                self._report_when_due(window, report)
                if self.step >= self.steps:
                    return
        if not first and not self._batch:
            msg = "there is nothing to train on: an epoch has no batch (fewer samples than one batch has?)"
            raise OptionError(msg)
        if self._stepper.flush() is not None:
            self._report_when_due(window, report)
        self.epoch, self._batch = self.epoch + 1, 0

    def _start(self, batches: Batches) -> Iterator[Sequence[torch.Tensor]]:
        """Yield the epoch's batches from the one that is due; torch's random state goes on as if never interrupted."""
        if hasattr(batches, "set_epoch"):
            batches.set_epoch(self.epoch)
        if not self._batch:
            self._epoch_rng = torch.get_rng_state()
        at_once = self._batch and self._resumed_data is not None and hasattr(batches, "load_state_dict")
        if at_once:
            batches.load_state_dict(self._resumed_data)  # type: ignore[attr-defined]
        self._data, self._resumed_data = batches, None
        iterator = iter(batches)
        if self._batch:
            if not at_once:
                next(islice(iterator, self._batch - 1, None), None)
            if self._resumed_rng is not None:
                torch.set_rng_state(self._resumed_rng)
        self._resumed_rng = None
        yield from iterator

    def _data_state(self) -> dict[str, Any] | None:
        """Return the state of the data within an epoch, where it has one that counts what was learned, not prepared."""
        data: Any = self._data
        if not self._batch or not hasattr(data, "state_dict"):
            return None
        state: dict[str, Any] = data.state_dict()
        return state if state.get("batches") == self._batch else None

    def _report_when_due(self, window: _Window, report: Callable[[Progress | Scores], None]) -> None:
        step = self.step
        if step < self.steps and step % self.options.report_every:
            return
        loss, images, seconds, waited = window.read()
        rate = self._stepper.optimizer.param_groups[0]["lr"]
        waiting = waited / seconds if seconds else 0.0
        skipped = self._stepper.skipped
        report(Progress(step, self.steps, self.epoch, loss, rate, images, seconds, waiting, skipped))

    def state_dict(self) -> dict[str, Any]:
        """Return all that a resumed run needs, for save_checkpoint; the tensors are the trainer's own, not copies."""
        cuda = self.device.type == "cuda"
        return {
            "model": self.model.state_dict(),
            "optimizer": self._stepper.optimizer.state_dict(),
            "amp": self.amp.state_dict(),
            "updates": self._stepper.updates,
            "skipped": self._stepper.skipped,
            "steps": self.steps,
            "epoch": self.epoch,
            "batch": self._batch,
            "batches_per_epoch": self._batches_per_epoch,
            "data": self._data_state(),
            "rng": torch.get_rng_state(),
            "epoch_rng": self._epoch_rng,
            "cuda_rng": torch.cuda.get_rng_state(self.device) if cuda else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, torch's random state included; raise OptionError if it does not fit this run."""
        self.amp.load_state_dict(state["amp"])
        if state["batch"] and state["batches_per_epoch"] != self._batches_per_epoch:
            msg = (
                f"the checkpoint lies within an epoch of {state['batches_per_epoch']} batches, this run has "
                f"{self._batches_per_epoch}: resume with the same data and batch size, or from the end of an epoch"
            )
            raise OptionError(msg)
        optimizer = self._stepper.optimizer
        own = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
        try:
            self.model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
        except (RuntimeError, ValueError) as error:
            msg = f"the checkpoint is of another model: {error}"
            raise OptionError(msg) from error
        # This run's rates and decays hold, not the saved ones, which torch loads with the momenta.
        for group, options in zip(optimizer.param_groups, own, strict=True):
            group.update(options, initial_lr=options.get("initial_lr", options["lr"]))
        self._stepper.updates, self._stepper.skipped = state["updates"], state["skipped"]
        self.epoch, self._batch = state["epoch"], state["batch"]
        # Within an epoch, the data's order is drawn anew first, from the state in which the epoch began.
        self._epoch_rng, self._resumed_data = state["epoch_rng"], state.get("data")
        self._resumed_rng = state["rng"] if self._batch else None
        torch.set_rng_state(state["epoch_rng"] if self._batch else state["rng"])
        if self.device.type == "cuda" and state["cuda_rng"] is not None:
            torch.cuda.set_rng_state(state["cuda_rng"], self.device)

    def _to_device(self, images: torch.Tensor) -> torch.Tensor:
        if not self.options.channels_last:
            return images.to(self.device, non_blocking=True)
        return images.to(self.device, non_blocking=True, memory_format=torch.channels_last)


class _Window:
    """Sums between two reports; losses stay on the device until they are read."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._losses: list[torch.Tensor] = []
        self._images, self._waited, self._started = 0, 0.0, time.perf_counter()

    def timed(self, batches: Iterator[Sequence[torch.Tensor]]) -> Iterator[Sequence[torch.Tensor]]:
        """Yield the batches and note how long each was waited for."""
        while True:
            asked = time.perf_counter()
            batch = next(batches, None)
            self._waited += time.perf_counter() - asked
            if batch is None:
                return
            yield batch

    def add(self, loss: torch.Tensor, images: int) -> None:
        """Count a batch."""
        self._losses.append(loss)
        self._images += images

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out the time spent within."""
        began = time.perf_counter()
        yield
        self._started += time.perf_counter() - began

    def read(self) -> tuple[float, int, float, float]:
        """Return mean loss, images, seconds and seconds waited since the last time, and begin anew."""
        # Reading the loss waits for the device, so that the seconds are those of the work and not of its launch.
        loss = float(torch.stack(self._losses).float().mean())
        found = loss, self._images, time.perf_counter() - self._started, self._waited
        self._clear()
        return found


def _total_steps(options: TrainOptions, batches_per_epoch: int | None) -> int:
    if options.steps is not None:
        return options.steps
    if not batches_per_epoch:
        msg = "say how many steps to train: the length of an epoch is not known, or it has no batch"
        raise OptionError(msg)
    return options.epochs * math.ceil(batches_per_epoch / options.accumulate)


@contextmanager
def _cudnn_benchmark() -> Iterator[None]:
    """Let cuDNN try its algorithms, as batches have one shape, and leave its switch as the user had it."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
