"""What a loader says of the way it takes: the lines of ``explain()``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch.utils.data.distributed import DistributedSampler

from fastdata.engine.sampler import EpochSampler

if TYPE_CHECKING:
    from fastdata.transforms.plan import Plan

__all__ = ["Facts", "explain_engine", "explain_ranks", "explain_workers"]


@dataclass(frozen=True, slots=True)
class Facts:
    """What was asked for, beside the transform. copied_to: the device the batches go to, or empty."""

    workers: int
    why: str
    seed: int | None
    copied_to: str
    on_cuda: bool
    fast: bool
    cache: str
    collates: bool
    target_transform: bool
    worker_init: bool
    mix: str = ""
    sampling: str = ""
    ranks: str = ""
    faults: str = ""


def explain_workers(facts: Facts, *, map_style: bool) -> str:
    """Return why DataLoader's own workers serve, and what they do beside DataLoader's."""
    lines = [f"DataLoader's own way, {facts.workers} worker processes: {facts.why}"]
    if facts.seed is not None and map_style:
        lines.append(f"randomness: seed {facts.seed}, for the generators of torch, numpy and random at each sample")
    lines += _shared(facts)
    if facts.copied_to:
        lines.append(f"batches are copied to {facts.copied_to} as they are")
    lines += _mixed(facts)
    return "\n".join(lines)


def explain_engine(facts: Facts, plan: Plan, decoder: str) -> str:
    """Return that the engine serves, with which decoder, and each step that was understood."""
    lines = [
        f"threaded engine, {max(1, facts.workers)} decoding threads, decoder {decoder}: {facts.why}",
        *(f"  {step}" for step in plan.description),
        f"randomness: seed {facts.seed}"
        if facts.seed is not None
        else "randomness: torch's generator (order as DataLoader's for a Dataset; crops equal in distribution)",
    ]
    lines += _shared(facts)
    if facts.fast:
        lines.append("fidelity fast: what is shrunk is decoded smaller, colours are upsampled plainly")
    if facts.cache:
        lines.append(facts.cache)
    if facts.on_cuda and not plan.finish:
        lines.append(f"uint8 is copied to {facts.copied_to}; cast and normalise happen there")
    if facts.on_cuda and plan.finish:
        lines.append(f"floats are copied to {facts.copied_to}: RandomErasing, behind ToTensor, is done in the threads")
    if facts.collates:
        lines.append("collate_fn gets a list of (image view, label) and runs in the consumer's thread")
    if facts.target_transform:
        lines.append("target_transform runs in the consumer's thread")
    if facts.worker_init:
        lines.append("worker_init_fn is not called: the engine has no worker processes")
    lines += _mixed(facts)
    return "\n".join(lines)


def _shared(facts: Facts) -> list[str]:
    """Return what is said alike of both ways: which samples come, to whom, and what becomes of bad ones."""
    named = (("sampling", facts.sampling), ("ranks", facts.ranks), ("samples that fail", facts.faults))
    return [f"{name}: {text}" for name, text in named if text]


def explain_ranks(sampler: object, uneven: str | None, place: tuple[int, int]) -> str:
    """Return who gets which samples, where there are several ranks; place: (rank, world size)."""
    rank, world = place
    if world == 1:
        return ""
    if isinstance(sampler, EpochSampler) and sampler.num_replicas == world:
        return f"this is rank {rank} of {world}, which share each epoch, uneven={uneven!r}"
    if isinstance(sampler, DistributedSampler):
        return f"rank {sampler.rank} of {sampler.num_replicas}, as your {type(sampler).__name__} shares the samples out"
    return (
        f"{world}, and each gets every sample, unless your sampler shares them out; with seed=, uneven= or a "
        "DistributedSampler they are shared"
    )


def _mixed(facts: Facts) -> list[str]:
    if not facts.mix:
        return []
    where = f"on {facts.copied_to}, batch by batch" if facts.copied_to else "batch by batch, in the consumer's thread"
    return [f"{facts.mix}: {where}; equal to torchvision's for the same lambda and box"]
