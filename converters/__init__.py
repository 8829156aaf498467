"""Packing: any set of images into one file of any format (installed as ``fastdata.converters``)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fastdata.converters.appending import AppendReport as AppendReport
    from fastdata.converters.appending import append as append
    from fastdata.converters.options import PackOptions as PackOptions
    from fastdata.converters.packing import Progress as Progress
    from fastdata.converters.packing import pack as pack
    from fastdata.converters.repairing import RepairReport as RepairReport
    from fastdata.converters.repairing import repair as repair
    from fastdata.converters.report import PackReport as PackReport
    from fastdata.converters.report import Skipped as Skipped
    from fastdata.converters.unpacking import unpack as unpack
    from fastdata.converters.verifying import VerifyReport as VerifyReport
    from fastdata.converters.verifying import verify as verify

_WHERE = {
    "AppendReport": "fastdata.converters.appending",
    "PackOptions": "fastdata.converters.options",
    "PackReport": "fastdata.converters.report",
    "Progress": "fastdata.converters.packing",
    "RepairReport": "fastdata.converters.repairing",
    "Skipped": "fastdata.converters.report",
    "VerifyReport": "fastdata.converters.verifying",
    "append": "fastdata.converters.appending",
    "pack": "fastdata.converters.packing",
    "repair": "fastdata.converters.repairing",
    "unpack": "fastdata.converters.unpacking",
    "verify": "fastdata.converters.verifying",
}

__all__ = [
    "AppendReport",
    "PackOptions",
    "PackReport",
    "Progress",
    "RepairReport",
    "Skipped",
    "VerifyReport",
    "append",
    "pack",
    "repair",
    "unpack",
    "verify",
]


def __getattr__(name: str) -> object:
    import importlib  # noqa: PLC0415  the module's own namespace stays clean

    try:
        module = _WHERE[name]
    except KeyError:
        msg = f"module 'fastdata.converters' has no attribute {name!r}"
        raise AttributeError(msg) from None
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
