"""One store read by many threads at once, from its first read on; closed by one of them while the others read."""

from __future__ import annotations

import contextlib
import random
from collections import deque
from itertools import count

import numpy as np
import pytest

from fastdata.errors import StoreClosedError
from fastdata.stores.opener import open_store

READERS = 8
KINDS = ["lmdb", "hdf5", "tar", "tars", "folder"]


@pytest.fixture(params=KINDS)
def path(request, packs, image_folder):
    return image_folder if request.param == "folder" else packs[request.param]


@pytest.fixture(params=["mmap", "pread"])
def io(request):
    return request.param


def test_every_reader_gets_every_samples_bytes(path, io, at_once):
    with open_store(path, io=io) as store:
        expected = [bytes(store.read(i)) for i in range(len(store))]
        keys, labels = [store.key(i) for i in range(len(store))], [store.label(i) for i in range(len(store))]
    for _ in range(5):
        with open_store(path, io=io) as store:  # nothing is mapped or opened before all readers are there

            def call(number, store=store):
                order = list(range(len(store))) * 4
                random.Random(number).shuffle(order)
                views = [store.read(i) for i in order]
                same = [bytes(view) == expected[i] for i, view in zip(order, views, strict=True)]
                told = [(store.key(i), store.label(i), store.find(keys[i])) for i in order]
                return all(same) and told == [(keys[i], labels[i], i) for i in order]

            assert at_once(call, READERS) == [True] * READERS


def test_batches_are_fetched_side_by_side(path, io, at_once):
    with open_store(path, io=io) as store:
        expected = [bytes(store.read(i)) for i in range(len(store))]

        def call(number):
            right = True
            for turn in range(20):
                indices = np.random.default_rng([number, turn]).integers(0, len(store), 16)
                store.will_need(indices)
                encoded = store.fetch(indices)
                right = right and [bytes(encoded.views[row]) for row in range(16)] == [expected[i] for i in indices]
            return right

        assert at_once(call, READERS) == [True] * READERS


def test_a_store_closed_by_another_thread_gives_the_bytes_or_says_so(path, io, at_once):
    with open_store(path, io=io) as store:
        expected = [bytes(store.read(i)) for i in range(len(store))]
    for _ in range(5):
        store = open_store(path, io=io)

        def call(number, store=store):
            views = deque(maxlen=200)
            with contextlib.suppress(StoreClosedError):
                for turn in count():  # until the close, whenever the thread that closes gets its turn
                    if number == 0 and turn == 30:
                        store.close()
                    i = (number + turn) % len(store)
                    views.append((i, store.read(i)))
            return all(bytes(view) == expected[i] for i, view in views)  # what was given out stays good

        assert at_once(call, READERS) == [True] * READERS
