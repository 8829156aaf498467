"""What the compiled core does per core: RandomResizedCrop-like crops of real photographs, and the resample alone.

Every candidate gets the same images and boxes; rounds of all candidates are interleaved and medians reported, so that a
machine that slows down slows all of them. Times are CPU time of the process (all its threads), so that others who use
the machine count less.

    python benchmarks/native_core.py --photos DIR [--images 300] [--rounds 5] [--json FILE]
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import platform
import random
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import simplejpeg
from PIL import Image

from fastdata import _native
from fastdata.decoding.native_decoder import NativeBatchDecoder
from fastdata.types import CODEC_IDS, Encoded, Geometry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SIDE, OUT, QUALITY = 256, 224, 90


def packed(folder: Path, count: int, *, blocks: int | None = None) -> list[bytes]:
    """Return ``count`` photographs as a pack has them: shorter side 256, quality 90.

    blocks: with a restart marker after at least so many blocks, in places where the core can cut columns too; 0: one
    after each row of blocks; None: no markers.
    """
    files = sorted(folder.rglob("*.jpg"))
    random.Random(0).shuffle(files)  # noqa: S311  a fixed choice
    blobs = []
    for file in files[:count]:
        image = Image.open(file).convert("RGB")
        scale = SIDE / min(image.size)
        small = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BILINEAR)
        stream = io.BytesIO()
        columns = math.ceil(small.width / 16)  # blocks of 4:2:0
        marker = min((k for k in range(blocks or columns, columns + 1) if columns % k == 0), default=columns)
        small.save(stream, "JPEG", quality=QUALITY, restart_marker_blocks=0 if blocks is None else marker)
        blobs.append(stream.getvalue())
    return blobs


def encoded(blobs: Sequence[bytes], sizes: Sequence[tuple[int, int]], codec: str) -> Encoded:
    """Return the blobs as the engine hands them over."""
    arrays = [np.frombuffer(blob, np.uint8) for blob in blobs]
    return Encoded(
        address=np.array([array.ctypes.data for array in arrays], np.uint64),
        length=np.array([array.size for array in arrays], np.int64),
        codec=np.full(len(blobs), CODEC_IDS[codec], np.uint8),
        width=np.array([size[0] for size in sizes], np.int32),
        height=np.array([size[1] for size in sizes], np.int32),
        views=[memoryview(blob) for blob in blobs],
        keep=arrays,
    )


def crops(sizes: Sequence[tuple[int, int]]) -> list[tuple[int, int, int, int]]:
    """Return a RandomResizedCrop box (scale 0.08 to 1, ratio 3/4 to 4/3) for each size."""
    draw = random.Random(1)  # noqa: S311  a fixed choice
    boxes = []
    for width, height in sizes:
        box = (0, 0, width, height)
        for _ in range(10):
            area = width * height * draw.uniform(0.08, 1.0)
            ratio = math.exp(draw.uniform(math.log(3 / 4), math.log(4 / 3)))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                left, top = draw.randint(0, width - w), draw.randint(0, height - h)
                box = (left, top, left + w, top + h)
                break
        boxes.append(box)
    return boxes


def geometry(boxes: Sequence[tuple[int, int, int, int]], *, flips: bool = True) -> Geometry:
    """Return boxes resampled to 224 x 224, every second one mirrored."""
    n = len(boxes)
    box = np.array(boxes, np.int32)
    return Geometry(
        box=box,
        window=box.astype(np.float64),
        size=np.full((n, 2), OUT, np.int32),
        rect=np.tile(np.array([0, 0, OUT, OUT], np.int32), (n, 1)),
        hflip=(np.arange(n) % 2 == 0) & flips,
        vflip=np.zeros(n, np.bool_),
    )


def by_pillow(blobs: Sequence[bytes], where: Geometry, out: np.ndarray) -> None:
    """Decode whole with simplejpeg; crop, resize and flip with Pillow and numpy."""
    for row, blob in enumerate(blobs):
        image = Image.fromarray(simplejpeg.decode_jpeg(blob)).crop(tuple(int(edge) for edge in where.box[row]))
        pixels = np.asarray(image.resize((OUT, OUT), Image.Resampling.BILINEAR))
        out[row] = pixels[:, ::-1] if where.hflip[row] else pixels


def candidates(blobs: list[bytes]) -> dict[str, Callable[[], object]]:
    """Return what is measured: each call does all images once, on one core."""
    sizes = [Image.open(io.BytesIO(blob)).size for blob in blobs]
    n = len(blobs)
    data, where = encoded(blobs, sizes, "jpeg"), geometry(crops(sizes))
    whole = geometry([(0, 0, *size) for size in sizes])
    hwc = np.empty((n, OUT, OUT, 3), np.uint8)
    chw = np.empty((n, 3, OUT, OUT), np.uint8).transpose(0, 2, 3, 1)
    floats = np.empty((n, 3, OUT, OUT), np.float32).transpose(0, 2, 3, 1)
    levels = np.tile(np.linspace(-2, 2, 256, dtype=np.float32), (3, 1))
    square = [bytes(np.random.default_rng(row).integers(0, 256, SIDE * SIDE * 3, dtype=np.uint8)) for row in range(8)]
    raw = encoded(square * 8, [(SIDE, SIDE)] * 64, "raw")
    squares = geometry([(0, 0, SIDE, SIDE)] * 64)
    same = geometry([(16, 16, 16 + OUT, 16 + OUT)] * 64, flips=False)
    arrays = [np.empty((height, width, 3), np.uint8) for width, height in sizes]
    made: dict[str, Callable[[], object]] = {
        "simplejpeg whole, Pillow crop + resize + flip": lambda: by_pillow(blobs, where, hwc),
        "simplejpeg whole decode alone": lambda: [simplejpeg.decode_jpeg(blob) for blob in blobs],
        "core whole decode alone": lambda: [
            _native.decode_whole(np.frombuffer(blob, np.uint8), array)
            for blob, array in zip(blobs, arrays, strict=True)
        ],
    }
    for kernels in ("generic", "avx2", "avx512"):
        try:
            pool = NativeBatchDecoder(1, kernels=kernels)
        except ValueError:
            continue  # not on this processor
        made[f"core crop, HWC ({kernels})"] = lambda pool=pool: pool.decode_batch(data, where, hwc)
        made[f"resample 256 -> 224, RGB ({kernels})"] = lambda pool=pool: pool.decode_batch(raw, squares, hwc[:64])
    best = NativeBatchDecoder(1)
    fast = NativeBatchDecoder(1, fast=True)
    made["core crop, CHW"] = lambda: best.decode_batch(data, where, chw)
    made["core crop, CHW float32"] = lambda: best.decode_batch(data, where, floats, levels=levels)
    made["core whole picture, HWC"] = lambda: best.decode_batch(data, whole, hwc)
    made["core crop, HWC, fast"] = lambda: fast.decode_batch(data, where, hwc)
    made["crop of raw 224 x 224, no resample"] = lambda: best.decode_batch(raw, same, hwc[:64])
    return made


def camera_candidates(folder: Path) -> tuple[dict[str, Callable[[], object]], int]:
    """Return random 512 x 512 crops of large photographs, with and without restart rows, and their whole decode."""
    draw, side = random.Random(2), 512  # noqa: S311  a fixed choice
    plain, sliced, tiled, sizes = [], [], [], []
    for file in sorted(folder.rglob("*.jpg")):
        image = Image.open(file).convert("RGB")
        columns = math.ceil(image.width / 16)  # blocks of 4:2:0
        blocks = min((k for k in range(8, columns + 1) if columns % k == 0), default=columns)
        kinds = ((plain, {}), (sliced, {"restart_marker_rows": 1}), (tiled, {"restart_marker_blocks": blocks}))
        for blobs, options in kinds:
            stream = io.BytesIO()
            image.save(stream, "JPEG", quality=QUALITY, **options)
            blobs.append(stream.getvalue())
        sizes.append(image.size)
    corners = [(draw.randint(0, w - side), draw.randint(0, h - side)) for w, h in sizes]
    box = np.array([(x, y, x + side, y + side) for x, y in corners], np.int32)
    n = len(sizes)
    where = Geometry(
        box=box, window=box.astype(np.float64), size=np.full((n, 2), side, np.int32),
        rect=np.tile(np.array([0, 0, side, side], np.int32), (n, 1)), hflip=np.zeros(n, np.bool_),
        vflip=np.zeros(n, np.bool_),
    )  # fmt: skip
    out = np.empty((n, side, side, 3), np.uint8)
    arrays = [np.empty((height, width, 3), np.uint8) for width, height in sizes]
    pool = NativeBatchDecoder(1)
    with_rows, without = encoded(sliced, sizes, "jpeg"), encoded(plain, sizes, "jpeg")
    with_tiles = encoded(tiled, sizes, "jpeg")
    total = sum(map(len, plain))
    more = [f"{sum(map(len, blobs)) / total - 1:.2%}" for blobs in (sliced, tiled)]
    print(f"bytes more with restart rows {more[0]}, with restart tiles {more[1]}")
    return {
        "camera photograph, whole (core)": lambda: [
            _native.decode_whole(np.frombuffer(blob, np.uint8), array)
            for blob, array in zip(plain, arrays, strict=True)
        ],
        "camera photograph, whole (simplejpeg)": lambda: [simplejpeg.decode_jpeg(blob) for blob in plain] and None,
        "512 x 512 of it, ordinary JPEG": lambda: pool.decode_batch(without, where, out),
        "512 x 512 of it, restart rows": lambda: pool.decode_batch(with_rows, where, out),
        "512 x 512 of it, restart tiles": lambda: pool.decode_batch(with_tiles, where, out),
    }, n


def measure(made: dict[str, Callable[[], object]], counts: dict[str, int], rounds: int) -> list[dict[str, object]]:
    """Run every candidate ``rounds`` times, interleaved; return medians."""
    times: dict[str, list[float]] = {name: [] for name in made}
    for name, call in made.items():
        failed = call()
        if isinstance(failed, dict) and failed:
            print(f"{name}: {len(failed)} failed: {next(iter(failed.values()))}")
    for _ in range(rounds):
        for name, call in made.items():
            start = time.process_time()
            call()
            times[name].append((time.process_time() - start) / counts[name])
    return [
        {
            "what": name,
            "microseconds": round(statistics.median(values) * 1e6, 1),
            "images_per_second": round(1 / statistics.median(values)),
            "spread_percent": round(100 * (max(values) - min(values)) / statistics.median(values), 1),
        }
        for name, values in times.items()
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True, help="a folder with JPEG photographs")
    parser.add_argument("--camera", type=Path, default=None, help="a folder with photographs of several megapixels")
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    blobs = packed(options.photos, options.images)
    made = candidates(blobs)
    counts = {name: 64 if "256 -> 224" in name or "raw" in name else len(blobs) for name in made}
    for blocks, what in ((0, "restart rows"), (4, "restart tiles of 4 blocks"), (2, "restart tiles of 2 blocks")):
        tiles = packed(options.photos, options.images, blocks=blocks)
        name = f"core crop, CHW, {what}"
        made[name] = candidates(tiles)["core crop, CHW"]
        counts[name] = len(tiles)
        print(f"{what}: {sum(map(len, tiles)) / sum(map(len, blobs)) - 1:+.2%} bytes")
    if options.camera:
        more, count = camera_candidates(options.camera)
        made |= more
        counts |= dict.fromkeys(more, count)
    rows = measure(made, counts, options.rounds)
    print(f"{len(blobs)} photographs, shorter side {SIDE}, q{QUALITY}; RandomResizedCrop({OUT}); CPU time, medians")
    for row in rows:
        print(f"{row['what']:48} {row['microseconds']:>9} us {row['images_per_second']:>9} images/s"
              f"  +-{row['spread_percent']} %")  # fmt: skip
    if options.json:
        about = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count(),
                 "libjpeg_turbo": _native.libjpeg, "kernels": _native.kernels(), "images": len(blobs)}  # fmt: skip
        options.json.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
