"""torchvision's ImageFolder in torch's DataLoader, as a careful user sets it up: workers that stay, collation there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from peers_settings import Images, torch_transform

if TYPE_CHECKING:
    from pathlib import Path

    from peers_settings import Settings


def open(folder: Path, settings: Settings) -> Any:  # noqa: A001, ANN401  the contract's name
    """Return a DataLoader's images; the variant, a number, overrules the settings' workers."""
    from torch.utils.data import DataLoader
    from torchvision.datasets import ImageFolder

    data = ImageFolder(str(folder), torch_transform(settings))
    loader: DataLoader[Any] = DataLoader(
        data,
        settings.batch_size,
        shuffle=settings.task != "evaluate",
        num_workers=int(settings.variant or settings.workers),
        persistent_workers=True,
        prefetch_factor=4,
        drop_last=True,
    )
    return Images(loader)
