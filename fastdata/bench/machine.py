"""The facts of the machine and the versions that a measurement was made with."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from pathlib import Path

from fastdata.engine.cores import usable_cores

__all__ = ["facts"]

_DISTRIBUTIONS = (
    "fastdata-loader", "torch", "torchvision", "numpy", "pillow", "simplejpeg", "opencv-python-headless", "jpeg4py",
    "PyTurboJPEG", "torchcodec", "webdataset", "lmdb", "h5py",
)  # fmt: skip


def facts() -> dict[str, object]:
    """Return processor, cores, system, Python and library versions, JSON-able."""
    return {
        "processor": _processor(),
        "cores": usable_cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": sys.version.split()[0],
        "versions": {name: version for name in _DISTRIBUTIONS if (version := _version(name))},
    }


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model"))]
    return names[0] if names else platform.processor()
