"""on_error: what fails is skipped or replaced, named and counted, on the engine and in worker processes alike."""

from __future__ import annotations

import errno
import os
import shutil

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

from fastdata.errors import OptionError, SampleError
from fastdata.loader import FastLoader

SEEN = T.Compose([T.Resize((16, 16)), T.PILToTensor()])
BAD = (5, 8, 9, 10, 11)  # of the 21; a whole batch of four, and one of another


@pytest.fixture(scope="module")
def damaged(image_folder, tmp_path_factory):
    root = tmp_path_factory.mktemp("damaged") / "images"
    shutil.copytree(image_folder, root)
    for index in BAD:
        path = ImageFolder(str(root)).samples[index][0]
        os.truncate(path, 300)
    return root


WAYS = {"engine": {"num_workers": 2}, "in process": {"engine": False}, "workers": {"engine": False, "num_workers": 2}}


def _loader(root, way, **more):
    loader = FastLoader(ImageFolder(str(root), SEEN), 4, seed=0, **WAYS[way], **more)
    assert ("threaded engine" in loader.explain()) == (way == "engine")
    return loader


def _seen(loader):
    return [
        (images.shape[0], loader.last.indices.tolist(), loader.last.valid.tolist(), labels.tolist())
        for images, labels in loader
    ]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_every_way_gives_the_same_batches_and_names_the_same_faults(damaged, way, on_error, caplog):
    loader = _loader(damaged, way, on_error=on_error)
    assert len(loader) == 6
    full, some = [True] * 4, {"skip": [4, 6, 7], "replace": [4, 6, 7, 4]}[on_error]
    classes = [0] * 7 + [1] * 9 + [2] * 5
    whole = [12, 12, 12, 12]  # the first that decodes of those that follow, in the place of all four
    indices = [[0, 1, 2, 3], some, whole, [12, 13, 14, 15], [16, 17, 18, 19], [20]]
    valid = [full, [True] * 3 + [False] * (len(some) - 3), [False] * 4, full, full, [True]]
    for _ in range(2):
        caplog.clear()
        assert _seen(loader) == [
            (len(rows), rows, good, [classes[row] for row in rows]) for rows, good in zip(indices, valid, strict=True)
        ]
        assert sorted(fault.index for fault in loader.faults) == list(BAD)
        by_index = {fault.index: fault for fault in loader.faults}
        assert by_index[5].key.endswith("ant5.jpg")
        assert all(fault.reason.partition(":")[2] for fault in loader.faults)
        (line,) = [record.getMessage() for record in caplog.records if record.name == "fastdata"]  # once an epoch
        assert line == loader.faults.summary()
        assert line.startswith(f"5 samples {'skipped' if on_error == 'skip' else 'replaced'}")


@pytest.mark.parametrize("way", WAYS)
def test_more_faults_than_the_budget_raise(damaged, way):
    loader = _loader(damaged, way, on_error="skip", max_faults=1)
    iterator = iter(loader)
    assert [len(next(iterator)[1]) for _ in range(2)] == [4, 3]
    with pytest.raises(SampleError, match="2 samples failed, more than the 1"):
        next(iterator)
    del iterator
    assert len(_seen(_loader(damaged, way, on_error="skip", max_faults=0.3))) == 6
    with pytest.raises(SampleError, match="more than the 4"):
        _seen(_loader(damaged, way, on_error="skip", max_faults=0.2))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.parametrize("batch_size", [1, 2, 3])
def test_ranks_stay_even_whatever_fails(damaged, way, on_error, batch_size):
    steps = []
    for rank in range(2):
        sampler = torch.utils.data.DistributedSampler(range(20), 2, rank, shuffle=False)
        loader = FastLoader(
            ImageFolder(str(damaged), SEEN), batch_size, sampler=sampler, **WAYS[way], on_error=on_error, seed=0
        )
        sizes = [len(labels) for _, labels in loader]
        assert min(sizes) > 0
        steps.append(len(sizes))
        assert len(sizes) == len(loader)
    assert steps[0] == steps[1] == -(-10 // batch_size)


@pytest.mark.parametrize("way", WAYS)
def test_where_nothing_is_good_the_loader_says_so(tmp_path, way):
    (tmp_path / "a").mkdir()
    for i in range(5):
        (tmp_path / "a" / f"{i}.jpg").write_bytes(b"\xff\xd8\xff no picture")
    with pytest.raises(SampleError, match="every sample of a batch failed"):
        next(iter(_loader(tmp_path, way, on_error="skip")))


def test_what_is_delivered_does_not_depend_on_workers_or_resume(damaged):
    def epoch(loader, batches=None):
        rows = []
        for images, labels in loader:
            rows.append((images.tolist(), labels.tolist(), loader.last.valid.tolist()))
            if len(rows) == batches:
                break
        return rows

    random = T.Compose([T.RandomResizedCrop(8), T.PILToTensor()])
    for more in ({}, {"engine": False}):
        options = {"shuffle": True, "seed": 4, "on_error": "replace", **more}
        reference = epoch(FastLoader(ImageFolder(str(damaged), random), 2, **options))
        loader = FastLoader(ImageFolder(str(damaged), random), 2, num_workers=2, **options)
        assert epoch(loader, 6) == reference[:6]
        state = loader.state_dict()
        loader = FastLoader(ImageFolder(str(damaged), random), 2, num_workers=1, **options)
        loader.load_state_dict(state)
        assert epoch(loader) == reference[6:]


class Fails(Dataset):
    """Each sample is its number; some raise."""

    def __init__(self, errors, n=6):
        self.errors, self.n = errors, n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if i in self.errors:
            raise self.errors[i]
        return torch.tensor(i)


class Together(Fails):
    """The same, a batch at once."""

    def __getitems__(self, indices):
        return [self[i] for i in indices]


@pytest.mark.parametrize("kind", [Fails, Together])
@pytest.mark.parametrize("more", [{}, {"seed": 1}, {"num_workers": 1}, {"num_workers": 2, "persistent_workers": True}])
def test_a_users_own_data_set(kind, more):
    loader = FastLoader(kind({1: ValueError("odd"), 4: RuntimeError("broken\nbytes")}), 3, on_error="skip", **more)
    for _ in range(2):
        assert [batch.tolist() for batch in loader] == [[0, 2], [3, 5]]
        assert [(f.key, f.index, f.reason) for f in loader.faults] == [
            ("1", 1, "ValueError: odd"), ("4", 4, "RuntimeError: broken\nbytes"),
        ]  # fmt: skip
        assert "\n" not in loader.faults.summary()


def test_unbatched_samples_are_replaced_by_what_follows():
    loader = FastLoader(Fails({1: ValueError("odd"), 5: ValueError("odd")}), None, on_error="skip")
    assert [int(sample) for sample in loader] == [0, 2, 2, 3, 4, 0]


def test_keys_that_are_no_numbers():
    class Named(Fails):
        def __getitem__(self, key):
            return super().__getitem__(int(key[1:]))

    sampler = ["n0", "n1", "n2", "n3"]
    loader = FastLoader(Named({1: ValueError("odd")}), 2, sampler=sampler, on_error="skip")
    assert [batch.tolist() for batch in loader] == [[0], [2, 3]]
    assert [(fault.key, fault.index) for fault in loader.faults] == [("n1", -1)]
    with pytest.raises(SampleError, match="n1"):
        list(FastLoader(Named({1: ValueError("odd")}), 1, sampler=sampler, on_error="skip"))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    "error", [NameError("typo"), OSError(errno.EMFILE, "too many open files"), MemoryError("full")]
)
def test_what_is_no_samples_fault_is_raised(error, workers):
    with pytest.raises(type(error)):
        list(FastLoader(Fails({1: error}), 3, on_error="skip", num_workers=workers))


def _sees_its_own(worker):
    assert isinstance(get_worker_info().dataset, Fails)
    assert worker == 0


def test_workers_see_the_users_data_set_and_collate_only_good_samples():
    got = []
    loader = FastLoader(
        Fails({0: ValueError("odd")}), 3, on_error="replace", collate_fn=lambda rows: got.append(rows) or len(rows)
    )
    assert list(loader) == [3, 3]
    assert [[int(i) for i in rows] for rows in got] == [[1, 2, 1], [3, 4, 5]]
    loader = FastLoader(
        Fails({0: ValueError("odd")}), 3, on_error="skip", num_workers=1, worker_init_fn=_sees_its_own, device="cpu"
    )
    assert [batch.tolist() for batch in loader] == [[1, 2], [3, 4, 5]]
    assert [fault.index for fault in loader.faults] == [0]


def test_an_iterable_data_set_ends_where_it_fails():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(3))

    with pytest.raises(OptionError, match="IterableDataset ends where it fails"):
        FastLoader(Stream(), 2, on_error="skip")


def test_a_budget_needs_something_to_bound(packs):
    with pytest.raises(OptionError, match="max_faults=5 bounds what on_error="):
        FastLoader(packs["lmdb"], 4, max_faults=5)
    with pytest.raises(OptionError, match="budget='x': expected a whole number"):
        FastLoader(packs["lmdb"], 4, on_error="skip", max_faults="x")
    assert "on_error='skip', max_faults=5" in FastLoader(packs["lmdb"], 4, on_error="skip", max_faults=5).explain()
