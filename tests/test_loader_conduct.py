"""A loader among others: look-ahead wrappers, threads per worker, epochs of no batch."""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections import Counter

import pytest
import torch
from torch.utils.data import Dataset
from torch.utils.data.distributed import DistributedSampler
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

from fastdata.loader import FastLoader

TRAIN = T.Compose([T.RandomResizedCrop(16), T.PILToTensor()])
UNKNOWN = T.Compose([TRAIN, T.Lambda(lambda image: image)])


class Products(Dataset):
    """What opens a thread for each core where nobody says otherwise: torch's own products of matrices."""

    def __len__(self):
        return 64

    def __getitem__(self, i):
        return (torch.ones(128, 128) @ torch.ones(128, 128))[0, 0], i


class LookAhead:
    """A foreign wrapper that takes one batch ahead, and asks once more when there is none."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        batches = iter(self.loader)
        ahead = next(batches, None)
        while ahead is not None:
            now, ahead = ahead, next(batches, None)
            yield now
        assert next(batches, None) is None


@pytest.mark.parametrize("transform", [TRAIN, UNKNOWN], ids=["engine", "workers"])
@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_foreign_look_ahead_loses_nothing(packs, transform, device, workers):  # C095
    loader = FastLoader(packs["lmdb"], 4, shuffle=True, transform=transform, device=device, num_workers=workers)
    for _ in range(3):
        batches = list(LookAhead(loader))
        assert [len(labels) for _, labels in batches] == [4, 4, 4, 4, 4, 1]
        assert Counter(label for _, labels in batches for label in labels.tolist()) == {0: 7, 1: 9, 2: 5}


def _threads(pid):
    return len(os.listdir(f"/proc/{pid}/task"))


@pytest.mark.parametrize("seed", [None, 1])
def test_a_worker_process_keeps_to_a_few_threads(seed):  # C107
    batches = iter(FastLoader(Products(), 4, num_workers=2, seed=seed))
    for _ in range(4):
        next(batches)
    workers = multiprocessing.active_children()
    assert len(workers) == 2
    assert all(_threads(worker.pid) <= 4 for worker in workers)
    del batches


@pytest.mark.parametrize("workers", [1, 4, 8])
def test_the_engine_has_a_thread_a_worker_and_two_that_feed(packs, workers):  # C107
    before = _threads("self")
    loader = FastLoader(packs["lmdb"], 4, transform=TRAIN, num_workers=workers)
    batches = iter(loader)
    next(batches)
    assert _threads("self") - before <= workers + 2
    assert len(list(batches)) == 5
    loader.close()


@pytest.mark.parametrize("kind", ["path", "folder", "seeded", "rank"])
def test_an_epoch_of_no_batch_is_warned_of_when_the_loader_is_made(packs, image_folder, kind):  # C098
    data = ImageFolder(str(image_folder), TRAIN)
    first = packs["lmdb"] if kind == "path" else data
    kwargs = {"path": {"transform": TRAIN}, "seeded": {"seed": 1}}.get(kind, {})
    if kind == "rank":  # 11 samples on this rank
        kwargs["sampler"] = DistributedSampler(data, num_replicas=2, rank=0)
    with pytest.warns(UserWarning, match="no full batch") as caught:
        loader = FastLoader(first, 12 if kind == "rank" else 22, drop_last=True, **kwargs)
    assert caught[0].filename == __file__
    assert list(loader) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(FastLoader(first, 11, drop_last=True, **kwargs)) == 1
        assert len(FastLoader(first, 50, **kwargs)) == 1


@pytest.mark.parametrize("engine", [None, False])
@pytest.mark.parametrize("who", ["sampler", "loader"])
def test_a_set_epoch_that_was_forgotten_is_warned_of_once(image_folder, engine, who):  # C086
    data = ImageFolder(str(image_folder), TRAIN)
    sampler = DistributedSampler(data, num_replicas=2, rank=0)
    loader = FastLoader(data, 4, sampler=sampler, engine=engine)
    next(iter(loader))  # a look at a batch is no epoch
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for epoch in range(3):
            {"sampler": sampler, "loader": loader}[who].set_epoch(epoch)
            assert len(list(loader)) == 3
    with pytest.warns(UserWarning, match=r"at epoch 2 again.*set_epoch") as caught:
        assert [len(list(loader)) for _ in range(2)] == [3, 3]
    assert [str(one.filename) for one in caught] == [__file__]
    unshuffled = DistributedSampler(data, num_replicas=2, rank=0, shuffle=False)
    loader = FastLoader(data, 4, sampler=unshuffled, engine=engine)
    assert [len(list(loader)) for _ in range(2)] == [3, 3]


@pytest.mark.parametrize("seed", [1, None])
@pytest.mark.parametrize("engine", [None, False])
def test_every_epoch_of_persistent_workers_has_its_own_order_and_crops(packs, engine, seed):  # C085
    options = {"transform": T.Compose([T.RandomResizedCrop(8), T.PILToTensor()]), "seed": seed, "engine": engine}
    loader = FastLoader(packs["lmdb"], 21, shuffle=True, num_workers=2, persistent_workers=True, **options)

    def epoch():
        ((images, labels),) = loader
        return {"order": tuple(labels.tolist()), "crops": images.numpy().tobytes()}

    epochs = [epoch() for _ in range(3)]
    for part in ("order", "crops"):
        assert len({one[part] for one in epochs}) == 3
    loader.set_epoch(1)
    assert (epoch() == epochs[1]) == (seed is not None)
