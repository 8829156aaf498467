"""Packs as torch datasets: PackedDataset (map-style, ImageFolder's surface) and StreamDataset (iterable)."""

from __future__ import annotations

import os
import stat
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, default_collate, get_worker_info

from fastdata.decoding.facade import decoder as decoder_by_name
from fastdata.errors import DecodeError, OptionError, SampleError
from fastdata.order import Order
from fastdata.philox import words
from fastdata.stores.opener import open_store
from fastdata.stores.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastdata.order import Uneven
    from fastdata.stores.reader import Io

__all__ = ["PackedDataset", "StreamDataset", "rank_and_world"]

_MOST_WORKERS = 1024
_WINDOW_STREAM = 3  # philox stream of the shuffling window


def rank_and_world() -> tuple[int, int]:
    """Return this process's rank and the world size: torch.distributed's, else torchrun's environment, else (0, 1)."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    try:
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        return 0, 1


class PackedDataset(Dataset[Any]):
    """A pack (or a folder) as a map-style dataset with the surface of torchvision's ImageFolder.

    ``ds[i]`` is (image, label): a PIL image (RGB; raw and grey packs too) unless ``transform`` makes something else of
    it. Picklable (the path travels), fork-safe. Errors of a sample are raised as SampleError, naming key and index.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Store,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        decoder: str = "auto",
        io: Io = "mmap",
    ) -> None:
        """Open the store; decode nothing yet."""
        self.store = path if isinstance(path, Store) else open_store(path, io=io)
        self.root = self.store.path
        self.transform, self.target_transform, self.decoder = transform, target_transform, decoder
        self.owner = ""  # of one that a FastLoader made: its way, "engine" or "workers"
        self._decode = decoder_by_name(decoder)

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.store)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        """Return (image, label) of sample ``index``."""
        image: Any = self.image(index)
        label: Any = self.store.label(index)
        if self.transform is not None:
            image = _transformed(image, self.transform)
        if self.target_transform is not None:
            label = self.target_transform(label)
        return image, label

    def __getitems__(self, indices: list[int]) -> list[tuple[Any, Any]]:
        """Return the samples of a batch, as a DataLoader asks for them; warn where a FastLoader's engine was to."""
        if self.owner == "engine":
            warnings.warn(
                "another DataLoader reads what a FastLoader was made for, without its engine, seed= and device=: one "
                "rebuilt from its attributes, as accelerate's skip_first_batches does. Use the FastLoader itself, and "
                "its load_state_dict() to go on in an epoch",
                stacklevel=2,
            )
        return [self[index] for index in indices]

    def image(self, index: int) -> Image.Image:
        """Return the picture of sample ``index`` as a PIL image of its own memory."""
        store = self.store
        try:
            data = store.read(index)
            if store.codec(index) == "raw":
                width, height = int(store.index.width[index]), int(store.index.height[index])
                pixels = np.frombuffer(data, np.uint8).reshape(height, width, -1)
                return Image.fromarray(pixels if pixels.shape[2] > 1 else pixels[:, :, 0]).convert("RGB")
            return Image.fromarray(self._decode(data))
        except DecodeError as error:
            msg = f"{store.path}: sample {index} ({store.key(index)!r}) cannot be decoded: {error}"
            raise SampleError(msg) from error

    @property
    def classes(self) -> list[str]:
        """The class names, sorted, as in ImageFolder."""
        return list(self.store.classes)

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The number of each class."""
        return self.store.class_to_idx

    @property
    def targets(self) -> list[Any]:
        """The labels of all samples (None where the set has none)."""
        column = self.store.index.label
        return [None] * len(self) if column is None else column.tolist()

    @property
    def samples(self) -> list[tuple[str, Any]]:
        """(key, label) of all samples: a list made anew at each call."""
        return [(self.store.key(i), label) for i, label in enumerate(self.targets)]

    imgs = samples

    def __repr__(self) -> str:
        """Return what torchvision's datasets show, in one line."""
        return f"PackedDataset({self.store!r}, transform={self.transform!r})"


class StreamDataset(IterableDataset[Any]):
    """A pack as an iterable dataset, for a plain DataLoader too: ranks and workers share out the samples exactly.

    Each epoch gives every sample once over all workers of all ranks (``uneven`` says what happens when ranks do not
    divide the samples). With ``shuffle`` packs that are read at random get a full permutation; a pipe that can only be
    read in sequence gets a window of ``window`` samples. ``set_epoch`` reaches running workers (the number lies in
    shared memory); without it every ``iter`` is a new epoch. With ``batch_size`` whole batches are dealt to the
    workers and come collated: use it with ``DataLoader(..., batch_size=None)``, and the epoch has ceil(n / batch_size)
    batches (floor with ``drop_last``), not a rest per worker.
    """

    def __init__(  # noqa: PLR0913  mirrors DataLoader's and PackedDataset's arguments
        self,
        path: str | os.PathLike[str] | Store,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        *,
        decoder: str = "auto",
        shuffle: bool = False,
        seed: int = 0,
        window: int = 1000,
        batch_size: int | None = None,
        drop_last: bool = False,
        uneven: Uneven = "pad",
    ) -> None:
        """Open the store, or remember the pipe; rank and world size are read here, in the parent."""
        if window < 1 or (batch_size is not None and batch_size < 1):
            msg = f"window={window}, batch_size={batch_size}: both count samples and are at least 1"
            raise OptionError(msg)
        self.pipe = os.fspath(path) if not isinstance(path, Store) and _is_pipe(os.fspath(path)) else None
        self._dataset = None if self.pipe is not None else PackedDataset(path, transform, target_transform, decoder)
        self.transform, self.target_transform, self.decoder = transform, target_transform, decoder
        self.shuffle, self.seed, self.window, self.uneven = shuffle, seed, window, uneven
        self.batch_size, self.drop_last = batch_size, drop_last
        self.rank, self.world_size = rank_and_world()
        self._epoch = _shared(1)
        # How often each worker began an epoch since it was told one: in shared memory, because DataLoader starts new
        # worker processes for each epoch unless they are persistent, and those could not count.
        self._started = _shared(_MOST_WORKERS)

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next ``iter`` gives; seen by running (persistent) workers."""
        self._epoch[0] = epoch
        self._started.zero_()

    def __len__(self) -> int:
        """Return how many samples (or batches) this rank gets per epoch; raise TypeError for a pipe."""
        if self._dataset is None:
            msg = f"{self.pipe}: the length of a pipe is not known before its end"
            raise TypeError(msg)
        n = len(self._order(0))
        if self.batch_size is None:
            return n
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        """Yield this worker's samples, or batches, of one epoch."""
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        epoch = int(self._epoch[0] + self._started[worker])
        self._started[worker] += 1
        return self._stream(epoch, workers) if self._dataset is None else self._deal(epoch, worker, workers)

    def _order(self, epoch: int) -> Order:
        assert self._dataset is not None
        return Order(len(self._dataset), self.seed, epoch, self.shuffle, self.rank, self.world_size, self.uneven)

    def _deal(self, epoch: int, worker: int, workers: int) -> Iterator[Any]:
        assert self._dataset is not None
        order, size = self._order(epoch), self.batch_size
        if size is None:
            for start in range(0, len(order), 4096):
                for at, index in enumerate(order.indices(start, start + 4096).tolist(), start):
                    if at % workers == worker:
                        yield self._dataset[index]
            return
        for batch in range(worker, len(self), workers):
            indices = order.indices(batch * size, (batch + 1) * size).tolist()
            yield default_collate([self._dataset[index] for index in indices])

    def _stream(self, epoch: int, workers: int) -> Iterator[Any]:
        """Yield from the pipe, in its order or through the window; only one reader can have it."""
        if workers > 1 or self.world_size > 1:
            msg = f"{self.pipe}: a pipe has one reader; use num_workers=0 or 1 and one process, or pack to a file"
            raise OptionError(msg)
        samples: Iterator[Any] = self._piped()
        if self.shuffle:
            samples = _windowed(samples, self.window, self.seed, epoch)
        return samples if self.batch_size is None else self._batched(samples)

    def _piped(self) -> Iterator[Any]:
        from fastdata.stores.tar_stream import stream_tar  # noqa: PLC0415  only pipes need it

        decode = decoder_by_name(self.decoder)
        assert self.pipe is not None
        with Path(self.pipe).open("rb") as file:
            for number, record in enumerate(stream_tar(file)):
                try:
                    image: Any = Image.fromarray(decode(record.fields[0].data))
                except DecodeError as error:
                    msg = f"{self.pipe}: sample {number} ({record.key!r}) cannot be decoded: {error}"
                    raise SampleError(msg) from error
                label: Any = record.label
                if self.transform is not None:
                    image = _transformed(image, self.transform)
                if self.target_transform is not None:
                    label = self.target_transform(label)
                yield image, label

    def _batched(self, samples: Iterator[Any]) -> Iterator[Any]:
        rows: list[Any] = []
        for sample in samples:
            rows.append(sample)
            if len(rows) == self.batch_size:
                yield default_collate(rows)
                rows = []
        if rows and not self.drop_last:
            yield default_collate(rows)


def _shared(count: int) -> torch.Tensor:
    """Return int64 zeros that all processes see, forked and spawned ones."""
    return torch.zeros(count, dtype=torch.int64).share_memory_()  # type: ignore[no-any-return, no-untyped-call]


def _is_pipe(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116  a str may be a brace pattern, too
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISCHR(mode)


def _windowed(samples: Iterator[Any], window: int, seed: int, epoch: int) -> Iterator[Any]:
    """Yield the samples in a random order, each drawn from the ``window`` that are at hand."""
    held: list[Any] = []
    drawn = 0
    for sample in samples:
        if len(held) < window:
            held.append(sample)
            continue
        at = int(words(seed, epoch, np.array([drawn]), 1, _WINDOW_STREAM)[0, 0]) % window
        drawn += 1
        given, held[at] = held[at], sample
        yield given
    order = np.argsort(words(seed, epoch, drawn + np.arange(len(held)), 1, _WINDOW_STREAM)[:, 0], kind="stable")
    for at in order.tolist():
        yield held[at]


def _transformed(image: Any, transform: Any) -> Any:  # noqa: ANN401
    """Return what a transform, or a list of transforms in turn, makes of an image."""
    if not isinstance(transform, list | tuple):
        return transform(image)
    for step in transform:
        image = _transformed(image, step)
    return image
