"""Decoding the set costs what decoding photographs costs."""

from __future__ import annotations

import io
import statistics
import time

import numpy as np
import pytest
import simplejpeg
from PIL import Image

pytestmark = pytest.mark.shared_data


@pytest.fixture(scope="module")
def jpegs(sample_set, shared_data):
    """(sample, photos): 100 files of each, spread over all classes, as (bytes, pixels) pairs."""
    found = []
    for folder in (sample_set, shared_data / "photos" / "classes"):
        files = sorted(folder.glob("*/*.jpg"))
        chosen = [files[k] for k in np.linspace(0, len(files) - 1, 100).astype(int)]
        datas = [file.read_bytes() for file in chosen]
        found.append([(data, _area(data)) for data in datas])
    return found


def _area(data):
    with Image.open(io.BytesIO(data)) as image:
        return image.width * image.height


def _load(data):
    with Image.open(io.BytesIO(data)) as image:
        image.load()


def test_bytes_per_pixel_are_those_of_photographs(jpegs):
    sample, photos = (sum(len(data) for data, _ in files) / sum(area for _, area in files) for files in jpegs)
    assert 0.75 < sample / photos < 1.25


@pytest.mark.parametrize("decode", [_load, simplejpeg.decode_jpeg])
def test_decode_time_per_megapixel_is_within_a_quarter(jpegs, decode):
    # One picture of each set in turn, so that whatever slows the machine slows both; of each picture the median of
    # seven tries, in processor time of this thread.
    seconds = [[[] for _ in files] for files in jpegs]
    for _ in range(7):
        for pair in range(100):
            for files, times in zip(jpegs, seconds, strict=True):
                began = time.thread_time()
                decode(files[pair][0])
                times[pair].append(time.thread_time() - began)
    sample, photos = (
        sum(map(statistics.median, times)) / sum(area for _, area in files)
        for files, times in zip(jpegs, seconds, strict=True)
    )
    assert 0.75 < sample / photos < 1.25
