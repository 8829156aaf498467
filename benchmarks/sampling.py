"""What each ``sampling=`` costs, and how well windows mix a set that is sorted by class.

    python benchmarks/sampling.py [--samples 1000000] > results/sampling.json

setup: from the loader's arguments to its order. first: the first 256 positions of an epoch; middle: those behind its
half, as after a resume; in seconds of the processor. sample: microseconds of each further one. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import tracemalloc
from typing import Any

import numpy as np

from fastdata import Balanced, Mixture, Weighted, Windowed
from fastdata.engine.asked_order import sequence_of
from fastdata.order import Order
from fastdata.sampling.bucket_order import BucketOrder, BucketSteps
from fastdata.sampling.shuffle_quality import quality_of
from fastdata.sampling.windows import Windows, runs_of_samples

_BATCH, _MANY = 256, 1 << 16


class Set:
    """n samples of 1000 classes, sorted by class; nothing can be read of them."""

    def __init__(self, n: int) -> None:
        """Make the labels."""
        self.targets = np.arange(n) * 1000 // n

    def __len__(self) -> int:
        """Return n."""
        return len(self.targets)


def cost(n: int, sampling: Any) -> dict[str, float]:  # noqa: ANN401
    """Return processor seconds (sample: microseconds) and the memory that stays, in bytes a sample."""
    from torch.utils.data import ConcatDataset

    data: Any = Set(n)
    if isinstance(sampling, Mixture):
        data = ConcatDataset([Set(n // 2), Set(n - n // 2)])
    tracemalloc.start()
    began = time.process_time()
    sequence = None if sampling is None else sequence_of(sampling, data)
    setup = time.process_time() - began
    orders = [Order(n if sequence is None else len(sequence), 1, epoch, sequence=sequence) for epoch in range(3)]
    first = [_timed(order, 0) for order in orders]
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    order = orders[-1]
    middle = _timed(order, len(order) // 2)
    began = time.process_time()
    for start in range(0, min(_MANY, len(order)), 1024):
        order.indices(start, start + 1024)
    each = (time.process_time() - began) / min(_MANY, len(order)) * 1e6
    row = {"setup": setup, "first": statistics.median(first), "middle": middle, "sample": each}
    return row | {"bytes_a_sample": held / n}


def _timed(order: Order, start: int) -> float:
    began = time.process_time()
    order.indices(start, start + _BATCH)
    return time.process_time() - began


def bucket_cost(n: int) -> dict[str, float]:
    """Return the same for buckets, whose steps are cut one by one."""
    bucket = np.random.default_rng(0).integers(0, 7, n).astype(np.uint16)
    tracemalloc.start()
    began = time.process_time()
    steps = BucketSteps(bucket, _BATCH, world=1, uneven="pad", drop_last=False)
    setup = time.process_time() - began
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    order, times = BucketOrder(steps, 1), []
    for step in (0, len(steps) // 2, *range(1, 200)):
        began = time.process_time()
        order.batch(step)
        times.append(time.process_time() - began)
    each = statistics.median(times[2:]) / _BATCH * 1e6
    return {"setup": setup, "first": times[0], "middle": times[1], "sample": each, "bytes_a_sample": held / n}


def windows(n: int, batch: int) -> list[dict[str, float | None]]:
    """Return the quality by window and runs."""
    found, labels = [], np.arange(n) * 1000 // n
    for runs in (1, 8, 32):
        for share in (0.001, 0.01, 0.05, 0.1, 0.25):
            order = Windows(runs_of_samples(n, int(n * share), runs), runs)
            at = np.linspace(0, n - batch, 4096).astype(np.int64)[:, None] + np.arange(batch)
            samples = order.indices(1, 0, at.ravel()).reshape(at.shape)
            quality = quality_of(list(samples), labels)
            row = {"neighbours": quality.neighbours, "classes": quality.classes, "sequence": quality.sequence}
            found.append({"runs": runs, "window_share": share} | row)
    return found


def main() -> None:
    """Print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--batch-size", type=int, default=16, help="of the windows' quality")
    args = parser.parse_args()
    n = args.samples
    weights = np.random.default_rng(0).random(n)
    asked = {
        "shuffle=True": None,
        "Balanced()": Balanced(),
        "Balanced(replacement=True)": Balanced(replacement=True),
        "Weighted(w)": Weighted(weights),
        "Weighted(w, replacement=False)": Weighted(weights, replacement=False),
        "Windowed(samples=10000)": Windowed(samples=10_000),
        "Mixture([3, 1])": Mixture([3, 1]),
    }
    rows = [{"sampling": name} | cost(n, sampling) for name, sampling in asked.items()]
    rows.append({"sampling": "Buckets(7 sizes)"} | bucket_cost(n))
    result = {"what": "sampling", "samples": n, "costs": rows, "batch_size": args.batch_size}
    print(json.dumps(result | {"windows": windows(n, args.batch_size)}, indent=1))


if __name__ == "__main__":
    main()
