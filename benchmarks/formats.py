"""FastLoader from the same photographs as LMDB, HDF5, one tar and eight: images/s, and each over LMDB's.

All packs are open in one process, with two threads each, and take turns epoch by epoch in an order that is drawn anew
for each round: what one process happens to be given (addresses, a core's clock) falls on all formats alike. Each format
is packed --copies times, and the rounds take turns among them. "lmdb again" is a second loader on the very same file:
how far it is from 1 is what chance makes of two equal things here. RandomResizedCrop(224) + flip, uint8 batches of 64,
warm cache; medians of the rounds, the quartiles of the ratio, and how much a format's copies differ from each other.

    python benchmarks/formats.py --photos DIR [--rounds 32] [--copies 8] [--output benchmarks/results/formats.json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from itertools import chain
from pathlib import Path

import numpy as np

from fastdata.bench.load_bench import train_transform
from fastdata.bench.machine import facts
from fastdata.converters import pack
from fastdata.engine.cores import usable_cores
from fastdata.loader import FastLoader

BATCH = 64
NAMES = {"lmdb": "{}.lmdb", "lmdb again": "{}.lmdb", "hdf5": "{}.h5", "tar": "{}.tar", "8 tars": "{}-{{000000..}}.tar"}


def epoch(loader: FastLoader[object]) -> float:
    """Return the images/s of one epoch."""
    start, count = time.perf_counter(), 0
    for images, _ in loader:
        count += len(images)
    return count / (time.perf_counter() - start)


def measure(loaders: dict[str, list[FastLoader[object]]], rounds: int) -> dict[str, list[float]]:
    """Return each format's rates, its copies in turn; a first epoch of each copy warms up and does not count."""
    rates: dict[str, list[float]] = {name: [] for name in loaders}
    turns = np.random.default_rng(0)
    copies = len(next(iter(loaders.values())))
    for number in range(copies + rounds):
        for name in turns.permutation(sorted(loaders)):
            rate = epoch(loaders[name][number % copies])
            if number >= copies:
                rates[name].append(rate)
    return rates


def main() -> None:
    """Pack, measure and print; with --output write the report, too."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True, help="an ImageFolder tree of photographs")
    parser.add_argument("--rounds", type=int, default=32)
    parser.add_argument("--copies", type=int, default=8)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fastdata-formats-") as scratch:
        first = str(Path(scratch) / "first.lmdb")
        pack(given.photos, first, resize=256, quality=90)
        loaders: dict[str, list[FastLoader[object]]] = {name: [] for name in NAMES}
        for copy in range(given.copies):
            for name, file in NAMES.items():
                path = str(Path(scratch) / file.format(copy))
                if name != "lmdb again":
                    pack(first, path, shards=8 if name == "8 tars" else None)
                loader: FastLoader[object] = FastLoader(
                    path, BATCH, shuffle=True, transform=train_transform(224), seed=0, drop_last=True, engine=True,
                    num_workers=usable_cores(),
                )  # fmt: skip
                loaders[name].append(loader)
        rates = measure(loaders, given.rounds)
        for loader in chain.from_iterable(loaders.values()):
            loader.close()
    rows = []
    for name, found in rates.items():
        ratios = [rate / lmdb for rate, lmdb in zip(found, rates["lmdb"], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        rate = statistics.median(found)
        by_copy = [statistics.median(found[copy :: given.copies]) for copy in range(given.copies)]
        spread = max(by_copy) / min(by_copy)
        rows.append(
            {
                "format": name, "images_per_second": rate, "over_lmdb": middle, "quartiles": [low, high],
                "fastest_copy_over_slowest": spread,
            }
        )  # fmt: skip
        print(f"{name:10} {rate:7.0f}/s, {middle:.3f} of LMDB ({low:.3f} to {high:.3f}); copies differ by {spread:.2f}")
    if given.output:
        setting = {"rounds": given.rounds, "copies": given.copies, "batch_size": BATCH}
        report = {"benchmark": "formats", "setting": setting, "rows": rows, "machine": facts()}
        given.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
