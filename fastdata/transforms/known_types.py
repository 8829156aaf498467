"""Which objects are exactly those of torchvision, torch or timm that the engine knows, and what containers hold.

Nothing is imported here: whoever hands over such an object has imported its library.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from fastdata.transforms.composition import RefusedError, refuse

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ContainerError", "check_untouched", "flat", "home_of"]

#: Where the types that are understood are looked up, if somebody has imported them.
_HOMES = (
    "torchvision.transforms", "torchvision.transforms.v2", "torch.nn",
    "timm.data.transforms", "timm.data.auto_augment", "timm.data.random_erasing",
)  # fmt: skip
_OWNERS = ("torch", "torchvision", "timm")
_CONTAINERS = ("Compose", "Sequential")
_METHODS = (
    "__call__", "forward", "transform", "make_params", "get_params", "check_inputs", "_call_kernel",
    "_augmentation_space", "_apply_image_or_video_transform", "_get_random_item", "_mixup_label", "_erase",
)  # fmt: skip


class ContainerError(Exception):
    """A container of steps may do more than run them in turn."""


def flat(transform: object) -> Iterator[object]:
    """Yield the steps, containers opened."""
    if transform is None:
        return
    if type(transform) in (list, tuple):
        steps: Any = transform
    else:
        home = home_of(transform)
        name = type(transform).__name__
        if home is None or name not in _CONTAINERS:
            yield transform
            return
        try:
            check_untouched(transform)
        except RefusedError as error:
            raise ContainerError(f"{name}: {error}") from None
        steps = list(transform) if name == "Sequential" else vars(transform).get("transforms")  # type: ignore[call-overload]
        if name == "Compose" and type(steps) not in (list, tuple):
            raise ContainerError(f"Compose: its transforms are a {type(steps).__name__}, not a list")
    for step in steps:
        yield from flat(step)


def home_of(step: object) -> str | None:
    """Return the public module that exports exactly the type of ``step``, or None."""
    cls = type(step)
    for home in _HOMES:
        module = sys.modules.get(home)
        if getattr(module, cls.__name__, None) is cls and cls.__module__.partition(".")[0] == home.partition(".")[0]:
            return home
    return None


def check_untouched(step: object) -> None:
    """Raise unless the methods that torch calls are torch's own and no hook is set."""
    cls, own = type(step), vars(step)
    for name in _METHODS:
        if name in own or getattr(getattr(cls, name, None), "__module__", "torch").partition(".")[0] not in _OWNERS:
            refuse(f"its {name} was replaced")
    if any(value for name, value in own.items() if name.endswith(("_hooks", "_pre_hooks"))):
        refuse("it has hooks")
    modules = sys.modules.get("torch.nn.modules.module")
    if getattr(modules, "_global_forward_hooks", None) or getattr(modules, "_global_forward_pre_hooks", None):
        refuse("hooks are set for all modules")
