"""What explain() says of work that stays on the CPU, and of what is done on the device."""

from __future__ import annotations

from torchvision import transforms as v1

from fastdata.engine.explaining import Facts, explain_engine
from fastdata.transforms import compile_transform

ON_CUDA = Facts(
    workers=2, why="", seed=1, copied_to="cuda", on_cuda=True, fast=False, cache="", collates=False,
    target_transform=False, worker_init=False, mix="mix MixUp(alpha=1.0), labels (n, 3)",
)  # fmt: skip


def said(steps):
    return explain_engine(ON_CUDA, compile_transform([v1.CenterCrop(9), v1.ToTensor(), *steps]), "native").splitlines()


def test_what_crosses_the_bus():
    assert "uint8 is copied to cuda; cast and normalise happen there" in said([])
    erased = said([v1.RandomErasing()])
    assert "floats are copied to cuda: RandomErasing, behind ToTensor, is done in the threads" in erased
    assert not any(line.startswith("uint8") for line in erased)


def test_mixtures_are_made_on_the_device():
    assert said([])[-1].startswith("mix MixUp(alpha=1.0), labels (n, 3): on cuda, batch by batch")
