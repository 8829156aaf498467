"""How well a window mixes a stream that is sorted by class: distinct classes in a batch over those of a true shuffle.

Only pipes are read through a window; every pack that can be read at random gets a full permutation (quality 1.0).
"""

from __future__ import annotations

import argparse
import json

import numpy as np

from fastdata.dataset import _windowed
from fastdata.order import permute


def main() -> None:
    """Print quality by window, as a table or as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--each", type=int, default=100, help="samples of each class")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    n = args.classes * args.each
    labels = np.repeat(np.arange(args.classes), args.each)
    true = _distinct(labels[permute(n, 1, 0, np.arange(n))], args.batch_size)
    rows = []
    for share in (0.001, 0.01, 0.05, 0.1, 0.25, 0.5):
        window = int(n * share)
        mixed = np.fromiter(_windowed(iter(labels.tolist()), window, 1, 0), np.int64, n)
        ranks = np.corrcoef(np.arange(n), mixed)[0, 1]
        quality = _distinct(mixed, args.batch_size) / true
        rows.append({"window_share": share, "quality": quality, "order_correlation": float(ranks)})
    if args.json:
        print(
            json.dumps({"what": "shuffle_window", "samples": n, "batch_size": args.batch_size, "rows": rows}, indent=1)
        )
        return
    print(f"{n} samples sorted into {args.classes} classes, batches of {args.batch_size}")
    for row in rows:
        print("window {window_share:>6.1%} of the set: {quality:.3f} of a true shuffle's classes, order correlation "
              "{order_correlation:.2f}".format(**row))  # fmt: skip


def _distinct(labels: np.ndarray, size: int) -> float:
    rows = labels[: len(labels) // size * size].reshape(-1, size)
    return float(np.mean([len(set(row)) for row in rows.tolist()]))


if __name__ == "__main__":
    main()
