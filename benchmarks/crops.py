"""Random small crops of large photographs: what restart markers and the core save over decoding whole pictures.

Every contender gives the same number of random crops, as uint8 batches, of the same photographs in the same order; its
crops are its own draws. Rounds are interleaved and medians reported. Contenders:

torchvision      ImageFolder, RandomCrop, PILToTensor and DataLoader's worker processes (kept from round to round)
whole            the core's decode of the whole picture in as many threads, and a crop of the array
plain            FastLoader on a pack of the files as they are
rows             the same packed with --codec keep --restart-rows 1
blocks           the same packed with --codec keep --restart-blocks auto

    python benchmarks/crops.py --photos DIR --output benchmarks/results/crops.json
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

from fastdata.bench.machine import facts
from fastdata.bench.rounds import interleave
from fastdata.converters import pack
from fastdata.decoding.header import probe
from fastdata.decoding.native_decoder import decode_by_core
from fastdata.engine.cores import usable_cores
from fastdata.loader import FastLoader

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

AIM = 5.0
PACKS: dict[str, dict[str, Any]] = {
    "plain": {}, "rows": {"restart_rows": 1}, "blocks": {"restart_blocks": "auto"},
}  # fmt: skip


def copied(photos: Path, folder: Path, side: int) -> Path:
    """Copy the photographs that hold a crop into a folder of one class, as ImageFolder wants it."""
    (folder / "photos" / "all").mkdir(parents=True)
    for file in sorted(photos.rglob("*.jpg")):
        header = probe(file.read_bytes())
        if min(header.width, header.height) >= side:
            shutil.copy(file, folder / "photos" / "all" / file.name)
    return folder / "photos"


def count_images(loader: Any) -> int:  # noqa: ANN401  any loader
    """Run one epoch; return the number of its images."""
    return sum(len(batch[0]) for batch in loader)


def whole(blobs: list[bytes], order: list[int], side: int, threads: ThreadPoolExecutor) -> int:
    """Decode each picture whole, with the core, and cut a crop out."""
    draw = random.Random(0)  # noqa: S311  a fixed choice

    def crop(task: tuple[int, float, float]) -> np.ndarray:
        number, right, down = task
        header = probe(blobs[number])
        pixels = decode_by_core(blobs[number], header)
        assert pixels is not None
        left, top = int(right * (header.width - side + 1)), int(down * (header.height - side + 1))
        return pixels[top : top + side, left : left + side].copy()

    tasks = [(number, draw.random(), draw.random()) for number in order]
    return sum(1 for _ in threads.map(crop, tasks))


def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return rates, their ratios, and what the packs weigh."""
    source = copied(args.photos, folder, args.side)
    files = sorted(source.rglob("*.jpg"))
    blobs = [file.read_bytes() for file in files]
    order = list(range(len(files))) * args.repeat
    transform = transforms.Compose([transforms.RandomCrop(args.side), transforms.PILToTensor()])
    threads = ThreadPoolExecutor(args.workers)
    peer = DataLoader(
        ImageFolder(str(source), transform), args.batch_size, sampler=order, num_workers=args.workers,
        persistent_workers=True,
    )  # fmt: skip
    contenders: dict[str, Callable[[], int]] = {
        "torchvision": partial(count_images, peer),
        "whole": partial(whole, blobs, order, args.side, threads),
    }
    sizes = {"files": sum(map(len, blobs))}
    for name, options in PACKS.items():
        sizes[name] = pack(source, folder / f"{name}.lmdb", workers=1, **options).bytes_out
        loader = FastLoader(
            folder / f"{name}.lmdb", args.batch_size, sampler=order, num_workers=args.workers, transform=transform,
            engine=True,
        )  # fmt: skip
        contenders[name] = partial(count_images, loader)
    timings = interleave(contenders, args.rounds)
    threads.shutdown()
    headers = [probe(blob) for blob in blobs]
    return {
        "photographs": len(files),
        "megapixels": [round(header.pixels / 1e6, 1) for header in headers],
        "side": args.side,
        "crops_a_round": len(order),
        "workers": args.workers,
        "rounds": args.rounds,
        "crops_per_second": {name: round(timing.rate, 1) for name, timing in timings.items()},
        "spread": {name: round(timing.spread, 2) for name, timing in timings.items()},
        "over_torchvision": over(timings, "torchvision"),
        "over_whole": over(timings, "whole"),
        "aim": AIM,
        "bytes_over_files": {name: round(size / sizes["files"], 4) for name, size in sizes.items()},
    }


def over(timings: Any, other: str) -> dict[str, float]:  # noqa: ANN401  a dict of Timing
    """Return each pack's rate over that of ``other``."""
    return {name: round(timings[name].rate / timings[other].rate, 2) for name in PACKS}


def main() -> None:
    """Measure and print; write the JSON where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True, help="photographs much larger than the crops")
    parser.add_argument("--side", type=int, default=512)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--repeat", type=int, default=16, help="crops of each photograph a round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--workers", type=int, default=usable_cores())
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = {"machine": facts(), **measure(args, Path(folder))}
    print(json.dumps({name: value for name, value in found.items() if name != "machine"}, indent=1))
    if args.output is not None:
        args.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
