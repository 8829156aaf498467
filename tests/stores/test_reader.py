"""The readers by themselves: spans that lie outside, files that are gone or cut, descriptors."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from fastdata.errors import MissingPartError, StoreClosedError, TruncatedStoreError
from fastdata.stores.index import IndexBuilder
from fastdata.stores.reader import open_reader
from fastdata.types import Spans


def _spans(*rows: tuple[int, int, int]) -> Spans:
    return Spans(*(np.array(column, np.int64) for column in zip(*rows, strict=True)))


@pytest.fixture(params=["mmap", "pread"])
def io(request):
    return request.param


@pytest.mark.parametrize("span", [(0, 11), (10, 1), (-1, 2), (0, -1), (1 << 40, 5), (0, 1 << 45), (5, 1 << 62)])
def test_spans_outside_the_file(tmp_path, io, span):
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    reader = open_reader([str(path)], io)
    with pytest.raises(TruncatedStoreError, match="lies outside the file, which has 10 bytes"):
        reader.view(0, *span)
    with pytest.raises(TruncatedStoreError):
        reader.address(_spans((0, 0, 5), (0, *span)))
    assert bytes(reader.view(0, 3, 4)) == b"3456"
    reader.close()


def test_no_bytes_at_the_end(tmp_path, io):
    (tmp_path / "file").write_bytes(b"0123456789")
    (tmp_path / "empty").write_bytes(b"")
    reader = open_reader([str(tmp_path / "file"), str(tmp_path / "empty")], io)
    assert len(reader.view(0, 10, 0)) == len(reader.view(1, 0, 0)) == 0
    reader.close()


def test_missing_file_and_closed_reader(tmp_path, io):
    (tmp_path / "file").write_bytes(b"0123456789")
    reader = open_reader([str(tmp_path / "file"), str(tmp_path / "gone")], io)
    with pytest.raises(MissingPartError, match="gone"):
        reader.view(1, 0, 1)
    reader.close()
    with pytest.raises(StoreClosedError):
        reader.view(0, 0, 1)


def test_a_cut_file_is_an_error_with_pread(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(10_000))
    reader = open_reader([str(path)], "pread")
    assert len(reader.view(0, 0, 10_000)) == 10_000
    os.truncate(path, 5_000)
    with pytest.raises(TruncatedStoreError, match="5000"):
        reader.view(0, 0, 10_000)
    reader.close()


def test_descriptors_are_few_with_pread(tmp_path):
    paths = []
    for i in range(200):
        paths.append(str(tmp_path / str(i)))
        Path(paths[-1]).write_bytes(b"%d" % i)
    before = len(list(Path("/proc/self/fd").iterdir()))
    reader = open_reader(paths, "pread")
    for i in (*range(200), *range(200)):
        assert bytes(reader.view(i, 0, len(str(i)))) == b"%d" % i
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 64
    reader.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_refused_row_leaves_nothing_in_the_index():
    builder = IndexBuilder()
    builder.add("a", 1, 2, 3)
    for key, label in (("b\0", 1), ("b", (1.0, 2.0))):
        with pytest.raises(ValueError, match="key 'b"):
            builder.add(key, label, 2, 3)
    builder.add("c", 5, 2, 3)
    index = builder.build()
    index.check("here")
    assert index.label.tolist() == [1, 5]
    assert [index.keys[i] for i in range(2)] == ["a", "c"]
