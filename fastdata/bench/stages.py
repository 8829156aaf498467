"""Which of reading, decoding and transforms binds a loader on a pack: the time of each, an image, in one thread."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdata.decoding.facade import batch_decoder
from fastdata.engine.batches import Job
from fastdata.engine.runner import Runner, RunnerOptions
from fastdata.engine.slots import SlotRing
from fastdata.engine.source import StoreSource
from fastdata.errors import OptionError
from fastdata.faults import FaultLog
from fastdata.order import permute
from fastdata.transforms.compile import compile_transform
from fastdata.transforms.plan import Plan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastdata.errors import DecodeError
    from fastdata.stores.store import Store
    from fastdata.types import BatchDecoder, Encoded, Geometry, Levels

__all__ = ["stage_times"]


class _Timed:
    """A BatchDecoder that counts the seconds of another."""

    def __init__(self, decoder: BatchDecoder) -> None:
        """Borrow the decoder."""
        self._decoder, self.seconds = decoder, 0.0

    def decode_batch(
        self, encoded: Encoded, geometry: Geometry, out: NDArray[Any], *, levels: Levels | None = None
    ) -> dict[int, DecodeError]:
        """Decode, and count."""
        start = time.perf_counter()
        failed = self._decoder.decode_batch(encoded, geometry, out, levels=levels)
        self.seconds += time.perf_counter() - start
        return failed

    def close(self) -> None:
        """Close the decoder."""
        self._decoder.close()


def stage_times(store: Store, transform: Any, *, batch_size: int, images: int = 1000) -> dict[str, Any]:  # noqa: ANN401
    """Return microseconds an image of reading, decoding and transforms, and which takes most ("binds").

    In one thread, over at most ``images`` images in a shuffled order, each batch once to warm up. Reading: every byte
    is looked at. Decoding: with the crop, the resize and the cast that happen in it. Transforms: all else that makes a
    batch: draws, geometry, steps on pixels, labels. Raises OptionError for a transform that the engine does not know.
    """
    plan = compile_transform(transform)
    if not isinstance(plan, Plan):
        msg = f"the engine does not take this transform: {plan.reason}"
        raise OptionError(msg)
    source, decoder = StoreSource(store), _Timed(batch_decoder("auto", 1))
    runner = Runner(
        source, plan, decoder, ring=SlotRing(), faults=FaultLog("skip", total=len(store)), options=RunnerOptions()
    )
    count = min(images, len(store))
    order = permute(len(store), 0, 0, np.arange(count))
    spent = {"reading": 0.0, "decoding": 0.0, "transforms": 0.0}
    try:
        for at in range(0, count, batch_size):
            indices = order[at : at + batch_size]
            job = Job(indices, np.arange(at, at + len(indices)), 0, 0)
            runner(job)
            start = time.perf_counter()
            for view in source.fetch(indices).views:
                np.bitwise_or.reduce(np.frombuffer(view, np.uint8))
            read, decoder.seconds = time.perf_counter(), 0.0
            runner(job)
            done = time.perf_counter()
            spent["reading"] += read - start
            spent["decoding"] += decoder.seconds
            spent["transforms"] += done - read - decoder.seconds
    finally:
        decoder.close()
    microseconds = {name: seconds / count * 1e6 for name, seconds in spent.items()}
    return {"microseconds": microseconds, "binds": max(microseconds, key=lambda name: microseconds[name])}
