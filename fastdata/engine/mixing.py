"""MixUp and CutMix behind everything else: batch by batch on the device, in the order in which batches are taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fastdata.device_ops import cut_before, mix_before
from fastdata.engine.over import Over
from fastdata.errors import OptionError
from fastdata.transforms.mix import draw_mixture, read_mix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from fastdata.engine.source import Source
    from fastdata.transforms.mix import Mix, Mixture
    from fastdata.transforms.plan import Plan

    Valid = Callable[[int], NDArray[np.bool_] | None]
    Step = Callable[[Any], Any]

__all__ = ["Mixer", "Mixing", "in_turn"]

_IMAGE_DIMS = 4
_NO_LABELS = "mix= needs labels as a tensor behind the images, and there are none"


def in_turn(steps: Sequence[Step]) -> Step | None:
    """Return what calls the steps one after another, or None where there are none."""
    if len(steps) < 2:  # noqa: PLR2004  nothing to chain
        return steps[0] if steps else None

    def call(batch: Any) -> Any:  # noqa: ANN401
        for step in steps:
            batch = step(batch)
        return batch

    return call


@dataclass(frozen=True, slots=True)
class Mixer:
    """What a loader's ``mix=`` asks for, with the number of classes, which may be the data set's (None: unknown)."""

    mix: Mix
    num_classes: int | None

    @classmethod
    def asked(cls, mix: object, dataset: object) -> Mixer | None:
        """Return the Mixer for torchvision's objects, None for None; raise OptionError for others."""
        if mix is None:
            return None
        found = read_mix(mix)
        return cls(found, found.num_classes or len(getattr(dataset, "classes", None) or ()) or None)

    def check_dtype(self, *, is_float: bool) -> None:
        """Raise OptionError where weighted sums would be asked of whole numbers."""
        if self.mix.needs_floats and not is_float:
            msg = (
                f"mix={self.mix.described}: MixUp needs images of floats; let the transform end in ToTensor(), or in "
                "ToImage() and ToDtype(torch.float32, scale=True)"
            )
            raise OptionError(msg)

    def check(self, plan: Plan | None, source: Source | None) -> None:
        """Raise OptionError for what the first batch would be refused for; plan, source: None where nobody knows."""
        if plan is not None:
            self.check_dtype(is_float=plan.levels is not None)
        if source is None or not len(source):
            return
        labels = source.labels(np.zeros(1, np.int64))
        if labels is None or labels.dtype.kind not in "biuf":
            raise OptionError(_NO_LABELS)
        self.classes(torch.from_numpy(labels))

    def classes(self, labels: torch.Tensor) -> int:
        """Return the number of classes; raise OptionError for labels that do not have that many, or are none."""
        wanted = self.mix.num_classes
        if labels.ndim == 2:  # noqa: PLR2004  (n, num_classes)
            if wanted not in {None, labels.shape[1]}:
                msg = f"mix= has num_classes={wanted}, and the labels have {labels.shape[1]} columns"
                raise OptionError(msg)
            return labels.shape[1]
        if labels.ndim != 1 or labels.is_floating_point() or labels.is_complex():
            msg = (
                f"mix= needs labels (n,) of whole numbers or (n, num_classes); got {labels.dtype} {tuple(labels.shape)}"
            )
            raise OptionError(msg)
        wanted = self.num_classes
        if wanted is None:
            msg = f"mix={self.mix.described}: give it num_classes=; the data set does not tell its classes"
            raise OptionError(msg)
        if labels.device.type == "cpu" and len(labels):
            low, high = int(labels.min()), int(labels.max())
            if not 0 <= low <= high < wanted:
                msg = f"mix= has num_classes={wanted}, and there are labels from {low} to {high}"
                raise OptionError(msg)
        return wanted

    def explain(self) -> str:
        """Return the objects' own words, with the number of classes."""
        return f"mix {self.mix.described}, labels (n, {self.num_classes or 'num_classes'})"

    def over(
        self,
        batches: Iterator[Any],
        key: Callable[[], tuple[int, int]],
        place: tuple[int, int, int],
        valid: Valid | None,
        *,
        here: bool,
    ) -> Mixing:
        """Return the batches of an epoch, to be mixed; the arguments are Mixing's."""
        return Mixing(batches, self, key, place=place, valid=valid, here=here)


class Mixing(Over):
    """Mixes the batches of one epoch: iterate it in place of the batches, and call it with each one it gave.

    A batch is [images, labels] (or a tuple), with more behind them that stays as it is. Images (n, C, H, W); labels
    (n,) whole numbers become float32 (n, num_classes), labels (n, num_classes) floats. Calls come in the order of the
    batches, each before the next batch is taken, on any device and stream. A sample that only fills up (a rank's
    padding) is mixed with itself alone, and no other sample with it. Raises OptionError for other batches.
    """

    def __init__(
        self,
        batches: Iterator[Any],
        mixer: Mixer,
        key: Callable[[], tuple[int, int]],
        *,
        place: tuple[int, int, int],
        valid: Valid | None,
        here: bool,
    ) -> None:
        """Borrow all.

        key: gives (seed, epoch) of the draws, once the first batch is there. place: (number of the first batch in its
        epoch, rank, world). valid: tells of a batch, by its number in the epoch, which samples count; None: all. here:
        what is iterated is mixed already, nobody calls.
        """
        super().__init__(batches)
        self._mixer, self._key, self._valid, self._here = mixer, key, valid, here
        self._number, self._rank, self._world = place
        self._taken = self._number
        self._partners: NDArray[np.int64] | None = None

    def __next__(self) -> Any:  # noqa: ANN401  whatever the loader gives
        """Take the next batch; one that fails counts, too."""
        self._taken, self._number = self._number, self._number + 1
        batch = next(self._batches)
        self._partners = None if self._valid is None else _partners(self._valid(self._taken))
        if self._here:
            return self(batch)
        if isinstance(batch, list | tuple) and len(batch) > 1 and isinstance(batch[1], torch.Tensor):
            self._mixer.classes(batch[1])  # here, where they lie on the host yet
        return batch

    def __call__(self, batch: Any) -> Any:  # noqa: ANN401
        """Return the batch taken last, mixed: new memory."""
        images, labels = self._parts(batch)
        classes = self._mixer.classes(labels)
        if labels.ndim == 1:
            labels = torch.zeros(len(labels), classes, device=labels.device).scatter_(1, labels.long().view(-1, 1), 1.0)
        elif not labels.is_floating_point():
            labels = labels.float()
        at = self._taken * self._world + self._rank
        mixture = draw_mixture(self._mixer.mix, self._key(), at, (images.shape[3], images.shape[2]))
        before = None if self._partners is None else torch.from_numpy(self._partners).to(images.device)
        mixed = [_mixed(images, mixture, before), mix_before(labels, mixture.weight, before), *batch[2:]]
        return mixed if isinstance(batch, list) else tuple(mixed)

    def _parts(self, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ANN401
        if type(batch) not in {list, tuple}:
            msg = f"mix= takes batches [images, labels], and this one is a {type(batch).__name__}"
            raise OptionError(msg)
        if len(batch) < 2 or not isinstance(batch[1], torch.Tensor):  # noqa: PLR2004  images and labels
            raise OptionError(_NO_LABELS)
        images, labels = batch[:2]
        if not isinstance(images, torch.Tensor) or images.ndim != _IMAGE_DIMS or len(images) != len(labels):
            shape = f"shape {tuple(images.shape)}" if isinstance(images, torch.Tensor) else type(images).__name__
            msg = f"mix= needs images (n, C, H, W) and n labels; got images of {shape}, labels {tuple(labels.shape)}"
            raise OptionError(msg)
        self._mixer.check_dtype(is_float=images.is_floating_point())
        return images, labels


def _mixed(images: torch.Tensor, mixture: Mixture, before: torch.Tensor | None) -> torch.Tensor:
    if mixture.box is None:
        return mix_before(images, mixture.weight, before)
    return cut_before(images, mixture.box, before)


def _partners(valid: NDArray[np.bool_] | None) -> NDArray[np.int64] | None:
    """Return which sample each is mixed with, or None where it is the one before for all."""
    if valid is None or valid.all():
        return None
    partners = np.arange(len(valid))
    real = np.flatnonzero(valid)
    partners[real] = np.roll(real, 1)
    return partners
