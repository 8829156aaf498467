"""What a user gets of a batch; runs in the consumer's thread, where a user's functions may use torch as they like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.utils.data import default_collate
from torch.utils.data._utils.pin_memory import pin_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastdata.engine.batches import Batch
    from fastdata.faults import FaultLog

__all__ = ["Collator", "pinned"]


@dataclass(frozen=True, slots=True)
class Collator:
    """Gives [images, labels] as default_collate would, or what ``collate_fn`` makes of a list of (view, label).

    collate_fn None is the default. A set without labels gives [images], and a collate_fn gets (view, None).
    target_transform is called with each label. faults: hears of the samples that failed; where they are too many, the
    batch is not given, and SampleError is raised.
    """

    collate_fn: Callable[[list[Any]], Any] | None
    target_transform: Callable[[Any], Any] | None
    faults: FaultLog

    def __call__(self, batch: Batch) -> Any:  # noqa: ANN401  whatever collate_fn returns
        """Return the batch as its user gets it."""
        for fault in batch.faults:
            self.faults.note(fault.key, fault.index, fault.reason)
        images, labels = batch.images, batch.labels
        if self.collate_fn is None and self.target_transform is None:
            return [images] if labels is None else [images, labels]
        rows: list[Any] = [None] * len(images) if labels is None else labels.tolist()
        if self.target_transform is not None:
            rows = [self.target_transform(row) for row in rows]
        if self.collate_fn is None:
            return [images, default_collate(tuple(rows))]  # type: ignore[arg-type]  # a tuple in DataLoader, too
        return self.collate_fn(list(zip(images, rows, strict=True)))


def pinned(batch: Any) -> Any:  # noqa: ANN401
    """Return what DataLoader makes of a collated batch for CUDA: tensors pinned, a type of the user's by its method."""
    return pin_memory(batch, "cuda")  # type: ignore[no-untyped-call]
