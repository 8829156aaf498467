"""The index file: what was written comes back, and no damage goes unnoticed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fastdata.errors import StoreError, StoreFormatError, StoreNotFoundError
from fastdata.stores.sidecar import Shard, Sidecar, read_sidecar, write_sidecar

COLUMNS = {
    "a": np.arange(100, dtype=np.int64),
    "b": np.arange(7, dtype=np.uint8),
    "none": np.zeros(0, np.int32),
    "matrix": np.arange(12, dtype=np.float32).reshape(4, 3),
}
SIDECAR = Sidecar({"classes": ["é", "b"], "n": 1}, [Shard("a.tar", 1024, 7)], COLUMNS)


def test_comes_back(tmp_path):
    write_sidecar(tmp_path / "x", SIDECAR)
    back = read_sidecar(str(tmp_path / "x"))
    assert (back.info, list(back.shards)) == (SIDECAR.info, SIDECAR.shards)
    assert list(back.columns) == list(COLUMNS)
    for name, column in COLUMNS.items():
        assert back.columns[name].dtype == column.dtype
        assert back.columns[name].flags.aligned
        assert not back.columns[name].flags.writeable or not column.size
        assert np.array_equal(back.columns[name], column)


@settings(max_examples=30, deadline=None)
@given(
    column=arrays.arrays(
        st.sampled_from([np.int64, np.int32, np.uint8, np.uint32, np.float64, np.float32]),
        arrays.array_shapes(max_dims=2, min_side=0, max_side=20),
    )
)
def test_any_column_comes_back(column, tmp_path_factory):
    path = tmp_path_factory.mktemp("sidecar") / "x"
    write_sidecar(path, Sidecar({}, [], {"c": column}))
    assert read_sidecar(str(path)).columns["c"].tobytes() == column.tobytes()


def test_every_changed_byte_is_noticed(tmp_path):
    path = tmp_path / "x"
    write_sidecar(path, SIDECAR)
    data = path.read_bytes()
    wanted = {name: column.tobytes() for name, column in COLUMNS.items()}
    refused = 0
    for at in [*range(40), *range(40, len(data), 5)]:
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :])
        try:
            back = read_sidecar(str(path))
        except StoreFormatError:
            refused += 1
            continue
        assert {name: column.tobytes() for name, column in back.columns.items()} == wanted  # padding
    assert refused > len(data) * 0.8 / 5


def test_every_cut_is_noticed(tmp_path):
    path = tmp_path / "x"
    write_sidecar(path, SIDECAR)
    data = path.read_bytes()
    for cut in [*range(40), *range(40, len(data), 7), len(data) - 1]:
        path.write_bytes(data[:cut])
        with pytest.raises(StoreFormatError):
            read_sidecar(str(path))


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=200))
def test_random_bytes_raise_only_our_errors(data, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "random.fdindex"
    for content in (data, b"FDINDEX\x01" + data, b"FDINDEX\x02" + data):
        path.write_bytes(content)
        with pytest.raises(StoreError):
            read_sidecar(str(path))


@pytest.mark.parametrize(
    "row",
    [
        {"dtype": "|O", "shape": [1], "offset": 0, "crc": 0},
        {"dtype": "<i8", "shape": [2**62, 4], "offset": 0, "crc": 0},
        {"dtype": "<i8", "shape": [-1], "offset": 0, "crc": 0},
        {"dtype": "<i8", "shape": [1], "offset": -64, "crc": 0},
        {"dtype": "<i8", "shape": [1], "offset": 2**70, "crc": 0},
        {"dtype": "<i8", "shape": 3, "offset": 0, "crc": 0},
        {"dtype": "<i8", "shape": [1]},
        [],
        None,
    ],
)
def test_hostile_headers(tmp_path, row):
    import json
    import struct
    import zlib

    header = json.dumps({"info": {}, "shards": [], "columns": {"c": row}, "size": 64}).encode()
    data = struct.pack("<8sII", b"FDINDEX\x01", len(header), zlib.crc32(header)) + header
    path = tmp_path / "x"
    path.write_bytes(data + bytes(-len(data) % 64) + bytes(64))
    with pytest.raises(StoreFormatError, match="damaged"):
        read_sidecar(str(path))


def test_absent(tmp_path):
    with pytest.raises(StoreNotFoundError):
        read_sidecar(str(tmp_path / "x"))
