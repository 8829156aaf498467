"""How many cores this process may use."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["usable_cores"]


def usable_cores(cgroup: str = "/sys/fs/cgroup") -> int:
    """Return the cores this process may use, at least 1: its affinity, cut by the container's CPU quota."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min(cores, _quota(Path(cgroup)) or cores))


def _quota(root: Path) -> int:
    """Return the quota of cgroup v2 (cpu.max) or v1 (cpu.cfs_*) in whole cores, rounded up; 0 where there is none."""
    try:
        limit, period = (root / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            limit = (root / "cpu" / "cpu.cfs_quota_us").read_text().strip()
            period = (root / "cpu" / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return 0
    if not limit.isdigit() or not period.isdigit() or not int(period):
        return 0  # "max" or -1
    return -(-int(limit) // int(period))
