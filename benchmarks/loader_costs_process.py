"""One measurement of loader_costs.py in a process of its own: ``NAME PACK [ARGUMENT]``; prints one line of JSON."""

from __future__ import annotations

import gc
import json
import multiprocessing
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T
from torchvision.datasets.folder import default_loader

from fastdata.loader import FastLoader
from fastdata.stores.opener import open_store

BATCH = 256
TO_TENSOR = T.PILToTensor()


def pixels_as_they_are(image: Any) -> Any:  # noqa: ANN401
    """Return PILToTensor's result; a function, which sends the pipeline to worker processes."""
    return TO_TENSOR(image)


class ListFolder(Dataset[Any]):
    """An ImageFolder after its scan: a list of (path, label), here of one file again and again."""

    def __init__(self, path: str, samples: int) -> None:
        """Make the list."""
        self.samples = [(f"{path}", i % 1000) for i in range(samples)]

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.samples)

    def __getitem__(self, i: int) -> Any:  # noqa: ANN401
        """Read and decode the file."""
        path, label = self.samples[i]
        return TO_TENSOR(default_loader(path)), label


class Held(Dataset[Any]):
    """The cheapest data set there is: views of one array."""

    def __init__(self, samples: int) -> None:
        """Make the array."""
        self.images = torch.zeros((samples, 3, 8, 8), dtype=torch.uint8)
        self.labels = list(range(samples))

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.images)

    def __getitem__(self, i: int) -> Any:  # noqa: ANN401
        """Return a view."""
        return self.images[i], self.labels[i]


def memory(field: str, process: int | str = "self") -> int:
    """Return a process's bytes from smaps_rollup (Private, Pss) or status (RssAnon)."""
    name = "status" if field == "RssAnon" else "smaps_rollup"
    lines = Path(f"/proc/{process}/{name}").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def first_fastdata(pack: str) -> dict[str, float]:
    """Return the seconds from opening the pack to the first batch."""
    start = time.perf_counter()
    loader = FastLoader(pack, BATCH, shuffle=True, num_workers=2, transform=TO_TENSOR, engine=True)
    next(iter(loader))
    return {"seconds": time.perf_counter() - start, "samples": len(loader.dataset)}


def first_dataloader(path: str, samples: str) -> dict[str, float]:
    """Return the seconds to the list of samples, and from there to the first batch."""
    start = time.perf_counter()
    data = ListFolder(path, int(samples))
    listed = time.perf_counter()
    next(iter(DataLoader(data, BATCH, shuffle=True, num_workers=2)))
    return {"seconds": time.perf_counter() - listed, "list_seconds": listed - start, "samples": len(data)}


def order(pack: str) -> dict[str, float]:
    """Return the peak of memory that it takes to draw the first batch's indices of a shuffled epoch."""
    loader = FastLoader(pack, BATCH, shuffle=True, num_workers=2, transform=TO_TENSOR)
    theirs = DataLoader(loader.dataset, BATCH, shuffle=True)
    peaks = {}
    for name, batches in {"fastdata": loader.batch_sampler, "dataloader": theirs.batch_sampler}.items():
        gc.collect()
        tracemalloc.start()
        next(iter(batches))
        peaks[f"{name}_bytes"] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peaks


def overhead(pack: str, seconds: str) -> dict[str, float]:
    """Return microseconds per batch of 256 raw 8x8 images, of interleaved rounds: the medians."""
    from fastdata.dataset import PackedDataset

    packed = PackedDataset(pack, TO_TENSOR)
    options: dict[str, Any] = {"shuffle": True, "num_workers": 2, "drop_last": True, "persistent_workers": True}
    loaders = {
        "fastdata": FastLoader(pack, BATCH, transform=TO_TENSOR, engine=True, shuffle=True, num_workers=2),
        "dataloader_pack": DataLoader(packed, BATCH, **options),
        "dataloader_held": DataLoader(Held(len(packed)), BATCH, **options),
    }
    times: dict[str, list[float]] = {name: [] for name in loaders}
    for _ in range(5):
        for name, loader in loaders.items():
            iterator = iter(loader)
            next(iterator)
            start, count = time.perf_counter(), 0
            for _ in iterator:
                count += 1
                if time.perf_counter() - start > float(seconds):
                    break
            times[name].append((time.perf_counter() - start) / count * 1e6)
            del iterator
    return {name: float(np.median(values)) for name, values in times.items()}


def threads(pack: str, epochs: str) -> dict[str, Any]:
    """Return private bytes after the import, after the first batch and after each epoch, on the engine."""
    gc.collect()
    before = memory("RssAnon")
    loader = FastLoader(pack, BATCH, shuffle=True, num_workers=2, transform=TO_TENSOR, engine=True)
    iterator = iter(loader)
    next(iterator)
    started = memory("RssAnon")
    del iterator
    after = []
    for _ in range(int(epochs)):
        for _ in loader:
            pass
        gc.collect()
        after.append(memory("RssAnon"))
    return {"import": before, "first_batch": started, "epochs": after, "samples": len(loader.dataset)}


def processes(pack: str, workers: str, samples: str) -> dict[str, Any]:
    """Return by how much the PSS of parent and workers grows from the first batch to the last, and the index's size."""
    index = open_store(pack).index
    columns = [index.width, index.height, index.label, index.keys.offset, index.keys.blob]
    columns += [getattr(c, name) for c in index.fields.values() for name in ("part", "offset", "length", "codec")]
    size = sum(np.asarray(column).nbytes for column in columns if column is not None)
    loader = FastLoader(pack, BATCH, shuffle=True, num_workers=int(workers), transform=pixels_as_they_are)
    iterator = iter(loader)
    for _ in range(2 * int(workers)):
        next(iterator)
    ids: list[int | str] = ["self", *(child.pid for child in multiprocessing.active_children() if child.pid)]
    before, private = sum(memory("Pss", one) for one in ids), [memory("RssAnon", one) for one in ids]
    done = 0
    for images, _ in iterator:
        done += len(images)
        if done >= int(samples):
            break
    after = sum(memory("Pss", one) for one in ids)
    return {
        "workers": int(workers), "index_bytes": size, "pss_before": before, "pss_after": after, "loaded": done,
        "private_of_each": private, "samples": len(index),
    }  # fmt: skip


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.stdout.write(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])) + "\n")
