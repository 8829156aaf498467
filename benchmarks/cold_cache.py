"""An epoch over a pack that lies on the disk: mapped with and without advice to the kernel, and with pread.

Before each round the pack's pages are dropped from the page cache (posix_fadvise DONTNEED), by the kernel's leave: the
report says how much of the file was still in memory (mincore).
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import mmap
import os
import statistics
import time
from pathlib import Path

import numpy as np
from torchvision import transforms as T

from fastdata.bench.machine import facts
from fastdata.loader import FastLoader

ADVISED, PLAIN, PREAD, WARM = "mmap, advised", "mmap, not advised", "pread", "mmap, warm"


def main() -> None:
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pack", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    seconds: dict[str, list[float]] = {name: [] for name in (ADVISED, PLAIN, PREAD, WARM)}
    left: list[float] = []
    count = 0
    for _ in range(args.rounds):
        for name, times in seconds.items():
            if name != WARM:
                left.append(evict(args.pack))
            loader = _loader(args.pack, name, args.workers)
            start = time.perf_counter()
            count = sum(len(labels) for _, labels in loader)
            times.append(time.perf_counter() - start)
            loader.close()
            loader.dataset.store.close()  # mapped pages are not dropped
            del loader
            gc.collect()
    rows = [{"way": name, "images_per_second": count / statistics.median(times)} for name, times in seconds.items()]
    report = {"what": "cold_cache", "images": count, "left_in_memory": statistics.median(left), "rows": rows}
    if args.json:
        print(json.dumps({**report, "machine": facts()}, indent=1))
        return
    print(f"{count} images; {100 * report['left_in_memory']:.0f} % of the file was in memory after dropping it")
    for row in rows:
        print(f"{row['way']:20} {row['images_per_second']:8.0f} images/s")


def _loader(pack: Path, name: str, workers: int) -> FastLoader:
    transform = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.PILToTensor()])
    io = "pread" if name == PREAD else "mmap"
    loader = FastLoader(pack, 64, shuffle=True, transform=transform, num_workers=workers, io=io)
    if name in {PLAIN, WARM}:
        loader._cold = False  # noqa: SLF001  the switch that is measured
    return loader


def evict(path: Path) -> float:
    """Drop the file's pages from memory; return the share that stayed."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        pages = -(-len(view) // mmap.PAGESIZE)
        resident = (ctypes.c_ubyte * pages)()
        address = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
        ctypes.CDLL(None, use_errno=True).mincore(ctypes.c_void_p(address), ctypes.c_size_t(len(view)), resident)
        return float(np.frombuffer(resident, np.uint8).astype(bool).mean())


if __name__ == "__main__":
    main()
