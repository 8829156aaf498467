"""How many cores this process may use."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["usable_cores"]

_COLUMNS = 3  # of a line in /proc/self/cgroup: hierarchy, controllers, path


def usable_cores(cgroup: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> int:
    """Return the cores this process may use, at least 1: its affinity, cut by the CPU quota of its cgroup.

    own: the file that names the process's cgroup, whose parents may have a quota, too; in a container it is the root.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    quotas = [_quota(folder) for folder in _folders(Path(cgroup), Path(own))]
    return max(1, min([cores, *filter(None, quotas)]))


def _folders(root: Path, own: Path) -> list[Path]:
    """Return the folders of the process's cgroup and its parents: of v2, and of v1's cpu controller."""
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        lines = []
    # A container shows its own cgroup as the root, but may name it by its path on the host, which is not there.
    named = {"": "", "cpu": ""} | {
        "cpu" if line[1] else "": line[2].strip("/")
        for line in lines
        if len(line) == _COLUMNS and (not line[1] or "cpu" in line[1].split(","))
    }
    return [root / kind / parent for kind, path in named.items() for parent in (Path(path), *Path(path).parents)]


def _quota(folder: Path) -> int:
    """Return a cgroup's quota, of v2 (cpu.max) or v1 (cpu.cfs_*), in whole cores, rounded up; 0 where it has none."""
    try:
        limit, period = (folder / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            limit = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return 0
    if not limit.isdigit() or not period.isdigit() or not int(period):
        return 0  # "max" or -1
    return -(-int(limit) // int(period))
