"""Which way a loader takes: the threaded engine, or DataLoader's own workers, and why."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from fastdata.engine.bucket_sizes import resized
from fastdata.engine.reading import leaf_of, source_of
from fastdata.engine.source import FileSource, StoreSource
from fastdata.transforms.compile import compile_transform
from fastdata.transforms.plan import Plan

if TYPE_CHECKING:
    from fastdata.engine.source import Source

__all__ = ["Choice", "choose", "plain_image_folder", "read_leaf"]


@dataclass(frozen=True, slots=True)
class Choice:
    """How the engine would read the data set (source; None: it cannot) and do its transform (plan; None: it does not).

    why: one sentence for ``explain``. plans: one for each bucket.
    """

    source: Source | None
    plan: Plan | None
    why: str
    plans: tuple[Plan, ...] = ()


def choose(dataset: Any, packed: type[Any], sizes: tuple[tuple[int, int], ...]) -> Choice:  # noqa: ANN401
    """Return the way for a data set as it is now; packed: the type of a pack's data set.

    sizes: the (height, width) of each bucket, where there are any: all that differs between their plans.
    """
    source = source_of(dataset, partial(read_leaf, packed))
    if isinstance(source, str):
        return Choice(None, None, source)
    leaf = leaf_of(dataset)
    transform = getattr(leaf, "transform", None)
    plans: list[Plan] = []
    for asked in [resized(transform, size) for size in sizes] or [transform]:
        plan = compile_transform(asked)
        if not isinstance(plan, Plan):
            return Choice(source, None, plan.reason)
        plans.append(plan)
    # What a loader made of a path turns PIL images into uint8 tensors anyway, so its transform may end in one.
    if plans[0].output_kind == "pil" and not getattr(leaf, "owner", ""):
        return Choice(source, None, "the data set's transform gives PIL images, which only your collate_fn can know")
    why = "the data set and every step of its transform are known to the engine"
    return Choice(source, plans[0], why, tuple(plans))


def plain_image_folder(dataset: object) -> str | None:
    """Return None if ``dataset`` is exactly torchvision's ImageFolder with its default loader, else why it is not."""
    folder = sys.modules.get("torchvision.datasets.folder")
    name = f"{type(dataset).__module__}.{type(dataset).__qualname__}"
    if folder is None or type(dataset) is not folder.ImageFolder:
        return f"the data set is a {name}; the engine reads packs, PackedDataset and torchvision's ImageFolder"
    if getattr(dataset, "loader", None) is not folder.default_loader:
        return "the ImageFolder has a loader of its own"
    if {"__getitem__", "__len__"} & set(vars(dataset)):
        return "the ImageFolder's __getitem__ was replaced"
    if sys.modules["torchvision"].get_image_backend() != "PIL":
        return "torchvision's image backend is not PIL"
    return None


def read_leaf(packed: type[Any], dataset: Any) -> Source | str:  # noqa: ANN401
    """Return the source of a pack (the type ``packed``) or an ImageFolder, exactly these, or why there is none."""
    if type(dataset) is packed:
        return StoreSource(dataset.store)
    return plain_image_folder(dataset) or FileSource(getattr(dataset, "samples"))  # noqa: B009
