"""Many threads at once, above the core and the stores: first use, loaders, caches; with a GIL and without."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, Sampler
from torchvision import transforms as T

from fastdata.engine.cached_source import CachedSource, Hits
from fastdata.engine.shared_arena import SharedArena
from fastdata.engine.source import StoreSource
from fastdata.errors import LoaderError, OptionError
from fastdata.loader import FastLoader
from fastdata.stores.opener import open_store

TRAIN = T.Compose([T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.PILToTensor()])
FIRST_USE = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
import fastdata

pack, image = sys.argv[1], open(sys.argv[2], "rb").read()
uses = [
    lambda: fastdata.decode(image).shape,
    lambda: fastdata.decode(image, "pillow").shape,
    lambda: [row.name for row in fastdata.decoders()],
    lambda: bytes(fastdata.open_store(pack).read(0))[:2],
    lambda: len(fastdata.PackedDataset(pack)),
    lambda: len(list(fastdata.FastLoader(pack, 1, num_workers=0))),
]
gate = threading.Barrier(2 * len(uses))

def use(number):
    gate.wait()
    return uses[number % len(uses)]()

sys.setswitchinterval(5e-6)
with ThreadPoolExecutor(2 * len(uses)) as threads:
    seen = list(threads.map(use, range(2 * len(uses))))
assert seen == [use() for use in uses] * 2, seen
"""


def test_everything_is_first_used_by_many_threads(packs, image_folder):
    """No import, table or registry is made by one thread while another one finds it half made."""
    image = image_folder / "ant" / "ant0.jpg"
    done = subprocess.run([sys.executable, "-c", FIRST_USE, packs["lmdb"], image], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


# ---------------------------------------------------------------- loaders


def _epoch(loader):
    images, labels = zip(*loader, strict=True)
    return torch.cat(images), torch.cat(labels)


def _same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_over_one_store_side_by_side(packs, at_once, workers):
    with open_store(packs["lmdb"]) as store:

        def made(number):
            return FastLoader(store, 4, transform=TRAIN, shuffle=True, seed=number, num_workers=workers)

        alone = [[_epoch(loader) for _ in range(3)] for loader in map(made, range(4))]

        def call(number):
            loader = made(number)
            return all(_same(_epoch(loader), epoch) for epoch in alone[number])

        assert at_once(call, 4) == [True] * 4


@pytest.mark.parametrize("cache", [None, "decoded"])
def test_threads_that_share_a_loader_get_an_epoch_each(packs, at_once, cache):
    options = {"transform": TRAIN, "shuffle": True, "seed": 5, "num_workers": 2, "cache": cache}
    plain = FastLoader(packs["lmdb"], 4, **options)
    alone = [_epoch(plain) for _ in range(12)]
    shared = FastLoader(packs["lmdb"], 4, **options)
    epochs = [epoch for three in at_once(lambda _: [_epoch(shared) for _ in range(3)], 4) for epoch in three]
    found = [[number for number, one in enumerate(alone) if _same(epoch, one)] for epoch in epochs]
    assert sorted(found) == [[number] for number in range(12)]


class _Unhurried(Sampler):
    """A user's sampler whose epoch takes a while to be told: other threads go on meanwhile."""

    def __init__(self, length):
        self.length = length

    @property
    def epoch(self):
        time.sleep(0.02)
        return 0

    def __iter__(self):
        return iter(range(self.length))

    def __len__(self):
        return self.length


def test_an_epoch_is_begun_by_one_thread_at_a_time(packs, at_once):
    with open_store(packs["tar"]) as store:
        options = {"transform": TRAIN, "seed": 5, "num_workers": 1}
        plain = FastLoader(store, 8, sampler=_Unhurried(len(store)), **options)
        alone = [_epoch(plain) for _ in range(3)]
        shared = FastLoader(store, 8, sampler=_Unhurried(len(store)), **options)
        found = [[_same(epoch, one) for one in alone] for epoch in at_once(lambda _: _epoch(shared), 3)]
    assert sorted(found, reverse=True) == np.eye(3, dtype=bool).tolist()


def test_a_loader_closed_by_another_thread_begins_anew_or_says_so(packs, at_once):
    loader = FastLoader(packs["hdf5"], 4, transform=TRAIN, num_workers=2)

    def call(number):
        for _ in range(6):
            if number == 0:
                loader.close()
                continue
            with contextlib.suppress(LoaderError, OptionError):
                assert sum(len(labels) for _, labels in loader) == 21
        return True

    assert at_once(call, 3) == [True] * 3
    assert sum(len(labels) for _, labels in loader) == 21


# ---------------------------------------------------------------- caches


def test_no_hit_is_lost(packs, at_once):
    with open_store(packs["lmdb"]) as store:
        arena, hits = SharedArena.make(len(store), 1 << 20), Hits()
        source = CachedSource(StoreSource(store), arena, hits=hits)
        whole = np.arange(len(store))
        expected = [bytes(store.read(i)) for i in range(len(store))]

        def call(_):
            right = True
            for _ in range(60):
                encoded = source.fetch(whole)
                right = right and [bytes(encoded.views[row]) for row in range(len(encoded))] == expected
            return right

        assert at_once(call, 8) == [True] * 8
        assert hits.hits + hits.misses == 8 * 60 * len(store)
        assert arena.state.records == len(store)
        assert arena.state.bytes == sum(map(len, expected)) + 64 * len(store)


class _Rows(Dataset):
    def __len__(self):
        return 50

    def __getitem__(self, i):
        return np.full((8, 8), i), i


def test_a_cached_data_set_is_read_and_closed_by_many_threads(at_once):
    from fastdata import cached

    kept = cached(_Rows(), 1 << 20)

    def call(number):
        right = True
        for turn in range(400):
            if number == 0 and turn % 20 == 0:
                kept.close()
            image, label = kept[(number + turn) % 50]
            right = right and label == (number + turn) % 50 and bool((image == label).all())
        return right

    assert at_once(call, 6) == [True] * 6
    assert kept.cache_info().hits + kept.cache_info().misses == 6 * 400
