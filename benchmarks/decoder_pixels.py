"""How far each decoder's pixels are from Pillow's, by chroma subsampling: JPEGs of 4:2:0 and of 4:4:4.

    python benchmarks/decoder_pixels.py DIR --output benchmarks/results/decoder_pixels.json

DIR has photographs, at any depth. Each is encoded anew (quality 90) with both subsamplings, so that the same pictures
are compared, and decoded whole by every installed backend, and by the compiled core with fidelity="fast". Differences
are in grey levels, over all pixels and channels: mean, 99.9th percentile, largest.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image
from torchvision import transforms

from fastdata.bench.machine import facts
from fastdata.decoding.facade import decoder, decoders
from fastdata.loader import FastLoader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Counts = NDArray[np.int64]

SUBSAMPLINGS = {"4:2:0": 2, "4:4:4": 0}
FAST = "native, fidelity fast"


def encoded(photos: list[Path], folder: Path) -> dict[str, list[Path]]:
    """Write each photograph with both subsamplings; return the files."""
    files: dict[str, list[Path]] = {name: [] for name in SUBSAMPLINGS}
    for number, path in enumerate(photos):
        with Image.open(path) as image:
            picture = image.convert("RGB")
        for name, subsampling in SUBSAMPLINGS.items():
            to = folder / name.replace(":", "") / f"{number:05}.jpg"
            to.parent.mkdir(exist_ok=True)
            picture.save(to, quality=90, subsampling=subsampling)
            files[name].append(to)
    return files


def counted(found: NDArray[np.uint8], reference: NDArray[np.uint8]) -> Counts:
    """Return how many values differ by 0, 1, ... 255 levels."""
    gap = np.maximum(found, reference) - np.minimum(found, reference)
    return np.bincount(gap.ravel(), minlength=256)


def fast(folder: Path) -> Iterator[NDArray[np.uint8]]:
    """Yield the pictures of a folder, in order, as fidelity="fast" decodes them whole."""
    loader = FastLoader(folder, 1, transform=transforms.PILToTensor(), fidelity="fast", num_workers=1, uneven="exact")
    for (images,) in loader:
        yield images[0].permute(1, 2, 0).numpy()


def row(backend: str, subsampling: str, counts: Counts) -> dict[str, Any]:
    """Return one line of the report."""
    levels, total = np.arange(256), counts.sum()
    return {
        "backend": backend,
        "subsampling": subsampling,
        "mean": float((counts * levels).sum() / total),
        "percentile_99_9": int(np.searchsorted(counts.cumsum(), 0.999 * total)),
        "largest": int(np.flatnonzero(counts).max()),
        "share_that_differs": float(1 - counts[0] / total),
    }


def main() -> None:
    """Print the table; write the report where --output says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--images", type=int, default=1000, help="at most so many")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    photos = sorted(args.photos.rglob("*.jpg"))[: args.images]
    known = {info.name: decoder(info.name) for info in decoders() if info.installed and info.name != "pillow"}
    names = [*known, FAST] if "native" in known else [*known]
    counts: dict[tuple[str, str], Counts] = {}
    with tempfile.TemporaryDirectory() as folder:
        for subsampling, files in encoded(photos, Path(folder)).items():
            quick = fast(files[0].parent) if "native" in known else iter(())
            for path in files:
                data = path.read_bytes()
                with Image.open(io.BytesIO(data)) as image:
                    reference = np.asarray(image)
                pixels = {name: decode(data) for name, decode in known.items()} | dict(zip([FAST], quick, strict=False))
                for name, found in pixels.items():
                    at = name, subsampling
                    counts[at] = counts.get(at, np.zeros(256, np.int64)) + counted(found, reference)
    versions = {info.name: info.version for info in decoders()}
    report = {
        "what": "decoder_pixels",
        "images": len(photos),
        "quality": 90,
        "pillow": versions["pillow"],
        "rows": [
            {"version": versions.get(name, versions["native"]), **row(name, subsampling, counts[name, subsampling])}
            for name in names
            for subsampling in SUBSAMPLINGS
        ],
        "machine": facts(),
    }
    for line in report["rows"]:
        print("{backend:22} {subsampling} mean {mean:.4f}, 99.9 % {percentile_99_9}, largest {largest}".format(**line))
    if args.output:
        args.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
