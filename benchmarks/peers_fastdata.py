"""FastLoader from a pack of the folder's files, bytes unchanged (variants lmdb, hdf5, tar, raw), or from the folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from peers_settings import Images, torch_transform

if TYPE_CHECKING:
    from pathlib import Path

    from peers_settings import Settings

ENDINGS = {"lmdb": ".lmdb", "hdf5": ".h5", "tar": ".tar", "raw": ".lmdb"}


def prepare(folder: Path, settings: Settings) -> None:
    """Pack."""
    from fastdata.converters import pack

    if settings.variant != "folder":
        pack(folder, _path(folder, settings), codec="raw" if settings.variant == "raw" else "keep")


def open(folder: Path, settings: Settings) -> Any:  # noqa: A001, ANN401  the contract's name
    """Return a FastLoader's images; raise OptionError where the engine would not serve."""
    from fastdata import FastLoader

    loader = FastLoader(
        str(_path(folder, settings)),
        settings.batch_size,
        shuffle=settings.task != "evaluate",
        num_workers=settings.workers,
        transform=torch_transform(settings),
        drop_last=True,
        engine=True,
    )
    return Images(loader)


def _path(folder: Path, settings: Settings) -> Path:
    return folder if settings.variant == "folder" else settings.scratch / f"pack{ENDINGS[settings.variant]}"
