"""What test_lifetimes.py runs in processes of their own: ``lifetime_script.py NAME ARGUMENTS``; each prints lines."""

from __future__ import annotations

import faulthandler
import gc
import json
import multiprocessing
import os
import resource
import signal
import sys
import threading
import time

import torch
from torch.utils.data import Dataset

from fastdata.errors import LoaderError
from fastdata.loader import FastLoader

# Nothing here may hang. (faulthandler's own timer would, at the end of a forked child.)
faulthandler.register(signal.SIGALRM, chain=True)
signal.alarm(100)


class Numbers(Dataset):
    """Samples that are made in Python, as a user's are; each takes a while."""

    def __init__(self, n, seconds=0.0):
        self.n, self.seconds = n, seconds

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        time.sleep(self.seconds)
        return torch.full((3, 8, 8), i % 200, dtype=torch.uint8), i


def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def loader_of(way, pack, **more):
    if way == "engine":
        return FastLoader(pack, 4, num_workers=4, **more)
    return FastLoader(Numbers(100_000, 0.002), 4, num_workers=4, **more)


def for_ever(loader):
    while True:
        yield from loader


def interrupted(way, pack):
    """Iterate until a signal comes."""
    batches = for_ever(loader_of(way, pack))
    next(batches)
    say("ready", *(child.pid for child in multiprocessing.active_children()))
    for _ in batches:
        pass


def killed(pack):
    """Iterate on both ways until a SIGKILL comes."""
    engine, workers = for_ever(loader_of("engine", pack)), for_ever(loader_of("workers", pack))
    next(engine)
    next(workers)
    say("ready", *(child.pid for child in multiprocessing.active_children()))
    while True:
        next(engine)
        next(workers)


def killed_at_the_start():
    """Wait for a SIGKILL while the workers start."""
    parent = os.getpid()

    def outlive(_):
        while os.getppid() == parent:
            time.sleep(0.01)

    iterator = iter(FastLoader(Numbers(100), 4, num_workers=2, worker_init_fn=outlive))
    say("ready", *(child.pid for child in multiprocessing.active_children()))
    next(iterator)


def killed_worker(device):
    """Return who was killed, what the loop heard of it, how many others live on, and how a new epoch begins."""
    loader = FastLoader(Numbers(10_000, 0.001), 4, num_workers=2, device=None if device == "None" else device)
    iterator = iter(loader)
    next(iterator)
    children = [child.pid for child in multiprocessing.active_children()]
    heard = []
    os.kill(children[1], signal.SIGKILL)
    while True:
        try:  # torch's handler of SIGCHLD raises wherever the program is, and again while workers end
            if not any("(pid" in text for text in heard):  # a pipe that broke may be heard of first
                for _ in iterator:
                    pass
            iterator = None
            gc.collect()
            break
        except (RuntimeError, EOFError, OSError) as error:
            heard.append(str(error))
    until = time.monotonic() + 30
    while multiprocessing.active_children() and time.monotonic() < until:
        time.sleep(0.05)
    alive = len(multiprocessing.active_children())
    return children[1], "; ".join(heard), alive, next(iter(loader))[1].tolist()


def few_descriptors(pack):
    """Keep a small tensor of each of 5,000 batches with 1,024 descriptors, on both ways."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
    for loader in (loader_of("engine", pack), FastLoader(Numbers(10_000), 2, num_workers=2)):
        kept, batches = [], for_ever(loader)
        while len(kept) < 5000:
            kept.append(next(batches)[1])
        batches.close()
    assert torch.equal(torch.cat(kept), torch.arange(10_000))
    return len(kept), len(os.listdir("/proc/self/fd")) < 200


def full_shm(pack):
    """Load where shared memory has no room for a batch, on both ways."""
    batches = sum(1 for _ in FastLoader(pack, 1, num_workers=2))
    try:
        for _ in FastLoader(Numbers(64), 64, num_workers=1, collate_fn=large):
            return "a batch came"
    except RuntimeError as error:
        return batches, " ".join(str(error).split())


def large(_rows):
    return torch.ones(32 << 20, dtype=torch.uint8)


def tiny_epochs(pack):
    """Return by how much threads, descriptors and private kB grow in 1,000 epochs, or fewer where processes start."""
    ways = {
        "engine": (1000, loader_of("engine", pack, shuffle=True)),
        "persistent workers": (30, FastLoader(Numbers(8), 4, num_workers=2, persistent_workers=True)),
        "workers": (10, FastLoader(Numbers(8), 4, num_workers=1)),
    }
    grown = {}
    for way, (many, loader) in ways.items():
        counted = []
        for epoch in range(1 + many):
            for _ in loader:
                pass
            if epoch in {many // 5, many}:
                gc.collect()
                with open("/proc/self/status") as file:
                    private = next(int(line.split()[1]) for line in file if line.startswith("RssAnon:"))
                counted.append((threading.active_count(), len(os.listdir("/proc/self/fd")), private))
        grown[way] = [after - before for before, after in zip(*counted, strict=True)]
    return grown


def forked(pack):
    """Fork in the middle of an epoch, while threads decode; the child ends as any process does."""
    loader = FastLoader(pack, 1, num_workers=2, prefetch_factor=8)
    iterator = iter(loader)
    next(iterator)
    for _ in range(2):  # torch takes its time to end a process
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)
            torch.set_num_threads(1)
            try:
                next(iterator)
            except LoaderError as error:
                said = str(error)
            del iterator
            gc.collect()
            sys.exit(not ("before the fork" in said and sum(1 for _ in loader) == len(loader)))
        if os.waitpid(pid, 0)[1]:
            return "the child failed"
    return sum(1 for _ in iterator)


def validate_while_training(pack, repetitions=4):
    """Build a loader with worker processes again and again while another's threads decode."""
    train = for_ever(loader_of("engine", pack, shuffle=True, prefetch_factor=8))
    for _ in range(int(repetitions)):
        next(train)
        for _ in FastLoader(Numbers(8), 4, num_workers=2):
            next(train)
    return repetitions


def in_turn(pack, half):
    """Say what each of these finds."""
    for function in ((tiny_epochs, forked), (validate_while_training, few_descriptors))[int(half)]:
        say(json.dumps([function.__name__, function(pack)]))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job has it ignored
    found = globals()[sys.argv[1]](*sys.argv[2:])
    say(json.dumps(found))
