"""Two ranks under torchrun: torch.distributed.checkpoint, torchmetrics, accelerate and Lightning over FastLoaders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
LABELS = [0] * 7 + [1] * 9 + [2] * 5


@pytest.fixture(scope="module")
def found(packs, image_folder, tmp_path_factory):
    """What each rank saw, from one start of torchrun."""
    out = tmp_path_factory.mktemp("wrapped")
    script = Path(__file__).with_name("two_ranks.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [*command, str(packs["lmdb"]), str(image_folder), str(out)],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads((out / "found.json").read_text())


def test_a_distributed_checkpoint_goes_on_with_exactly_the_rest(found):
    for rank in found["checkpoint"]:
        assert len(rank["rest"]) == 2
        assert rank["resumed"] == rank["rest"]


def test_metrics_count_21_samples_as_21(found):  # C118
    for rank in found["metrics"]:
        assert rank["correct"] == 12
        assert rank["accuracy"] == pytest.approx(12 / 21)


@pytest.mark.parametrize("kind", ["path", "eval", "drop", "folder", "folder, shuffled", "folder, seed"])
def test_accelerate_keeps_a_loader_that_shares_itself_out(found, kind):  # C116, C118
    first, second = found["accelerate"]
    assert first[kind]["kept"]
    assert second[kind]["kept"]
    assert first[kind]["ends"] == [False, False, True]
    assert "of 2, which share each epoch" in first[kind]["explained"]
    assert first[kind]["labels"] == (LABELS if kind != "drop" else LABELS[:-1])


def test_accelerate_says_where_it_takes_the_engine(found):
    for rank in found["accelerate"]:
        assert not rank["sampler"]["kept"]
        assert rank["sampler"]["labels"] == LABELS
        assert any("engine" in said and "2 processes" in said for said in rank["sampler"]["said"])


@pytest.mark.parametrize(("kind", "sampler"), [("path", "EpochSampler"), ("folder", "DistributedSampler")])
def test_lightnings_ranks_share_every_epoch(found, kind, sampler):  # C085, C086, C116
    ranks = [rank[kind] for rank in found["lightning"]]
    assert [rank["sampler"] for rank in ranks] == [sampler] * 2
    assert all("threaded engine" in explained for rank in ranks for *_, explained in rank["seen"])
    epochs = []
    for at in (0, 3):
        steps = [step for rank in ranks for step in rank["seen"][at : at + 3]]
        epochs.append([i for indices, valid, _ in steps for i, ok in zip(indices, valid, strict=True) if ok])
        counts = Counter(epochs[-1])
        assert set(counts) == set(range(21))
        assert counts.total() == (21 if kind == "path" else 22)  # torch's DistributedSampler pads
    assert epochs[0] != epochs[1]


def test_lightning_without_torchrun_shares_a_loader_made_before_its_ranks(packs, tmp_path):
    script = Path(__file__).with_name("lightning_alone.py")
    done = subprocess.run(
        [sys.executable, str(script), str(packs["lmdb"]), str(tmp_path)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert [steps for steps, _ in ranks] == [3, 3]
    assert Counter(index for _, seen in ranks for index in seen) == Counter(range(21))
