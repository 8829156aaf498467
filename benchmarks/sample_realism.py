"""Does decoding the drawn sample cost what decoding photographs costs? Side by side, in one run.

    python benchmarks/sample_realism.py PHOTOS [--count 300] [--rounds 7] [--json out.json]

One file of each set in turn, so that whatever slows the machine slows both; of each file the median over the rounds, in
processor time of this thread; sums over the files, per megapixel.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import PIL
import simplejpeg
from PIL import Image

from fastdata.sample import draw_samples

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def main() -> int:
    """Measure, print a table, and write the JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path, help="a folder of class folders of JPEG photographs")
    parser.add_argument("--count", type=int, default=300, help="files of each set")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        began = time.perf_counter()
        draw_samples(scratch, count=args.count)
        drawing = time.perf_counter() - began
        sets = {"sample": _read(Path(scratch), args.count), "photos": _read(args.photos, args.count)}
    megapixels = {name: sum(map(_megapixels, files)) for name, files in sets.items()}
    result: dict[str, Any] = {
        "count": {name: len(files) for name, files in sets.items()},
        "rounds": args.rounds,
        "drawing_seconds": drawing,
        "bytes_per_pixel": {name: sum(map(len, files)) / megapixels[name] / 1e6 for name, files in sets.items()},
        "milliseconds_per_megapixel": {},
        "ratio": {},
        "machine": {"processor": platform.machine(), "cores": os.cpu_count(), "load": os.getloadavg()},
        "versions": {"python": platform.python_version(), "pillow": PIL.__version__, "numpy": np.__version__},
    }
    decoders: dict[str, Callable[[bytes], object]] = {"pillow": _pillow, "simplejpeg": simplejpeg.decode_jpeg}
    for name, decode in decoders.items():
        seconds = _measure(list(sets.values()), decode, args.rounds)
        cost = {which: 1e3 * s / megapixels[which] for which, s in zip(sets, seconds, strict=True)}
        result["milliseconds_per_megapixel"][name] = cost
        ratio = result["ratio"][name] = cost["sample"] / cost["photos"]
        print(f"{name:12s} sample {cost['sample']:.2f} photos {cost['photos']:.2f} ms/MP, ratio {ratio:.3f}")
    print(f"drawn in {drawing:.1f} s; bytes per pixel {result['bytes_per_pixel']}")
    if args.json:
        args.json.write_text(json.dumps(result, indent=2) + "\n")
    return 0


def _read(folder: Path, count: int) -> list[bytes]:
    files = sorted(folder.glob("*/*.jp*g"))
    return [files[k].read_bytes() for k in np.linspace(0, len(files) - 1, min(count, len(files))).astype(int)]


def _megapixels(data: bytes) -> float:
    with Image.open(io.BytesIO(data)) as image:
        return image.width * image.height / 1e6


def _pillow(data: bytes) -> object:
    with Image.open(io.BytesIO(data)) as image:
        return image.load()


def _measure(sets: Sequence[Sequence[bytes]], decode: Callable[[bytes], object], rounds: int) -> list[float]:
    times: list[list[list[float]]] = [[[] for _ in files] for files in sets]
    for _ in range(rounds):
        for turn in range(max(map(len, sets))):
            for files, found in zip(sets, times, strict=True):
                if turn < len(files):
                    began = time.thread_time()
                    decode(files[turn])
                    found[turn].append(time.thread_time() - began)
    return [sum(map(statistics.median, found)) for found in times]


if __name__ == "__main__":
    raise SystemExit(main())
