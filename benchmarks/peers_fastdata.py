"""FastLoader from a pack of the files, bytes unchanged (lmdb, hdf5, tar, tars: 8 shards; raw), or from the folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from peers_settings import Images, torch_transform

if TYPE_CHECKING:
    from pathlib import Path

    from peers_settings import Settings

NAMES = {
    "lmdb": "pack.lmdb",
    "hdf5": "pack.h5",
    "tar": "pack.tar",
    "tars": "pack-{000000..}.tar",
    "raw": "pack.lmdb",
}
SHARDS = 8


def prepare(folder: Path, settings: Settings) -> None:
    """Pack."""
    from fastdata.converters import pack

    if settings.variant != "folder":
        codec = "raw" if settings.variant == "raw" else "keep"
        pack(folder, _path(folder, settings), codec=codec, shards=SHARDS if settings.variant == "tars" else None)


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
    return folder if settings.variant == "folder" else settings.scratch / NAMES[settings.variant]
