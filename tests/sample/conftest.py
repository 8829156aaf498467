"""One set of sample pictures for all tests that only look at it."""

from __future__ import annotations

import pytest

from fastdata.sample import draw_samples


@pytest.fixture(scope="session")
def sample_set(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sample") / "images"
    draw_samples(folder)
    return folder
