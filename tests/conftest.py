"""What all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def _shared_folder() -> Path:
    named = os.environ.get("FASTDATA_SHARED_DATA")
    return Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    no_data = None
    if not (_shared_folder() / "PHOTOS.csv").is_file():
        no_data = pytest.mark.skip(reason=f"no folder of real photographs at {_shared_folder()}")
    no_cuda = None
    if any(item.get_closest_marker("cuda") for item in items):
        import torch

        if not torch.cuda.is_available():
            no_cuda = pytest.mark.skip(reason="no CUDA device")
    for item in items:
        if no_data and (item.get_closest_marker("shared_data") or "shared_data" in getattr(item, "fixturenames", ())):
            item.add_marker(no_data)
        if no_cuda and item.get_closest_marker("cuda"):
            item.add_marker(no_cuda)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real photographs, annotated sets and awkward files; its tests carry the marker shared_data."""
    return _shared_folder()
