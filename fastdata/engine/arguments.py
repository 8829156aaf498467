"""Arguments of a loader that would be taken in silence, or fail far from where they were given."""

from __future__ import annotations

import numbers
import os
import warnings
from collections.abc import Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.utils.data import ConcatDataset, IterableDataset
from torch.utils.data.distributed import DistributedSampler

from fastdata.decoding.facade import batch_decoder
from fastdata.engine.reading import leaf_of
from fastdata.engine.sampler import EpochSampler
from fastdata.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastdata.engine.choice import Choice

__all__ = [
    "EngineAsked",
    "check_arguments",
    "check_on_error",
    "check_start",
    "check_transforms",
    "warn_of_classes",
    "warn_of_no_batch",
    "warn_of_the_same_order",
]


def check_arguments(transform: object, memory_format: object, seed: object) -> None:
    """Raise OptionError for what would be taken in silence, or fail far from here."""
    if transform is not None and (
        isinstance(transform, type) or not (callable(transform) or isinstance(transform, list | tuple))
    ):
        msg = f"transform={transform!r}: expected a transform (an instance, not its class) or a list of them"
        raise OptionError(msg)
    if memory_format not in {torch.contiguous_format, torch.channels_last}:
        msg = f"memory_format={memory_format!r}: expected torch.contiguous_format or torch.channels_last"
        raise OptionError(msg)
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, numbers.Integral)):
        msg = f"seed={seed!r}: expected a whole number, or None for torch's generator"
        raise OptionError(msg)


def check_transforms(dataset: object, transform: object, target_transform: object) -> None:
    """Raise OptionError for transforms beside a Dataset, unless they are its own.

    Those come from Lightning, which builds a loader again from the attributes of another.
    """
    for name, given in (("transform", transform), ("target_transform", target_transform)):
        if given is not None and getattr(dataset, name, None) is not given:
            several = isinstance(dataset, list | tuple) and all(isinstance(p, str | os.PathLike) for p in dataset)
            hint = "; several packs: ConcatDataset([PackedDataset(path, tf) for path in paths])" if several else ""
            msg = f"{name}= goes with a path or Store; a Dataset has its own: give it there{hint}"
            raise OptionError(msg)


def warn_of_no_batch(sampler: object, batch_size: int | None, *, drop_last: bool) -> None:
    """Warn where a rest is dropped and there is nothing but a rest: an epoch of no batch shows up far from here."""
    if not drop_last or batch_size is None or not isinstance(sampler, Sized):
        return
    if 0 < len(sampler) < batch_size:
        warnings.warn(
            f"no full batch: {len(sampler)} samples, batch_size={batch_size} and drop_last=True give epochs of no "
            "batch at all; take a smaller batch_size or drop_last=False",
            stacklevel=3,
        )


def warn_of_the_same_order(sampler: object) -> bool:
    """Warn where an epoch is over and torch's DistributedSampler was not told of the next; return whether it is so."""
    if not isinstance(sampler, DistributedSampler) or isinstance(sampler, EpochSampler) or not sampler.shuffle:
        return False
    warnings.warn(
        f"the DistributedSampler is at epoch {sampler.epoch} again, so this epoch has the order of the one before: "
        "call set_epoch(epoch), its or the loader's, before each epoch",
        stacklevel=5,
    )
    return True


def warn_of_classes(dataset: object) -> None:
    """Warn where parts of a ConcatDataset have other classes under the same numbers."""
    if not isinstance(dataset, ConcatDataset):
        return
    named = [list(classes) for part in dataset.datasets if (classes := getattr(leaf_of(part), "classes", None))]
    other = next((classes for classes in named if classes != named[0]), None)
    if other is not None:
        warnings.warn(
            f"the parts of the ConcatDataset have different classes, so that one label means different things: "
            f"{_short(named[0])} and {_short(other)}; pack them together, or give the parts a target_transform",
            stacklevel=3,
        )


def _short(classes: list[str]) -> str:
    return f"{len(classes)} ({', '.join(classes[:3])}{', ...' if len(classes) > 3 else ''})"  # noqa: PLR2004


def check_on_error(on_error: str, max_faults: object, dataset: object) -> None:
    """Raise OptionError where samples cannot be left out one by one, or none is, whatever their number."""
    if on_error == "raise" and max_faults is not None:
        msg = f"max_faults={max_faults!r} bounds what on_error='skip' or 'replace' lets pass: give on_error=, too"
        raise OptionError(msg)
    if on_error != "raise" and isinstance(dataset, IterableDataset):
        msg = f"on_error={on_error!r}: an IterableDataset ends where it fails; catch errors in its __iter__"
        raise OptionError(msg)


@dataclass(frozen=True, slots=True)
class EngineAsked:
    """What a loader was asked for that is the engine's, or its decoder's, and must not be left out in silence."""

    engine: bool | None
    cache: str | None
    fidelity: str

    def check(self, decoder: str, choose: Callable[[], Choice]) -> None:
        """Raise OptionError for what would not be given; ``choose`` says which way the loader takes."""
        asked = "engine=True" if self.engine else ""
        if self.cache is not None:
            asked = asked or f"cache={self.cache!r}, which is the engine's"
        if self.fidelity not in {"exact", "fast"}:
            msg = f"fidelity={self.fidelity!r}: expected 'exact' or 'fast'"
            raise OptionError(msg)
        if self.fidelity == "fast":
            asked = asked or "fidelity='fast', which is the engine's"
            batch_decoder(decoder, 1, fast=True).close()
            if self.cache == "decoded":
                msg = "cache='decoded' keeps exact pixels of whole pictures: with fidelity='fast' take cache='encoded'"
                raise OptionError(msg)
        choice = choose() if asked else None
        if choice is not None and choice.plan is None:
            hint = "" if self.cache is None else " (fastdata.cached keeps the samples of any data set)"
            msg = f"{asked}, but {choice.why}{hint}"
            raise OptionError(msg)


def check_start(timeout: float, workers: int, *, pin: bool, to: str) -> bool:
    """Say at the start of an epoch on the engine what DataLoader's iterator says; return whether batches are pinned.

    pin, to: pin_memory and pin_memory_device.
    """
    if timeout and not workers:
        msg = "_SingleProcessDataLoaderIter requires timeout == 0"
        raise AssertionError(msg)
    if pin and to:
        warnings.warn(
            "pin_memory_device is deprecated, the current accelerator will be used as the device,"
            f"ignore pin_memory_device='{to}'.",
            stacklevel=4,
        )
    if pin and not torch.accelerator.is_available():
        warnings.warn(
            "'pin_memory' argument is set as true but no accelerator is found, "
            "then device pinned memory won't be used.",
            stacklevel=4,
        )
    return pin and torch.cuda.is_available()
