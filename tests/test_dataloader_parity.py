"""What PyTorch documents of DataLoader, statement by statement, through DataLoader and FastLoader: one outcome.

An outcome is what a statement returns, or its error's type and text, and the warnings on the way. On data sets of a
user's (DataLoader's own workers) and on an ImageFolder (the engine).
"""

from __future__ import annotations

import functools
import inspect
import os
import pickle
import threading
import traceback
import warnings
from collections import namedtuple

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

from fastdata.loader import FastLoader
from fastdata.transforms.batch_op import batch_op

Point = namedtuple("Point", "x y")  # noqa: PYI024  as users have them


class Plain(Dataset):
    def __len__(self):
        return 21

    def __getitem__(self, i):
        if not -21 <= i < 21:
            raise IndexError(i)
        return torch.tensor([float(i), 0.0]), int(i)


class Odd(Exception):  # noqa: N818  a user's
    def __init__(self, first, second):
        super().__init__(first, second)


class Failing(Plain):
    def __init__(self, error):
        self.error = error

    def __getitem__(self, i):
        if i == 5:
            raise self.error
        return super().__getitem__(i)


class Waiting(Plain):
    def __init__(self):
        self.free = torch.multiprocessing.Event()

    def __getitem__(self, i):
        self.free.wait()


class Drawing(Plain):
    def __getitem__(self, i):
        info = get_worker_info()
        return i, torch.rand(1).item(), -1 if info is None else info.id, 0 if info is None else info.num_workers


class Stream(IterableDataset):
    def __init__(self, n=10, *, length=None, shares=False):
        self.n, self.length, self.shares = n, length, shares
        if length is not None:
            self.__class__ = Sized

    def __repr__(self):
        return "Stream"

    def __iter__(self):
        info = get_worker_info()
        return iter(range(info.id, self.n, info.num_workers) if self.shares and info else range(self.n))


class Sized(Stream):
    def __len__(self):
        return self.length


class Things(Dataset):
    """What default_collate knows, and what it does not."""

    def __init__(self, *things):
        self.things = things

    def __len__(self):
        return len(self.things)

    def __getitem__(self, i):
        return self.things[i]


class Pinnable:
    """A batch type of a user's, with a pin method."""

    def __init__(self, rows):
        self.rows, self.pinned = rows, False

    def pin_memory(self):
        self.pinned = True
        return self


def _plain(value):
    """A value that compares: tensors as what they are made of."""
    if isinstance(value, torch.Tensor):
        # Pixels are compared elsewhere; here it is which they are, and in which shape and type.
        return ("tensor", tuple(value.shape), str(value.dtype), value.tolist() if value.dim() < 3 else None)
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [_plain(inner) for inner in value])
    if isinstance(value, Pinnable):
        return ("Pinnable", len(value.rows), value.pinned)
    return value


def _text(text):
    return str(text).replace("FastLoader", "DataLoader")


def outcome(statement, loader, data):
    torch.manual_seed(7)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            done = ("returned", _plain(statement(loader, data)))
        except BaseException as error:  # noqa: BLE001  whatever it is, it is to be the same
            done = ("raised", type(error).__name__, _text(error).partition("\nOriginal Traceback")[0].split("(pid")[0])
            traceback.clear_frames(error.__traceback__)  # or DataLoader's iterator lives on in a cycle, and takes 5 s
    return done, sorted((w.category.__name__, _text(w.message)) for w in caught)


def same(statement, data):
    theirs, ours = outcome(statement, DataLoader, data), outcome(statement, FastLoader, data)
    assert ours == theirs
    return theirs


@pytest.fixture(params=["plain", "folder"])
def data(request, image_folder):
    """21 samples whose labels are their numbers: of a user's class, and an ImageFolder for the engine."""
    if request.param == "plain":
        return Plain()
    folder = ImageFolder(str(image_folder), T.Compose([T.Resize((8, 8)), T.PILToTensor()]))
    folder.samples = [(path, i) for i, (path, _) in enumerate(folder.samples)]
    assert "threaded engine" in FastLoader(folder).explain()
    return folder


def everything(loader):
    return [len(loader), list(loader)]


# ---------------------------------------------------------------- which batches come

ORDERS = {
    "as it is": {},
    "batches": {"batch_size": 4},
    "drop_last": {"batch_size": 4, "drop_last": True},
    "one batch": {"batch_size": 21, "drop_last": True},
    "larger than the set": {"batch_size": 50},
    "shuffle": {"batch_size": 4, "shuffle": True},
    "shuffle=False": {"batch_size": 4, "shuffle": False},
    "batch_size=None": {"batch_size": None},
    "batch_size=None, shuffled": {"batch_size": None, "shuffle": True},
    "a list for a sampler": {"batch_size": 2, "sampler": [3, 1, 20, 20, 0]},
    "negative indices": {"batch_size": 2, "sampler": [-1, 3, -21]},
    "numpy's integers": {"batch_size": 2, "sampler": list(np.arange(5))},
    "torch's integers": {"batch_size": 2, "sampler": list(torch.arange(5))},
    "a batch sampler of variable sizes": {"batch_sampler": [[3], [1, 2, 0], [20, 19]]},
    "a batch sampler of tuples": {"batch_sampler": [(3, 4), (1, 2, 0)]},
    "a batch sampler of arrays": {"batch_sampler": [np.array([3, 4]), np.array([1])]},
    "a batch sampler of none": {"batch_sampler": []},
    "a sampler of none": {"sampler": []},
    "an index too large": {"sampler": [0, 99]},
}


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("order", ORDERS)
def test_batches_and_lengths(data, order, workers):  # C077, C079, C080
    def statement(loader, data):
        made = loader(data, num_workers=workers, **ORDERS[order])
        return [everything(made), everything(made), torch.rand(1)]

    done, _ = same_but_texts(statement, data)
    assert done[0] == ("raised" if order == "an index too large" else "returned")


def same_but_texts(statement, data):
    """As ``same``, but of errors the type alone (of an index out of range everybody has words of their own)."""
    theirs, ours = outcome(statement, DataLoader, data), outcome(statement, FastLoader, data)
    if theirs[0][0] == "raised":
        assert ours[0][:2] == theirs[0][:2]
    else:
        assert ours == theirs
    return theirs


SAMPLERS = {
    "RandomSampler": RandomSampler,
    "with replacement": lambda data: RandomSampler(data, replacement=True, num_samples=9),
    "a generator of its own": lambda data: RandomSampler(data, generator=torch.Generator().manual_seed(3)),
    "SubsetRandomSampler": lambda _: SubsetRandomSampler([2, 3, 5, 7]),
    "WeightedRandomSampler": lambda _: WeightedRandomSampler(torch.arange(21.0), 8),
    "SequentialSampler": SequentialSampler,
}


@pytest.mark.parametrize("kind", SAMPLERS)
def test_samplers_draw_the_same(data, kind):
    def statement(loader, data):
        made = loader(data, 4, sampler=SAMPLERS[kind](data))
        batched = loader(data, batch_sampler=BatchSampler(SAMPLERS[kind](data), 3, drop_last=True))
        return [everything(made), everything(batched), everything(made), torch.rand(1)]

    assert same(statement, data)[0][0] == "returned"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_generator_governs_the_order_and_is_drawn_from_alike(data, workers):
    def statement(loader, data):
        generator = torch.Generator().manual_seed(5)
        made = loader(data, 4, shuffle=True, generator=generator, num_workers=workers)
        return [everything(made), everything(made), torch.rand(1, generator=generator), torch.rand(1)]

    assert same(statement, data)[0][0] == "returned"


def test_persistent_workers_draw_their_base_seed_once(data):
    def statement(loader, data):
        made = loader(data, 4, shuffle=True, num_workers=2, persistent_workers=True)
        return [*(everything(made) for _ in range(3)), torch.rand(1)]

    assert same(statement, data)[0][0] == "returned"


LABELS = {
    "a string": str,
    "a float": float,
    "a tuple": lambda label: (label, f"{label}"),
    "a dict": lambda label: {"label": label, "name": str(label)},
    "a scalar of numpy": np.int32,
    "a tensor": torch.tensor,
    "an array": lambda label: np.full(2, label),
    "None": lambda _: None,
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_any_type_are_collated_alike(image_folder, kind):
    def statement(loader, _):
        transform = T.Compose([T.Resize((8, 8)), T.PILToTensor()])
        return list(loader(ImageFolder(str(image_folder), transform, target_transform=LABELS[kind]), 8))

    done, _ = same(statement, None)
    assert done[0] == ("raised" if kind == "None" else "returned")


def test_iterators_of_one_loader(data):  # C097
    def statement(loader, data):
        made = loader(data, 8)
        first = iter(made)
        got = [len(first), next(first), list(made), next(first), next(first)]
        for _ in range(2):
            with pytest.raises(StopIteration):
                next(first)
        return [*got, iter(first) is first]

    assert same(statement, data)[0][0] == "returned"


def test_an_empty_set():
    def statement(loader, _):
        return [everything(loader(Things(), 4)), everything(loader(Things(), 4, drop_last=True))]

    same(statement, None)
    same(lambda loader, _: everything(loader(Things(), 4, shuffle=True)), None)


def test_in_order_false_gives_the_same_set(data):
    def statement(loader, data):
        made = loader(data, 4, num_workers=2, in_order=False)
        return sorted(label for _, labels in made for label in labels.tolist())

    assert same(statement, data)[0] == ("returned", ("list", list(range(21))))


# ---------------------------------------------------------------- arguments

ARGUMENTS = [
    {"num_workers": -1}, {"num_workers": 1.5}, {"batch_size": 0}, {"batch_size": -3}, {"batch_size": 2.5},
    {"batch_size": "4"}, {"timeout": -1}, {"prefetch_factor": 2}, {"prefetch_factor": -1, "num_workers": 1},
    {"persistent_workers": True}, {"shuffle": True, "sampler": [1]}, {"shuffle": False, "sampler": [1]},
    {"batch_sampler": [[1]], "batch_size": 4}, {"batch_sampler": [[1]], "shuffle": True},
    {"batch_sampler": [[1]], "sampler": [1]}, {"batch_sampler": [[1]], "drop_last": True},
    {"batch_size": None, "drop_last": True}, {"multiprocessing_context": "fork"},
    {"multiprocessing_context": "thread", "num_workers": 1}, {"multiprocessing_context": 3, "num_workers": 1},
    {"shuffle": 3}, {"generator": 3}, {"nonsense": 1}, {"num_workers": 2, "prefetch_factor": 0},
]  # fmt: skip


@pytest.mark.parametrize("wrong", ARGUMENTS, ids=str)
def test_arguments_are_refused_or_taken_alike(data, wrong):
    same(lambda loader, data: len(loader(data, **wrong)), data)


@pytest.mark.parametrize("workers", [2.0, np.int64(1), True])
def test_a_number_of_workers_that_is_no_int(data, workers):
    done, _ = same(lambda loader, data: list(loader(data, 7, num_workers=workers)), data)
    assert done[0] == ("raised" if isinstance(workers, float) else "returned")


def test_the_signature_begins_with_dataloaders():
    ours = dict(inspect.signature(FastLoader.__init__).parameters)
    theirs = inspect.signature(DataLoader.__init__).parameters
    for name, parameter in theirs.items():
        assert ours[name].kind is parameter.kind
        assert ours[name].default == parameter.default or name == "num_workers"  # None: by the machine, for a path
    positional = [name for name, p in theirs.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert list(ours)[: len(positional)] == positional


def test_attributes(data):
    names = (
        "batch_size", "drop_last", "num_workers", "timeout", "pin_memory", "pin_memory_device", "prefetch_factor",
        "persistent_workers", "in_order", "worker_init_fn", "multiprocessing_context", "generator",
    )  # fmt: skip

    def statement(loader, data):
        found = []
        for kwargs in ({}, {"batch_size": 4, "num_workers": 2, "shuffle": True, "timeout": 3}, {"batch_size": None}):
            made = loader(data, **kwargs)
            found += [[getattr(made, name) for name in names], made.dataset is data]
            found += [type(made.sampler).__name__, type(made.batch_sampler).__name__, made.collate_fn.__name__]
        return found

    assert same(statement, data)[0][0] == "returned"
    assert isinstance(FastLoader(data), DataLoader)


@pytest.mark.parametrize(
    "name", ["batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers", "num_workers"]
)
def test_what_is_fixed_after_construction(data, name):
    def statement(loader, data):
        made = loader(data, 4)
        setattr(made, name, getattr(made, name))
        return len(made)

    assert same(statement, data)[0][0] == ("returned" if name == "num_workers" else "raised")


def test_what_may_be_changed_after_construction(data):
    def statement(loader, data):
        made = loader(data, 8)
        first = list(made)
        made.collate_fn = len
        return [first, list(made)]

    assert same(statement, data)[0][0] == "returned"


def test_a_type_in_brackets():
    # Annotations of a script whose DataLoader is a FastLoader now.
    assert FastLoader[int].__origin__ is FastLoader
    assert len(FastLoader[int](Plain(), 4)) == 6


class Mine(FastLoader):
    """A subclass as people write them for DataLoader."""

    def __init__(self, data, scale, **kwargs):
        self.scale = scale
        super().__init__(data, **kwargs)

    def __iter__(self):
        for images, labels in super().__iter__():
            yield images, labels * self.scale


def test_a_subclass(data):
    assert [label for _, labels in Mine(data, 3, batch_size=4) for label in labels.tolist()] == list(range(0, 63, 3))


# ---------------------------------------------------------------- collating


def test_collate_fn_gets_a_list_of_samples(data):
    def statement(loader, data):
        made = loader(data, 4, collate_fn=lambda rows: [type(rows), [type(row).__name__ for row in rows], len(rows)])
        return [str(batch) for batch in made]

    assert same(statement, data)[0][0] == "returned"


THINGS = {
    "numbers": (1, 2), "floats": (1.5, 2.5), "strings": ("a", "b"), "bytes": (b"a", b"b"),
    "tuples": ((1, "a"), (2, "b")), "lists": ([1, 2], [3, 4]), "dicts": ({"a": 1, "b": [1]}, {"a": 2, "b": [3]}),
    "namedtuples": (Point(1, 2), Point(3, 4)), "arrays": (np.zeros(2), np.ones(2)), "scalars": (np.float32(1),) * 2,
    "None": (None, None), "objects": (object, object), "unequal tensors": (torch.zeros(2), torch.zeros(3)),
    "unequal lists": ([1], [1, 2]), "bools": (True, False),
}  # fmt: skip


@pytest.mark.parametrize("batch_size", [2, None])
@pytest.mark.parametrize("kind", THINGS)
def test_default_collate_and_default_convert(kind, batch_size):
    same(lambda loader, _: list(loader(Things(*THINGS[kind]), batch_size)), None)


@pytest.mark.parametrize("workers", [0, 2])
def test_pin_memory_without_an_accelerator_warns(data, workers):  # C098, C101
    def statement(loader, data):
        made = loader(data, 21, pin_memory=True, num_workers=workers, collate_fn=Pinnable)
        return [list(made), list(loader(data, 21, pin_memory=True, num_workers=workers))]

    _, said = same(statement, data)
    assert len(said) == (0 if torch.accelerator.is_available() else 2)


@pytest.mark.cuda
@pytest.mark.parametrize("workers", [0, 2])
def test_pin_memory_pins_what_a_collate_fn_gives(data, workers):  # C098, C101
    def statement(loader, data):
        kwargs = {"batch_size": 7, "pin_memory": True, "num_workers": workers}
        pairs = [[images.is_pinned(), labels.is_pinned()] for images, labels in loader(data, **kwargs)]
        return [pairs, list(loader(data, collate_fn=Pinnable, **kwargs))]

    done, _ = same(statement, data)
    assert done[1][1][0] == ("list", [("list", [True, True])] * 3)


def test_pin_memory_device_is_out_of_date(data):
    _, said = same(lambda loader, data: len(list(loader(data, 21, pin_memory=True, pin_memory_device="cuda"))), data)
    assert any("pin_memory_device" in text for _, text in said)


# ---------------------------------------------------------------- IterableDataset


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("kwargs", [{}, {"batch_size": 4}, {"batch_size": 4, "drop_last": True}, {"batch_size": None}])
def test_streams_are_shared_by_their_own_doing(kwargs, shares, workers):
    same(lambda loader, _: list(loader(Stream(shares=shares), num_workers=workers, **kwargs)), None)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("length", [3, 10, 12])
def test_the_length_of_a_stream_is_believed_and_complained_of(length, workers):
    def statement(loader, _):
        made = loader(Stream(length=length), 1, num_workers=workers)
        found = [len(list(made))]  # before len is called nobody complains
        return [*found, len(made), len(list(made)), len(loader(Stream(length=length), 4, drop_last=True))]

    _, said = same(statement, None)
    assert bool(said) == (workers == 2 or length == 3)


@pytest.mark.parametrize(
    "wrong", [{"shuffle": True}, {"sampler": [1]}, {"batch_sampler": [[1]]}, {"shuffle": False}, {"batch_size": 0}]
)
def test_what_a_stream_does_not_take(wrong):
    same(lambda loader, _: len(list(loader(Stream(), **wrong))), None)


def test_a_stream_without_a_length():
    assert same(lambda loader, _: len(loader(Stream(), 2)), None)[0][1] == "TypeError"


# ---------------------------------------------------------------- worker processes


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_workers_draw_from_the_base_seed(workers):
    def statement(loader, _):
        made = loader(Drawing(), 4, num_workers=workers)
        return [list(made), list(made), torch.rand(1), get_worker_info() is None]

    assert same(statement, None)[0][0] == "returned"


def _note(folder, worker):
    info = get_worker_info()
    with open(os.path.join(folder, f"{worker}"), "a") as file:
        file.write(f"{info.id} of {info.num_workers} {type(info.dataset).__name__} {info.seed}\n")


@pytest.mark.parametrize("persistent", [False, True])
def test_worker_init_fn_is_called_once_in_each_worker(tmp_path, persistent):
    def statement(loader, _):
        folder = tmp_path / f"{loader.__name__}{persistent}"
        folder.mkdir()
        init = functools.partial(_note, str(folder))
        made = loader(Plain(), 4, num_workers=2, worker_init_fn=init, persistent_workers=persistent)
        return [list(made), list(made), [(folder / name).read_text() for name in ("0", "1")]]

    done, _ = same(statement, None)
    assert done[1][1][2][1][0].count("\n") == (1 if persistent else 2)


def _fails(_):
    msg = "not today"
    raise ValueError(msg)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    "error", [ValueError("5 is bad"), KeyError("five"), Odd(1, 2), OSError(5, "disk"), StopIteration("early")]
)
def test_exceptions_of_a_dataset(error, workers):  # C110
    def statement(loader, _):
        batches, got = iter(loader(Failing(error), 4, num_workers=workers)), []
        got.append(next(batches))
        try:
            next(batches)
        except Exception as caught:  # noqa: BLE001
            got += [type(caught).__name__, str(caught).partition("\nOriginal")[0]]
            traceback.clear_frames(caught.__traceback__)
        return [*got, next(batches)] if workers else got

    same(statement, None)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("where", ["collate_fn", "worker_init_fn", "sampler"])
def test_exceptions_of_a_users_functions(where, workers):
    def draws():
        yield 3
        _fails(None)

    class Sampler:
        def __iter__(self):
            return draws()

        def __len__(self):
            return 2

    value = Sampler() if where == "sampler" else _fails
    done, _ = same(lambda loader, _: list(loader(Plain(), 1, num_workers=workers, **{where: value})), None)
    assert done[0] == ("returned" if where == "worker_init_fn" and not workers else "raised")


def test_exceptions_of_a_collate_fn_or_sampler_on_the_engine(data):
    # In the consumer's thread the error is the user's own, without a worker process's words around it.
    same_but_texts(lambda loader, data: list(loader(data, 4, num_workers=2, collate_fn=_fails)), data)
    same(lambda loader, data: list(loader(data, 4, sampler=map(_fails, [1]))), data)


def test_a_worker_that_takes_too_long():
    def statement(loader, _):
        data = Waiting()
        try:
            return next(iter(loader(data, 1, num_workers=1, timeout=0.2)))
        finally:
            data.free.set()

    assert same(statement, None)[0][:2] == ("raised", "RuntimeError")


def test_a_timeout_without_workers_and_one_that_is_kept(data):
    assert same(lambda loader, data: next(iter(loader(data, timeout=1))), data)[0][:2] == ("raised", "AssertionError")
    assert same(lambda loader, data: list(loader(data, 7, num_workers=1, timeout=60)), data)[0][0] == "returned"


def test_a_timeout_on_the_engine(packs):
    free = threading.Event()

    def waits(images):
        free.wait()
        return images

    transform = T.Compose([T.Resize((8, 8)), batch_op(waits), T.PILToTensor()])
    loader = FastLoader(packs["lmdb"], 7, num_workers=1, transform=transform, timeout=0.1)
    assert "threaded engine" in loader.explain()
    try:
        with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0\.1 seconds"):
            next(iter(loader))
    finally:
        free.set()
    assert [len(labels) for _, labels in loader] == [7, 7, 7]


def test_more_workers_than_cores_are_warned_of():
    _, said = same(lambda loader, _: loader(Plain(), num_workers=1000).num_workers, None)
    assert len(said) == 1


# ---------------------------------------------------------------- start methods


@pytest.mark.parametrize(
    ("method", "as_object"), [("fork", False), ("fork", True), ("spawn", False), ("forkserver", True)]
)
def test_a_start_method_by_name_and_as_an_object(method, as_object):
    context = torch.multiprocessing.get_context(method) if as_object else method

    def statement(loader, _):
        made = loader(TensorDataset(torch.arange(6)), 2, num_workers=1, multiprocessing_context=context)
        return [type(made.multiprocessing_context).__name__, list(made)]

    assert same(statement, None)[0][0] == "returned"


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize("what", ["collate_fn", "worker_init_fn"])
def test_a_lambda_where_workers_are_spawned_is_refused_by_name(method, what):  # C115
    def statement(loader, _):
        kwargs = {what: lambda rows: rows}
        return list(loader(TensorDataset(torch.arange(6)), 2, num_workers=1, multiprocessing_context=method, **kwargs))

    theirs, ours = (outcome(statement, loader, None) for loader in (DataLoader, FastLoader))
    assert theirs[0][0] == ours[0][0] == "raised"
    assert "lambda" in ours[0][2]
    assert ours == theirs


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_lambda_on_the_engine_works_under_any_start_method(image_folder, method):  # C115
    data = ImageFolder(str(image_folder), T.Compose([T.Resize((8, 8)), T.PILToTensor()]))
    collates = FastLoader(data, 7, num_workers=1, multiprocessing_context=method, collate_fn=lambda rows: len(rows) + 0)
    assert list(collates) == [7, 7, 7]
    assert collates.num_workers == 1


def test_a_loader_travels_as_dataloader_does():
    def statement(loader, _):
        return list(pickle.loads(pickle.dumps(loader(TensorDataset(torch.arange(6)), 2, num_workers=1))))

    assert same(statement, None)[0][0] == "returned"
