"""The runner: one job in, one batch out; everything between the index and the tensor of a batch happens here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from fastdata.decoding.header import probe
from fastdata.engine.batches import Batch, BatchInfo, Keys
from fastdata.engine.groups import Prepared
from fastdata.engine.guarded import FILLING_TRIES
from fastdata.errors import BatchShapeError, DecodeError, FastdataError, OptionError, SampleError, StoreError
from fastdata.faults import Fault
from fastdata.transforms.draws import draw
from fastdata.transforms.edges import extended
from fastdata.transforms.geometry import plan_geometry
from fastdata.transforms.pixel_road import fill
from fastdata.types import CODEC_IDS, Encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fastdata.engine.batches import Job
    from fastdata.engine.groups import Group
    from fastdata.engine.slots import SlotRing
    from fastdata.engine.source import MappedSource, Source
    from fastdata.faults import FaultLog
    from fastdata.transforms.plan import Plan
    from fastdata.types import BatchDecoder, Geometry

    _Decoded = tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]

__all__ = ["Runner", "RunnerOptions"]


_ASKED_AHEAD = 1024  # samples that the kernel is told of before their batches come


@dataclass(frozen=True, slots=True)
class RunnerOptions:
    """channels_last: the memory order of the images. as_uint8: leave the cast to the device. verify: check sums.

    threads: how many may share a batch's pixel steps. cold: the records may lie on the disk still.
    """

    channels_last: bool = False
    as_uint8: bool = False
    verify: bool = False
    threads: int = 1
    cold: bool = False


class Runner:
    """Makes batches: fetch, sizes, draws, geometry, decode into a slot, labels. Safe for many threads.

    A sample passes no copy but its decoder's: from the mapped file into its place in the slot.
    """

    def __init__(
        self,
        source: Source,
        plan: Plan,
        decoder: BatchDecoder,
        *,
        ring: SlotRing,
        faults: FaultLog,
        options: RunnerOptions,
    ) -> None:
        """Borrow all; whoever made them closes them."""
        self._source, self._plan, self._decoder = source, plan, decoder
        self._ring, self._faults, self._options = ring, faults, options
        self._levels = None if options.as_uint8 and not plan.finish else plan.levels
        self._channels = plan.channels
        self._grouped = getattr(source, "mapped", False) and not options.verify

    def __call__(self, job: Job) -> Batch:
        """Return the batch of ``job``; raise SampleError where a sample fails and the fault log does not take it.

        It is never empty, so that each rank has as many batches as without faults: where no sample is good, it is
        filled with those that follow in the data set.
        """
        n = len(job.indices)
        faults: list[Fault] = []
        array, good, indices, valid = self._decoded(job, faults)
        if n and not len(good):
            array, good, indices, valid = self._filling(job, faults)
            array, indices, valid = self._settle(array, np.resize(good, n), indices, valid, n)
        elif len(good) < n:
            array, indices, valid = self._settle(array, good, indices, valid, n)
        labels = self._source.labels(indices)
        images = torch.from_numpy(array)
        if array.dtype == np.uint16:  # the bits of bfloat16, which numpy lacks
            images = images.view(torch.bfloat16)
        if self._options.channels_last:
            images = images.permute(0, 3, 1, 2)
        info = BatchInfo(indices, valid, Keys(self._source, indices))
        return Batch(images, None if labels is None else torch.from_numpy(labels), info, faults)

    def _decoded(self, job: Job, faults: list[Fault]) -> _Decoded:
        """Return the slot's array, which of its rows are good, and indices and valid entries of its rows."""
        rows, (encoded, draws, geometry) = self._prepare(job, faults)
        array, out = self._lease(len(job.indices), geometry, job.indices[rows])
        out = out[: len(rows)]
        if self._plan.pixels or self._plan.finish or self._plan.edges != "constant":
            decode: Any = partial(self._decoder.decode_batch, encoded, geometry)
            if self._plan.edges != "constant":
                decode = extended(decode, geometry, self._plan.edges)
            failed = fill(self._plan, draws, out, self._levels, decode, threads=self._options.threads)
        else:
            failed = self._decoder.decode_batch(encoded, geometry, out, levels=self._levels)
        for at, error in sorted(failed.items()):
            self._fault(job.indices[rows[at]], error, faults)
        indices, valid = job.indices, np.ones(len(job.indices), bool) if job.valid is None else job.valid
        if not failed and len(rows) == len(indices):
            return array, rows, indices, valid
        good = np.array([at for at in range(len(rows)) if at not in failed], np.int64)
        return array, good, indices[rows], valid[rows]

    def _filling(self, job: Job, faults: list[Fault]) -> _Decoded:
        """Return what ``_decoded`` does of samples that follow those of ``job``, one at least of which is good."""
        size, none = len(self._source), np.zeros(len(job.indices), bool)
        for step in range(1, 1 + min(FILLING_TRIES, size - 1)):
            found = self._decoded(replace(job, indices=(job.indices + step) % size, valid=none, group=None), faults)
            if len(found[1]):
                return found
        first = faults[0]
        msg = (
            f"every sample of a batch failed, and so did those that were tried in their place; the first: "
            f"{first.key!r} (index {first.index}): {first.reason}"
        )
        raise SampleError(msg)

    def _prepare(
        self, job: Job, faults: list[Fault]
    ) -> tuple[NDArray[np.int64], tuple[Encoded, NDArray[np.float64], Geometry]]:
        """Return the rows of the job that could be fetched, their bytes, draws and geometry."""
        n = len(job.indices)
        if job.group is not None and self._grouped:
            prepared = job.group.prepared(partial(self._prepare_group, job))
            if prepared is not None:
                if self._options.cold:
                    self._ask(job.group.not_asked(job.first + n + _ASKED_AHEAD))
                part = prepared.rows(job.first, job.first + n)
                return np.arange(n), (part.encoded, part.draws, part.geometry)
        rows, encoded = self._fetch(job, faults)
        draws = draw(self._plan, job.seed, job.epoch, job.positions[rows])
        return rows, (encoded, draws, plan_geometry(self._plan, draws, encoded.width, encoded.height))

    def _prepare_group(self, job: Job, group: Group) -> Prepared | None:
        """Prepare the group of ``job``; None where a sample of it needs a look of its own (damaged, size unknown)."""
        try:
            encoded = self._source.fetch(group.indices)
        except StoreError:
            return None
        if not encoded.width.all() or not encoded.height.all():
            return None
        draws = draw(self._plan, job.seed, job.epoch, group.positions)
        try:
            return Prepared(encoded, draws, plan_geometry(self._plan, draws, encoded.width, encoded.height))
        except OptionError:  # it names the batch and row at fault only where the batch is planned by itself
            return None

    def _ask(self, indices: NDArray[np.int64]) -> None:
        if len(indices):
            cast("MappedSource", self._source).will_need(indices)

    def _fetch(self, job: Job, faults: list[Fault]) -> tuple[NDArray[np.int64], Encoded]:
        """Return the rows of the job that could be fetched, and their bytes with their sizes."""
        indices = job.indices
        rows = np.arange(len(indices))
        try:
            encoded = self._source.fetch(indices)
            if self._options.cold and self._grouped:
                self._ask(indices)
        except (StoreError, DecodeError):
            rows = np.array([row for row in rows if self._fetchable(int(indices[row]), faults)], np.int64)
            encoded = self._source.fetch(indices[rows])
        if self._options.verify:
            good = [at for at, row in enumerate(rows) if self._verified(int(indices[row]), faults)]
            rows, encoded = rows[good], _take(encoded, good)
        unknown = np.flatnonzero((encoded.width == 0) | (encoded.height == 0))
        if len(unknown):
            width, height, bad = encoded.width.copy(), encoded.height.copy(), set()
            codec = encoded.codec.copy()
            for at in unknown.tolist():
                try:
                    header = probe(encoded.views[at])
                except DecodeError as error:
                    self._fault(indices[rows[at]], error, faults)
                    bad.add(at)
                else:
                    width[at], height[at] = header.width, header.height
                    codec[at] = codec[at] or CODEC_IDS[header.codec]  # the core takes what is known to be a JPEG
            encoded = replace(encoded, width=width, height=height, codec=codec)
            if bad:
                good = [at for at in range(len(rows)) if at not in bad]
                rows, encoded = rows[good], _take(encoded, good)
        return rows, encoded

    def _lease(self, n: int, geometry: Geometry, indices: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the slot's array, as torch is to see it, and its view as (n, H, W, C)."""
        width, height = self._plan.output_size or self._common_size(geometry, indices)
        dtype = np.dtype(np.uint8) if self._levels is None else self._levels.dtype
        if self._options.channels_last:
            array = self._ring.lease((n, height, width, self._channels), dtype)
            return array, array
        array = self._ring.lease((n, self._channels, height, width), dtype)
        return array, array.transpose(0, 2, 3, 1)

    def _common_size(self, geometry: Geometry, indices: NDArray[np.int64]) -> tuple[int, int]:
        """Return width and height of all rows; raise BatchShapeError naming two that differ."""
        sizes = geometry.rect[:, 2:]
        if not len(sizes):
            return 1, 1
        other = np.flatnonzero((sizes != sizes[0]).any(axis=1))
        if len(other):
            (w0, h0), (w1, h1) = sizes[0].tolist(), sizes[other[0]].tolist()
            k0, k1 = self._source.key(int(indices[0])), self._source.key(int(indices[other[0]]))
            msg = (
                f"samples of different sizes cannot be stacked: {k0!r} is {w0}x{h0}, {k1!r} is {w1}x{h1} (width x "
                "height); give transform=Resize((H, W)), RandomResizedCrop(S) or CenterCrop(S), or batch_size=1"
            )
            raise BatchShapeError(msg)
        return int(sizes[0, 0]), int(sizes[0, 1])

    def _settle(
        self,
        array: NDArray[Any],
        good: NDArray[np.int64],
        indices: NDArray[np.int64],
        valid: NDArray[np.bool_],
        n: int,
    ) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.bool_]]:
        """Return the batch without its failed rows, or with others in their place (on_error="replace")."""
        if self._faults.on_error == "replace":
            taken, filled = np.resize(good, n), np.arange(n) < len(good)
        else:
            taken, filled = good, np.ones(len(good), bool)
        settled = self._ring.lease((len(taken), *array.shape[1:]), array.dtype)
        np.take(array, taken, axis=0, out=settled)
        return settled, indices[taken], valid[taken] & filled

    def _fetchable(self, index: int, faults: list[Fault]) -> bool:
        return self._passes(index, lambda: self._source.fetch(np.array([index])), faults)

    def _verified(self, index: int, faults: list[Fault]) -> bool:
        return self._passes(index, lambda: self._source.check(index), faults)

    def _passes(self, index: int, test: Callable[[], object], faults: list[Fault]) -> bool:
        try:
            test()
        except (StoreError, DecodeError) as error:
            self._fault(index, error, faults)
            return False
        return True

    def _fault(self, index: int | np.int64, error: FastdataError, faults: list[Fault]) -> None:
        """Take note of a failure; batches are made side by side, so the log hears of it when the batch is delivered."""
        key, index = self._source.key(int(index)), int(index)
        if self._faults.on_error == "raise":
            self._faults.add(key, index, error)
        faults.append(Fault(key, index, f"{type(error).__name__}: {error}"))


def _take(encoded: Encoded, rows: Sequence[int]) -> Encoded:
    at = np.array(rows, np.int64)
    return Encoded(
        encoded.address[at],
        encoded.length[at],
        encoded.codec[at],
        encoded.width[at],
        encoded.height[at],
        [encoded.views[i] for i in rows],
        encoded.keep,
    )
