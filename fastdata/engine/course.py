"""The course of a loader through its data: which batches come, from which on, and how many were delivered."""

from __future__ import annotations

from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, IterableDataset, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from fastdata.engine.agreement import compare_with_ranks
from fastdata.engine.arguments import warn_of_the_same_order
from fastdata.engine.batches import Job
from fastdata.engine.resume import Layout, Progress, load, save
from fastdata.engine.sampler import BucketBatches, EpochSampler, jobs_of_order, positions_of
from fastdata.engine.seeded import global_states, preserved, restore, seeds
from fastdata.order import Order
from fastdata.sampling.bucket_order import BucketSteps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from fastdata.sampling.bucket_order import BucketOrder

__all__ = ["Course"]


class Course:
    """Gives each epoch's batches from the one that is due; the engine asks for jobs, a DataLoader iterates indices.

    begin says that an epoch begins; ``jobs`` and ``iter`` (which may be called more than once, as DataLoader does)
    give the batches of the epoch begun last. With a seed, what a map-style data set's workers get is not an index but
    (index, seed of its draws). Nothing is drawn, and no sampler is touched, before the first batch is asked for, but
    where DataLoader does so, too.
    """

    def __init__(  # noqa: PLR0913  what DataLoader knows of its batches
        self,
        dataset: Any,  # noqa: ANN401
        sampler: Any,  # noqa: ANN401
        batch_sampler: Any,  # noqa: ANN401
        *,
        batch_size: int | None,
        drop_last: bool,
        seed: int | None,
        generator: torch.Generator | None,
        place: Callable[[], tuple[int, int]],
        exact: bool = False,
        where: str = "",
        persistent: bool = False,
    ) -> None:
        """Borrow all; batch_sampler None means that samples come one by one. exact: torch's padding is marked, too.

        place: says (rank, world size) of this process. where: in the program the loader was made. persistent:
        DataLoader's workers are, which draw their base seed once, with the first epoch.
        """
        self._dataset, self._sampler = dataset, getattr(batch_sampler, "sampler", sampler)
        self._batches = sampler if batch_sampler is None else batch_sampler
        self._one_by_one = batch_sampler is None
        self._batch_size, self._drop_last, self._seed = batch_size, drop_last, seed
        plain = batch_sampler is None or type(batch_sampler) in {BatchSampler, BucketBatches}
        self._order = sampler if plain and isinstance(sampler, EpochSampler) else None
        self._stream = isinstance(dataset, IterableDataset)
        self._place, self._where, self._compared = place, where, False
        inner = getattr(self._sampler, "generator", None)
        named = {"loader": generator, "sampler": inner if inner is not generator else None}
        self._generators = {name: g for name, g in named.items() if isinstance(g, torch.Generator)}
        pure = self._order is not None or self._stream
        pure = pure or type(self._sampler) in {SequentialSampler, DistributedSampler}
        padded = type(self._sampler) is DistributedSampler and not self._sampler.drop_last
        self._marks_padding = exact and padded
        self._draws = not (pure and (plain or self._stream))
        self._persistent, self._draw_seed, self._warned = persistent, -1, False
        self._epochs, self._told = 0, self._sampler_epoch()
        self._due: Progress | None = None
        self.progress = Progress()

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch."""
        return len(self._batches)

    @property
    def numbered(self) -> bool:
        """Whether ``progress.drawn`` will tell what the workers' batches hold."""
        return self._order is not None

    @property
    def place(self) -> tuple[int, int, int]:
        """The number in its epoch of the batch that is due, this rank, and how many ranks there are."""
        return self.progress.before, *self._rank_and_world()

    def key(self) -> Callable[[], tuple[int, int]]:
        """Return what gives (seed, epoch) of the draws of the epoch begun last, once its first batch was asked for."""
        return partial(self._key, self.progress)

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next one is; one that a loaded state goes on with stays where it is."""
        self._epochs = epoch
        for target in {id(t): t for t in (self._batches, self._sampler)}.values():
            if hasattr(target, "set_epoch"):
                target.set_epoch(epoch)

    def begin(self) -> Progress:
        """Begin an epoch: the one of a loaded state, unless another was asked for since, or the next."""
        due, self._due = self._due, None
        told = self._sampler_epoch()
        if told != self._told:
            self._epochs = told  # somebody called the sampler's own set_epoch: draws follow it, as the order does
        elif self.progress.finished and due is None and not self._warned:
            self._warned = warn_of_the_same_order(self._sampler)
        self._told = told
        if due is not None and (due.epoch, due.sampler_epoch) == (self._epoch(), self._sampler_epoch()):
            self.progress = due
        else:
            self.progress = Progress(self._epoch(), self._sampler_epoch())
        if self._order is not None:
            self._order.peek()  # an order that has become impossible is told before anything starts
            self._compare(self._order)
        self.progress.begun = True
        self._epochs = self.progress.epoch + 1
        return self.progress

    def jobs(self, base_seed: Callable[[], int]) -> Iterator[Job]:
        """Return the jobs of the epoch begun last; base_seed is called unless the draws have their seed already."""
        progress = self.progress
        batches = None if self._order is not None else self._drawn_batches(progress)
        # DataLoader draws its base seed after iter(sampler), whose own draws come with the first index: the same here.
        self.draw(base_seed)
        if batches is None:
            return self._jobs_of_order(self._ordered(progress), progress)
        return self._jobs_of_sampler(progress, batches)

    @property
    def keeps_base_seed(self) -> bool:
        """Whether DataLoader's workers would have their base seed already: a new one must move no generator."""
        return self.progress.again or (self._persistent and self._draw_seed >= 0)

    def draw(self, base_seed: Callable[[], int]) -> None:
        """Give the epoch begun last the seed of its draws, unless a state brought it, by DataLoader's base seed."""
        progress = self.progress
        if progress.draw_seed < 0 and self._persistent and self._draw_seed >= 0:
            progress.draw_seed = seeds(self._draw_seed, 0, np.zeros(1, np.int64))[0] >> 1  # 63 bits, as torch's
        elif progress.draw_seed < 0:
            progress.draw_seed = base_seed()
        self._draw_seed = progress.draw_seed

    def __iter__(self) -> Iterator[Any]:
        """Return the indices of the epoch begun last, batch by batch or one by one, as DataLoader hands them out."""
        progress = self.progress
        if self._order is not None:
            return self._indices_of_order(progress)
        return self._indices_of_sampler(progress, self._drawn_batches(progress))

    def state_dict(self) -> dict[str, Any]:
        """Return where the user is: at the batch delivered last, or where a loaded state or set_epoch says."""
        progress = self._due or self.progress
        between = self._due is None and (progress.finished or not progress.begun)
        if between and self._epoch() != progress.epoch + progress.finished:
            progress = Progress(self._epoch(), self._sampler_epoch())
        return save(progress, self._layout(), self._random(progress))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next epoch go on where ``state`` was taken; raise OptionError if it does not fit."""
        due = load(state, self._layout())
        self._draw_seed = due.draw_seed
        for name, generator in self._generators.items():
            if name in due.random and not (self._draws and due.started and not due.finished):
                generator.set_state(due.random[name])
        if due.finished:
            counts = isinstance(self._sampler, EpochSampler)
            due = Progress(due.epoch + 1, due.sampler_epoch + int(counts))
        self._epochs = due.epoch
        if self._order is not None:
            self._order.set_epoch(due.epoch)
        elif hasattr(self._sampler, "set_epoch"):
            self._sampler.set_epoch(due.sampler_epoch)
        elif self._stream and hasattr(self._dataset, "set_epoch"):
            self._dataset.set_epoch(due.epoch)
        self._told = self._sampler_epoch()
        self._due = due

    def _layout(self) -> Layout:
        kind = "stream" if self._stream else "sampler" if self._order is None else "order"
        positions, sampling = 0, ""
        if self._order is not None and self._order.sampling is not None:
            positions = self._order.positions
            sampling = f"{self._order.sampling!r} of {positions} samples"
            kind = "batches" if isinstance(self._order.drawn, BucketSteps) else kind
        length = 0 if self._stream or not hasattr(self._dataset, "__len__") else len(self._dataset)
        size = 1 if self._one_by_one else self._batch_size or 0
        shuffle = self._order is not None and self._order.shuffle
        return Layout(kind, length, size, self._rank_and_world()[1], shuffle, self._seed, positions, sampling)

    def _rank_and_world(self) -> tuple[int, int]:
        sampler = self._sampler
        if isinstance(sampler, EpochSampler):
            sampler.settle()
        return (sampler.rank, sampler.num_replicas) if isinstance(sampler, DistributedSampler) else self._place()

    def _compare(self, order: EpochSampler) -> None:
        """Raise OptionError, at the first epoch, where another rank shares out another order than this one."""
        if self._compared or order.num_replicas == 1:
            return
        self._compared = True
        from_start = not self.progress.again
        compare_with_ranks(
            self._where,
            {
                "shuffle": order.shuffle,
                "seed": (self.progress.order_seed if self.progress.started else order.seed) if order.shuffle else 0,
                "samples": order.positions,
                "sampling": repr(order.sampling),
                "batch_size": self._batch_size,
                "drop_last": self._drop_last,
                "uneven": order.uneven,
                "resumed": "no" if from_start else f"at epoch {self.progress.epoch}, batch {self.progress.before}",
            },
        )

    def _epoch(self) -> int:
        return self._epochs if self._order is None else self._order.epoch

    def _sampler_epoch(self) -> int:
        epoch = getattr(self._sampler, "epoch", 0)
        return epoch if isinstance(epoch, int) else 0

    def _key(self, progress: Progress) -> tuple[int, int]:
        return (progress.draw_seed, 0) if self._seed is None else (self._seed, progress.epoch)

    # ---------------------------------------------------------------- the loader's own order

    def _ordered(self, progress: Progress) -> Order | BucketOrder:
        assert self._order is not None
        if progress.started:
            order = self._order.order_again(progress.order_seed, progress.epoch)
        else:
            order = self._order.next_order()
        progress.epoch = progress.sampler_epoch = order.epoch
        length = len(order) if isinstance(order, Order) else 0  # the batches of buckets are no round number of samples
        progress.order_seed, progress.rank_length, progress.started = order.seed, length, True
        progress.first = min(progress.first, len(order))
        return order

    def _jobs_of_order(self, order: Order | BucketOrder, progress: Progress) -> Iterator[Job]:
        size = 1 if self._one_by_one else self._batch_size
        assert size is not None
        return jobs_of_order(order, size, drop_last=self._drop_last, key=self._key(progress), start=progress.first)

    def _indices_of_order(self, progress: Progress) -> Iterator[Any]:
        for job in self._jobs_of_order(self._ordered(progress), progress):
            progress.drawn.append((job.indices, job.valid))
            rows: list[Any] = job.indices.tolist()
            if self._seed is not None:
                rows = list(zip(rows, seeds(job.seed, job.epoch, job.positions), strict=True))
            yield rows[0] if self._one_by_one else rows

    # ---------------------------------------------------------------- a sampler that the user (or DataLoader) made

    def _drawn_batches(self, progress: Progress) -> Iterator[tuple[int, Any]]:
        """Return (samples before it, batch) of each batch that is due, drawn as in the uninterrupted run."""
        if progress.again and progress.started:
            return self._batches_again(progress)
        if not self._draws:
            progress.started = True
            return self._counted(iter(self._batches))
        before = self._states()
        batches = iter(self._batches)  # now, as DataLoader does; most samplers draw with the first batch, some here
        if any(not torch.equal(state, before[name]) for name, state in self._states().items()):
            progress.random, progress.started = before, True
        return self._batches_noted(progress, batches)

    def _batches_noted(self, progress: Progress, batches: Iterator[Any]) -> Iterator[tuple[int, Any]]:
        if not progress.started:
            progress.random, progress.started = self._states(), True
        yield from self._counted(batches)

    def _batches_again(self, progress: Progress) -> Iterator[tuple[int, Any]]:
        """Draw the epoch again, from the generators' states then, and pass over what was delivered."""
        count = 0
        with preserved():
            restore(progress.random)
            for name, generator in self._generators.items():
                if self._draws and name in progress.random:
                    generator.set_state(progress.random[name])
            batches = iter(self._batches)
            for batch in islice(batches, progress.before):
                count += self._size(batch)
            first = list(islice(batches, 1))  # most samplers draw with the first batch that is asked for
        yield from self._counted(chain(first, batches), count)

    def _counted(self, batches: Iterator[Any], count: int = 0) -> Iterator[tuple[int, Any]]:
        for batch in batches:
            yield count, batch
            count += self._size(batch)

    def _size(self, batch: Any) -> int:  # noqa: ANN401
        return 1 if self._one_by_one else len(batch)

    def _jobs_of_sampler(self, progress: Progress, batches: Iterator[tuple[int, Any]]) -> Iterator[Job]:
        for count, batch in batches:
            indices = np.array(batch, np.int64)
            positions = positions_of(count, len(indices), self._sampler)
            valid = positions < len(self._dataset) if self._marks_padding else None
            yield Job(indices, positions, *self._key(progress), valid)

    def _indices_of_sampler(self, progress: Progress, batches: Iterator[tuple[int, Any]]) -> Iterator[Any]:
        for count, batch in batches:
            if self._seed is None:
                yield batch
                continue
            rows = [batch] if self._one_by_one else list(batch)
            drawn = seeds(self._seed, progress.epoch, positions_of(count, len(rows), self._sampler))
            pairs = list(zip(rows, drawn, strict=True))
            yield pairs[0] if self._one_by_one else pairs

    # ---------------------------------------------------------------- generators

    def _states(self) -> dict[str, torch.Tensor]:
        """Return the states of all generators from which a sampler may draw."""
        return global_states() | {name: generator.get_state() for name, generator in self._generators.items()}

    def _random(self, progress: Progress) -> dict[str, torch.Tensor]:
        """Return what belongs into a state: before the draws of an epoch under way that has to be drawn again."""
        if not self._draws:
            return {name: generator.get_state() for name, generator in self._generators.items()}
        return self._states() | ({} if progress.finished else progress.random)
