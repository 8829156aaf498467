"""What a picture costs in ``pack --resize 256``, part by part, in microseconds of processor time.

The functions that do the work are wrapped, and a real run with one worker is made again and again; of each call the
least time of all rounds counts, without that of the wrapped calls within, so that other work on the machine does not.
What no wrapper covers is "start". Each wrapper costs what lies around it a microsecond or two. "share" is what
decoding, resizing and encoding are of the whole.

With two workers nothing is wrapped: the processor time of the process that hands out rows and writes, and of its
workers (start and end included), a picture, each the least of the rounds.

    python benchmarks/packing_parts.py --photos DIR [--images 300] [--rounds 9] [--json FILE]
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import resource
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import fastdata
from fastdata.converters import pack
from fastdata.decoding.native_decoder import available

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIDE, QUALITY = 256, 90
MODULES = "fastdata.converters."
#: Where a function is called by its name, and what it does there.
PARTS = {
    "work._read": "read the file",
    "work.probe": "read the header",
    "work.place": "work out the size",
    "work.QuickResizer.resized": "decode and resize",
    "work.encode": "encode",
    "work.channel_sums": "sum up the pixels",
    "content._digest": "digest",
    "work._pack": "what lies between these steps",
    "lmdb_writer.LmdbWriter.write": "index, checksum, batch",
    "lmdb_writer.LmdbWriter._write": "LMDB's transactions",
    "lmdb_writer.LmdbWriter.finish": "finish: index, seal, sync",
    "packing._Run.through": "the loop",
}
THE_WORK = ("read the header", "work out the size", "decode and resize", "encode")


class Clock:
    """Processor time of wrapped calls, each without the wrapped calls within it."""

    def __init__(self) -> None:
        """Start with no calls."""
        self.calls: dict[str, list[int]] = {}
        self._inner = [0]

    def wrap(self, label: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with its calls timed."""
        calls = self.calls.setdefault(label, [])

        def timed(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  the function's own
            self._inner.append(0)
            start = time.thread_time_ns()
            try:
                return function(*args, **kwargs)
            finally:
                whole = time.thread_time_ns() - start
                calls.append(whole - self._inner.pop())
                self._inner[-1] += whole

        return timed


@contextmanager
def wrapped(clock: Clock) -> Iterator[None]:
    """Time all parts meanwhile."""
    patches = []
    for place, label in PARTS.items():
        module, *outer, name = place.split(".")
        owner: Any = importlib.import_module(MODULES + module)
        for attribute in outer:
            owner = getattr(owner, attribute)
        patches.append(mock.patch.object(owner, name, clock.wrap(label, getattr(owner, name))))
    try:
        for patch in patches:
            patch.start()
        yield
    finally:
        for patch in patches:
            patch.stop()


def packed(photos: Path, images: int, workers: int) -> int:
    """Make a pack; return how many pictures are in it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "out.lmdb")
        return pack(photos, path, resize=SIDE, quality=QUALITY, workers=workers, limit=images).samples


def parts(photos: Path, images: int, rounds: int) -> dict[str, float]:
    """Return microseconds a picture of each part, by one worker."""
    least: dict[str, list[int]] = {}
    count = 0
    for _ in range(rounds):
        clock = Clock()
        with wrapped(clock):
            count = clock.wrap("start", packed)(photos, images, 1)
        for label, calls in clock.calls.items():
            before = least.setdefault(label, calls)
            if len(before) != len(calls):
                msg = f"{label}: {len(before)} calls in one round, {len(calls)} in another"
                raise RuntimeError(msg)
            least[label] = [min(pair) for pair in zip(before, calls, strict=True)]
    return {label: round(sum(calls) / count / 1e3, 1) for label, calls in least.items() if calls}


def processor_seconds() -> tuple[float, float]:
    """Return this process's and its ended children's."""
    each = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    own, children = (usage.ru_utime + usage.ru_stime for usage in each)
    return own, children


def two_workers(photos: Path, images: int, rounds: int) -> dict[str, float]:
    """Return microseconds a picture of the process that writes and of its two workers."""
    spent = []
    for _ in range(rounds):
        before = processor_seconds()
        count = packed(photos, images, 2)
        after = processor_seconds()
        spent.append([(b - a) / count * 1e6 for a, b in zip(before, after, strict=True)])
    own, children = (round(min(values), 1) for values in zip(*spent, strict=True))
    return {"writing_process": own, "workers": children}


def main() -> None:
    """Parse, measure, print the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photos", type=Path, required=True, help="a folder of JPEG photographs")
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path, help="write the result there, too")
    args = parser.parse_args()
    one = parts(args.photos, args.images, args.rounds)
    whole = sum(one.values())
    result = {
        "benchmark": "the parts of pack --resize 256, microseconds of processor time a picture",
        "one_worker": dict(sorted(one.items(), key=lambda part: -part[1])),
        "whole": round(whole, 1),
        "share": round(sum(one[label] for label in THE_WORK) / whole, 3),
        "two_workers": two_workers(args.photos, args.images, args.rounds),
        "images": args.images,
        "rounds": args.rounds,
        "compiled_core": available(),
        "load_average": os.getloadavg()[0],
        "machine": platform.machine(),
        "python": platform.python_version(),
        "version": fastdata.__version__,
    }
    text = json.dumps(result, indent=2)
    print(text)
    if args.json:
        args.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
