"""What ``fidelity="fast"`` costs in pixels and accuracy, and what it buys in images a second.

pixels   the same crops with both fidelities, of photographs packed as they are and at 256 pixels: the difference in
         grey levels (mean, 99.9th percentile, most), and the rates, interleaved; by CPU time, too, which others who use
         the machine disturb less.
training the small network of ``fastdata train``, from five seeds with each fidelity: accuracies on pictures that it was
         not trained on (read with the fidelity it was trained with, and exactly), their means and spread. Crops are
         drawn from pictures that are several times larger, so that most are decoded smaller with "fast".

    python benchmarks/fidelity.py --photos DIR --output benchmarks/results/fidelity.json

DIR has a folder for each class; without --photos the sample pictures are drawn.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import Subset
from torchvision import transforms

from fastdata.bench.machine import facts
from fastdata.bench.rounds import interleave
from fastdata.converters import pack
from fastdata.dataset import PackedDataset
from fastdata.engine.cores import usable_cores
from fastdata.loader import FastLoader
from fastdata.sample import draw_samples
from fastdata.stores.opener import open_store
from fastdata.train import build_model

if TYPE_CHECKING:
    from collections.abc import Iterable

FIDELITIES = ("exact", "fast")
SIDE = 64  # of the network's pictures
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TASKS = {
    "RandomResizedCrop(224)": transforms.RandomResizedCrop(224),
    "RandomResizedCrop(64)": transforms.RandomResizedCrop(64),
    "Resize(64), CenterCrop(56)": transforms.Compose([transforms.Resize(64), transforms.CenterCrop(56)]),
}


def loaders(path: Path, task: str, args: argparse.Namespace, count: int) -> dict[str, FastLoader]:
    """Return a loader of the first ``count`` samples for each fidelity, with the same draws."""
    transform = transforms.Compose([TASKS[task], transforms.PILToTensor()])
    return {
        fidelity: FastLoader(
            path, 64, sampler=list(range(count)), num_workers=args.workers, transform=transform, seed=0,
            fidelity=fidelity, engine=True,
        )
        for fidelity in FIDELITIES
    }  # fmt: skip


def one_epoch(loader: Iterable[Any], cpu_seconds: list[float]) -> int:
    """Run one epoch; return the number of its images, and note the CPU time of all threads."""
    start = time.process_time()
    count = sum(len(batch[0]) for batch in loader)
    cpu_seconds.append(time.process_time() - start)
    return count


def pixels(packs: dict[str, Path], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the difference and the rates of every pack and task."""
    rows = []
    for name, path in packs.items():
        with open_store(path) as store:
            count = min(args.images, len(store))
        for task in TASKS:
            made = loaders(path, task, args, count)
            levels = np.zeros(256, np.int64)
            for exact, fast in zip(made["exact"], made["fast"], strict=True):
                difference = (exact[0].short() - fast[0].short()).abs()
                levels += np.bincount(difference.numpy().ravel(), minlength=256)
            for loader in made.values():
                loader.set_epoch(0)
            used: dict[str, list[float]] = {kind: [] for kind in FIDELITIES}
            timings = interleave(
                {kind: partial(one_epoch, loader, used[kind]) for kind, loader in made.items()}, args.rounds
            )
            cpu = {kind: statistics.median(seconds[1:]) / count * 1e6 for kind, seconds in used.items()}
            for loader in made.values():
                loader.close()
            share = np.cumsum(levels) / levels.sum()
            rows.append({
                "pack": name, "task": task, "images": count,
                "mean_difference": round(float((levels * np.arange(256)).sum() / levels.sum()), 4),
                "percentile_99_9": int(np.searchsorted(share, 0.999)),
                "most": int(np.flatnonzero(levels)[-1]),
                "images_per_second": {kind: round(timing.rate) for kind, timing in timings.items()},
                "fast_over_exact": round(timings["fast"].rate / timings["exact"].rate, 3),
                "cpu_microseconds": {kind: round(value) for kind, value in cpu.items()},
                "fast_over_exact_by_cpu": round(cpu["exact"] / cpu["fast"], 3),
            })  # fmt: skip
            print(rows[-1])
    return rows


def split(path: Path) -> tuple[list[int], list[int], int]:
    """Return every fifth sample of each class for the test, the others for training, and the number of classes."""
    with open_store(path) as store:
        classes = [store.label(i) for i in range(len(store))]
    seen: dict[int, int] = {}
    train, test = [], []
    for index, label in enumerate(classes):
        seen[label] = seen.get(label, 0) + 1
        (test if seen[label] % 5 == 0 else train).append(index)
    return train, test, len(seen)


def one_run(path: Path, parts: tuple[list[int], list[int], int], args: argparse.Namespace, fidelity: str, seed: int
            ) -> dict[str, float]:  # fmt: skip
    """Train from a seed with a fidelity; return the accuracies."""
    train, test, classes = parts
    torch.manual_seed(seed)
    norm = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    steps = transforms.Compose(
        [transforms.RandomResizedCrop(SIDE, (0.35, 1)), transforms.RandomHorizontalFlip(), *norm]
    )
    loader = FastLoader(
        Subset(PackedDataset(path, steps), train), 32, shuffle=True, num_workers=args.workers, seed=seed,
        drop_last=True, fidelity=fidelity, engine=True,
    )  # fmt: skip
    model = build_model("small", classes)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.02)
    total = args.epochs * len(loader)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=total)
    for _ in range(args.epochs):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    loader.close()
    look = transforms.Compose([transforms.Resize(72), transforms.CenterCrop(SIDE), *norm])
    return {kind: accuracy(model, Subset(PackedDataset(path, look), test), args, kind) for kind in {fidelity, "exact"}}


def accuracy(model: nn.Module, dataset: Any, args: argparse.Namespace, fidelity: str) -> float:  # noqa: ANN401
    """Return the share of the pictures that the model names rightly."""
    loader = FastLoader(dataset, 64, num_workers=args.workers, fidelity=fidelity, engine=True)
    model.eval()
    with torch.inference_mode():
        right = sum(int((model(images).argmax(1) == labels).sum()) for images, labels in loader)
    loader.close()
    return right / len(dataset)


def training(path: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Return the accuracies of all runs, and whether the fidelities differ beyond their spread."""
    parts = split(path)
    own: dict[str, list[float]] = {fidelity: [] for fidelity in FIDELITIES}
    exactly: list[float] = []
    start = time.perf_counter()
    for seed in range(args.seeds):
        for fidelity in FIDELITIES:
            scores = one_run(path, parts, args, fidelity, seed)
            own[fidelity].append(round(scores[fidelity], 4))
            if fidelity == "fast":
                exactly.append(round(scores["exact"], 4))
            print(f"seed {seed}, {fidelity}: {scores[fidelity]:.3f} ({time.perf_counter() - start:.0f} s)")
    means = {fidelity: statistics.fmean(scores) for fidelity, scores in own.items()}
    variances = [statistics.variance(scores) if len(scores) > 1 else 0.0 for scores in own.values()]
    difference, spread = means["fast"] - means["exact"], math.sqrt(statistics.fmean(variances))
    error = spread * math.sqrt(2 / args.seeds)
    return {
        "network": "small", "side": SIDE, "epochs": args.epochs, "seeds": args.seeds,
        "trained_on": len(parts[0]), "tested_on": len(parts[1]), "chance": round(1 / parts[2], 4),
        "accuracy": own, "fast_read_exactly": exactly,
        "mean": {fidelity: round(mean, 4) for fidelity, mean in means.items()},
        "difference": round(difference, 4), "standard_deviation_of_seeds": round(spread, 4),
        "standard_error_of_difference": round(error, 4), "within_two_standard_errors": abs(difference) <= 2 * error,
        "seconds": round(time.perf_counter() - start),
    }  # fmt: skip


def main() -> None:
    """Measure, print, and write the JSON where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, help="photographs, a folder for each class; default: sample pictures")
    parser.add_argument("--images", type=int, default=500, help="at most so many for the pixels")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--workers", type=int, default=usable_cores())
    parser.add_argument("--only", choices=("pixels", "training"))
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)  # the network beside the loader's threads
    with tempfile.TemporaryDirectory() as folder:
        photos = args.photos
        if photos is None:
            photos = Path(folder, "sample")
            draw_samples(photos, count=600, classes=4)
        packs = {"as they are": Path(folder, "whole.lmdb"), "shorter side 256": Path(folder, "256.lmdb")}
        pack(photos, packs["as they are"], shuffle=True)
        pack(photos, packs["shorter side 256"], shuffle=True, resize=256)
        found: dict[str, Any] = {"machine": facts()}
        if args.only != "training":
            found["pixels"] = pixels(packs, args)
        if args.only != "pixels":
            found["training"] = training(packs["as they are"], args)
            print(json.dumps(found["training"], indent=1))
    if args.output is not None:
        args.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
