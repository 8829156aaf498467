"""FastLoader beside its peers: images/s from the same photographs, each peer in the format and set-up it is best in.

Four tables, one for each task: "train" is RandomResizedCrop(224) and a flip, uint8 batches of 64, from photographs
resized to a shorter side of 256 (JPEG, quality 90; or raw pixels); "float" is the same, float32 normalised on the CPU;
"evaluate" is the centre crop of the same files; "original" is "train" from the photographs as they are. Every contender
has a process of its own that waits while the others run; a round is a few epochs of each contender in turn, so that a
machine that slows down slows all of them; medians count, warm cache. torchvision runs with one worker and with two, and
the better one is the measure. Shape and dtype must be equal and the mean within 2 %, or the run stops. Peers that are
not installed are rows that say so. How to install them is in each peers_NAME.py.

    python benchmarks/loaders.py --photos DIR --output benchmarks/results/loaders.json
    python benchmarks/loaders.py --photos DIR --only 'train/*' --only '*/torchvision*' --rounds 3 --images 300
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from peers_process import Contender, Look
from peers_settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

Task = Literal["train", "float", "evaluate"]
TOLERANCE = 0.02  # of the mean in grey levels; 3000 random crops differ by less than 0.01
#: Table to its task, the folder it reads, and its contenders: name, peer, variant.
TABLES: dict[str, tuple[Task, str, Sequence[tuple[str, str, str]]]] = {
    "train": ("train", "resized", [
        ("fastdata lmdb", "fastdata", "lmdb"), ("fastdata hdf5", "fastdata", "hdf5"),
        ("fastdata tar", "fastdata", "tar"), ("fastdata 8 tars", "fastdata", "tars"),
        ("fastdata folder", "fastdata", "folder"), ("fastdata raw", "fastdata", "raw"),
        ("torchvision 1", "torchvision", "1"), ("torchvision 2", "torchvision", "2"),
        ("webdataset pil", "webdataset", "pil"), ("webdataset cv2", "webdataset", "cv2"),
        ("ffcv jpeg", "ffcv", "jpg"), ("ffcv raw", "ffcv", "raw"), ("dali cpu", "dali", ""),
        ("litdata tensor", "litdata", "tensor"), ("litdata pil", "litdata", "pil"), ("spdl", "spdl", ""),
    ]),
    "float": ("float", "resized", [
        ("fastdata lmdb", "fastdata", "lmdb"), ("torchvision 1", "torchvision", "1"),
        ("torchvision 2", "torchvision", "2"),
    ]),
    "evaluate": ("evaluate", "resized", [
        ("fastdata lmdb", "fastdata", "lmdb"), ("torchvision 1", "torchvision", "1"),
        ("torchvision 2", "torchvision", "2"),
    ]),
    "original": ("train", "original", [
        ("fastdata lmdb", "fastdata", "lmdb"), ("fastdata tar", "fastdata", "tar"),
        ("torchvision 1", "torchvision", "1"), ("torchvision 2", "torchvision", "2"),
    ]),
}  # fmt: skip
#: What the project promises: table, contender, over which contender, at least.
AIMS: Sequence[tuple[str, str, str, float]] = (
    ("train", "fastdata lmdb", "torchvision", 3.7),
    ("train", "fastdata lmdb", "ffcv jpeg", 2.0),
    ("train", "fastdata lmdb", "dali cpu", 3.0),
    ("train", "fastdata hdf5", "fastdata lmdb", 0.95),
    ("train", "fastdata tar", "fastdata lmdb", 0.95),
    ("train", "fastdata 8 tars", "fastdata lmdb", 0.95),
    ("train", "fastdata raw", "ffcv raw", 2.5),
    ("evaluate", "fastdata lmdb", "torchvision", 2.6),
    ("original", "fastdata lmdb", "torchvision", 2.5),
    ("original", "fastdata tar", "torchvision", 2.5),
    ("float", "fastdata lmdb", "torchvision", 4.0),
)


@dataclass(slots=True)
class Entry:
    """A contender of one table with what was measured of it."""

    table: str
    name: str
    contender: Contender
    look: Look | None = None
    rates: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Images/s of the median round, 0 where there is none."""
        return statistics.median(self.rates) if self.rates else 0.0

    def row(self, best: float) -> dict[str, Any]:
        """Return the JSON-able row; ``best`` is torchvision's rate."""
        row: dict[str, Any] = {"table": self.table, "loader": self.name}
        if self.contender.failure or self.look is None:
            return row | {"status": self.contender.failure}
        return row | {
            "status": "measured",
            "images_per_second": round(self.rate, 1),
            "ratio_to_torchvision": round(self.rate / best, 3) if best else None,
            "spread": round(max(self.rates) / min(self.rates), 3),
            "first_batch_seconds": round(self.look.first_batch_seconds, 3),
            "private_megabytes": round(self.look.private_megabytes),
            "mean": round(self.look.mean, 2),
            "rounds": [round(rate) for rate in self.rates],
        }


def prepare(photos: Path, scratch: Path, images: int) -> dict[str, Path]:
    """Write ``images`` photographs as they are, and resized by ``pack``; return the two folders."""
    from fastdata.bench.load_bench import image_folder_of
    from fastdata.converters import pack
    from fastdata.stores.opener import open_store

    folders: dict[str, Path] = {}
    resized: dict[str, Any] = {"resize": 256, "quality": 90}
    for name, options in (("original", dict[str, Any]()), ("resized", resized)):
        packed = scratch / f"{name}.lmdb"
        pack(photos, packed, shuffle=True, limit=images, **options)
        with open_store(packed) as store:
            image_folder_of(store, scratch / name)
        packed.unlink()
        folders[name] = scratch / name / "files"
    return folders


def measure(table: str, folder: Path, settings: Settings, args: argparse.Namespace) -> list[Entry]:
    """Open the table's contenders, warm them up, compare their batches, and take the rounds."""
    chosen = [row for row in TABLES[table][2] if _wanted(table, row[0], args.only)]
    entries: list[Entry] = []
    with ExitStack() as stack:
        for name, peer, variant in chosen:
            own = Settings(settings.scratch, variant, TABLES[table][0], settings.batch_size, workers=settings.workers)
            start = time.perf_counter()
            contender = Contender(peer, folder, own, epochs=args.epochs, looked_at=args.looked_at)
            entry = Entry(table, name, stack.enter_context(contender))
            entry.look = contender.warm_up()
            seconds = time.perf_counter() - start
            print(f"{table}/{name}: {contender.failure or 'ready'} ({seconds:.0f} s)", flush=True)
            entries.append(entry)
        compare(entries)
        for _ in range(args.rounds):
            for entry in entries:
                if done := entry.contender.round():
                    entry.rates.append(done[0] / done[1])
    return entries


def compare(entries: Sequence[Entry]) -> None:
    """Stop the run where contenders do not give the same kind of batches."""
    looks = {entry.name: entry.look for entry in entries if entry.look}
    middle = statistics.median(look.mean for look in looks.values()) if looks else 0.0
    for name, look in looks.items():
        first = next(iter(looks.values()))
        if (look.shape, look.dtype) != (first.shape, first.dtype) or abs(look.mean / middle - 1) > TOLERANCE:
            raise SystemExit(f"not a fair comparison: {name} gives {look}, others {first}, mean {middle:.2f}")


def ratios(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return the aims for which both sides were measured, with what came out."""
    found = {(entry.table, entry.name): entry.rate for entry in entries if entry.rate}
    found |= {(table, "torchvision"): best for table in TABLES if (best := best_torchvision(entries, table))}
    return [
        {"table": table, "ratio": f"{name} over {over}", "value": round(found[table, name] / found[table, over], 3),
         "aim": aim}
        for table, name, over, aim in AIMS
        if (table, name) in found and (table, over) in found
    ]  # fmt: skip


def best_torchvision(entries: Sequence[Entry], table: str) -> float:
    """Return the better of torchvision's rates in the table, 0 where it was left out."""
    rates = [entry.rate for entry in entries if entry.table == table and entry.name.startswith("torchvision")]
    return max(rates, default=0.0)


def _wanted(table: str, name: str, only: Sequence[str] | None) -> bool:
    return not only or any(fnmatch(f"{table}/{name}", pattern) for pattern in only)


def report(entries: Sequence[Entry], args: argparse.Namespace, settings: Settings, load: float) -> dict[str, Any]:
    """Return the JSON-able result."""
    from fastdata.bench.machine import facts

    return {
        "benchmark": "loaders",
        "setting": {"images": args.images, "batch_size": settings.batch_size, "size": settings.size,
                    "workers": settings.workers, "rounds": args.rounds, "epochs": args.epochs},
        "rows": [entry.row(best_torchvision(entries, entry.table)) for entry in entries],
        "ratios": ratios(entries),
        "load_average_before": round(load, 2),
        "machine": facts() | {"peers": peer_versions()},
    }  # fmt: skip


def peer_versions() -> dict[str, str]:
    """Return the versions of the peers that are installed."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("ffcv", "numba", "nvidia-dali-cuda130", "nvidia-dali-cuda120", "litdata", "spdl-core", "spdl-io"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def show(result: dict[str, Any]) -> None:
    """Print the tables and the ratios."""
    for table in TABLES:
        rows = [row for row in result["rows"] if row["table"] == table]
        if not rows:
            continue
        print(f"\n{table:18} {'images/s':>9} {'x torchvision':>14} {'spread':>7} {'first batch':>12} {'private':>9}")
        for row in rows:
            if row["status"] != "measured":
                print(f"{row['loader']:18} {row['status']}")
                continue
            ratio = row["ratio_to_torchvision"]
            print(
                f"{row['loader']:18} {row['images_per_second']:9.0f} {ratio or float('nan'):14.2f} "
                f"{row['spread']:7.2f} {row['first_batch_seconds']:10.3f} s {row['private_megabytes']:6} MB"
            )
    print()
    for row in result["ratios"]:
        print(f"{row['table']:9} {row['ratio']:32} {row['value']:6.2f}  (aim {row['aim']})")


def main() -> None:
    """Prepare, measure, print, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True, help="a folder of photographs, a folder for each class")
    parser.add_argument("--images", type=int, default=1000, help="photographs at most (1000)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count, after a warm-up (5)")
    parser.add_argument("--epochs", type=int, default=2, help="epochs of each contender in a round (2)")
    parser.add_argument("--looked-at", type=int, default=3000, help="images of the warm-up, for the means (3000)")
    parser.add_argument("--workers", type=int, default=2, help="threads or processes of each contender (2)")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--only", action="append", metavar="PATTERN", help="TABLE/LOADER, with * (may be given often)")
    parser.add_argument("--scratch", type=Path, help="where packs are written meanwhile (default: a temporary folder)")
    parser.add_argument("--output", type=Path, help="write the result there as JSON")
    args = parser.parse_args()
    load, start, entries = os.getloadavg()[0], time.perf_counter(), list[Entry]()
    with tempfile.TemporaryDirectory(dir=args.scratch, prefix="fastdata-loaders-") as name:
        settings = Settings(Path(name), batch_size=args.batch_size, workers=args.workers)
        folders = prepare(args.photos, Path(name), args.images)
        for table, (_, folder, rows) in TABLES.items():
            if any(_wanted(table, row[0], args.only) for row in rows):
                entries += measure(table, folders[folder], settings, args)
    result = report(entries, args, settings, load) | {"seconds": round(time.perf_counter() - start)}
    show(result)
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
