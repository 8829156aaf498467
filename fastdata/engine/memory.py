"""How much memory this process may still take."""

from __future__ import annotations

from pathlib import Path

__all__ = ["available_memory"]


def available_memory(meminfo: str = "/proc/meminfo", cgroup: str = "/sys/fs/cgroup") -> int:
    """Return the bytes that are free or can be freed at once: the machine's, cut by the container's limit; 0 unknown.

    The machine's number is the kernel's own estimate (MemAvailable), the container's its limit less what it uses.
    """
    try:
        lines = Path(meminfo).read_text(encoding="ascii").splitlines()
        machine = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return 0
    root = Path(cgroup)
    limits = [
        _left(root / "memory.max", root / "memory.current"),  # version 2
        _left(root / "memory" / "memory.limit_in_bytes", root / "memory" / "memory.usage_in_bytes"),  # version 1
    ]
    return max(0, min([machine, *(left for left in limits if left is not None)]))


def _left(limit: Path, used: Path) -> int | None:
    try:
        return int(limit.read_text().strip()) - int(used.read_text().strip())
    except (OSError, ValueError):  # no such file, or "max"
        return None
