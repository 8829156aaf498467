"""A small honest trainer for image classification, in pieces: it takes any iterable of (images, labels) batches."""

from __future__ import annotations

from fastdata.train.amp import Amp, choose_precision
from fastdata.train.checkpoint import load_checkpoint, save_checkpoint
from fastdata.train.evaluate import Scores, evaluate
from fastdata.train.model import build_model
from fastdata.train.schedule import Schedule
from fastdata.train.step import Stepper, StepResult
from fastdata.train.trainer import Progress, Trainer, TrainOptions

__all__ = [
    "Amp",
    "Progress",
    "Schedule",
    "Scores",
    "StepResult",
    "Stepper",
    "TrainOptions",
    "Trainer",
    "build_model",
    "choose_precision",
    "evaluate",
    "load_checkpoint",
    "save_checkpoint",
]
