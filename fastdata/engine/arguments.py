"""Arguments of a loader that would be taken in silence, or fail far from where they were given."""

from __future__ import annotations

import numbers

import torch

from fastdata.errors import OptionError

__all__ = ["check_arguments"]


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
