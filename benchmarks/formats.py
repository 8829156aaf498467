"""FastLoader from the same photographs as LMDB, HDF5, one tar and eight: images/s, and each over LMDB's.

All packs are open in one process, with two threads each, and take turns epoch by epoch in an order that is drawn anew
for each round: what one process happens to be given (addresses, huge pages, a core's clock) falls on all formats alike.
RandomResizedCrop(224) + flip, uint8 batches of 64, warm cache; medians of the rounds, with the quartiles of the ratio.

    python benchmarks/formats.py --photos DIR [--rounds 21] [--output benchmarks/results/formats.json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from fastdata.bench.load_bench import train_transform
from fastdata.bench.machine import facts
from fastdata.converters import pack
from fastdata.engine.cores import usable_cores
from fastdata.loader import FastLoader

BATCH = 64
NAMES = {"lmdb": "p.lmdb", "hdf5": "p.h5", "tar": "p.tar", "8 tars": "p-{000000..}.tar"}


def epoch(loader: FastLoader[object]) -> float:
    """Return the images/s of one epoch."""
    start, count = time.perf_counter(), 0
    for images, _ in loader:
        count += len(images)
    return count / (time.perf_counter() - start)


def measure(loaders: dict[str, FastLoader[object]], rounds: int) -> dict[str, list[float]]:
    """Return each format's rates; a first round warms up and does not count."""
    rates: dict[str, list[float]] = {name: [] for name in loaders}
    turns = np.random.default_rng(0)
    for number in range(rounds + 1):
        for name in turns.permutation(sorted(loaders)):
            rate = epoch(loaders[name])
            if number:
                rates[name].append(rate)
    return rates


def main() -> None:
    """Pack, measure and print; with --output write the report, too."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True, help="an ImageFolder tree of photographs")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fastdata-formats-") as scratch:
        loaders = {}
        for name, file in NAMES.items():
            path = str(Path(scratch) / file)
            pack(given.photos, path, resize=256, quality=90, shards=8 if name == "8 tars" else None)
            loaders[name] = FastLoader(
                path, BATCH, shuffle=True, transform=train_transform(224), seed=0, drop_last=True, engine=True,
                num_workers=usable_cores(),
            )  # fmt: skip
        rates = measure(loaders, given.rounds)
        for loader in loaders.values():
            loader.close()
    rows = []
    for name, found in rates.items():
        ratios = [rate / lmdb for rate, lmdb in zip(found, rates["lmdb"], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        rows.append(
            {
                "format": name,
                "images_per_second": statistics.median(found),
                "over_lmdb": middle,
                "quartiles": [low, high],
            }
        )
        print(f"{name:8} {statistics.median(found):7.0f}/s, {middle:.3f} of LMDB ({low:.3f} to {high:.3f})")
    if given.output:
        report = {"benchmark": "formats", "setting": {"rounds": given.rounds, "batch_size": BATCH}, "rows": rows}
        given.output.write_text(json.dumps(report | {"machine": facts()}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
