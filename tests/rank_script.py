"""What each process of test_ranks.py runs under torchrun: gloo groups of 4, 3, 2 and 1 ranks, one after another."""

from __future__ import annotations

import json
import os
import sys
import warnings
from itertools import islice
from pathlib import Path

import torch
import torch.distributed as dist
from torchvision import transforms as T

from fastdata.dataset import PackedDataset
from fastdata.errors import OptionError
from fastdata.loader import FastLoader
from fastdata.sampling import Buckets, Windowed

EVAL = T.Compose([T.Resize((8, 8)), T.PILToTensor()])
TRAIN = T.Compose([T.RandomResizedCrop(8), T.PILToTensor()])
UNKNOWN = T.Compose([TRAIN, T.Lambda(lambda image: image)])


def epoch(loader, batches=None):
    """What this rank gets: a collective a step, so that ranks with other step counts would hang or be told apart."""
    steps, keys, valid, pixels, length = 0, [], [], [], len(loader)
    for images, labels in islice(loader, batches):
        counted = torch.tensor([len(labels), int(loader.last.valid.sum())])
        dist.all_reduce(counted)
        steps += 1
        keys += list(loader.last.keys)
        valid += loader.last.valid.tolist()
        pixels += [int(image.to(torch.int64).sum()) for image in images]
    return {"steps": steps, "len": length, "keys": keys, "valid": valid, "pixels": pixels}


def gathered(mine):
    everybody = [None] * dist.get_world_size()
    dist.all_gather_object(everybody, mine)
    return everybody


def told(loader, batches=None):
    """What this rank is told at the first epoch, or how many batches it gets; nothing here waits for another rank."""
    try:
        return sum(1 for _ in islice(loader, batches))
    except OptionError as error:
        return str(error)


def disagreements(pack, shards, rank):
    """Loaders that differ between the ranks, and some that may."""
    options = {"transform": EVAL, "num_workers": 0}

    def asked(source=pack, **different):
        return FastLoader(source, **({"batch_size": 4} | options | different))

    found = {
        "seeds": told(asked(shuffle=True, seed=rank)),
        "lengths": told(asked(shards if rank == 1 else pack)),
        "sampling": told(asked(sampling=Windowed(samples=4 + rank))),
        "batch sizes": told(asked(batch_size=2 + rank)),
        "equal": told(asked(shuffle=True, seed=5)),
        "not shuffled": told(asked(seed=rank)),
    }
    loader = asked(shuffle=True, seed=5)
    if rank == 0:
        found["alone"] = told(FastLoader(pack, 4, shuffle=True, seed=9, **options))
    loader, rest = asked(shuffle=True, seed=5), asked(shuffle=True, seed=5)
    next(iter(loader))
    if rank == 0:
        rest.load_state_dict(loader.state_dict())
    found["resumed"] = told(rest)
    found["equal after all"] = told(FastLoader(pack, 4, shuffle=True, seed=7, **options))
    return gathered(found)


def made_before(pack):
    """Loaders made before the process group, in processes that nothing tells of their rank."""
    ranked = {name: os.environ.pop(name) for name in ("RANK", "WORLD_SIZE")}
    options = {"transform": EVAL, "num_workers": 0}
    made = {
        "plain": FastLoader(pack, 4, **options),
        "shuffled": FastLoader(pack, 4, shuffle=True, uneven="exact", **options),
        "cached": FastLoader(pack, 4, uneven="exact", cache="encoded", cache_bytes=1 << 24, **options),
        "buckets": FastLoader(pack, 4, sampling=Buckets([(8, 8), (8, 16)]), uneven="exact", **options),
    }
    os.environ.update(ranked)
    return made


def prepared(pack):
    """What accelerate makes of loaders on a Dataset of 21 samples, for four processes."""
    from accelerate import Accelerator

    accelerator, found = Accelerator(cpu=True), {}
    for name, asked in (("train", {"shuffle": True}), ("eval", {}), ("eval, exact", {"uneven": "exact"})):
        with warnings.catch_warnings(record=True):
            loader = accelerator.prepare(FastLoader(PackedDataset(pack, EVAL), 4, **asked))
        labels = [label for _, mine in loader for label in accelerator.gather(mine).tolist()]
        found[name] = {"kept": isinstance(loader, FastLoader), "labels": len(labels)}
    return found


def run(world, pack, shards, out):
    found = {}
    for uneven in ("pad", "drop", "exact"):
        loader = FastLoader(pack, 4, shuffle=True, transform=EVAL, uneven=uneven, num_workers=1)
        found[f"three epochs, {uneven}"] = [gathered(epoch(loader)) for _ in range(3)]
    found["no arguments"] = gathered(epoch(FastLoader(pack, 4, transform=EVAL, num_workers=0)))
    found["shards"] = gathered(epoch(FastLoader(shards, 4, transform=EVAL, num_workers=0)))
    crops = {"shuffle": True, "seed": 3, "uneven": "exact"}
    found["crops"] = gathered(epoch(FastLoader(pack, 4, transform=TRAIN, num_workers=0, **crops)))
    found["worker crops"] = gathered(epoch(FastLoader(pack, 4, transform=UNKNOWN, num_workers=1, **crops)))
    batch_size = 12 // world
    before = out / "states" / f"{ {3: 4, 2: 3, 1: 2}.get(world, 0) }.json"
    loader = FastLoader(pack, batch_size, transform=TRAIN, num_workers=0, **crops)
    if before.is_file():
        loader.load_state_dict(json.loads(before.read_text()))
        found["rest"] = gathered(epoch(loader))
    loader = FastLoader(pack, batch_size, transform=TRAIN, num_workers=0, **crops)
    found["first"] = gathered(epoch(loader, 1))
    if dist.get_rank() == 0:
        (out / "states" / f"{world}.json").write_text(json.dumps(loader.state_dict()))
        (out / f"{world}.json").write_text(json.dumps(found))


def main():
    pack, shards, out = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    torch.manual_seed(rank)  # ranks agree on the order all the same
    early = made_before(pack)
    dist.init_process_group("gloo")
    assert dist.get_world_size() == 4
    found = {f"made before, {name}": gathered(epoch(loader)) for name, loader in early.items()}
    found["cached records"] = gathered(early["cached"]._cache._arena.state.records)
    found["disagreements"] = disagreements(pack, shards, rank)
    found["accelerate"] = prepared(pack)
    if rank == 0:
        (out / "four.json").write_text(json.dumps(found))
    run(4, pack, shards, out)
    dist.barrier()
    dist.destroy_process_group()
    for world in (3, 2, 1):
        if rank < world:
            dist.init_process_group("gloo", f"file://{out}/meeting{world}", rank=rank, world_size=world)
            run(world, pack, shards, out)
            dist.barrier()
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
