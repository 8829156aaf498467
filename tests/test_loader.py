"""FastLoader: DataLoader's arguments and behaviour, the engine's speed and promises."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import threading
from collections import Counter

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, SequentialSampler
from torch.utils.data.distributed import DistributedSampler
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

from fastdata.errors import BatchShapeError, OptionError, SampleError
from fastdata.loader import FastLoader
from fastdata.stores.opener import open_store

KINDS = ["lmdb", "hdf5", "tar", "tars"]
TRAIN = T.Compose([T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.PILToTensor()])
FLOAT = T.Compose([T.Resize(40), T.CenterCrop(32), T.ToTensor(), T.Normalize((0.4, 0.5, 0.6), (0.2, 0.25, 0.3))])


def _epoch(loader):
    images, labels = zip(*loader, strict=True)
    return torch.cat(images), torch.cat(labels)


def _keys(loader):
    keys = []
    for _ in loader:
        keys += list(loader.last.keys)
    return keys


class Squares(Dataset):
    """A dataset that nobody but its author knows."""

    def __len__(self):
        return 10

    def __getitem__(self, i):
        return torch.tensor(i * i), os.getpid()


# ---------------------------------------------------------------- which way


@pytest.mark.parametrize("kind", KINDS)
def test_a_pack_with_a_known_transform_takes_the_engine(packs, kind):
    loader = FastLoader(packs[kind], 8, transform=TRAIN, num_workers=2)
    before = set(multiprocessing.active_children())  # others' may end meanwhile
    images, labels = next(iter(loader))
    assert set(multiprocessing.active_children()) <= before
    assert "threaded engine, 2 decoding threads" in loader.explain()
    assert images.shape == (8, 3, 32, 32)
    assert images.dtype == torch.uint8
    assert images.is_contiguous()
    assert labels.dtype == torch.int64
    assert isinstance(loader, DataLoader)


def test_an_unknown_step_sends_the_whole_pipeline_to_workers(packs):
    calls = T.Lambda(lambda image: image)
    loader = FastLoader(packs["lmdb"], 8, transform=T.Compose([T.Resize((32, 32)), calls, T.ToTensor()]), num_workers=0)
    assert "DataLoader's own way" in loader.explain()
    assert "Lambda" in loader.explain()
    with pytest.raises(OptionError, match="engine=True"):
        FastLoader(packs["lmdb"], 8, transform=calls, engine=True)
    images, _ = next(iter(loader))
    assert images.shape == (8, 3, 32, 32)


def test_a_users_dataset_is_dataloaders():
    loader = FastLoader(Squares(), 5, num_workers=1)
    (values, pids), (more, _) = loader
    assert values.tolist() + more.tolist() == [i * i for i in range(10)]
    assert os.getpid() not in pids.tolist()
    assert "Squares" in loader.explain()


def test_getitem_of_an_image_folder_is_not_called(image_folder, monkeypatch):
    def forbidden(*_):
        raise AssertionError

    data = ImageFolder(str(image_folder), TRAIN)
    monkeypatch.setattr(ImageFolder, "__getitem__", forbidden)
    assert len(_epoch(FastLoader(data, 4))[1]) == 21
    with pytest.raises(AssertionError):
        next(iter(FastLoader(data, 4, engine=False)))


@pytest.mark.parametrize("change", ["subclass", "loader", "instance"])
def test_only_exact_types_take_the_engine(image_folder, change):
    class Mine(ImageFolder):
        pass

    data = (Mine if change == "subclass" else ImageFolder)(str(image_folder), TRAIN)
    if change == "loader":
        data.loader = lambda path: path
    if change == "instance":
        data.__getitem__ = lambda i: i
    assert "DataLoader's own way" in FastLoader(data, 4).explain()


def test_the_transform_is_read_anew_at_every_epoch(image_folder):
    data = ImageFolder(str(image_folder), T.Compose([T.RandomResizedCrop(32), T.PILToTensor()]))
    loader = FastLoader(data, 4, num_workers=1)
    assert next(iter(loader))[0].shape[-1] == 32
    data.transform.transforms[0].size = (24, 24)
    assert next(iter(loader))[0].shape[-1] == 24
    data.samples = data.samples[:6]
    assert len(_epoch(FastLoader(data, 4))[1]) == 6


# ---------------------------------------------------------------- what comes out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_evaluation_equals_torchvision(packs, image_folder, kind, workers):
    ours, labels = _epoch(FastLoader(packs[kind], 5, transform=FLOAT, num_workers=workers))
    theirs, wanted = _epoch(DataLoader(ImageFolder(str(image_folder), FLOAT), 5))
    assert ours.dtype == torch.float32
    assert labels.tolist() == wanted.tolist()
    # one grey level, in the units of the narrowest std
    assert (ours - theirs).abs().max() <= 1 / 255 / 0.2 * 1.001


def test_channels_last_holds_the_same_values(packs):
    plain, _ = _epoch(FastLoader(packs["lmdb"], 21, transform=FLOAT))
    ((images, _),) = FastLoader(packs["lmdb"], 21, transform=FLOAT, memory_format=torch.channels_last)
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(images, plain)


@pytest.mark.parametrize("batch_size", [1, 4, 21, 30])  # C077, C080, C092
@pytest.mark.parametrize("shuffle", [False, True])
def test_every_sample_once(packs, batch_size, shuffle):
    for kind in KINDS:
        for workers in (0, 2):
            loader = FastLoader(packs[kind], batch_size, shuffle, num_workers=workers, transform=TRAIN)
            assert Counter(_keys(loader)) == Counter(open_store(packs[kind]).key(i) for i in range(21))
            assert len(list(loader)) == len(loader) == -(-21 // batch_size)


@pytest.mark.parametrize("batch_size", [1, 4, 21])
@pytest.mark.parametrize("workers", [0, 1, 10])
def test_drop_last_drops_one_rest(packs, batch_size, workers):  # C079
    loader = FastLoader(packs["lmdb"], batch_size, transform=TRAIN, num_workers=workers, drop_last=True)
    assert [len(labels) for _, labels in loader] == [batch_size] * (21 // batch_size)


def test_different_sizes_are_named(packs):  # C100
    with pytest.raises(BatchShapeError) as caught:
        next(iter(FastLoader(packs["lmdb"], 4)))
    assert "ant/ant0" in str(caught.value)
    assert "90x70" in str(caught.value)
    assert "ant/ant1" in str(caught.value)
    assert "100x80" in str(caught.value)
    assert "Resize" in str(caught.value)
    assert next(iter(FastLoader(packs["lmdb"], 1)))[0].shape == (1, 3, 70, 90)


def test_collate_fn_gets_views_and_target_transform_labels(image_folder):
    data = ImageFolder(str(image_folder), TRAIN, target_transform=lambda label: label + 10)
    got = []

    def collate(rows):
        got.append(rows)
        return [label for _, label in rows]

    assert [label for batch in FastLoader(data, 4, collate_fn=collate, num_workers=2) for label in batch] == [
        *[10] * 7, *[11] * 9, *[12] * 5,
    ]  # fmt: skip
    assert got[0][0][0].shape == (3, 32, 32)
    assert next(iter(FastLoader(data, 4)))[1].tolist() == [10] * 4


def test_a_kept_batch_is_never_overwritten(packs):
    loader = FastLoader(packs["lmdb"], 4, transform=FLOAT, num_workers=2)
    kept, copies = [], []
    for images, _ in loader:
        kept.append((images[0], images.numpy()[1:], images))
        copies.append(images.clone())
    for (first, rest, whole), copy in zip(kept, copies, strict=True):
        assert torch.equal(first, copy[0])
        assert np.array_equal(rest, copy[1:].numpy())
        assert torch.equal(whole, copy)


# ---------------------------------------------------------------- randomness


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_same_seed_gives_the_same_bits_for_any_workers_and_format(packs, shuffle):  # C089
    reference = None
    for kind in KINDS:
        for workers in (0, 1, 3) if kind == "lmdb" else (2,):
            loader = FastLoader(packs[kind], 5, shuffle, transform=TRAIN, seed=3, num_workers=workers)
            epochs = [_epoch(loader) for _ in range(2)]
            reference = reference or epochs
            for (images, labels), (wanted, wanted_labels) in zip(epochs, reference, strict=True):
                assert torch.equal(images, wanted)
                assert torch.equal(labels, wanted_labels)
    assert not torch.equal(reference[0][0], reference[1][0])  # new crops, and a new order when shuffled


def test_set_epoch_chooses_the_epoch(packs):
    loader = FastLoader(packs["lmdb"], 5, shuffle=True, transform=TRAIN, seed=3)
    first, second = _epoch(loader)[0], _epoch(loader)[0]
    loader.set_epoch(0)
    assert torch.equal(_epoch(loader)[0], first)
    assert torch.equal(_epoch(loader)[0], second)


@pytest.mark.parametrize("workers", [0, 2])
def test_without_a_seed_the_order_is_dataloaders(image_folder, workers):
    data = ImageFolder(str(image_folder), FLOAT)  # draws nothing, as random steps in workers draw nothing here
    torch.manual_seed(5)
    theirs = [_epoch(DataLoader(data, 4, shuffle=True, num_workers=workers))[1].tolist() for _ in range(2)]
    state = torch.get_rng_state()
    torch.manual_seed(5)
    ours = [_epoch(FastLoader(data, 4, shuffle=True, num_workers=workers))[1].tolist() for _ in range(2)]
    assert ours == theirs
    assert torch.equal(torch.get_rng_state(), state)
    assert ours[0] != ours[1]


def test_crops_differ_from_epoch_to_epoch_and_repeat_with_torchs_seed(packs):
    loader = FastLoader(packs["lmdb"], 21, transform=TRAIN, num_workers=2)
    torch.manual_seed(1)
    first, second = _epoch(loader)[0], _epoch(loader)[0]
    torch.manual_seed(1)
    assert torch.equal(_epoch(loader)[0], first)
    assert not torch.equal(first, second)


def test_one_sample_twice_gets_two_crops(packs):
    loader = FastLoader(packs["lmdb"], 4, sampler=[2, 2, 2, 2], transform=TRAIN, seed=1)
    images, _ = next(iter(loader))
    assert len({image.numpy().tobytes() for image in images}) == 4


def test_a_distributed_sampler_is_honoured(packs):
    seen = []
    for rank in range(2):
        sampler = DistributedSampler(range(21), 2, rank, shuffle=True)
        loader = FastLoader(packs["lmdb"], 4, sampler=sampler, transform=TRAIN, seed=0)
        sampler.set_epoch(1)
        seen += [int(i) for _ in loader for i in loader.last.indices]
        wanted = list(sampler)
        assert seen[-len(wanted) :] == wanted
    assert set(seen) == set(range(21))


# ---------------------------------------------------------------- faults and endings


@pytest.fixture
def damaged(image_folder, tmp_path):
    from fastdata.converters import pack

    pack(image_folder, tmp_path / "d.tar", workers=1)
    with open_store(tmp_path / "d.tar") as store:
        offset, length = int(store.spans(np.array([5])).offset[0]), len(store.read(5))
    with (tmp_path / "d.tar").open("r+b") as file:
        file.seek(offset + 200)
        file.write(b"\0" * (length - 200))
    return tmp_path / "d.tar"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_bad_sample_raises_with_its_key_and_the_loader_lives_on(damaged, workers):  # C110
    loader = FastLoader(damaged, 4, transform=FLOAT, num_workers=workers)
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(SampleError, match="ant/ant5"):
        next(iterator)
    assert len(next(iterator)[1]) == 4
    with pytest.raises(SampleError):
        _epoch(loader)


def test_a_bad_sample_is_skipped_or_replaced_and_counted(damaged):
    loader = FastLoader(damaged, 4, transform=FLOAT, num_workers=2, on_error="skip")
    sizes, keys = zip(*[(len(labels), list(loader.last.keys)) for _, labels in loader], strict=True)
    assert sizes == (4, 3, 4, 4, 4, 1)
    assert "ant/ant5" not in [key for batch in keys for key in batch]
    assert [fault.key for fault in loader.faults] == ["ant/ant5"]
    assert "1 sample skipped" in loader.faults.summary()
    loader = FastLoader(damaged, 4, transform=FLOAT, num_workers=2, on_error="replace")
    batches = [(images.clone(), loader.last.valid.tolist(), loader.last.indices.tolist()) for images, _ in loader]
    assert [len(images) for images, _, _ in batches] == [4, 4, 4, 4, 4, 1]
    assert batches[1][1] == [True, True, True, False]
    assert torch.equal(batches[1][0][3], batches[1][0][0])
    assert batches[1][2] == [4, 6, 7, 4]


def test_verify_finds_a_changed_byte_that_decodes(packs, tmp_path):
    path = tmp_path / "copy.h5"
    data = bytearray(packs["hdf5"].read_bytes())
    store = open_store(packs["hdf5"])
    span = store.spans(np.array([3]))
    data[int(span.offset[0] + span.length[0]) - 1] ^= 1
    path.write_bytes(data)
    assert len(_epoch(FastLoader(path, 4, transform=FLOAT, on_error="skip", verify=True))[1]) == 20


def test_iterators_are_independent(packs):  # C097
    loader = FastLoader(packs["lmdb"], 7, transform=FLOAT, num_workers=2)
    pairs = [(int(a[0]), int(b[0])) for _, a in loader for _, b in loader]
    firsts = [int(labels[0]) for _, labels in loader]
    assert pairs == [(a, b) for a in firsts for b in firsts]


def test_dropped_iterators_leave_nothing_behind(packs):  # C094
    loader = FastLoader(packs["lmdb"], 4, transform=FLOAT, num_workers=2)

    def use(times):
        for _ in range(times):
            next(iter(loader))
        gc.collect()
        return threading.active_count(), len(os.listdir("/proc/self/fd"))

    threads, files = use(10)
    more_threads, more_files = use(100)
    assert abs(more_threads - threads) <= 2
    assert abs(more_files - files) <= 2
    loader.close()
    loader.close()
    assert len(_epoch(loader)[1]) == 21


def test_threads_end_with_their_loader(packs):
    before = threading.active_count()
    loader = FastLoader(packs["lmdb"], 4, transform=FLOAT, num_workers=2)
    next(iter(loader))
    del loader
    gc.collect()
    assert threading.active_count() <= before


def test_a_forked_child_can_use_the_loader(packs):  # C052
    loader = FastLoader(packs["lmdb"], 4, transform=FLOAT, num_workers=2)
    wanted = _epoch(loader)[0].sum().item()
    reader, writer = multiprocessing.Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        try:
            torch.set_num_threads(1)  # torch's own OpenMP threads did not survive the fork
            writer.send(_epoch(loader)[0].sum().item())
        finally:
            os._exit(0)
    assert reader.poll(30)
    assert reader.recv() == wanted
    os.waitpid(pid, 0)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_a_loader_can_be_pickled(packs, memory_format):
    loader = FastLoader(packs["lmdb"], 4, transform=FLOAT, num_workers=2, memory_format=memory_format)
    wanted = _epoch(loader)[0]
    data = pickle.dumps(loader)
    assert __name__.encode() not in data  # the pickle can be read where this module is not
    again = pickle.loads(data)
    assert again.memory_format is memory_format
    assert torch.equal(_epoch(again)[0], wanted)


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_workers": -1}, {"batch_size": 0}, {"shuffle": True, "sampler": [1]}, {"timeout": -1},
        {"batch_sampler": [[1]], "batch_size": 4}, {"persistent_workers": True, "num_workers": 0},
        {"prefetch_factor": 2, "num_workers": 0}, {"batch_size": None, "drop_last": True},
    ],
)  # fmt: skip
def test_the_same_mistakes_give_the_same_errors(packs, image_folder, wrong):
    data = ImageFolder(str(image_folder), FLOAT)
    with pytest.raises(Exception) as theirs:  # noqa: PT011  whatever DataLoader says
        DataLoader(data, **wrong)
    for first in (data, packs["lmdb"]):
        with pytest.raises(type(theirs.value)) as ours:
            FastLoader(first, **wrong)
        assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize(
    "wrong",
    [{"transform": 5}, {"transform": T.ToTensor}, {"memory_format": "channels_last"}, {"seed": 1.5}, {"seed": "a"}],
)
def test_what_would_be_taken_in_silence_is_refused(packs, wrong):
    with pytest.raises(OptionError, match=next(iter(wrong))):
        FastLoader(packs["lmdb"], **wrong)


def test_a_transform_for_a_dataset_is_refused(image_folder):
    with pytest.raises(OptionError, match="transform"):
        FastLoader(ImageFolder(str(image_folder)), transform=FLOAT)


def test_a_batch_sampler_of_variable_sizes(packs):
    loader = FastLoader(packs["tar"], batch_sampler=[[3], [1, 2, 0], [20, 19]], transform=FLOAT, num_workers=2)
    assert [loader.last.indices.tolist() for _ in loader] == [[3], [1, 2, 0], [20, 19]]
    assert len(loader) == 3


def test_the_device_named_gets_the_same_values(packs):  # C131
    plain = _epoch(FastLoader(packs["lmdb"], 4, transform=FLOAT, num_workers=2))
    moved = _epoch(FastLoader(packs["lmdb"], 4, transform=FLOAT, num_workers=2, device="cpu"))
    assert torch.equal(plain[0], moved[0])
    loader = FastLoader(packs["lmdb"], 4, transform=FLOAT, num_workers=2, device="cpu")
    for number, (_, labels) in enumerate(loader):
        assert loader.last.indices.tolist() == list(range(4 * number, 4 * number + len(labels)))
    assert isinstance(loader.sampler, DistributedSampler)
    assert not isinstance(FastLoader(Squares()).sampler, DistributedSampler)
    assert isinstance(FastLoader(Squares()).sampler, SequentialSampler)
