"""Models by name: torchvision's, and a small one that needs only torch and learns in seconds on a CPU."""

from __future__ import annotations

import difflib

from torch import nn

from fastdata.errors import BackendMissingError, OptionError

__all__ = ["build_model"]


def build_model(name: str, classes: int) -> nn.Module:
    """Return a new model with ``classes`` outputs: "small" or a classification model of torchvision, no weights loaded.

    Raises OptionError for unknown names, BackendMissingError where torchvision is needed and missing.
    """
    if classes < 1:
        msg = f"a model needs 1 class or more, not {classes}"
        raise OptionError(msg)
    if name == "small":
        return _small(classes)
    try:
        from torchvision import models  # noqa: PLC0415  optional
    except ImportError as error:
        msg = (
            f"model {name!r} comes from torchvision: pip install 'fastdata-loader[train]' (model 'small' needs nothing)"
        )
        raise BackendMissingError(msg) from error
    known = models.list_models(module=models)
    if name not in known:
        near = difflib.get_close_matches(name, ["small", *known], n=4) or ["small", "resnet18", "resnet50", "vit_b_16"]
        msg = f"model {name!r} is not known; near it: {', '.join(near)}; {len(known)} more in torchvision.models"
        raise OptionError(msg)
    model: nn.Module = models.get_model(name, weights=None, num_classes=classes)
    return model


def _small(classes: int) -> nn.Module:
    """Return four strided 3x3 convolutions with BatchNorm, a global mean and a linear layer: 0.1 million weights."""
    layers: list[nn.Module] = []
    channels = 3
    for width in (16, 32, 64, 128):
        layers += [nn.Conv2d(channels, width, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
