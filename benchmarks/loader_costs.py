"""What a loader costs beside its decoding: time to a first batch, memory of the order, of a batch and of a sample.

first      seconds to the first batch of a million samples, opening the pack included; beside it DataLoader on a list of
           a million (path, label): an ImageFolder after its scan (simulated: a million files would measure the disk).
order      peak memory of drawing the first batch of a shuffled epoch (tracemalloc), ours and DataLoader's.
overhead   microseconds per batch of 256 raw images of 8x8, two threads against two workers: DataLoader on the same
           pack, and on views of an array in memory, the cheapest data set there is.
memory     private memory (RssAnon) over 5 million samples against a thousand, per sample, and after each of 3 epochs.
processes  C104: growth of the PSS of parent and 8 workers over an epoch's part, against the index's size.

    python benchmarks/loader_costs.py --output benchmarks/results/loader_costs.json
    python benchmarks/loader_costs.py --only overhead --first-samples 50000
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

from fastdata.bench.machine import facts
from fastdata.converters.writers import WriterOptions, open_writer
from fastdata.types import Field, Record

PROCESS = Path(__file__).with_name("loader_costs_process.py")


def measured(*arguments: object) -> dict[str, Any]:
    """Return what a process of its own says."""
    command = [sys.executable, str(PROCESS), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    values: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return values


def written(path: Path, samples: int) -> Path:
    """Write a pack of raw images of 8x8."""
    writer = open_writer(path, WriterOptions(samples=samples))
    for i in range(samples):
        image = Field("image", "raw", i.to_bytes(4, "little") * 48)
        writer.write(Record(f"n{i % 1000:08d}_{i}", (image,), i % 1000, 8, 8))
    writer.finish({"classes": [f"n{i:08d}" for i in range(1000)]})
    return path


def first(million: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Return seconds to a first batch: medians of processes of their own."""
    picture = million.with_suffix(".jpg")
    Image.new("RGB", (8, 8)).save(picture)
    ours = [measured("first_fastdata", million)["seconds"] for _ in range(args.rounds)]
    theirs = [measured("first_dataloader", picture, args.first_samples) for _ in range(args.rounds)]
    return {
        "samples": args.first_samples,
        "fastdata_seconds": statistics.median(ours),
        "dataloader_seconds": statistics.median(row["seconds"] for row in theirs),
        "dataloader_list_seconds": statistics.median(row["list_seconds"] for row in theirs),
        "aim_seconds": 0.3,
    }


def order(million: Path, _args: argparse.Namespace) -> dict[str, Any]:
    """Return the memory of the order."""
    return {**measured("order", million), "aim_bytes": 1 << 20}


def overhead(million: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Return microseconds per batch, and the ratios."""
    values = measured("overhead", million, args.seconds)
    ratios = {f"over_{name}": values["fastdata"] / values[name] for name in values if name != "fastdata"}
    return {"microseconds": values, **ratios, "aim": 0.1}


def memory(million: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Return private bytes a sample."""
    few = measured("threads", written(million.with_name("few.lmdb"), 1000), 1)
    many = measured("threads", written(million.with_name("many.lmdb"), args.samples), 3)
    grown = [after - many["import"] - (few["epochs"][0] - few["import"]) for after in many["epochs"]]
    return {
        "samples": args.samples,
        "bytes_a_sample": [value / args.samples for value in grown],
        "epochs_private_bytes": many["epochs"],
        "aim_bytes_a_sample": 96,
    }


def processes(million: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Return how PSS grows over worker processes."""
    many = million.with_name("many.lmdb")
    found = measured("processes", many if many.exists() else million, 8, args.loaded)
    grown = found["pss_after"] - found["pss_before"]
    return {**found, "grown_bytes": grown, "over_index_x_workers": grown / found["index_bytes"] / 8, "aim": 0.1}


PARTS = {"first": first, "order": order, "overhead": overhead, "memory": memory, "processes": processes}


def main() -> None:
    """Measure, print, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=PARTS, help="only this part (may be given often)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each round of the overhead (2)")
    parser.add_argument("--first-samples", type=int, default=1_000_000)
    parser.add_argument("--samples", type=int, default=5_000_000, help="of the memory (5 million)")
    parser.add_argument("--loaded", type=int, default=500_000, help="samples that the worker processes load")
    parser.add_argument("--output", type=Path, help="write the result there as JSON")
    args = parser.parse_args()
    result: dict[str, Any] = {
        "benchmark": "loader_costs",
        "load_average_before": round(os.getloadavg()[0], 2),
        "machine": facts(),
    }
    with tempfile.TemporaryDirectory(prefix="fastdata-costs-") as scratch:
        million = written(Path(scratch) / "million.lmdb", args.first_samples)
        for name, part in PARTS.items():
            if not args.only or name in args.only:
                result[name] = part(million, args)
                print(f"{name}: {json.dumps(result[name], indent=1)}", flush=True)
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
