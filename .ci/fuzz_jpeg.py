# ruff: noqa: INP001  a script, no package
"""Feed the core cut, bit-flipped and spliced JPEGs for some seconds: python .ci/fuzz_jpeg.py SECONDS [SEED].

A crash ends the process (run it under .ci/sanitize); a wrong status or a message that is missing is an AssertionError.
"""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path

import numpy as np
import simplejpeg
from PIL import Image

from fastdata import _native


def seeds(rng: np.random.Generator) -> list[bytes]:
    """Return small JPEGs of every kind that the core decodes."""
    blobs = []
    for width, height in ((40, 56), (97, 33), (16, 16), (200, 120)):
        small = Image.fromarray(rng.integers(0, 256, (5, 7, 3), dtype=np.uint8)).resize((width, height))
        pixels = np.ascontiguousarray(small)
        blobs += [simplejpeg.encode_jpeg(pixels, 85, "RGB", kind) for kind in ("444", "422", "420", "440", "411")]
        for mode, options in (
            ("RGB", {"progressive": True}), ("L", {}), ("CMYK", {}), ("RGB", {"restart_marker_rows": 1}),
            ("RGB", {"restart_marker_blocks": 2, "progressive": True}), ("RGB", {"optimize": True}),
        ):  # fmt: skip
            stream = io.BytesIO()
            small.convert(mode).save(stream, "JPEG", quality=80, **options)
            blobs.append(stream.getvalue())
    folder = Path(__file__).parents[1] / "tests" / "decoding" / "native" / "arithmetic"
    return blobs + [file.read_bytes() for file in sorted(folder.glob("*.jpg"))]


def damage(rng: np.random.Generator, blobs: list[bytes]) -> bytes:
    """Return one of the blobs, spoilt in one of five ways."""
    data = bytearray(blobs[rng.integers(len(blobs))])
    way = rng.integers(5)
    if way == 0:
        del data[rng.integers(1, len(data)) :]
    elif way == 1:
        for at in rng.integers(2, len(data), rng.integers(1, 12)):
            data[at] ^= 1 << int(rng.integers(8))
    elif way == 2:  # noqa: PLR2004  bytes of the header, where sizes and tables are
        for at in rng.integers(2, min(len(data), 700), rng.integers(1, 4)):
            data[at] = int(rng.integers(256))
    elif way == 3:  # noqa: PLR2004  a part of another file
        other = blobs[rng.integers(len(blobs))]
        at = int(rng.integers(2, len(data)))
        data[at:] = other[int(rng.integers(2, len(other))) :]
    else:
        at, length = int(rng.integers(2, len(data))), int(rng.integers(1, 200))
        del data[at : at + length]
    return bytes(data)


def transcode(data: np.ndarray, pixels: np.ndarray, rng: np.random.Generator) -> None:
    """Decode whole, and give restart markers: what both take has the same pixels in both."""
    status, _ = _native.decode_whole(data, pixels)
    rows = int(rng.integers(0, 3))
    given, message, made = _native.transcode(data, rows, 0 if rows else int(rng.integers(1, 20)), 4_000_000)
    assert (given == 0) == bool(made)
    assert given == 0 or message
    if given == status == 0:
        again = np.zeros_like(pixels)
        assert _native.decode_whole(np.frombuffer(made, np.uint8), again)[0] == 0
        assert np.array_equal(pixels, again)


def run(seconds: float, seed: int) -> int:
    """Return how many damaged images were decoded."""
    rng = np.random.default_rng(seed)
    blobs, pool, done = seeds(rng), _native.Pool(2), 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        batch = [np.frombuffer(damage(rng, blobs), np.uint8) for _ in range(64)]
        sizes = [_native.read_header(data)[2:4] for data in batch]
        sizes = [(w, h) if 0 < w * h < 4_000_000 else (1, 1) for w, h in sizes]  # noqa: PLR2004
        n, side = len(batch), int(rng.integers(1, 40))
        whole = np.array([(0, 0, w, h) for w, h in sizes], np.int32)
        box = whole.copy()
        for row in range(0, n, 2):
            (w, h) = sizes[row]
            box[row, 0], box[row, 1] = rng.integers(0, w), rng.integers(0, h)
            box[row, 2], box[row, 3] = rng.integers(box[row, 0] + 1, w + 1), rng.integers(box[row, 1] + 1, h + 1)
        out = np.zeros((n, side, side, 3), np.uint8)
        failed = pool.decode_batch(
            np.array([data.ctypes.data for data in batch], np.uint64),
            np.array([data.size for data in batch], np.int64), np.full(n, 1, np.uint8),
            np.ascontiguousarray(whole[:, 2]), np.ascontiguousarray(whole[:, 3]), box, box.astype(np.float64),
            np.full((n, 2), side, np.int32), np.tile(np.array([0, 0, side, side], np.int32), (n, 1)),
            rng.random(n) < 0.5, rng.random(n) < 0.5, (0, 0, 0),  # noqa: PLR2004
            (int(rng.integers(0, 6)), True, 4_000_000, bool(rng.integers(2)), int(rng.integers(3))), out, None,
        )  # fmt: skip
        assert all(0 < status < 7 and message for _, status, message in failed), failed  # noqa: PLR2004  image_job.hpp
        for data, (w, h) in zip(batch[:8], sizes, strict=False):
            transcode(data, np.zeros((h, w, 3), np.uint8), rng)
        done += n
    pool.close()
    return done


if __name__ == "__main__":
    print(run(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0), "damaged images, no crash")  # noqa: T201, PLR2004
