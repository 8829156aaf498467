"""Decode backends over the same bytes in memory: speed on one thread and on many, pixels against Pillow."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdata.bench.machine import facts
from fastdata.bench.rounds import interleave
from fastdata.decoding.facade import decoder, decoders
from fastdata.decoding.header import probe
from fastdata.engine.cores import usable_cores
from fastdata.errors import DecodeError, OptionError
from fastdata.stores.opener import open_store

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from fastdata.types import Decoder

__all__ = ["bench_decode"]

_REFERENCE = "pillow"


def bench_decode(
    path: str | os.PathLike[str],
    *,
    limit: int = 500,
    rounds: int = 5,
    threads: int | None = None,
    backends: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Return a JSON-able report: one row a backend and number of threads, all over the same ``limit`` images.

    Every decode is whole (Pillow's lazy open is inside the measurement, with its load). An image that any backend
    refuses is left out of all timings and listed. Raises OptionError if nothing is left.
    """
    installed = {info.name: info.version for info in decoders() if info.installed}
    names = [name for name in backends or installed if name != _REFERENCE]
    known = {name: decoder(name) for name in (_REFERENCE, *names)}
    with open_store(path) as store:
        keys = [store.key(i) for i in range(min(limit, len(store)))]
        images = [bytes(store.read(i)) for i in range(len(keys)) if store.codec(i) != "raw"]
    refused, differences = _compare(known, keys, images)
    good = [data for key, data in zip(keys, images, strict=False) if not any(key in rows for rows in refused.values())]
    if not good:
        msg = f"{path}: no image that every backend decodes; refused: {refused}"
        raise OptionError(msg)
    headers = [probe(data) for data in good]
    megapixels = sum(h.width * h.height for h in headers) / 1e6
    megabytes = sum(map(len, good)) / 1e6
    many = threads or usable_cores()
    rows = []
    for count in sorted({1, many}):
        timings = interleave({name: _run(decode, good, count) for name, decode in known.items()}, rounds)
        base = timings[_REFERENCE].rate
        for name, timing in timings.items():
            seconds = timing.median
            rows.append(
                {
                    "backend": name,
                    "version": installed.get(name, ""),
                    "threads": count,
                    "images_per_second": timing.rate,
                    "megabytes_per_second": megabytes / seconds,
                    "megapixels_per_second": megapixels / seconds,
                    "ratio_to_pillow": timing.rate / base,
                    "spread": timing.spread,
                    **differences[name],
                    "refused": refused[name],
                }
            )
    return {
        "what": "decode",
        "images": len(good),
        "megapixels_each": megapixels / len(good),
        "kilobytes_each": 1000 * megabytes / len(good),
        "rounds": rounds,
        "rows": rows,
        "machine": facts(),
    }


def _run(decode: Decoder, images: list[bytes], threads: int) -> Callable[[], int]:
    def alone() -> int:
        for data in images:
            decode(data)
        return len(images)

    def together() -> int:
        parts = [images[start::threads] for start in range(threads)]
        with ThreadPoolExecutor(threads) as pool:
            for done in pool.map(lambda part: [len(decode(data)) for data in part], parts):
                assert done is not None
        return len(images)

    return alone if threads == 1 else together


def _compare(
    known: dict[str, Decoder], keys: list[str], images: list[bytes]
) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, float]]]:
    """Return what each backend refuses, by key, and how far its pixels are from Pillow's."""
    refused: dict[str, dict[str, str]] = {name: {} for name in known}
    largest = dict.fromkeys(known, 0)
    total = dict.fromkeys(known, 0.0)
    count = dict.fromkeys(known, 0)
    for key, data in zip(keys, images, strict=False):
        pixels = {}
        for name, decode in known.items():
            try:
                pixels[name] = decode(data)
            except DecodeError as error:
                refused[name][key] = str(error)
        reference = pixels.get(_REFERENCE)
        for name, found in pixels.items():
            if reference is None or found.shape != reference.shape:
                continue
            gap = np.abs(found.astype(np.int16) - reference)
            largest[name] = max(largest[name], int(gap.max()))
            total[name] += float(gap.sum())
            count[name] += gap.size
    differences = {
        name: {"largest_difference": largest[name], "mean_difference": total[name] / max(1, count[name])}
        for name in known
    }
    return refused, differences
