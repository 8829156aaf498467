"""What ``cache=`` gives: images/s of the first epoch and of later ones, and the memory it takes.

A folder of JPEGs by ImageFolder without cache, with encoded and with decoded records, and the same files as a pack;
RandomResizedCrop(224) + flip, uint8. Rounds are interleaved: each takes a new loader of each kind through ``--epochs``
epochs; medians. Files and pack are in the page cache (they are read once before).

    python benchmarks/cache.py --photos DIR [--resize 256] [--rounds 5] [--epochs 3] [--workers 2] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchvision.datasets import ImageFolder

from fastdata.bench.load_bench import image_folder_of, train_transform
from fastdata.bench.machine import facts
from fastdata.converters import pack
from fastdata.engine.cores import usable_cores
from fastdata.loader import FastLoader
from fastdata.stores.opener import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH = 64


def contenders(files: Path, packed: Path, workers: int) -> dict[str, Callable[[], FastLoader]]:
    """Return what makes a fresh loader of each kind."""
    transform = train_transform(224)

    def folder(cache: str | None) -> FastLoader:
        data = ImageFolder(str(files), transform)
        return FastLoader(data, BATCH, shuffle=True, num_workers=workers, seed=0, cache=cache)

    def pack_(cache: str | None) -> FastLoader:
        return FastLoader(packed, BATCH, shuffle=True, num_workers=workers, seed=0, transform=transform, cache=cache)

    return {
        "folder": lambda: folder(None),
        "folder, encoded": lambda: folder("encoded"),
        "folder, decoded": lambda: folder("decoded"),
        "pack": lambda: pack_(None),
        "pack, encoded": lambda: pack_("encoded"),
        "pack, decoded": lambda: pack_("decoded"),
    }


def epoch(loader: FastLoader) -> float:
    """Return the images/s of one epoch."""
    start, count = time.perf_counter(), 0
    for images, _ in loader:
        count += len(images)
    return count / (time.perf_counter() - start)


def measure(files: Path, packed: Path, *, rounds: int, epochs: int, workers: int) -> list[dict[str, Any]]:
    """Return one row for each contender; the first round is the warm-up."""
    makers = contenders(files, packed, workers)
    first: dict[str, list[float]] = {name: [] for name in makers}
    later: dict[str, list[float]] = {name: [] for name in makers}
    held = dict.fromkeys(makers, 0)
    private = dict.fromkeys(makers, 0)
    for number in range(rounds + 1):
        for name, make in makers.items():
            loader = make()
            rates = [epoch(loader) for _ in range(epochs)]
            cache = loader._cache  # noqa: SLF001  what explain() says in words
            if cache is not None and cache._arena is not None:  # noqa: SLF001
                held[name] = cache._arena.state.bytes  # noqa: SLF001
            private[name] = anonymous()
            loader.close()
            if number:
                first[name].append(rates[0])
                later[name] += rates[1:]
    return [
        {
            "loader": name,
            "first_epoch_images_per_second": statistics.median(first[name]),
            "later_epochs_images_per_second": statistics.median(later[name]),
            "spread": max(later[name]) / min(later[name]),
            "cache_mib": held[name] / (1 << 20),
            "rss_anon_mib": private[name] / (1 << 20),
        }
        for name in makers
    ]


def anonymous() -> int:
    """Return this process's RssAnon in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def main() -> None:
    """Measure and print; with --json write the report, too."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True, help="an ImageFolder tree of photographs")
    parser.add_argument("--resize", type=int, default=256, help="shorter side in pixels (default: 256)")
    parser.add_argument("--limit", type=int, help="take only so many pictures")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=usable_cores())
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fastdata-cache-") as scratch:
        packed = Path(scratch) / "photos.lmdb"
        pack(given.photos, packed, resize=given.resize, quality=90, limit=given.limit)
        with open_store(packed) as store:
            samples = len(store)
            image_folder_of(store, Path(scratch))
        rows = measure(Path(scratch) / "files", packed, rounds=given.rounds, epochs=given.epochs, workers=given.workers)
    report = {
        "what": "cache",
        "samples": samples,
        "setting": {
            "batch_size": BATCH, "resize": given.resize, "workers": given.workers, "rounds": given.rounds,
            "epochs": given.epochs,
        },
        "rows": rows,
        "machine": facts(),
    }  # fmt: skip
    for row in rows:
        print(
            f"{row['loader']:16} first epoch {row['first_epoch_images_per_second']:6.0f}/s, "
            f"later {row['later_epochs_images_per_second']:6.0f}/s, cache {row['cache_mib']:6.1f} MiB"
        )
    if given.json:
        given.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
