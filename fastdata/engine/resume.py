"""Where a loader is in its data, as a few numbers: taken at any batch, and gone on from in another process.

The state is flat: ints, strings and uint8 tensors under the same names whenever it is taken, so that
torch.distributed.checkpoint can load it in place. All of it but ``random.*`` is the same on every rank.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fastdata.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import torch
    from numpy.typing import NDArray

__all__ = ["Layout", "Progress", "load", "save", "start_of_rank"]

_VERSION = 1
_RANDOM = "random."


@dataclass(frozen=True, slots=True)
class Layout:
    """What a state is compared with before it is taken for this run's.

    kind: "order" (positions of order.py's Order, of which any is reached at once), "sampler" (a sampler of the user's:
    its batches are drawn again and passed over, nothing is read or decoded) or "stream" (an IterableDataset: its
    batches are made again and passed over), or "batches" (of buckets: any is reached at once, but they are cut for a
    global batch). length: samples of the data set, 0 where unknown. batch_size: 0 where a batch sampler decides. seed:
    the loader's, None without. positions: global ones of an epoch, where they are not the samples. sampling: what
    ``sampling=`` asks for, empty without.
    """

    kind: str
    length: int
    batch_size: int
    world: int
    shuffle: bool = False
    seed: int | None = None
    positions: int = 0
    sampling: str = ""


@dataclass(slots=True)
class Progress:
    """An epoch under way: what it was drawn from, and how many of its batches were delivered.

    order_seed: what the loader's own order is drawn from. draw_seed: of the engine's draws without a seed, -1 before
    one is drawn. first, before: the rank's samples, and the batches, that were delivered before a state was loaded.
    rank_length: this rank's samples in the epoch. begun: iter was called. started: the order is drawn. again: the epoch
    began before a state was loaded, and goes on. random: the generators' states from which a sampler drew the epoch.
    drawn: (indices, valid) of the batches that workers have been asked for, in order, where known.
    """

    epoch: int = 0
    sampler_epoch: int = 0
    order_seed: int = 0
    draw_seed: int = -1
    first: int = 0
    before: int = 0
    batches: int = 0
    rank_length: int = 0
    begun: bool = False
    started: bool = False
    finished: bool = False
    again: bool = False
    random: dict[str, torch.Tensor] = field(default_factory=dict)
    drawn: deque[tuple[NDArray[np.int64], NDArray[np.bool_] | None]] = field(default_factory=deque)
    _failed: int = 0

    def deliver(self) -> None:
        """Count a batch that reached the user, with those that failed before it."""
        self.started = True
        self.batches += 1 + self._failed
        self._failed = 0

    def drawn_as(self, batch: int) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
        """Return (indices, valid) of a batch, by its number, that workers were asked for and the user has not got."""
        return self.drawn[batch - self.batches - self._failed]

    def fail(self) -> None:
        """Note a batch that raised: it is tried again by a run that goes on from here, unless a later one came."""
        self._failed += 1


def save(progress: Progress, layout: Layout, random: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Return the state; random: the generators' states that belong to it, under the same names every time."""
    samples = progress.first + (progress.batches - progress.before) * layout.batch_size
    if progress.rank_length:  # 0 where a state was loaded and not gone on with yet
        samples = min(samples, progress.rank_length)
    return {
        "version": _VERSION,
        "kind": layout.kind,
        "length": layout.length,
        "batch_size": layout.batch_size,
        "world": layout.world,
        "shuffle": int(layout.shuffle),
        "seeded": int(layout.seed is not None),
        "seed": layout.seed or 0,
        "epoch": progress.epoch,
        "sampler_epoch": progress.sampler_epoch,
        "sampling": layout.sampling,
        "order_seed": progress.order_seed,
        "draw_seed": progress.draw_seed,
        "batches": progress.batches,
        "position": samples * layout.world if layout.kind == "order" else 0,
        "begun": int(progress.begun),
        "started": int(progress.started),
        "finished": int(progress.finished),
        **{_RANDOM + name: state.clone() for name, state in random.items()},
    }


def load(state: Mapping[str, Any], layout: Layout) -> Progress:
    """Return the progress that ``state`` tells of, for a loader of ``layout``; raise OptionError if it does not fit."""
    try:
        if state["version"] != _VERSION:
            _refuse(f"the loader's state has version {state['version']}, this fastdata reads {_VERSION}")
        _compare(state, layout)
        random = {name.removeprefix(_RANDOM): value for name, value in state.items() if name.startswith(_RANDOM)}
        batches = int(state["batches"])
        return Progress(
            epoch=int(state["epoch"]),
            sampler_epoch=int(state["sampler_epoch"]),
            order_seed=int(state["order_seed"]),
            draw_seed=int(state["draw_seed"]),
            first=_first(int(state["position"]), batches, layout),
            before=batches,
            batches=batches,
            started=bool(state["started"]),
            finished=bool(state["finished"]),
            begun=bool(state["begun"]),
            again=bool(state["begun"]),
            random=random,
        )
    except (KeyError, TypeError) as error:
        msg = f"this is no state of a FastLoader: {error!r} (load_state_dict takes what state_dict gave)"
        raise OptionError(msg) from error


def _first(position: int, batches: int, layout: Layout) -> int:
    if layout.kind == "batches":
        return batches
    return start_of_rank(position, layout) if layout.kind == "order" else 0


def start_of_rank(position: int, layout: Layout) -> int:
    """Return how many samples of its own each rank has behind it at a global position of the order."""
    if position < (layout.positions or layout.length) and position % layout.world:
        _refuse(
            f"the state lies at sample {position} of the epoch, which {layout.world} ranks cannot share equally: go on "
            "with the same global batch (batch_size times ranks), or from the end of an epoch"
        )
    return -(-position // layout.world)


def _compare(state: Mapping[str, Any], layout: Layout) -> None:
    if state["kind"] != layout.kind:
        _refuse(f"the state was taken with {_NAMES.get(state['kind'])}, this loader has {_NAMES[layout.kind]}")
    if state["length"] != layout.length:
        _refuse(f"the state belongs to a data set of {state['length']} samples, this one has {layout.length}")
    _compare_sampling(state.get("sampling", ""), layout.sampling)
    if state["seeded"] != (layout.seed is not None):
        _refuse(f"the state was taken {'with' if state['seeded'] else 'without'} seed=: give the same")
    if state["seed"] != (layout.seed or 0):
        _refuse(f"the state was taken with seed={state['seed']}, this loader has seed={layout.seed}")
    _COMPARED.get(layout.kind, _compare_batches)(state, layout)


def _compare_sampling(before: str, here: str) -> None:
    if before != here:
        was, now = (f"sampling={text}" if text else "no sampling=" for text in (before, here))
        _refuse(f"the state was taken with {was}, this loader has {now}")


def _compare_order(state: Mapping[str, Any], layout: Layout) -> None:
    if bool(state["shuffle"]) != layout.shuffle:
        _refuse(f"the state was taken with shuffle={bool(state['shuffle'])}")


def _compare_buckets(state: Mapping[str, Any], layout: Layout) -> None:
    before, here = state["batch_size"] * state["world"], layout.batch_size * layout.world
    if before != here:
        _refuse(f"the state was taken with batches of {before} over all ranks, here they have {here}: give the same")


def _compare_batches(state: Mapping[str, Any], layout: Layout) -> None:
    for name, words, ours in (
        ("world", "world size", layout.world),
        ("batch_size", "batch_size", layout.batch_size),
    ):
        if state[name] != ours:
            _refuse(
                f"the state was taken with {words} {state[name]}, this loader has {ours}: with {_NAMES[layout.kind]} "
                "both must be equal, or samples would be lost or come twice (FastLoader's own order, that of a pack or "
                "with seed= and without sampler=, can go on with another number of ranks)"
            )


_COMPARED = {"order": _compare_order, "batches": _compare_buckets}
_NAMES = {
    "order": "FastLoader's own order",
    "batches": "buckets",
    "sampler": "a sampler of the user's (or DataLoader's)",
    "stream": "an IterableDataset",
}


def _refuse(why: str) -> None:
    raise OptionError(why)
