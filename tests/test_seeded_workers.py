"""With seed=, samples of worker processes draw the same numbers whoever makes them; without, everything is torch's."""

from __future__ import annotations

import pickle
import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler, default_collate, get_worker_info
from torch.utils.data.distributed import DistributedSampler
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

from fastdata.engine.seeded import (
    SeededCollate,
    SeededDataset,
    UsersDatasetInit,
    global_states,
    preserved,
    reseed,
    restore,
    seeds,
)
from fastdata.loader import FastLoader


class Draws(Dataset):
    """Each sample is its index, the worker that made it and what three generators gave."""

    def __init__(self, n=24):
        self.n, self.mark = n, "mine"

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        info = get_worker_info()
        drawn = random.random(), float(np.random.rand()), float(torch.rand(()))  # noqa: NPY002
        return i, -1 if info is None else info.id, torch.tensor(drawn, dtype=torch.float64)


def _draws(loader):
    return [row for batch in loader for row in batch[2].tolist()]


def collate_that_draws(rows):
    return [*default_collate(rows), random.random(), float(np.random.rand()), float(torch.rand(()))]  # noqa: NPY002


def _sees_its_data_set(worker):
    assert get_worker_info().dataset.mark == "mine"
    assert get_worker_info().id == worker
    get_worker_info().dataset.mark = "changed"


def _now():
    return random.getstate()[1], np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002


def test_workers_draw_the_same_numbers_however_many_there_are():  # C083, C089
    reference = None
    for workers in (0, 1, 2):
        loader = FastLoader(Draws(), 4, shuffle=True, seed=5, num_workers=workers, collate_fn=collate_that_draws)
        epochs = []
        for _ in range(2 if workers != 1 else 1):
            batches = list(loader)
            epochs.append([(b[0].tolist(), b[2].tolist(), b[3:]) for b in batches])
            assert {int(w) for b in batches for w in b[1]} == (set(range(workers)) or {-1})
        reference = reference or epochs
        assert epochs == reference[: len(epochs)]
    rows = [tuple(row) for epoch in reference for _, drawn, _ in epoch for row in drawn]
    for column in zip(*rows, strict=True):  # C083: no number comes twice, over workers and epochs
        assert len(set(column)) == len(column) == 48
    for row in rows:
        assert len(set(row)) == 3


def test_the_users_generators_are_left_alone():
    random.seed(1), np.random.seed(1), torch.manual_seed(1)  # noqa: NPY002
    loader = FastLoader(Draws(), 4, shuffle=True, seed=5, collate_fn=collate_that_draws)
    iterator = iter(loader)
    before = _now()
    for _ in iterator:
        assert _now() == before


def test_a_sample_that_fails_leaves_the_generators_alone_too():
    class Fails(Draws):
        def __getitem__(self, i):
            raise ValueError(super().__getitem__(i))

    iterator = iter(FastLoader(Fails(), 4, seed=5))
    before = _now()
    with pytest.raises(ValueError, match="tensor"):
        next(iterator)
    assert _now() == before


def test_loader_and_workers_show_the_users_own_objects():
    data = Draws()
    sampler = RandomSampler(data)
    loader = FastLoader(data, 4, sampler=sampler, seed=5, num_workers=1, worker_init_fn=_sees_its_data_set)
    assert len(list(loader)) == 6
    assert loader.dataset is data
    assert loader.sampler is sampler
    assert loader.worker_init_fn is _sees_its_data_set
    assert loader.collate_fn is default_collate
    assert "seed 5" in loader.explain()


def test_a_sampler_of_the_users_still_governs_the_order():
    data = Draws()
    torch.manual_seed(2)
    theirs = [[b[0].tolist() for b in DataLoader(data, 4, sampler=RandomSampler(data), num_workers=1)] for _ in "ab"]
    torch.manual_seed(2)
    loader = FastLoader(data, 4, sampler=RandomSampler(data), seed=5, num_workers=1)
    epochs = [list(loader) for _ in "ab"]
    assert [[b[0].tolist() for b in epoch] for epoch in epochs] == theirs
    assert _draws(epochs[0]) != _draws(epochs[1])
    # draws belong to the position, not to the index: the same numbers in another order of the samples
    assert _draws(FastLoader(data, 8, sampler=range(24), seed=5)) == _draws(epochs[0])


def test_draws_follow_the_epoch_that_a_sampler_is_told():
    def draws(epochs, *, told=True):
        sampler = DistributedSampler(range(24), 1, 0, seed=1)
        loader = FastLoader(Draws(), 4, sampler=sampler, seed=5)
        found = []
        for epoch in epochs:
            if told:
                sampler.set_epoch(epoch)
            found.append(_draws(loader))
        return found

    whole = draws(range(4))
    assert draws([2, 3]) == whole[2:]
    assert draws([2, 0]) == [whole[2], whole[0]]
    with pytest.warns(UserWarning, match="at epoch 0 again"):
        frozen = draws(range(3), told=False)  # the order is, as in DataLoader; the draws are not
    assert len({str(epoch) for epoch in frozen}) == 3


def test_ranks_draw_what_one_process_draws():
    whole = _draws(FastLoader(Draws(), 4, sampler=DistributedSampler(range(24), 1, 0, shuffle=False), seed=5))
    parts = [
        _draws(FastLoader(Draws(), 4, sampler=DistributedSampler(range(24), 2, rank, shuffle=False), seed=5))
        for rank in range(2)
    ]
    assert [row for pair in zip(*parts, strict=True) for row in pair] == whole


def test_an_image_folder_with_an_unknown_step(image_folder):
    data = ImageFolder(str(image_folder), T.Compose([T.RandomResizedCrop(24), T.ToTensor(), Unknown()]))
    ours = list(FastLoader(data, 8, shuffle=True, seed=5))
    loader = FastLoader(data, 8, shuffle=True, seed=5, num_workers=1)
    assert "DataLoader's own way" in loader.explain()
    for (images, labels), (wanted, wanted_labels) in zip(loader, ours, strict=True):
        assert torch.equal(images, wanted)
        assert torch.equal(labels, wanted_labels)


class Unknown:
    """A step that the engine does not know."""

    def __call__(self, image):
        return image + np.random.rand() * random.random()  # noqa: NPY002


def test_without_a_seed_workers_are_dataloaders():
    def draws(kind, workers):
        torch.manual_seed(9), random.seed(9), np.random.seed(9)  # noqa: NPY002
        return [(b[0].tolist(), b[2].tolist()) for b in kind(Draws(), 4, shuffle=True, num_workers=workers)]

    for workers in (0, 1):
        assert draws(FastLoader, workers) == draws(DataLoader, workers)


def test_what_workers_get_can_be_sent_to_a_spawned_one():
    data = SeededDataset(Draws())
    data, collate, init = pickle.loads(pickle.dumps((data, SeededCollate(default_collate), UsersDatasetInit(None))))
    assert collate(data.__getitems__([(3, 1), (4, 2)]))[0].tolist() == [3, 4]
    init(0)


def test_states_and_seeds():
    with preserved():
        states = global_states()
        first = random.gauss(0, 1), np.random.randn(), torch.rand(3).tolist()  # noqa: NPY002
        again = global_states()  # in the middle of a pair of normal numbers
        second = random.gauss(0, 1), np.random.randn(), torch.rand(3).tolist()  # noqa: NPY002
        restore(states)
        assert (random.gauss(0, 1), np.random.randn(), torch.rand(3).tolist()) == first  # noqa: NPY002
        restore(again)
        assert (random.gauss(0, 1), np.random.randn(), torch.rand(3).tolist()) == second  # noqa: NPY002
        reseed((1 << 64) - 1)
        # torch's Mersenne twister takes 32 bits; the other two must not run in step with each other
        assert not np.isclose(random.random(), np.random.rand())  # noqa: NPY002
    some = seeds(1, 0, np.arange(100_000))
    assert len(set(some)) == 100_000
    assert all(0 <= seed < 1 << 64 for seed in some)
    assert seeds(1, 1, np.arange(2)) != some[:2] != seeds(2, 0, np.arange(2))
