"""What Python costs a batch of 256 in steady state: the part "feeder" of engine.py.

A pack of 50,000 tiny records is read by an engine whose decoder does nothing, so that only the feeders' and the
consumer's own work is left: the CPU time of these threads per batch, by the kernel's account, over rounds of an epoch
each. Of that, what numpy does in its loops runs without the interpreter (from 500 elements on it lets the GIL go). It
is the part of a group's preparation (order, fetch, draws, geometry) that grows with the rows, so it is measured by
preparing groups of two sizes, and sorting out an epoch's order; the rest is taken for time in which the GIL is held.
"""

from __future__ import annotations

import io
import statistics
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from fastdata.converters.writers import WriterOptions, open_writer
from fastdata.engine.engine import Engine
from fastdata.engine.runner import Runner, RunnerOptions
from fastdata.engine.sampler import jobs_of_order
from fastdata.engine.source import StoreSource
from fastdata.faults import FaultLog
from fastdata.order import Order
from fastdata.stores.opener import open_store
from fastdata.transforms.draws import draw
from fastdata.transforms.geometry import plan_geometry
from fastdata.types import Field, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from fastdata.engine.batches import Job
    from fastdata.errors import DecodeError
    from fastdata.stores.store import Store
    from fastdata.transforms.plan import Plan
    from fastdata.types import Encoded, Geometry, Levels

__all__ = ["feeder", "feeders_seconds"]

RECORDS, BATCH, SEED = 50_000, 256, 0
FEW, MANY = 1024, 8192  # rows of the two groups; both are large enough for numpy to let the GIL go
NAME = "fastdata-feeder"  # what the engine calls its threads


def feeders_seconds() -> float:
    """Return the CPU seconds that the engine's feeding threads have used, by the kernel's account."""
    total = 0
    for thread in threading.enumerate():
        if thread.name.startswith(NAME):
            total += int(Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text().split()[0])
    return total / 1e9


class NoDecoder:
    """A BatchDecoder that does nothing."""

    def decode_batch(
        self,
        encoded: Encoded,  # noqa: ARG002  the protocol's
        geometry: Geometry,  # noqa: ARG002
        out: NDArray[Any],  # noqa: ARG002
        *,
        levels: Levels | None = None,  # noqa: ARG002
    ) -> dict[int, DecodeError]:
        """Say that all went well."""
        return {}

    def close(self) -> None:
        """Nothing to stop."""


def feeder(scratch: Path, plan: Plan, rounds: int) -> dict[str, Any]:
    """Return microseconds per batch: of the threads, of numpy without the GIL, and what is left."""
    path = scratch / "tiny.lmdb"
    _write(path)
    with open_store(path) as store:
        feeding, consuming = _threads(store, plan, rounds)
        without = _without_gil(store, plan)
    total = [a + b for a, b in zip(feeding, consuming, strict=True)]
    return {
        "batch_size": BATCH,
        "records": RECORDS,
        "rounds": rounds,
        "feeders_microseconds": _both(feeding),
        "consumer_microseconds": _both(consuming),
        "sum_microseconds": _both(total),
        "numpy_without_the_gil_microseconds": round(without, 1),
        "gil_microseconds": {name: round(value - without, 1) for name, value in _both(total).items()},
        "aim_microseconds": 150,
    }


def _both(values: list[float]) -> dict[str, float]:
    return {"median": round(statistics.median(values), 1), "least": round(min(values), 1)}


def _write(path: Path) -> None:
    rng, blobs = np.random.default_rng(0), []
    for _ in range(64):
        width, height = (int(side) for side in rng.integers(8, 40, 2))
        stream = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(stream, "JPEG")
        blobs.append((stream.getvalue(), width, height))
    writer = open_writer(path, WriterOptions(samples=RECORDS))
    for number in range(RECORDS):
        data, width, height = blobs[number % len(blobs)]
        writer.write(Record(f"{number:06d}", (Field("image", "jpeg", data),), number % 10, width, height))
    writer.finish({})


def _jobs() -> Iterator[Job]:
    for epoch in range(1_000_000):
        yield from jobs_of_order(_order(epoch), BATCH, drop_last=True, key=(SEED, epoch))


def _order(epoch: int) -> Order:
    return Order(RECORDS, SEED, epoch)


def _threads(store: Store, plan: Plan, rounds: int) -> tuple[list[float], list[float]]:
    """Return the microseconds of CPU time per batch of the feeders and of the consumer, round by round."""
    engine = Engine(NoDecoder, threaded=True, ahead=3, pinned=False)
    faults = FaultLog("raise", budget=None, total=RECORDS)
    runner = Runner(StoreSource(store), plan, engine.decoder, ring=engine.ring, faults=faults, options=RunnerOptions())
    batches, count = engine.run(_jobs(), runner), RECORDS // BATCH
    feeding, consuming = [], []
    for number in range(rounds + 1):
        used, own = feeders_seconds(), time.thread_time()
        for _ in range(count):
            next(batches)
        if number:  # the first one warms up
            feeding.append((feeders_seconds() - used) / count * 1e6)
            consuming.append((time.thread_time() - own) / count * 1e6)
    batches.close()
    engine.close()
    return feeding, consuming


def _without_gil(store: Store, plan: Plan) -> float:
    """Return the microseconds per batch that numpy works on rows."""
    source, order = StoreSource(store), _order(0)

    def prepare(rows: int) -> None:
        indices, positions = order.indices(0, rows), order.positions(0, rows)
        encoded = source.fetch(indices)
        plan_geometry(plan, draw(plan, SEED, 0, positions), encoded.width, encoded.height)

    few, many = _least(lambda _: prepare(FEW)), _least(lambda _: prepare(MANY))
    sorting = _least(lambda number: _order(number + 1).indices(0, 1))  # another epoch each time: none is remembered
    return (many - few) / (MANY - FEW) * BATCH + sorting / (RECORDS // BATCH)


def _least(call: Callable[[int], object]) -> float:
    """Return the fewest microseconds of CPU time that a call took."""
    taken = []
    for number in range(40):
        start = time.thread_time_ns()
        call(number)
        taken.append(time.thread_time_ns() - start)
    return min(taken) / 1e3
