"""Batches that are prepared together equal batches prepared one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torchvision import transforms as T

from fastdata.engine.groups import Group
from fastdata.loader import FastLoader
from fastdata.stores.opener import open_store

TRAIN = T.Compose([T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.PILToTensor()])


def test_a_group_is_prepared_once():
    group, calls = Group(np.arange(3), np.arange(3)), []
    assert [group.prepared(calls.append) for _ in range(3)] == [None] * 3
    assert calls == [group]


@pytest.mark.parametrize("batch_size", [1, 4, 21])
def test_the_same_batches_grouped_or_not(packs, batch_size):
    """pread reads each batch for itself; a mapped pack is prepared for many batches at once."""
    mapped = FastLoader(packs["lmdb"], batch_size, shuffle=True, transform=TRAIN, seed=2, num_workers=2)
    single = FastLoader(packs["lmdb"], batch_size, shuffle=True, transform=TRAIN, seed=2, num_workers=2, io="pread")
    assert open_store(packs["lmdb"]).mapped
    assert not open_store(packs["lmdb"], io="pread").mapped
    for (ours, labels), (theirs, wanted) in zip(mapped, single, strict=True):
        assert torch.equal(ours, theirs)
        assert torch.equal(labels, wanted)


def test_rows_of_a_group_keep_their_views(packs):
    seen = []

    class Spy:
        def __init__(self, decoder):
            self.decoder = decoder

        def decode_batch(self, encoded, geometry, out, *, levels=None):
            seen.append([bytes(encoded.views[i]) for i in range(len(encoded))])
            assert [bytes(view) for view in encoded.views[1:]] == seen[-1][1:]
            assert bytes(encoded.views[-1]) == seen[-1][-1]
            with pytest.raises(IndexError):
                encoded.views[len(encoded)]
            return self.decoder.decode_batch(encoded, geometry, out, levels=levels)

        def close(self):
            self.decoder.close()

    loader = FastLoader(packs["lmdb"], 4, transform=TRAIN, num_workers=0)
    engine = loader._engine_here()
    engine._make_decoder = lambda make=engine._make_decoder: Spy(make())
    list(loader)
    with open_store(packs["lmdb"]) as store:
        assert [data for batch in seen for data in batch] == [bytes(store.read(i)) for i in range(21)]


def test_the_kernel_is_told_of_each_sample_once():
    group = Group(np.arange(100, 110), np.arange(10))
    assert group.not_asked(4).tolist() == [100, 101, 102, 103]
    assert group.not_asked(3).tolist() == []
    assert group.not_asked(50).tolist() == [104, 105, 106, 107, 108, 109]
    assert group.not_asked(50).tolist() == []
