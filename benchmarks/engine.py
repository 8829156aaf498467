"""What the engine itself costs: what of the core's speed reaches the user, and where the engine would be the limit.

core      the loader's rate over that of the core alone, given the same batches with their geometry computed before;
          also over threads x the rate of one thread.
gil       the rate of a thread that counts in Python beside the loader, over its rate alone, with one decoding thread
          (so that a core is free for it).
feeder    CPU time of Python per batch of 256 in steady state, without decoding (engine_feeder.py says how it is taken).
threads   the loader's rate with 1, 2, ... decoding threads.
saturate  a simulated decoder of fixed cost per image with 1 to 256 threads: it keeps the time such a pool would need
          and sleeps (without the GIL); where the engine gives less than the pool would, the engine binds.
first     seconds from the construction of a loader to its first batch, with 2 and with 10 threads.
memory    private memory (RssAnon) of a process that loads, over that of one that only imported torch.

    python benchmarks/engine.py --photos DIR --output benchmarks/results/engine.json
    python benchmarks/engine.py --pack PACK --only core --only gil --rounds 3
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from engine_feeder import feeder
from torchvision import transforms

from fastdata.bench.machine import facts
from fastdata.bench.rounds import interleave
from fastdata.converters import pack
from fastdata.decoding.facade import batch_decoder
from fastdata.engine.cores import usable_cores
from fastdata.engine.engine import Engine
from fastdata.engine.runner import Runner, RunnerOptions
from fastdata.engine.sampler import jobs_of_order
from fastdata.engine.source import StoreSource
from fastdata.faults import FaultLog
from fastdata.loader import FastLoader
from fastdata.order import Order
from fastdata.stores.opener import open_store
from fastdata.transforms.compile import compile_transform
from fastdata.transforms.draws import draw
from fastdata.transforms.geometry import plan_geometry
from fastdata.transforms.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from fastdata.engine.batches import Job
    from fastdata.errors import DecodeError
    from fastdata.types import Encoded, Geometry, Levels

SIZE, SEED = 224, 0
IMAGE_SECONDS = 0.0002  # of the simulated decoder: about what the core needs for a 256 px photograph
MEMORY = """
import sys
from pathlib import Path
import torch
def private():
    return next(int(l.split()[1]) for l in Path("/proc/self/status").read_text().splitlines() if l[:8] == "RssAnon:")
import_only = most = private()
if len(sys.argv) > 1:
    from torchvision import transforms as T
    from fastdata import FastLoader
    tf = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.PILToTensor()])
    loader = FastLoader(sys.argv[1], 64, shuffle=True, num_workers=int(sys.argv[2]), transform=tf, engine=True)
    for _ in range(3):
        for images, labels in loader:
            most = max(most, private())
print(import_only, most)
"""


def transform() -> Any:  # noqa: ANN401  torchvision has no types
    """Return RandomResizedCrop and a flip, uint8."""
    return transforms.Compose(
        [transforms.RandomResizedCrop(SIZE), transforms.RandomHorizontalFlip(), transforms.PILToTensor()]
    )


def loader_of(path: Path, batch: int, threads: int) -> FastLoader:
    """Return a FastLoader that must use the engine."""
    settings: dict[str, Any] = {"shuffle": True, "drop_last": True, "engine": True, "seed": SEED}
    return FastLoader(str(path), batch, num_workers=threads, transform=transform(), **settings)


def epoch(loader: Any) -> int:  # noqa: ANN401
    """Return how many images an epoch gave."""
    count = 0
    for images, _ in loader:
        count += len(images)
    return count


def jobs_of(samples: int, batch: int, epochs: int = 1) -> Iterator[Job]:
    """Yield the jobs of shuffled epochs, as FastLoader would."""
    for number in range(epochs):
        order = Order(samples, SEED, number, True, 0, 1, "pad")  # noqa: FBT003  positional value
        yield from jobs_of_order(order, batch, drop_last=True, key=(SEED, number))


def plan_of() -> Plan:
    """Return the transform's plan."""
    plan = compile_transform(transform())
    assert isinstance(plan, Plan)
    return plan


def core(path: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Return the loader's rate over the core's: same batches, same threads."""
    with ExitStack() as stack:
        store = stack.enter_context(open_store(path))
        plan, batches = plan_of(), []
        for job in jobs_of(len(store), args.batch_size):
            encoded = store.fetch(job.indices)
            values = draw(plan, job.seed, job.epoch, job.positions)
            batches.append((encoded, plan_geometry(plan, values, encoded.width, encoded.height)))
        out = np.empty((args.batch_size, 3, SIZE, SIZE), np.uint8).transpose(0, 2, 3, 1)

        def bare(threads: int) -> Callable[[], int]:
            decoder = batch_decoder("auto", threads)
            stack.callback(decoder.close)

            def run() -> int:
                for encoded, geometry in batches:
                    assert not decoder.decode_batch(encoded, geometry, out)
                return sum(len(encoded) for encoded, _ in batches)

            return run

        loader = loader_of(path, args.batch_size, args.threads)
        stack.callback(loader.close)
        same = next(iter(loader))[0].numpy()
        batch_decoder("auto", 1).decode_batch(*batches[0], out)
        assert np.array_equal(same, out.transpose(0, 3, 1, 2)), "loader and core were not given the same work"
        timings = interleave(
            {"loader": lambda: epoch(loader), "core": bare(args.threads), "core_1_thread": bare(1)}, args.rounds
        )
    rates = {name: timing.rate for name, timing in timings.items()}
    return {
        "images_per_second": {name: round(rate) for name, rate in rates.items()},
        "spread": {name: round(timing.spread, 3) for name, timing in timings.items()},
        "loader_over_core": round(rates["loader"] / rates["core"], 3),
        "loader_over_threads_x_core_1_thread": round(rates["loader"] / (args.threads * rates["core_1_thread"]), 3),
        "aim": 0.9,
    }


class Counter:
    """A thread that counts in Python until it is stopped; its rate is what is left of the interpreter."""

    def __init__(self) -> None:
        """Start counting."""
        self._count, self._stop = 0, False
        self._thread = threading.Thread(target=self._run)
        self._start = time.perf_counter()
        self._thread.start()

    def rate(self) -> float:
        """Stop; return counts per second."""
        self._stop = True
        self._thread.join()
        return self._count / (time.perf_counter() - self._start)

    def _run(self) -> None:
        while not self._stop:
            for _ in range(1000):
                self._count += 1


def gil(path: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Return how a thread counts beside the loader."""
    batch, alone, beside = 256, [], []
    loader = loader_of(path, batch, 1)
    epoch(loader)
    for _ in range(args.rounds):
        counter = Counter()
        time.sleep(1)
        alone.append(counter.rate())
        counter, start = Counter(), time.perf_counter()
        while time.perf_counter() - start < 1:
            epoch(loader)
        beside.append(counter.rate())
    loader.close()
    return {
        "decoding_threads": 1,
        "batch_size": batch,
        "counting_beside_over_alone": round(statistics.median(beside) / statistics.median(alone), 3),
        "aim_counting": 0.85,
    }


def feeder_of(path: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Return what Python costs a batch; from a pack of tiny records, not from ``path``."""
    del path
    with tempfile.TemporaryDirectory(prefix="fastdata-feeder-") as scratch:
        return feeder(Path(scratch), plan_of(), 3 * args.rounds)


def threads(path: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Return the loader's rate with 1 to all threads."""
    counts = sorted({1, 2, args.threads})
    loaders: dict[str, FastLoader] = {str(count): loader_of(path, args.batch_size, count) for count in counts}
    timings = interleave({name: partial(epoch, one) for name, one in loaders.items()}, args.rounds)
    for loader in loaders.values():
        loader.close()
    rates = {name: round(timing.rate) for name, timing in timings.items()}
    return {"images_per_second": rates, "2_over_1": round(rates["2"] / rates["1"], 3), "aim": 1.9}


class SimulatedDecoder:
    """A BatchDecoder that takes the time of a pool of ``count`` threads and touches no pixel."""

    def __init__(self, count: int) -> None:
        """Have the pool free from the start."""
        self._seconds, self._free, self._lock = IMAGE_SECONDS / count, 0.0, threading.Lock()

    def decode_batch(
        self,
        encoded: Encoded,
        geometry: Geometry,  # noqa: ARG002  the protocol's
        out: NDArray[Any],  # noqa: ARG002
        *,
        levels: Levels | None = None,  # noqa: ARG002
    ) -> dict[int, DecodeError]:
        """Return when the pool, which all callers share, would be done."""
        with self._lock:
            self._free = max(self._free, time.perf_counter()) + len(encoded) * self._seconds
            wait = self._free - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        return {}

    def close(self) -> None:
        """Nothing to stop."""


def saturate(path: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Return the engine's rate on a simulated pool beside what that pool would give."""
    rows = []
    with open_store(path) as store:
        for count, batch in itertools.product((1, 2, 4, 8, 16, 32, 64, 128, 256), sorted({args.batch_size, 256})):
            rates = [_simulated(store, count, batch) for _ in range(min(3, args.rounds))]
            rate, pool = statistics.median(rates), count / IMAGE_SECONDS
            rows.append(
                {"threads": count, "batch_size": batch, "images_per_second": round(rate), "pool": round(pool),
                 "share": round(rate / pool, 3)}
            )  # fmt: skip
    return {
        "image_microseconds": IMAGE_SECONDS * 1e6,
        "rows": rows,
        "most": {str(size): max(row["images_per_second"] for row in rows if row["batch_size"] == size)
                 for size in sorted({args.batch_size, 256})},
    }  # fmt: skip


def _simulated(store: Any, count: int, batch: int) -> float:  # noqa: ANN401
    engine = Engine(lambda: SimulatedDecoder(count), threaded=True, ahead=3, pinned=False)
    runner = Runner(
        StoreSource(store), plan_of(), engine.decoder,
        ring=engine.ring, faults=FaultLog("raise", budget=None, total=len(store)), options=RunnerOptions(),
    )  # fmt: skip
    done, start = 0, 0.0
    for made in engine.run(jobs_of(len(store), batch, epochs=10_000), runner):
        if not start:
            start = time.perf_counter()  # the first batch warms up
            continue
        if time.perf_counter() - start > 0.5:  # noqa: PLR2004  seconds
            break
        done += len(made.images)
    seconds = time.perf_counter() - start
    engine.close()
    return done / seconds


def first(path: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Return the seconds to a first batch."""
    found: dict[str, Any] = {}
    for count in (2, 10):
        times = []
        for _ in range(args.rounds):
            start = time.perf_counter()
            loader = loader_of(path, args.batch_size, count)
            next(iter(loader))
            times.append(time.perf_counter() - start)
            loader.close()
        found[f"seconds_{count}_threads"] = round(statistics.median(times), 4)
    return found | {"aim": 0.1}


def memory(path: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Return private megabytes (10**6 bytes), each in a fresh process."""

    def megabytes(*arguments: str) -> list[float]:
        done = subprocess.run(
            [sys.executable, "-c", MEMORY, *arguments], check=True, capture_output=True, text=True
        ).stdout.split()
        return [int(kilobytes) * 1024 / 1e6 for kilobytes in done]

    bare, (_, loading) = megabytes()[0], megabytes(str(path), str(args.threads))
    return {
        "import_of_torch_megabytes": round(bare),
        "loading_megabytes": round(loading),
        "over_the_import": round(loading - bare),
        "aim": 200,
    }


PARTS = {
    "core": core,
    "gil": gil,
    "feeder": feeder_of,
    "threads": threads,
    "saturate": saturate,
    "first": first,
    "memory": memory,
}


def main() -> None:
    """Measure, print, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--photos", type=Path, help="a folder of photographs; they are packed at 256, quality 90")
    source.add_argument("--pack", type=Path, help="a pack that exists, of 256 images or more")
    parser.add_argument("--only", action="append", choices=PARTS, help="only this part (may be given often)")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (7)")
    parser.add_argument("--threads", type=int, default=usable_cores(), help="decoding threads (all cores)")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--output", type=Path, help="write the result there as JSON")
    args = parser.parse_args()
    result: dict[str, Any] = {
        "benchmark": "engine",
        "setting": {"threads": args.threads, "batch_size": args.batch_size, "rounds": args.rounds},
        "load_average_before": round(os.getloadavg()[0], 2),
        "machine": facts(),
    }
    with tempfile.TemporaryDirectory(prefix="fastdata-engine-") as scratch:
        path = args.pack
        if path is None:
            path = Path(scratch) / "photos.lmdb"
            pack(args.photos, path, resize=256, quality=90)
        for name, part in PARTS.items():
            if not args.only or name in args.only:
                start = time.perf_counter()
                result[name] = part(path, args)
                print(f"{name} ({time.perf_counter() - start:.0f} s): {json.dumps(result[name], indent=1)}", flush=True)
    if args.output:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
