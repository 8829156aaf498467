"""What a loader says of the way it takes: the lines of ``explain()``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastdata.transforms.plan import Plan

__all__ = ["Facts", "explain_engine", "explain_workers"]


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


def explain_workers(facts: Facts, *, map_style: bool) -> str:
    """Return why DataLoader's own workers serve, and what they do beside DataLoader's."""
    lines = [f"DataLoader's own way, {facts.workers} worker processes: {facts.why}"]
    if facts.seed is not None and map_style:
        lines.append(f"randomness: seed {facts.seed}, for the generators of torch, numpy and random at each sample")
    if facts.sampling:
        lines.append(f"sampling: {facts.sampling}")
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
    if facts.sampling:
        lines.append(f"sampling: {facts.sampling}")
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


def _mixed(facts: Facts) -> list[str]:
    if not facts.mix:
        return []
    where = f"on {facts.copied_to}, batch by batch" if facts.copied_to else "batch by batch, in the consumer's thread"
    return [f"{facts.mix}: {where}; equal to torchvision's for the same lambda and box"]
