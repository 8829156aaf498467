"""Ranks: real processes under torchrun, each sample once over all of them, as many steps on each."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

from fastdata.loader import FastLoader
from fastdata.stores.opener import open_store

WORLDS = [1, 2, 3, 4]
EVAL = T.Compose([T.Resize((8, 8)), T.PILToTensor()])


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Three shards of 10, 7 and 3 samples, as anybody writes them."""
    root = tmp_path_factory.mktemp("shards")
    number = 0
    for shard, count in enumerate((10, 7, 3)):
        with tarfile.open(root / f"s-{shard:06d}.tar", "w") as file:
            for _ in range(count):
                picture = io.BytesIO()
                Image.new("RGB", (20, 20), (number * 12, 0, 0)).save(picture, "JPEG")
                for ending, data in (("jpg", picture.getvalue()), ("cls", str(number).encode())):
                    member = tarfile.TarInfo(f"{number:04d}.{ending}")
                    member.size = len(data)
                    file.addfile(member, io.BytesIO(data))
                number += 1
    return root / "s-{000000..000002}.tar"


@pytest.fixture(scope="module")
def found(packs, shards, tmp_path_factory):
    """What every rank of every world saw, from one start of torchrun."""
    out = tmp_path_factory.mktemp("ranks")
    (out / "states").mkdir()
    script = Path(__file__).with_name("rank_script.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4", str(script)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [*command, str(packs["tars"]), str(shards), str(out)],
        env=environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return {world: json.loads((out / f"{world}.json").read_text()) for world in [*WORLDS, "four"]}


def _seen(ranks):
    return [key for rank in ranks for key, valid in zip(rank["keys"], rank["valid"], strict=True) if valid]


@pytest.mark.parametrize("world", WORLDS)
def test_ranks_share_a_pack_without_being_asked(packs, found, world):  # C116, C118
    everything = Counter(open_store(packs["tars"]).key(i) for i in range(21))
    ranks = found[world]["no arguments"]
    assert Counter(_seen(ranks)) == everything  # each once: 21 of them, whatever the number of ranks
    assert sum(sum(rank["valid"]) for rank in ranks) == 21
    assert len({rank["steps"] for rank in ranks}) == 1


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("uneven", ["pad", "drop", "exact"])
def test_lengths_are_one_number_on_every_rank_in_every_epoch(found, world, uneven):  # C082
    epochs = found[world][f"three epochs, {uneven}"]
    samples = 21 // world if uneven == "drop" else -(-21 // world)
    assert {rank["steps"] for ranks in epochs for rank in ranks} == {-(-samples // 4)}
    assert {rank["len"] for ranks in epochs for rank in ranks} == {-(-samples // 4)}
    assert {len(rank["keys"]) for ranks in epochs for rank in ranks} == {samples}
    for ranks in epochs:
        keys = Counter(_seen(ranks))
        if uneven == "exact":
            assert set(keys.values()) == {1}
            assert len(keys) == 21
        elif uneven == "drop":
            assert set(keys.values()) == {1}
            assert len(keys) == samples * world
        else:
            assert len(keys) == 21
            assert keys.total() == samples * world
    assert epochs[0] != epochs[1] != epochs[2]


@pytest.mark.parametrize("world", WORLDS)
def test_shards_of_any_size_are_shared_by_samples(found, world):  # C068
    ranks = found[world]["shards"]
    assert len({rank["steps"] for rank in ranks}) == 1
    assert len(_seen(ranks)) == len(set(_seen(ranks))) == 20


@pytest.mark.parametrize("kind", ["crops", "worker crops"])
def test_samples_and_crops_do_not_depend_on_the_number_of_ranks(found, kind):
    def union(world):
        ranks = found[world][kind]
        return sorted(
            (key, pixels)
            for rank in ranks
            for key, valid, pixels in zip(rank["keys"], rank["valid"], rank["pixels"], strict=True)
            if valid
        )

    assert len(union(1)) == 21
    assert union(1) == union(2) == union(3) == union(4)


@pytest.mark.parametrize(("old", "new"), [(4, 3), (3, 2), (2, 1)])
def test_fewer_ranks_go_on_where_more_were(found, old, new):  # C160
    first, rest = _seen(found[old]["first"]), _seen(found[new]["rest"])
    assert len(first) == 12
    assert Counter(first + rest) == Counter(_seen(found[1]["crops"]))


@pytest.mark.parametrize("kind", ["plain", "shuffled", "cached", "buckets"])
def test_a_loader_made_before_its_process_group_shares_itself_out(packs, found, kind):
    ranks = found["four"][f"made before, {kind}"]
    assert Counter(_seen(ranks)) == Counter(open_store(packs["tars"]).key(i) for i in range(21))
    assert {rank["steps"] for rank in ranks} == {rank["len"] for rank in ranks}
    assert len({rank["steps"] for rank in ranks}) == 1


def test_ranks_of_a_loader_made_before_its_process_group_share_one_cache(found):
    assert found["four"]["cached records"] == [21] * 4


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("seeds", "seed="),
        ("lengths", "samples=2"),
        ("sampling", "sampling=Windowed(samples="),
        ("batch sizes", "batch_size="),
        ("resumed", "resumed="),
    ],
)
def test_ranks_that_would_share_out_different_orders_are_told(found, kind, named):
    told = [rank[kind] for rank in found["four"]["disagreements"]]
    errors = [text for text in told if isinstance(text, str)]
    # Nobody waits: whoever came first could not know. Of ranks that agree with the first, none is told.
    assert len(errors) in ({1, 3} if kind in {"lengths", "resumed"} else {3})
    assert all(named in text and "on rank" in text for text in errors)


def test_ranks_that_agree_or_iterate_alone_are_left_alone(found):
    ranks = found["four"]["disagreements"]
    assert [rank["equal"] for rank in ranks] == [2] * 4
    assert [rank["not shuffled"] for rank in ranks] == [2] * 4
    assert [rank["equal after all"] for rank in ranks] == [2] * 4
    assert ranks[0]["alone"] == 2


def test_accelerate_keeps_what_its_gather_for_metrics_can_count(found):
    kept = found["four"]["accelerate"]
    assert {name: each["kept"] for name, each in kept.items()} == {"train": True, "eval": False, "eval, exact": True}
    assert {name: each["labels"] for name, each in kept.items() if each["kept"]} == {"train": 24, "eval, exact": 24}


@pytest.mark.parametrize("world", [2, 3, 6, 8])
@pytest.mark.parametrize("uneven", ["pad", "drop", "exact"])
def test_ranks_of_the_environment_that_torchrun_sets(shards, monkeypatch, world, uneven):  # C068, C082
    seen, lengths = Counter(), set()
    for rank in range(world):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", str(world))
        loader = FastLoader(shards, 2, shuffle=True, transform=EVAL, uneven=uneven, seed=0, num_workers=0)
        for epoch in range(3):
            count = 0
            for _ in loader:
                count += 1
                if epoch == 0:
                    seen.update(k for k, v in zip(loader.last.keys, loader.last.valid, strict=True) if v)
            lengths |= {count, len(loader)}
    assert len(lengths) == 1
    samples = 20 // world if uneven == "drop" else -(-20 // world)
    assert seen.total() == (20 if uneven == "exact" else samples * world)
    assert len(seen) == (samples * world if uneven == "drop" else 20)


def _over_ranks(monkeypatch, make, world=2):
    """(key, valid) of every sample of an epoch, of all ranks, in this process."""
    seen = []
    for rank in range(world):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", str(world))
        loader = make(rank)
        for _ in loader:
            seen += zip(loader.last.keys, loader.last.valid.tolist(), strict=True)
    return seen


@pytest.mark.parametrize("transform", [EVAL, T.Compose([EVAL, T.Lambda(lambda image: image)])], ids=["engine", "own"])
@pytest.mark.parametrize("asked", [{"uneven": "exact"}, {"seed": 1}, {"seed": 1, "shuffle": True, "uneven": "exact"}])
def test_an_order_of_the_loaders_own_is_shared_out_whatever_the_data_set(image_folder, monkeypatch, transform, asked):
    folder = ImageFolder(str(image_folder), transform)
    seen = _over_ranks(monkeypatch, lambda _: FastLoader(folder, 4, **asked))
    assert len(seen) == 22  # as many on each rank
    assert Counter(key for key, valid in seen if valid) == Counter(path for path, _ in folder.samples)


def test_the_padding_of_torchs_own_sampler_is_marked(image_folder, monkeypatch):
    folder = ImageFolder(str(image_folder), EVAL)

    def make(rank):
        sampler = DistributedSampler(folder, 2, rank, shuffle=False)
        return FastLoader(folder, 4, sampler=sampler, uneven="exact")

    seen = _over_ranks(monkeypatch, make)
    assert len(seen) == 22
    assert Counter(key for key, valid in seen if valid) == Counter(path for path, _ in folder.samples)


def test_one_process_keeps_dataloaders_order(image_folder):
    folder = ImageFolder(str(image_folder), EVAL)
    torch.manual_seed(5)
    wanted = [labels.tolist() for _, labels in DataLoader(folder, 4, shuffle=True)]
    torch.manual_seed(5)
    assert [labels.tolist() for _, labels in FastLoader(folder, 4, shuffle=True, uneven="exact")] == wanted


def test_explain_says_who_gets_what(packs, image_folder, monkeypatch):
    folder = ImageFolder(str(image_folder), EVAL)
    assert "ranks" not in FastLoader(folder, 4).explain()
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert "rank 1 of 3, which share each epoch, uneven='exact'" in FastLoader(packs["lmdb"], 4).explain()
    assert "each gets every sample" in FastLoader(folder, 4).explain()
    sampler = DistributedSampler(folder, 3, 1)
    assert "as your DistributedSampler shares" in FastLoader(folder, 4, sampler=sampler).explain()
