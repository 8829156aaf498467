"""How uniform the shuffle of a large set is, beside numpy.random.permutation, and what its order costs.

    python benchmarks/permutation.py [--positions 100000000] > results/permutation.json

Each statistic is given as a number of standard deviations from what a uniform permutation has in the mean, so that
values of about -3 to 3 are what chance gives: samples over positions in 256 x 256 blocks, and by their last six bits
(chi-square); correlation of positions that are 1, 2, 16 and 256 apart; the distance of neighbours, in the mean and in
64 classes. Ours is computed position by position; numpy's is a list of all of them. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdata import FastLoader
from fastdata.order import Order, permute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Part = Callable[[int, int], NDArray[np.int64]]

_CHUNK = 1 << 18
_BLOCKS, _BITS, _CLASSES = 256, 64, 64
_LAGS = (1, 2, 16, 256)


def statistics(n: int, part: Part) -> dict[str, Any]:
    """Return the statistics of the order of n samples that ``part(start, stop)`` gives piece by piece."""
    cells, bits = np.zeros(_BLOCKS * _BLOCKS), np.zeros(_BITS * _BITS)
    classes, distance, near = np.zeros(_CLASSES), 0.0, 0
    products = dict.fromkeys(_LAGS, 0.0)
    seen = np.zeros(n, np.bool_)
    tail = np.empty(0, np.int64)
    middle, spread = (n - 1) / 2, math.sqrt((n * n - 1) / 12)
    for start in range(0, n, _CHUNK):
        order = part(start, min(start + _CHUNK, n))
        at = np.arange(start, start + len(order))
        seen[order] = True
        cells += np.bincount(at * _BLOCKS // n * _BLOCKS + order * _BLOCKS // n, minlength=len(cells))
        bits += np.bincount(at % _BITS * _BITS + order % _BITS, minlength=len(bits))
        joined = np.concatenate((tail, order))
        gap = np.abs(np.diff(joined[max(0, len(tail) - 1) :]))
        distance += float(gap.sum())
        near += int((gap == 1).sum())
        # The distance of two samples has the density 2 (1 - t): its distribution is 1 - (1 - t)^2, made even here.
        even = 1 - (1 - (gap - 0.5) / n) ** 2
        classes += np.bincount((even * _CLASSES).astype(int), minlength=_CLASSES)
        scaled = (joined - middle) / spread
        for lag in _LAGS:
            first = max(0, len(tail) - lag)
            products[lag] += float((scaled[first : len(scaled) - lag] * scaled[first + lag :]).sum())
        tail = joined[-max(_LAGS) :]
    pairs = n - 1
    return {
        "each_once": bool(seen.all()),
        "blocks": _chi(cells, (_BLOCKS - 1) ** 2),
        "last_bits": _chi(bits, (_BITS - 1) ** 2),
        "serial": {str(lag): (products[lag] + 1) / math.sqrt(n) for lag in _LAGS},
        "neighbours_mean": (distance / pairs - (n + 1) / 3) / (n / math.sqrt(18) / math.sqrt(pairs)),
        "neighbours_classes": _chi(classes, _CLASSES - 1),
        "neighbours_kept": near,
    }


def _chi(counts: NDArray[np.float64], free: int) -> float:
    mean = counts.mean()
    return float((((counts - mean) ** 2 / mean).sum() - free) / math.sqrt(2 * free))


def costs(n: int) -> dict[str, float]:
    """Return what an order of n samples takes: its memory, and the time until a first batch of 256, anywhere."""
    Order(n).indices(0, 256)  # imports and tables of numpy's
    tracemalloc.start()
    began = time.perf_counter()
    order = Order(n, seed=3, epoch=1)
    order.indices(0, 256)
    first = time.perf_counter() - began
    peak = tracemalloc.get_traced_memory()[1]
    began = time.perf_counter()
    order.indices(n // 2, n // 2 + 256)
    middle = time.perf_counter() - began
    tracemalloc.stop()
    began = time.perf_counter()
    next(iter(FastLoader(range(n), 256, shuffle=True, seed=3)))
    loader = time.perf_counter() - began
    began = time.perf_counter()
    order.indices(0, 1 << 20)
    return {
        "order_bytes_peak": peak,
        "first_batch_s": first,
        "batch_at_the_middle_s": middle,
        "first_batch_of_loader_s": loader,
        "microseconds_a_sample": (time.perf_counter() - began) / (1 << 20) * 1e6,
    }


def rows(n: int, seeds: list[int]) -> Iterator[dict[str, Any]]:
    """Yield the statistics of ours and of numpy's, seed by seed."""
    for seed in seeds:
        yield {"order": "fastdata", "seed": seed} | statistics(n, _ours(n, seed))
        whole = np.random.default_rng(seed).permutation(n)
        yield {"order": "numpy", "seed": seed} | statistics(n, lambda start, stop, whole=whole: whole[start:stop])


def _ours(n: int, seed: int) -> Part:
    return lambda start, stop: permute(n, seed, 0, np.arange(start, stop))


def main() -> None:
    """Print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--positions", type=int, default=100_000_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    args = parser.parse_args()
    result = {"what": "permutation", "positions": args.positions, "costs": costs(args.positions)}
    print(json.dumps(result | {"rows": list(rows(args.positions, args.seeds))}, indent=1))


if __name__ == "__main__":
    main()
