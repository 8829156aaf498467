"""How fast ``pack --resize 256`` is with one and with more workers, against a plain Pillow loop in one process.

The rounds of all candidates are interleaved and medians reported, so that a machine that slows down slows all of them.
Times are wall clock, from a call to a finished, synced pack; a worker's start counts.

    python benchmarks/pack.py --photos DIR [--images 1000] [--rounds 5] [--workers 2] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import PIL
import simplejpeg
from PIL import Image

import fastdata
from fastdata.converters import pack
from fastdata.decoding.native_decoder import available
from fastdata.engine.cores import usable_cores
from fastdata.stores.opener import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

SIDE, QUALITY = 256, 90


def pillow_loop(photos: Path, out: Path, count: int) -> int:
    """Do what a script without this library does: open, resize the shorter side, save; one file per picture."""
    with open_store(photos) as store:
        paths = list(store.parts[:count])
    for number, path in enumerate(paths):
        with Image.open(path) as image:
            picture = image.convert("RGB")
        scale = min(1, SIDE / min(picture.size))
        size = round(picture.width * scale), round(picture.height * scale)
        picture.resize(size, Image.Resampling.BICUBIC).save(out / f"{number:08}.jpg", "JPEG", quality=QUALITY)
    return len(paths)


def packing(workers: int) -> Callable[[Path, Path, int], int]:
    """Return a run of ``pack`` with so many workers."""

    def run(photos: Path, out: Path, count: int) -> int:
        return pack(photos, out / "out.lmdb", resize=SIDE, quality=QUALITY, workers=workers, limit=count).samples

    return run


def measure(photos: Path, count: int, rounds: int, workers: int, scratch: Path) -> dict[str, Any]:
    """Return the rates of all candidates, and the ratios that matter."""
    candidates = {"pillow_loop": pillow_loop, "workers_1": packing(1), f"workers_{workers}": packing(workers)}
    rates: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(rounds + 1):  # the first warms the page cache and is dropped
        for name, run in candidates.items():
            out = scratch / name
            out.mkdir()
            start = time.perf_counter()
            done = run(photos, out, count)
            seconds = time.perf_counter() - start
            shutil.rmtree(out)
            if turn:
                rates[name].append(done / seconds)
    medians = {name: statistics.median(values) for name, values in rates.items()}
    most = medians[f"workers_{workers}"]
    return {
        "images_per_second": {name: round(value, 1) for name, value in medians.items()},
        "rounds": {name: [round(value, 1) for value in values] for name, values in rates.items()},
        f"workers_{workers}_over_workers_1": round(most / medians["workers_1"], 3),
        f"workers_{workers}_over_pillow_loop": round(most / medians["pillow_loop"], 3),
        "workers_1_over_pillow_loop": round(medians["workers_1"] / medians["pillow_loop"], 3),
    }


def main() -> None:
    """Parse, measure, print the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photos", type=Path, required=True, help="a folder of JPEG photographs")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--scratch", type=Path, help="where packs are written meanwhile (default: a temporary folder)")
    parser.add_argument("--json", type=Path, help="write the result there, too")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.scratch) as scratch:
        result = measure(args.photos, args.images, args.rounds, args.workers, Path(scratch))
    result |= {
        "benchmark": "pack --resize 256",
        "images": args.images,
        "resize": SIDE,
        "quality": QUALITY,
        "filter": "bicubic",
        "compiled_core": available(),
        "cores": usable_cores(),
        "load_average": os.getloadavg()[0],
        "machine": platform.machine(),
        "python": platform.python_version(),
        "versions": {"fastdata": fastdata.__version__, "pillow": PIL.__version__, "simplejpeg": simplejpeg.__version__},
    }
    text = json.dumps(result, indent=2)
    print(text)
    if args.json:
        args.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
