"""FastLoader: torch's DataLoader with a threaded engine under it where it understands what is asked."""

from __future__ import annotations

import copy
import os
import threading
from collections import deque
from dataclasses import replace
from functools import partial
from itertools import islice
from operator import index
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, default_collate
from torch.utils.data.distributed import DistributedSampler

from fastdata.dataset import PackedDataset, rank_and_world
from fastdata.decoding.facade import backend_in_use, batch_decoder
from fastdata.device_ops import Normalizer
from fastdata.engine import arguments
from fastdata.engine.agreement import where_called
from fastdata.engine.arrival import Arrival
from fastdata.engine.bucket_runner import dataset_of_workers, runner_of, sizes_of
from fastdata.engine.choice import choose
from fastdata.engine.collate import Collator, pinned
from fastdata.engine.cores import usable_cores
from fastdata.engine.course import Course
from fastdata.engine.delivery import Delivery
from fastdata.engine.engine import Engine
from fastdata.engine.explaining import Facts, explain_engine, explain_ranks, explain_workers
from fastdata.engine.guarded import Unguarded
from fastdata.engine.loader_cache import LoaderCache
from fastdata.engine.looking import shuffle_quality
from fastdata.engine.memory import available_memory
from fastdata.engine.mixing import Mixer
from fastdata.engine.own_order import Asked, batches_of, own_sampler
from fastdata.engine.prepared import Preparable
from fastdata.engine.reading import leaf_of
from fastdata.engine.runner import Runner, RunnerOptions
from fastdata.engine.sampler import EpochSampler
from fastdata.engine.seeded import preserved
from fastdata.engine.source import NumberSource
from fastdata.engine.workers import FromWorkers, drawn_info, ending_at_once, own_small, seen_by_workers, taken_valid
from fastdata.errors import OptionError
from fastdata.faults import FaultLog
from fastdata.prefetch import CudaPrefetcher
from fastdata.stores.store import Store
from fastdata.streams import checked_device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from fastdata.engine.batches import Batch, BatchInfo
    from fastdata.engine.choice import Choice
    from fastdata.engine.resume import Progress
    from fastdata.engine.source import Keyed, Source
    from fastdata.order import Uneven
    from fastdata.sampling.shuffle_quality import ShuffleQuality
    from fastdata.sampling.values import Sampling
    from fastdata.stores.reader import Io
    from fastdata.transforms.plan import Plan
    from fastdata.types import BatchDecoder

__all__ = ["FastLoader"]
T_co = TypeVar("T_co", covariant=True)


class FastLoader(Preparable, DataLoader[T_co]):
    """DataLoader with the same arguments, defaults and errors; the first may also be a pack's path or a Store.

    Where the data set is a pack, a PackedDataset or torchvision's ImageFolder, and every step of its transform is
    known, ``num_workers`` threads decode straight into the memory of the batch; else everything is DataLoader's.
    ``explain()`` says which, and why. Batches are (images, labels): images (n, C, H, W), uint8, or floats where the
    transform ends in ToTensor, ToDtype or Normalize; labels (n,) int64, or as the pack has them; only [images] where it
    has none. A batch's memory is the caller's as long as anything refers to it. ``last`` tells keys, indices and valid
    entries of the batch delivered last.
    """

    def __init__(  # noqa: PLR0913, PLR0917  DataLoader's arguments, and what a pack needs beside them
        self,
        dataset: Any,  # noqa: ANN401
        batch_size: int | None = 1,
        shuffle: bool | None = None,  # noqa: FBT001  DataLoader's signature
        sampler: Any = None,  # noqa: ANN401
        batch_sampler: Any = None,  # noqa: ANN401
        num_workers: int | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,  # noqa: FBT001, FBT002
        drop_last: bool = False,  # noqa: FBT001, FBT002
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,  # noqa: ANN401
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        decoder: str = "auto",
        device: str | torch.device | None = None,
        seed: int | None = None,
        on_error: str = "raise",
        max_faults: float | None = None,
        uneven: Uneven | None = None,
        memory_format: torch.memory_format = torch.contiguous_format,
        verify: bool = False,
        io: Io = "mmap",
        cache: str | None = None,
        cache_bytes: int | None = None,
        fidelity: str = "exact",
        mix: Any = None,  # noqa: ANN401  an object of torchvision's
        engine: bool | None = None,
        sampling: Sampling | None = None,
    ) -> None:
        """Take DataLoader's arguments as DataLoader does, and these, by keyword only.

        transform, target_transform: for a path or Store (a Dataset has its own). decoder: "auto" or a name of
        ``fastdata.decoders()``. device: where the batches are wanted; a CUDA device puts the CudaPrefetcher behind the
        loader. seed: same seed, same samples, crops and flips for any number of workers; without it torch's generator
        governs. on_error: "raise", "skip" or "replace" samples that fail (no batch is lost); more than max_faults of
        them (a count, or a share below 1) raise. uneven: what ranks do with a rest ("pad", "drop", "exact"; default:
        pad when shuffled, else exact). memory_format: torch.channels_last for images in that order. verify: check each
        record's checksum when it is read. io: "mmap" or "pread". cache: keep "encoded" records or "decoded" pixels in
        memory after their first use, up to cache_bytes (default: half of what is available), shared by the processes
        of one machine. fidelity: "exact" pixels equal Pillow's within a grey level; "fast" lets the compiled core
        decode smaller what is shrunk, and upsample colours plainly. mix: v2.MixUp, v2.CutMix or v2.RandomChoice of
        them, for whole batches on the device. engine: False is DataLoader's way, True raises where it cannot serve.
        sampling: what comes, and in which order, in place of shuffle and sampler: a value of ``fastdata.sampling``.
        """
        arguments.check_arguments(transform, memory_format, seed)
        packed = isinstance(dataset, (str, os.PathLike, Store))
        if packed:
            dataset = PackedDataset(dataset, transform, target_transform, decoder, io)
            dataset.owner = "engine"
        else:
            arguments.check_transforms(dataset, transform, target_transform)
        if num_workers is None:
            num_workers = usable_cores() if packed else 0
        asked = Asked(packed, batch_size, shuffle, sampler, batch_sampler, drop_last, seed, uneven, generator, sampling)
        self._asked = asked
        own = own_sampler(dataset, asked, rank_and_world)
        if own is not None:
            sampler, shuffle, uneven = own, None, own.uneven
        self.transform, self.target_transform = transform, target_transform
        self.cache, self.cache_bytes = cache, cache_bytes
        self.decoder, self.device, self.seed, self.on_error = decoder, device, seed, on_error
        self.max_faults, self.uneven, self.memory_format = max_faults, uneven, memory_format
        self.verify, self.io, self.engine, self.fidelity, self.mix = verify, io, engine, fidelity, mix
        self.sampling, self._arrival = sampling, Arrival(Mixer.asked(mix, leaf_of(dataset)), CudaPrefetcher)
        self.last: BatchInfo | None = None
        sized = hasattr(dataset, "__len__") and not isinstance(dataset, IterableDataset)
        total = len(dataset) if sized else None
        self.faults = FaultLog(on_error, budget=max_faults, total=total)
        self._engine: Engine | None = None
        self._cold = True
        # Two threads may begin an epoch at once, each its own, or one may close: they share an engine and a course.
        self._beginning = threading.RLock()
        self._cache = LoaderCache.asked(cache, cache_bytes, total or 0, place=rank_and_world)
        if device is not None:
            checked_device(device)
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )
        vars(self)["batch_sampler"] = batches_of(self.sampler, self.batch_sampler)  # DataLoader refuses a plain "="
        self._course = self._course_of(where_called())
        arguments.check_on_error(on_error, max_faults, dataset)
        arguments.warn_of_classes(dataset)
        arguments.EngineAsked(engine, cache, fidelity).check(self._decoder_name(), self._choose)
        mixer = self._arrival.mixer
        if mixer is not None and self.batch_sampler is not None and self._default_collate():
            known = self._known()
            mixer.check(known.plan, known.source if self._target_transform() is None else None)
        arguments.warn_of_no_batch(self.sampler, self.batch_size, drop_last=drop_last)

    def __iter__(self) -> Any:  # noqa: ANN401  DataLoader names its own iterator class
        """Start an epoch: on the engine, or as DataLoader does; on ``device`` either way."""
        with self._beginning:
            choice = self._choose()
            if choice.plan is None or choice.source is None:
                if getattr(leaf_of(self.dataset), "owner", ""):
                    leaf_of(self.dataset).owner = "workers"
                return self._start_workers()
            return self._start(choice.source, choice.plan, choice.plans or (choice.plan,))

    def state_dict(self) -> dict[str, Any]:
        """Return where the user is, as a few numbers, whatever the data set's size: at the batch delivered last.

        Flat: ints, strings and uint8 tensors (of generators, where a sampler of the user's needs them). Raises
        OptionError where batches come in any order, from worker processes with in_order=False.
        """
        if not self.in_order and self.num_workers > 1 and self._choose().plan is None:
            msg = "in_order=False: which batches were delivered is more than a position; a state needs in_order=True"
            raise OptionError(msg)
        return self._course.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next ``iter`` go on behind the batch at which ``state`` was taken; whole epochs follow.

        Nothing that is passed over is read or decoded. num_workers and format may have changed, with FastLoader's own
        order the number of ranks, too. Raises OptionError where the state does not fit. ``set_epoch`` with another
        epoch than the state's begins that epoch instead. Torch's own generators are the user's to save.
        """
        self._course.load_state_dict(state)

    def explain(self) -> str:
        """Return which way the next epoch takes and why, with the steps that were understood, as lines of text."""
        choice = self._choose()
        facts = Facts(
            workers=self.num_workers,
            why=choice.why,
            seed=self.seed,
            copied_to="" if self.device is None else str(self.device),
            on_cuda=self._on_device(),
            fast=self.fidelity == "fast",
            cache="" if self._cache is None else self._cache.explain(),
            collates=not self._default_collate(),
            target_transform=self._target_transform() is not None,
            worker_init=self.worker_init_fn is not None,
            mix="" if self._arrival.mixer is None else self._arrival.mixer.explain(),
            sampling="" if self.sampling is None else repr(self.sampling),
            ranks=explain_ranks(self.sampler, self.uneven, rank_and_world()),
            faults="" if self.on_error == "raise" else f"on_error={self.on_error!r}, max_faults={self.max_faults}",
        )
        if choice.plan is None:
            return explain_workers(facts, map_style=not isinstance(self.dataset, IterableDataset))
        return explain_engine(facts, choice.plan, backend_in_use(self._decoder_name()))

    def shuffle_quality(self) -> ShuffleQuality:
        """Return how the next epoch mixes (1.0: a true shuffle), by up to 65,536 of its samples; nothing is read."""
        return shuffle_quality(self)

    def close(self) -> None:
        """Stop the engine's threads and free the cache; the next ``iter`` starts again. May be called twice."""
        with self._beginning:
            engine, self._engine = self._engine, None
            if engine is not None:
                engine.close()
            if self._cache is not None:
                self._cache.close()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what lives in this process only."""
        # torch pickles a memory format as a name in whichever module is found to have imported torch first.
        name = str(self.memory_format).removeprefix("torch.")
        here = {"_engine": None, "_beginning": None, "last": None}
        return {**self.__dict__, **here, "memory_format": name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the memory format by its name, and a lock of its own."""
        self.__dict__.update(state, _beginning=threading.RLock())
        self.__dict__["memory_format"] = getattr(torch, state["memory_format"])

    def check_worker_number_rationality(self) -> None:
        """Warn of more worker processes than cores, as DataLoader does, where there will be any."""
        if self._choose().plan is None:
            super().check_worker_number_rationality()

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next ``iter`` gives; without it each is the next one."""
        self._course.set_epoch(epoch)
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)

    def _course_of(self, where: str) -> Course:
        """Return the course through the data as the samplers of now have it; where: the loader was made."""
        return Course(
            self.dataset,
            self.sampler,
            self.batch_sampler,
            batch_size=self.batch_size,
            drop_last=self.drop_last,
            seed=self.seed,
            generator=self.generator,
            place=rank_and_world,
            exact=self.uneven == "exact",
            where=where,
            persistent=self.persistent_workers,
        )

    def _share_out(self) -> None:
        """Take an order of the loader's own, shared out by rank, where DataLoader's would give each rank everything."""
        if isinstance(self.sampler, EpochSampler):
            self.sampler.settle()
        if isinstance(self.sampler, DistributedSampler) or rank_and_world()[1] == 1:
            return
        own = own_sampler(self.dataset, self._asked.shared(), rank_and_world)
        # More than one row of padding lies between others where accelerate gathers metrics: its own order is exact.
        if own is None or (not own.shuffle and own.total_size > own.positions + 1):
            return
        batches = None if self.batch_size is None else BatchSampler(own, self.batch_size, self.drop_last)
        vars(self).update(sampler=own, batch_sampler=batches, uneven=own.uneven)
        self._course = self._course_of(where_called())

    @property
    def _index_sampler(self) -> Any:  # noqa: ANN401
        """What DataLoader draws indices from, and asks for its length."""
        return super()._index_sampler if isinstance(self.dataset, IterableDataset) else self._course

    def _get_iterator(self) -> Any:  # noqa: ANN401  DataLoader's own iterator
        """Return DataLoader's iterator over this loader, or over one that differs in what its workers see."""
        changes: dict[str, Any] = {}
        if self._course.keeps_base_seed:
            # A base seed was drawn before; another one must not move the user's generators.
            with preserved():
                seed = int(torch.empty((), dtype=torch.int64).random_().item())
            changes["generator"] = torch.Generator().manual_seed(seed)
        changes |= seen_by_workers(
            dataset_of_workers(self.dataset, self.batch_sampler), self.collate_fn, self.worker_init_fn,
            seeded=self.seed is not None, on_error=self.on_error, one=self.batch_sampler is None,
            shares=self.num_workers > 0,
        )  # fmt: skip
        if not changes:
            return super()._get_iterator()
        seen = copy.copy(self)
        vars(seen).update(changes)
        batches: Any = DataLoader._get_iterator(seen)  # noqa: SLF001
        return ending_at_once(batches) if self.num_workers else batches

    def _choose(self) -> Choice:
        known = self._known()
        if self.engine is False:
            return replace(known, plan=None, why="engine=False")
        if self.batch_sampler is None:
            return replace(known, plan=None, why="batch_size=None: samples come one by one, unbatched")
        return known

    def _known(self) -> Choice:
        """Return what the engine understands, whether or not it is asked for."""
        return choose(self.dataset, PackedDataset, sizes_of(self.sampling))

    def _target_transform(self) -> Callable[[Any], Any] | None:
        """Return the data set's own, which for a path is the loader's."""
        return getattr(leaf_of(self.dataset), "target_transform", None)

    def _default_collate(self) -> bool:
        return self.collate_fn is default_collate

    def _on_device(self) -> bool:
        return self.device is not None and torch.device(self.device).type == "cuda"

    def _decoder_name(self) -> str:
        leaf = leaf_of(self.dataset)
        return leaf.decoder if isinstance(leaf, PackedDataset) else self.decoder

    def _engine_here(self) -> Engine:
        if self._engine is None:
            threads = max(1, index(self.num_workers))  # what is no whole number raises TypeError, as in DataLoader
            make: Callable[[], BatchDecoder] = partial(
                batch_decoder, self._decoder_name(), threads, fast=self.fidelity == "fast"
            )
            ahead = 1 + (self.prefetch_factor or 2)
            pinned = (self._on_device() or self.pin_memory) and torch.cuda.is_available()
            self._engine = Engine(make, threaded=self.num_workers > 0, ahead=ahead, pinned=pinned)
        return self._engine

    def _start(self, source: Source, plan: Plan, plans: Sequence[Plan]) -> Delivery:
        pins = arguments.check_start(self.timeout, self.num_workers, pin=self.pin_memory, to=self.pin_memory_device)
        on_device, collates = self._on_device(), not self._default_collate()
        normalizes = on_device and plan.levels is not None and not plan.finish and not collates
        self.faults = self.faults.anew(len(source))
        if self._cache is not None:
            source = self._cache.wrap(source, self.dataset, plan.mode, self._decoder_name(), self.num_workers)
        options = RunnerOptions(
            self.memory_format == torch.channels_last,
            normalizes,
            self.verify,
            threads=max(1, self.num_workers),
            cold=self._cold,
        )
        # What was read once lies in memory, unless it does not fit there.
        self._cold = 0 < available_memory() < getattr(source, "nbytes", 0)
        engine = self._engine_here()
        make = partial(Runner, ring=engine.ring, faults=self.faults, options=options)
        runner = runner_of([make(source, each, engine.decoder) for each in plans], self.batch_sampler)
        collate = Collator(self.collate_fn if collates else None, self._target_transform(), self.faults)
        # The prefetcher takes batches ahead of their delivery; it keeps their order, and so does this queue.
        infos: deque[BatchInfo] = deque()

        def collate_noted(batch: Batch) -> Any:  # noqa: ANN401
            collated = collate(batch)
            infos.append(batch.info)
            return pinned(collated) if pins and self.device is None else collated

        progress = self._course.begin()
        jobs = self._course.jobs(self._base_seed)
        batches: Iterator[Any] = map(collate_noted, engine.run(jobs, runner, timeout=self.timeout))
        steps: list[Callable[[Any], Any]] = []
        if normalizes:
            steps.append(Normalizer.of_levels(plan.mean, plan.std, plan.divisor, plan.dtype))
        batches = self._arrival.of(batches, self.device, self._course, steps, lambda _: infos[-1].valid)
        return self._delivery(batches, progress, infos.popleft)

    def _start_workers(self) -> Delivery:
        """Start an epoch as DataLoader does; a map-style data set's indices come from the course."""
        progress = self._course.begin()
        batches: Any = super().__iter__()
        if self.num_workers:
            batches = FromWorkers(batches)
        if isinstance(self.dataset, IterableDataset):
            next(islice(batches, progress.before, progress.before), None)  # made again: who knows how to pass over?
        self._course.draw(lambda: batches._base_seed)  # noqa: SLF001  what DataLoader drew for its workers
        source = self._known().source
        keyed: Keyed = NumberSource() if source is None else source
        guard = None
        if self.on_error != "raise":
            self.faults = self.faults.anew(len(self.dataset) if hasattr(self.dataset, "__len__") else None)
            batches = guard = Unguarded(batches, self.faults, keyed.key)
        numbered = self._course.numbered and self.in_order
        valid = partial(taken_valid, progress, guard) if numbered else None
        batches = self._arrival.of(batches, self.device, self._course, [], valid)
        info = partial(drawn_info, progress, keyed, guard) if numbered else None
        return self._delivery(batches, progress, info, failures_drawn=True, own=own_small if self.num_workers else None)

    def _delivery(
        self,
        batches: Iterator[Any],
        progress: Progress,
        next_info: Callable[[], BatchInfo] | None,
        *,
        failures_drawn: bool = False,
        own: Callable[[Any], Any] | None = None,
    ) -> Delivery:
        note = partial(setattr, self, "last")
        batches = self._announced(batches, progress, partial(len, self))
        return Delivery(
            batches, progress, next_info,
            note=note, length=partial(len, self), faults=self.faults, failures_drawn=failures_drawn, own=own,
        )  # fmt: skip

    def _base_seed(self) -> int:
        return int(torch.empty((), dtype=torch.int64).random_(generator=self.generator).item())
