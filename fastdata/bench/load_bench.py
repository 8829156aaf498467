"""FastLoader beside torchvision's ImageFolder + DataLoader and beside webdataset, on the same images and transform."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

from fastdata.bench.machine import facts
from fastdata.bench.rounds import interleave
from fastdata.bench.stages import stage_times
from fastdata.engine.cores import usable_cores
from fastdata.errors import BackendMissingError, OptionError
from fastdata.loader import FastLoader
from fastdata.stores.opener import open_store

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

    from fastdata.stores.store import Store

__all__ = ["bench_load", "image_folder_of", "train_transform"]

_TOLERANCE = 0.02  # means of randomly cropped epochs may differ by this share


def bench_load(  # noqa: PLR0913  each is a setting of the measurement
    path: str | os.PathLike[str],
    *,
    batch_size: int = 64,
    size: int = 224,
    rounds: int = 5,
    epochs: int = 2,
    workers: int | None = None,
    peers: bool = True,
) -> dict[str, Any]:
    """Return a JSON-able report of images/s, RandomResizedCrop(size) + flip, uint8 batches, warm cache.

    Each round takes ``epochs`` epochs of each contender, in turn; medians. The pack's own files are written out once,
    unchanged, for the contenders that read files or tars. torchvision runs with one and with all workers; the better
    one counts. Every contender must give equal shape, dtype and, within 2 %, mean. "stages" says whether reading,
    decoding or transforms bind.
    """
    workers = workers or usable_cores()
    transform = train_transform(size)
    with ExitStack() as stack:
        store = stack.enter_context(open_store(path))
        if len(store) < batch_size:
            msg = f"{path} has {len(store)} samples, less than one batch of {batch_size}: give a smaller batch size"
            raise OptionError(msg)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fastdata-bench-"))
        loaders: dict[str, Iterable[Any]] = {
            "fastdata": FastLoader(
                str(path), batch_size, shuffle=True, num_workers=workers, transform=transform, drop_last=True
            )
        }
        if peers:
            image_folder_of(store, Path(folder))
            for count in sorted({1, workers}):
                loaders[f"torchvision, {count} workers"] = _torchvision(Path(folder), transform, batch_size, count)
            loaders["webdataset"] = _webdataset(store, Path(folder), transform, batch_size=batch_size, workers=workers)
        checks = {name: _Check() for name in loaders}
        runs: dict[str, Callable[[], int]] = {
            name: partial(_epochs, loader, checks[name], epochs) for name, loader in loaders.items()
        }
        timings = interleave(runs, rounds)
        _agree(checks)
        # Opened again: packing for webdataset has closed the other one.
        stages = stage_times(stack.enter_context(open_store(path)), transform, batch_size=batch_size)
    best = max((t.rate for name, t in timings.items() if name.startswith("torchvision")), default=None)
    rows = [
        {
            "loader": name,
            "images_per_second": timing.rate,
            "ratio_to_torchvision": timing.rate / best if best else None,
            "spread": timing.spread,
            "mean": checks[name].mean,
        }
        for name, timing in timings.items()
    ]
    return {
        "what": "load",
        "pack": {"kind": store.kind, "samples": len(store), "options": dict(store.info.get("options", {}))},
        "setting": {"batch_size": batch_size, "size": size, "workers": workers, "rounds": rounds, "epochs": epochs},
        "rows": rows,
        "stages": stages,
        "machine": facts(),
    }


def train_transform(size: int) -> Any:  # noqa: ANN401  torchvision is optional
    """Return torchvision's RandomResizedCrop(size), flip and PILToTensor: uint8 out."""
    try:
        from torchvision import transforms as T  # noqa: N812, PLC0415  the field's name for it, and optional
    except ImportError as error:
        msg = "bench load compares with torchvision: pip install 'fastdata-loader[all]'"
        raise BackendMissingError(msg) from error
    return T.Compose([T.RandomResizedCrop(size), T.RandomHorizontalFlip(), T.PILToTensor()])


def image_folder_of(store: Store, folder: Path) -> None:
    """Write the pack's images, bytes unchanged, as an ImageFolder below ``folder / "files"``."""
    column = store.index.label
    if column is None or not store.classes:
        msg = f"{store.path}: bench load needs a pack with classes (pack a folder with a folder for each class)"
        raise OptionError(msg)
    for i, label in enumerate(column.tolist()):
        target = folder / "files" / store.classes[label] / f"{i:08d}.{_ending(store.codec(i))}"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(store.read(i))


def _ending(codec: str) -> str:
    return {"jpeg": "jpg"}.get(codec, codec)


def _torchvision(folder: Path, transform: Any, batch_size: int, workers: int) -> DataLoader[Any]:  # noqa: ANN401
    from torchvision.datasets import ImageFolder  # noqa: PLC0415

    data = ImageFolder(str(folder / "files"), transform)
    return DataLoader(data, batch_size, shuffle=True, num_workers=workers, persistent_workers=True, drop_last=True)


def _webdataset(
    store: Store,
    folder: Path,
    transform: Any,  # noqa: ANN401
    *,
    batch_size: int,
    workers: int,
) -> Iterable[Any]:
    """Return webdataset's own pipeline, shards shuffled, samples through its window, batched in the workers."""
    try:
        import webdataset as wds  # noqa: PLC0415
    except ImportError as error:
        msg = "bench load compares with webdataset: pip install webdataset, or give --no-peers"
        raise BackendMissingError(msg) from error
    from fastdata.converters import pack  # noqa: PLC0415  a door of its own, needed here for shards only

    shards = 2 * workers
    pack(store, folder / "shards-{000000..}.tar", shards=shards, workers=1)
    names = [str(path) for path in sorted(folder.glob("shards-*.tar"))]
    data = (
        wds.WebDataset(names, shardshuffle=len(names), seed=0)
        .shuffle(1000)
        .decode("pil")
        .to_tuple("jpg;png;webp;bmp", "cls")
        .map_tuple(transform, int)
        .batched(batch_size, partial=False)
    )
    return wds.WebLoader(data, batch_size=None, num_workers=workers, persistent_workers=True)  # type: ignore[no-any-return]


class _Check:
    """What a contender's batches look like: shape, dtype and the mean of its first epochs."""

    def __init__(self) -> None:
        self.shape: tuple[int, ...] = ()
        self.dtype: torch.dtype | None = None
        self._total, self._count = 0.0, 0

    @property
    def mean(self) -> float:
        return self._total / max(1, self._count)

    def see(self, images: torch.Tensor) -> None:
        self.shape, self.dtype = tuple(images.shape[1:]), images.dtype
        # every 7th row of pixels is enough for the mean, and costs nobody time
        part = images[:, :, ::7].to(torch.float32)
        self._total += float(part.sum())
        self._count += part.numel()


def _epochs(loader: Iterable[Any], check: _Check, epochs: int) -> int:
    count = 0
    looks = not check.shape  # the first round is the warm-up, which is not counted
    for _ in range(epochs):
        for images, _labels in loader:
            count += len(images)
            if looks:
                check.see(images)
    return count


def _agree(checks: dict[str, _Check]) -> None:
    first = next(iter(checks.values()))
    for name, check in checks.items():
        same = (check.shape, check.dtype) == (first.shape, first.dtype)
        if not same or abs(check.mean / first.mean - 1) > _TOLERANCE:
            msg = (
                f"{name} gives {check.shape} {check.dtype}, mean {check.mean:.2f}, not {first.shape} {first.dtype}, "
                f"mean {first.mean:.2f}: the comparison would not be fair"
            )
            raise OptionError(msg)
