"""How fast ``pack --resize 256`` is, against a plain Pillow loop in one process and against its own bare work.

The rounds of all candidates are interleaved and medians reported, so that a machine that slows down slows all of them.
Times are wall clock, from a call to a finished, synced pack; a worker's start counts. Candidates:

pillow_loop        decode, convert, resize, save; one file per picture
pillow_draft_loop  the same with Image.draft, which decodes as small as twice the target (with --camera)
workers_1, _N      pack, all pixels exact
fast_1, fast_N     pack with fidelity="fast" (with --camera)
bare, bare_fast    the core's decode and resize, and the encoder, in one thread: nothing is read or written

``workers_1_over_bare`` is the share of the work that is left when a pack is made of it. With --camera, photographs much
larger than the target, the difference in grey levels of fast against exact is told, too, before encoding. Photographs
are copied ``--repeat`` times, since few of them would measure the start of a run.

    python benchmarks/pack.py --photos DIR [--camera] [--images 1000] [--rounds 5] [--workers 2] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import PIL
import simplejpeg
from PIL import Image

import fastdata
from fastdata.bench.rounds import interleave
from fastdata.converters import PackOptions, pack
from fastdata.converters.encoding import encode
from fastdata.converters.quick_resize import QuickResizer
from fastdata.converters.resizing import place
from fastdata.decoding.header import probe
from fastdata.decoding.native_decoder import available
from fastdata.engine.cores import usable_cores
from fastdata.stores.opener import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

SIDE, QUALITY = 256, 90


def pillow_loop(paths: list[Path], out: Path, *, draft: bool) -> int:
    """Do what a script without this library does: open, resize the shorter side, save; one file per picture."""
    for number, path in enumerate(paths):
        with Image.open(path) as image:
            scale = min(1, SIDE / min(image.size))
            size = round(image.width * scale), round(image.height * scale)
            if draft:
                image.draft("RGB", (2 * size[0], 2 * size[1]))
            picture = image.convert("RGB")
        picture.resize(size, Image.Resampling.BICUBIC).save(out / f"{number:08}.jpg", "JPEG", quality=QUALITY)
    return len(paths)


def packing(photos: Path, out: Path, count: int, workers: int, fidelity: str) -> int:
    """Make a pack; return how many pictures are in it."""
    path = out / "out.lmdb"
    report = pack(photos, path, resize=SIDE, quality=QUALITY, workers=workers, limit=count, fidelity=fidelity)
    return report.samples


def bare(blobs: list[bytes], options: PackOptions) -> int:
    """Decode, resize and encode, with everything in memory."""
    with QuickResizer(options) as resizer:
        for blob in blobs:
            header = probe(blob)
            made = resizer.resized(blob, header, place(header.width, header.height, options).size)
            assert made is not None, "the core does not take this file"
            encode(made.pixels, "jpeg", options)
    return len(blobs)


def anew(scratch: Path, run: Callable[[Path], int]) -> Callable[[], int]:
    """Give each run an empty folder of its own."""

    def call() -> int:
        out = Path(tempfile.mkdtemp(dir=scratch))
        try:
            return run(out)
        finally:
            shutil.rmtree(out)

    return call


def differences(photos: Path, count: int, scratch: Path) -> dict[str, float]:
    """Return by how many grey levels fast pixels differ from exact ones: mean, 99.9th percentile, largest."""
    stores = []
    for fidelity in ("exact", "fast"):
        path = scratch / f"{fidelity}.lmdb"
        pack(photos, path, resize=SIDE, codec="raw", fidelity=fidelity, limit=count)
        stores.append(open_store(path))
    parts = [
        np.abs(np.frombuffer(stores[0].read(i), np.uint8).astype(np.int16) - np.frombuffer(stores[1].read(i), np.uint8))
        for i in range(len(stores[0]))
    ]
    levels = np.concatenate(parts)
    for store in stores:
        store.close()
    return {
        "mean": round(float(levels.mean()), 3),
        "percentile_99_9": float(np.quantile(levels, 0.999)),
        "largest": int(levels.max()),
    }


def copied(photos: Path, times: int, folder: Path) -> Path:
    """Copy the photographs so many times into a folder."""
    folder.mkdir()
    for file in sorted(photos.rglob("*.jpg")):
        for number in range(times):
            shutil.copy(file, folder / f"{file.stem}-{number}.jpg")
    return folder


def measure(args: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Return the rates of all candidates, and the ratios that matter."""
    photos = copied(args.photos, args.repeat, scratch / "photos") if args.repeat > 1 else args.photos
    with open_store(photos) as store:
        paths = [Path(path) for path in store.parts[: args.images]]
    blobs, count, many = [path.read_bytes() for path in paths], len(paths), args.workers
    made = {
        "pillow_loop": anew(scratch, lambda out: pillow_loop(paths, out, draft=False)),
        "bare": partial(bare, blobs, PackOptions(resize=SIDE, quality=QUALITY)),
    }
    for workers in (1, many):
        made[f"workers_{workers}"] = anew(scratch, lambda out, w=workers: packing(photos, out, count, w, "exact"))
    if args.camera:
        made["pillow_draft_loop"] = anew(scratch, lambda out: pillow_loop(paths, out, draft=True))
        made["bare_fast"] = partial(bare, blobs, PackOptions(resize=SIDE, quality=QUALITY, fidelity="fast"))
        for workers in (1, many):
            made[f"fast_{workers}"] = anew(scratch, lambda out, w=workers: packing(photos, out, count, w, "fast"))
    timings = interleave(made, args.rounds)
    rates = {name: timing.rate for name, timing in timings.items()}
    pairs = [
        (f"workers_{many}", "workers_1"),
        (f"workers_{many}", "pillow_loop"),
        ("workers_1", "pillow_loop"),
        ("workers_1", "bare"),
    ]
    if args.camera:
        pairs += [
            ("fast_1", "pillow_loop"),
            ("fast_1", "pillow_draft_loop"),
            ("fast_1", "workers_1"),
            ("fast_1", "bare_fast"),
            (f"fast_{many}", "fast_1"),
            ("pillow_draft_loop", "pillow_loop"),
        ]
    found: dict[str, Any] = {f"{one}_over_{other}": round(rates[one] / rates[other], 3) for one, other in pairs}
    if args.camera:
        found["grey_levels_of_fast_from_exact"] = differences(photos, count, scratch)
    return {
        "images_per_second": {name: round(rate, 1) for name, rate in rates.items()},
        "spread": {name: round(timing.spread, 2) for name, timing in timings.items()},
        **found,
        "photographs": str(args.photos.name),
        "images": count,
        "megapixels": round(sum(probe(blob).pixels for blob in blobs) / count / 1e6, 2),
    }


def main() -> None:
    """Parse, measure, print the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photos", type=Path, required=True, help="a folder of JPEG photographs, upright")
    parser.add_argument("--camera", action="store_true", help="they are much larger than the target: measure fast, too")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=1, help="copies of each photograph")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--scratch", type=Path, help="where packs are written meanwhile (default: a temporary folder)")
    parser.add_argument("--json", type=Path, help="write the result there, too")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.scratch) as scratch:
        result = measure(args, Path(scratch))
    result |= {
        "benchmark": "pack --resize 256",
        "resize": SIDE,
        "quality": QUALITY,
        "filter": "bicubic",
        "rounds": args.rounds,
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
