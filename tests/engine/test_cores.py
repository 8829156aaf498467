"""How many cores a container grants."""

from __future__ import annotations

import os

import pytest

from fastdata.engine.cores import usable_cores
from fastdata.loader import FastLoader


@pytest.mark.parametrize(("text", "cores"), [("100000 100000", 1), ("max 100000", None), ("50000 100000", 1)])
def test_cgroup_v2_quota(tmp_path, text, cores):
    (tmp_path / "cpu.max").write_text(text + "\n")
    assert usable_cores(str(tmp_path), str(tmp_path / "none")) == (cores or len(os.sched_getaffinity(0)))


def test_cgroup_v1_quota_and_none(tmp_path):
    assert usable_cores(str(tmp_path), str(tmp_path / "none")) == len(os.sched_getaffinity(0))
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("100000\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert usable_cores(str(tmp_path), str(tmp_path / "none")) == 1


def test_quota_of_the_process_and_of_its_parents(tmp_path):
    own, root = tmp_path / "own", tmp_path / "root"
    job = root / "batch.slice" / "job_1"
    job.mkdir(parents=True)
    own.write_text("0::/batch.slice/job_1/task\n")
    (job / "cpu.max").write_text("max 100000\n")
    assert usable_cores(str(root), str(own)) == len(os.sched_getaffinity(0))
    (job.parent / "cpu.max").write_text("100000 100000\n")
    assert usable_cores(str(root), str(own)) == 1
    (job.parent / "cpu.max").unlink()
    own.write_text("12:cpuset:/elsewhere\n4:cpu,cpuacct:/docker/0123/x\n0::/\n")
    quota = root / "cpu" / "docker" / "0123"
    quota.mkdir(parents=True)
    (quota / "cpu.cfs_quota_us").write_text("90000\n")
    (quota / "cpu.cfs_period_us").write_text("100000\n")
    assert usable_cores(str(root), str(own)) == 1


def test_affinity_counts_and_not_the_machines_cores(packs):
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert usable_cores() == 1
        assert FastLoader(packs["lmdb"], 4).num_workers == 1
    finally:
        os.sched_setaffinity(0, allowed)
