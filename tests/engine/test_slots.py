"""A slot comes back when nobody looks at it any more, and never before."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch

from fastdata.engine.slots import SlotRing

SHAPE = (4, 3, 8, 8)


def _batch(ring, value):
    array = ring.lease(SHAPE, np.dtype(np.uint8))
    array[:] = value
    return torch.from_numpy(array), array.__array_interface__["data"][0]


def test_an_arena_is_used_again_when_its_batch_is_dropped():
    ring = SlotRing()
    batch, first = _batch(ring, 1)
    del batch
    _, second = _batch(ring, 2)
    assert first == second


@pytest.mark.parametrize("keep", ["batch", "image", "view", "numpy", "detached", "graph", "label-sized"])
def test_whatever_is_kept_is_never_overwritten(keep):
    ring = SlotRing()
    batch, _ = _batch(ring, 1)
    if keep == "graph":
        weight = torch.ones(1, requires_grad=True)
        kept = (batch.to(torch.float32) * weight).sum()  # the graph keeps the float copy, not the slot
        kept = (weight * batch).sum()  # this one keeps the batch itself for its backward
    else:
        kept = {
            "batch": batch, "image": batch[0], "view": batch[1:, :, 2:5], "numpy": batch.numpy()[2],
            "detached": batch.detach().permute(0, 2, 3, 1), "label-sized": batch[0, 0, 0, :1],
        }[keep]  # fmt: skip
    del batch
    for value in range(2, 6):
        other, _ = _batch(ring, value)
        del other
    if keep == "graph":
        kept.backward()
        assert weight.grad.item() == np.prod(SHAPE)
    else:
        assert (np.asarray(kept) == 1).all()


def test_nothing_piles_up():
    ring = SlotRing(spare=2)
    addresses = set()
    for value in range(100):
        batch, address = _batch(ring, value)
        addresses.add(address)
        del batch
    assert len(addresses) == 1
    kept = [_batch(ring, value)[0] for value in range(10)]
    del kept
    gc.collect()
    assert len(ring._free) == 2


def test_arenas_grow():
    ring = SlotRing()
    small = ring.lease((2, 3), np.dtype(np.float32))
    assert small.shape == (2, 3)
    del small
    large = ring.lease((200, 30), np.dtype(np.float32))
    large[:] = 1.5
    address = large.__array_interface__["data"][0]
    del large
    again = ring.lease((100, 30), np.dtype(np.float32))
    assert again.__array_interface__["data"][0] == address
