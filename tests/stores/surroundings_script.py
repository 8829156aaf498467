"""What test_surroundings.py runs in a process of its own; prints one line of JSON."""

from __future__ import annotations

import gc
import json
import os
import sys

from torchvision import transforms as T

from fastdata.converters import pack
from fastdata.errors import FastdataError
from fastdata.loader import FastLoader
from fastdata.stores.opener import open_store

SMALL = T.Compose([T.Resize((8, 8)), T.PILToTensor()])


def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name + ":"))


def outcome(function, *arguments, **more):
    try:
        return function(*arguments, **more)
    except FastdataError as error:
        return f"{type(error).__name__}: {error}"


def count(path, io):
    return sum(len(labels) for _, labels in FastLoader(path, 4, transform=SMALL, num_workers=2, io=io))


def packed(images, path):
    return pack(images, path, workers=1, overwrite=True).samples


def network(images, folder, *names):
    """Load and pack while the shim refuses locks, shared mappings, or all mappings."""
    found = {}
    for mode in ("locks", "shared", "maps"):
        os.environ["SHIM_REFUSES"] = mode
        for name in names:
            for io in ("mmap", "pread"):
                found[f"{mode} {io} {name}"] = outcome(count, f"{folder}/{name}", io)
            found[f"{mode} pack {name}"] = outcome(packed, images, f"{folder}/new{name}")
        os.environ["SHIM_REFUSES"] = ""
    return found


def unmapped(folder, *names):
    """Load with pread while every mapping fails, without the usual words; return pictures and private kB by name."""
    count(f"{folder}/{names[0]}", "pread")  # what is imported late is then in memory
    os.environ["SHIM_REFUSES"] = "any"
    found = {}
    for name in names:
        before = status("RssAnon")
        found[f"unmapped {name}"] = count(f"{folder}/{name}", "pread"), status("RssAnon") - before
    os.environ["SHIM_REFUSES"] = ""
    return found


def much(path):
    """Return private kB after each of three epochs over a pack, and how many kB of files were mapped in, at most."""
    loader = FastLoader(path, 64, shuffle=True, num_workers=2, transform=T.Compose([T.CenterCrop(8), T.PILToTensor()]))
    private, mapped, before = [], [], status("RssFile")
    for _ in range(3):
        mapped += [status("RssFile") for _ in loader]
        gc.collect()
        private.append(status("RssAnon"))
    return private, max(mapped) - before


def cycles(*paths):
    """Open, read and close again and again; return how descriptors, mappings and private kB grew."""
    counted = []
    for number in range(251):
        for path in paths:
            for io in ("mmap", "pread"):
                with open_store(path, io=io) as store:
                    store.read(number % len(store))
        if number in {50, 250}:
            gc.collect()
            with open("/proc/self/maps") as file:
                counted.append((len(os.listdir("/proc/self/fd")), len(file.readlines()), status("RssAnon")))
    return [after - before for before, after in zip(*counted, strict=True)]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])) + "\n")
