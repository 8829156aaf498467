"""How many cores a container grants."""

from __future__ import annotations

import os

import pytest

from fastdata.engine.cores import usable_cores


@pytest.mark.parametrize(("text", "cores"), [("100000 100000", 1), ("max 100000", None), ("50000 100000", 1)])
def test_cgroup_v2_quota(tmp_path, text, cores):
    (tmp_path / "cpu.max").write_text(text + "\n")
    assert usable_cores(str(tmp_path)) == (cores or len(os.sched_getaffinity(0)))


def test_cgroup_v1_quota_and_none(tmp_path):
    assert usable_cores(str(tmp_path)) == len(os.sched_getaffinity(0))
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("100000\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert usable_cores(str(tmp_path)) == 1
