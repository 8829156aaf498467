"""One reader of the soak: trains on packs, compares every batch with the checksums made before, tells its memory.

Started by soak.py with a job, a JSON object, on stdin; it tells what happens as JSON objects on stdout, one a line.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
import zlib
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

from fastdata.loader import FastLoader

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["BATCH", "EPOCHS", "Job", "checksums", "memory"]

BATCH, CROP = 32, 96
EPOCHS = 3  # epochs whose checksums are known; readers go round them
_TELL_S = 2.0  # between two looks at memory and descriptors


@dataclass(frozen=True, slots=True)
class Job:
    """What a reader does.

    role: "pair" (two loaders on one pack), "victim" (killed by others; goes on from ``state``) or "workers" (a
    transform that only worker processes can serve; they are killed). packs: paths, taken in turn, one an epoch.
    known: by seed and epoch, the CRC-32 of each batch. pause: seconds a step waits. workers: threads or processes.
    """

    role: str
    packs: tuple[str, ...]
    known: dict[str, list[list[int]]]
    state: str = ""
    pause: float = 0.05
    workers: int = 2


def as_pixels(picture: Any) -> torch.Tensor:  # noqa: ANN401
    """Return a PIL picture as a uint8 tensor: a step that the engine does not know."""
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1).contiguous()


def transform_of(seed: int) -> Any:  # noqa: ANN401
    """Return the transform that goes with a seed: odd ones are the engine's, even ones for worker processes."""
    steps: list[Any] = [T.RandomResizedCrop(CROP), T.RandomHorizontalFlip()]
    return T.Compose([*steps, T.PILToTensor() if seed % 2 else as_pixels])


def checksums(files: str, seeds: list[int]) -> dict[str, list[list[int]]]:
    """Return the CRC-32s of all batches, by seed and epoch, from the files that the packs were made of."""
    known: dict[str, list[list[int]]] = {}
    for seed in seeds:
        data = ImageFolder(files, transform_of(seed))
        with closing(FastLoader(data, BATCH, shuffle=True, seed=seed, num_workers=1)) as loader:
            known[str(seed)] = [[_sum_of(batch) for batch in loader] for _ in range(EPOCHS)]
    return known


def memory() -> dict[str, float]:
    """Return this process's memory in MB (10**6 bytes), its descriptors and its threads.

    anonymous: private memory that is no file's. private: with the pages of mapped files that only this process has.
    pss: with its share of all others.
    """
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
    kilobytes = {name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines)}
    amounts = {
        "anonymous": kilobytes["Anonymous"],
        "private": kilobytes["Private_Clean"] + kilobytes["Private_Dirty"],
        "pss": kilobytes["Pss"],
    }
    counts = {"descriptors": "/proc/self/fd", "threads": "/proc/self/task"}
    found = {name: kb * 1024 / 1e6 for name, kb in amounts.items()}
    return found | {name: float(len(list(Path(folder).iterdir()))) for name, folder in counts.items()}


class Reader:
    """Reads, trains, compares and tells, until it is killed or its stdin ends."""

    def __init__(self, job: Job) -> None:
        """Make the small network that stands for a training."""
        torch.manual_seed(0)
        torch.set_num_threads(1)
        self._job = job
        self._net = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 5, 4), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(),
            torch.nn.Linear(128, 8),
        )  # fmt: skip
        self._optimizer = torch.optim.SGD(self._net.parameters(), 1e-3)
        self._batches, self._told = 0, 0.0
        self._at = 0
        self._state: dict[str, Any] | None = None  # where the reader that loses its workers is

    def run(self) -> None:
        """Go round epochs and packs for ever."""
        tell("up", **memory())
        {"pair": self._pair, "victim": self._victim, "workers": self._lose_workers}[self._job.role]()

    def _loader(self, pack: str, seed: int) -> closing[FastLoader]:
        transform = transform_of(seed)
        options = {"shuffle": True, "seed": seed, "num_workers": self._job.workers, "transform": transform}
        return closing(FastLoader(pack, BATCH, verify=seed % 2 == 1, **options))  # type: ignore[arg-type]

    def _pair(self) -> None:
        """Two loaders on one pack, a batch of each in turn; new ones for each epoch, which closes the pack."""
        for epoch, pack in enumerate(itertools.cycle(self._job.packs)):
            with self._loader(pack, 1) as one, self._loader(pack, 3) as two:
                for seed, loader in ((1, one), (3, two)):
                    loader.set_epoch(epoch % EPOCHS)
                    assert ("engine" in loader.explain()) == (seed % 2 == 1)
                for at, (first, second) in enumerate(zip(one, two, strict=True)):
                    self._step(first, 1, epoch % EPOCHS, at)
                    self._step(second, 3, epoch % EPOCHS, at)

    def _victim(self) -> None:
        """Go on where the state says that a killed reader was; keep the state."""
        path = Path(self._job.state)
        kept: dict[str, Any] = torch.load(path, weights_only=True) if path.exists() else {"epoch": 0, "at": 0}
        start = int(kept["epoch"])
        if "data" in kept:
            tell("resumed", epoch=start, at=kept["at"])
        for epoch in itertools.count(start):
            with self._loader(self._job.packs[epoch % len(self._job.packs)], 5) as loader:
                at = 0
                if "data" in kept:
                    loader.load_state_dict(kept["data"])
                    at = int(kept["at"])
                else:
                    loader.set_epoch(epoch % EPOCHS)
                kept = {}
                for number, batch in enumerate(loader, at):
                    self._step(batch, 5, epoch % EPOCHS, number)
                    _save(path, {"epoch": epoch, "at": number + 1, "data": loader.state_dict()})
            _save(path, {"epoch": epoch + 1, "at": 0})

    def _lose_workers(self) -> None:
        """Worker processes: where one is killed the loader says so, and a new one goes on from its state."""
        for epoch, pack in enumerate(itertools.cycle(self._job.packs)):
            self._at, self._state = 0, None
            while self._at < len(self._job.known["2"][0]):
                lost = ""
                try:
                    self._go_on(pack, epoch % EPOCHS)
                except (RuntimeError, OSError, EOFError) as error:
                    # Torch's signal handler raises wherever the reader is; or its tensors went with the worker.
                    lost = type(error).__name__
                for _ in range(9 if lost else 0):
                    try:
                        tell("lost", error=lost)
                        break
                    except RuntimeError:  # the handler again, for the same worker
                        continue

    def _go_on(self, pack: str, epoch: int) -> None:
        """Read the rest of an epoch, and keep the place behind each batch."""
        with self._loader(pack, 2) as loader:
            if self._state is None:
                loader.set_epoch(epoch)
            else:
                loader.load_state_dict(self._state)
            batches = iter(loader)
            tell("workers", pids=children())
            for number, batch in enumerate(batches, self._at):
                self._step(batch, 2, epoch, number)
                self._at, self._state = number + 1, loader.state_dict()

    def _step(self, batch: Any, seed: int, epoch: int, at: int) -> None:  # noqa: ANN401
        images, labels = batch
        if _sum_of(batch) != self._job.known[str(seed)][epoch][at]:
            tell("differs", seed=seed, epoch=epoch, at=at)
        loss = torch.nn.functional.cross_entropy(self._net(images.float().div_(255)), labels)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        time.sleep(self._job.pause)
        self._batches += 1
        if time.monotonic() - self._told > _TELL_S:
            self._told = time.monotonic()
            tell("alive", batches=self._batches, **memory())


def children() -> list[int]:
    """Return the process ids of this process's children."""
    words: Iterator[str] = (file.read_text(encoding="ascii") for file in Path("/proc/self/task").glob("*/children"))
    return [int(word) for text in words for word in text.split()]


def tell(event: str, **values: object) -> None:
    """Say one thing; the end of the pipe is the end of the reader."""
    try:
        print(json.dumps({"event": event, **values}), flush=True)
    except BrokenPipeError:
        os._exit(1)


def _sum_of(batch: Any) -> int:  # noqa: ANN401
    images, labels = batch
    return zlib.crc32(labels.numpy().tobytes(), zlib.crc32(images.contiguous().numpy().tobytes()))


def _save(path: Path, state: dict[str, Any]) -> None:
    partial_path = path.with_name(path.name + ".partial")
    torch.save(state, partial_path)
    partial_path.replace(path)


def main() -> None:
    """Do the job that stands on stdin: checksums of files, or reading."""
    job = json.load(sys.stdin)
    print_result = partial(json.dump, fp=sys.stdout)
    if "files" in job:
        print_result(checksums(job["files"], job["seeds"]))
    else:
        Reader(Job(**job)).run()


if __name__ == "__main__":
    main()
