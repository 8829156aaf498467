"""Who decodes what: each awkward file through each backend, by kind of file; nothing is timed.

python benchmarks/awkward.py FOLDER --output benchmarks/results/awkward.json

FOLDER holds the files and MANIFEST.csv, which says of each what is odd about it and what is expected. Of each kind and
backend the result has how many files the backend's own library decodes, how many take the reference road (Pillow) in
the same call, how many are refused, and the largest difference to Pillow's pixels.
"""

from __future__ import annotations

import argparse
import csv
import json
import warnings
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fastdata.decoding.facade import BACKENDS, decoder, decoders
from fastdata.decoding.header import probe
from fastdata.decoding.jpeg_adapter import AdaptedDecoder
from fastdata.errors import BackendMissingError, DecodeError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastdata.decoding.header_fields import Header
    from fastdata.types import Decoder

USUAL_BITS = 8


def main() -> None:
    """Sort the files by kind, give each to every backend, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "awkward.json")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # of broken EXIF
    backends = {}
    for name in BACKENDS:
        try:
            backends[name] = decoder(name)
        except BackendMissingError as error:
            print(f"{name}: {error}")
    with (args.folder / "MANIFEST.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    kinds: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: {name: Counter() for name in backends})
    files: Counter[str] = Counter()
    for row in rows:
        data = (args.folder / row["file"]).read_bytes()
        kind, reference = kind_of(data), attempt(backends["pillow"], data)
        files[kind] += 1
        for name, decode in backends.items():
            note(kinds[kind][name], decode, data, reference)
    versions = {info.name: info.version for info in decoders() if info.installed}
    table = [
        {"kind": kind, "files": files[kind], "backends": {name: dict(counts) for name, counts in of.items()}}
        for kind, of in sorted(kinds.items())
    ]
    report = {"what": "awkward", "files": len(rows), "versions": versions, "rows": table}
    args.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    for entry in table:
        print(entry["kind"], entry["files"], {n: c for n, c in entry["backends"].items() if n in {"opencv", "native"}})


def attempt(decode: Decoder, data: bytes) -> NDArray[np.uint8] | None:
    """Return the pixels, or None where the file is refused."""
    try:
        return decode(data)
    except DecodeError:
        return None


def note(counts: Counter[str], decode: Decoder, data: bytes, reference: NDArray[np.uint8] | None) -> None:
    """Count what one backend makes of one file."""
    pixels = attempt(decode, data)
    if pixels is None:
        counts["refused"] += 1
    else:
        counts["library" if by_its_library(decode, data) else "reference"] += 1
    if (pixels is None) != (reference is None):
        counts["other verdict"] += 1
    elif pixels is not None and reference is not None:
        difference = int(np.abs(pixels.astype(np.int16) - reference).max())
        counts["largest difference"] = max(counts["largest difference"], difference)


def by_its_library(decode: Decoder, data: bytes) -> bool:
    """Whether the backend's own library gave the pixels."""
    if not isinstance(decode, AdaptedDecoder):
        return True
    header = probe(data)
    if not decode._takes(data, header):  # noqa: SLF001  what is asked here is how it works
        return False
    try:
        pixels = decode._decode(data, header)  # noqa: SLF001
    except Exception:  # noqa: BLE001  each library has its own
        return False
    return pixels is not None and pixels.shape == (header.height, header.width, header.channels)


def kind_of(data: bytes) -> str:
    """Return in words what a file is and what is odd about it."""
    try:
        header = probe(data)
    except DecodeError as error:
        return f"no header that can be read ({type(error).__name__.removesuffix('Error')})"
    return _jpeg(header) if header.codec == "jpeg" else _other(header)


def _jpeg(header: Header) -> str:
    if header.bits != USUAL_BITS or header.process not in {0, 1, 2}:
        return "JPEG, arithmetic, lossless or of more than 8 bits"
    if header.channels not in {1, 3}:
        return "JPEG, CMYK or YCCK"
    if not header.plain:
        return "JPEG, stray bytes between its segments"
    if header.orientation != 1:
        return "JPEG, turned by EXIF"
    return "JPEG, baseline or progressive, grey or colour"


def _other(header: Header) -> str:
    name = {"png": "PNG", "webp": "WebP", "gif": "GIF", "bmp": "BMP", "tiff": "TIFF"}.get(header.codec)
    if name is None:
        return {"jp2": "JPEG 2000", "avif": "AVIF", "heic": "HEIC", "jxl": "JPEG XL"}.get(header.codec, "other formats")
    if header.bits > USUAL_BITS:
        return f"{name}, 16 bit"
    if header.frames != 1 and name != "GIF":
        return f"{name}, several pictures"
    return f"{name}, alpha" if header.alpha and name in {"PNG", "WebP"} else name


if __name__ == "__main__":
    main()
