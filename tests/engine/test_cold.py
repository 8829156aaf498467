"""What may lie on the disk still is asked for ahead; what was read is not."""

from __future__ import annotations

import pytest
import torch
from torchvision import transforms as T

import fastdata.loader
from fastdata.loader import FastLoader
from fastdata.stores.opener import open_store
from fastdata.stores.reader import MapReader

FLOAT = T.Compose([T.Resize(40), T.CenterCrop(32), T.ToTensor()])


@pytest.mark.parametrize("fits", [True, False])
@pytest.mark.parametrize("kind", ["lmdb", "hdf5", "tars"])
def test_the_first_epoch_is_asked_for_ahead_and_later_ones_where_memory_is_short(packs, kind, fits, monkeypatch):
    asked = []
    plain = MapReader.will_need
    monkeypatch.setattr(MapReader, "will_need", lambda self, spans: (asked.append(len(spans.part)), plain(self, spans)))
    monkeypatch.setattr(fastdata.loader, "available_memory", lambda: 1 << 40 if fits else 1)
    loader = FastLoader(packs[kind], 4, transform=FLOAT, num_workers=2)
    first = torch.cat([images for images, _ in loader])
    assert sum(asked) == 21
    assert torch.equal(torch.cat([images for images, _ in loader]), first)
    assert sum(asked) == (21 if fits else 42)


def test_nothing_is_asked_of_a_store_that_is_not_mapped(packs, image_folder):
    import numpy as np

    for path, io in ((packs["lmdb"], "pread"), (image_folder, "mmap")):
        with open_store(path, io=io) as store:
            store.will_need(np.arange(21))
            assert not store.mapped
