from __future__ import annotations

import os

import pytest

from fastdata.errors import MissingPartError, StoreError, StoreFormatError
from fastdata.stores import file_reader
from fastdata.stores.file_reader import FileReader, read_whole


@pytest.mark.parametrize("size", [0, 1, 4095, 65_536, 65_537, 3_000_001])
def test_a_file_is_read_whole(tmp_path, size):
    path = tmp_path / "x"
    data = os.urandom(size)
    path.write_bytes(data)
    assert read_whole(str(path)) == data
    assert FileReader([str(path)]).view(0, 0, 0) == data


def test_what_is_added_while_it_is_read_is_read_too(tmp_path, monkeypatch):
    path = tmp_path / "x"
    path.write_bytes(b"begin ")
    real, grown = os.read, []

    def read(descriptor, count):
        data = real(descriptor, count)
        if not grown:  # behind the first read
            grown.append(path.write_bytes(b"begin " + bytes(200_000)))
        return data

    monkeypatch.setattr(file_reader.os, "read", read)
    assert read_whole(str(path)) == b"begin " + bytes(200_000)


def test_what_cannot_be_read_is_named(tmp_path):
    with pytest.raises(MissingPartError, match="gone"):
        read_whole(str(tmp_path / "gone"))
    with pytest.raises(StoreFormatError, match=tmp_path.name):
        read_whole(str(tmp_path))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreFormatError, match="pipe"):
        read_whole(str(tmp_path / "pipe"))
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(StoreError, match="loop"):
        read_whole(str(tmp_path / "loop"))


def test_no_descriptor_stays_open(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"x")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(9):
        assert read_whole(str(path)) == b"x"
        with pytest.raises(StoreFormatError):
            read_whole(str(tmp_path))
    assert len(os.listdir("/proc/self/fd")) == before
