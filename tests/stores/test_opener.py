"""``open_store`` finds the format by content, and says what is wrong where it is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

import fastdata
from fastdata import open_store
from fastdata.converters.writers import WRITERS, WriterOptions, open_writer
from fastdata.errors import IncompletePackError, OptionError, StoreFormatError, StoreNotFoundError
from fastdata.types import Field, Record


def _pack(path, n=3):
    writer = open_writer(path)
    for i in range(n):
        writer.write(Record(f"k{i}", (Field("image", "jpeg", b"\xff\xd8\xff%d" % i),), i, 1, 1))
    writer.finish({})
    return path


@pytest.mark.parametrize("ending", [".lmdb", ".h5", ".tar"])
def test_content_counts_not_the_name(tmp_path, ending):
    path = _pack(tmp_path / f"pack{ending}")
    kind = open_store(path).kind
    other = tmp_path / "elsewhere" / "data.csv"
    other.parent.mkdir()
    shutil.copy(path, other)
    with open_store(other) as store:
        assert store.kind == kind
        assert bytes(store.read(2)) == b"\xff\xd8\xff2"


def test_paths_of_any_kind(tmp_path, monkeypatch):
    path = _pack(tmp_path / "pack.lmdb")
    monkeypatch.chdir(tmp_path)
    with open_store("pack.lmdb") as one, open_store(path) as two:
        assert len(one) == len(two) == 3
        monkeypatch.chdir("/")
        assert len(one.__reduce__()[0]()) == 3  # a worker with another working folder


def test_several_tars(tmp_path):
    from pathlib import Path

    paths = []
    for name in "ab":
        (tmp_path / name).mkdir()
        source = tmp_path / name / "p.tar"
        writer = open_writer(source)
        writer.write(Record(f"{name}1", (Field("image", "jpeg", name.encode()),), 1, 1, 1))
        writer.finish({})
        paths.append(Path(shutil.copy(source, tmp_path / f"{name}.tar")))
    for path in (paths, "::".join(map(str, paths))):
        with open_store(path) as store:
            assert [bytes(store.read(i)) for i in range(2)] == [b"a", b"b"]
            assert [bytes(r.fields[0].data) for r in store.__reduce__()[0]().records()] == [b"a", b"b"]


def test_nothing_there(tmp_path):
    with pytest.raises(StoreNotFoundError, match="nothing lies there"):
        open_store(tmp_path / "nothing.lmdb")
    (tmp_path / "file").touch()
    with pytest.raises(StoreNotFoundError):
        open_store(tmp_path / "file" / "below")


@pytest.mark.parametrize("data", [b"", b"hello", b"\x89PNG\r\n\x1a\n" + bytes(600), bytes(5000)])
def test_unknown_bytes(tmp_path, data):
    path = tmp_path / "what.bin"
    path.write_bytes(data)
    with pytest.raises(StoreFormatError, match=r"what\.bin.*LMDB, HDF5 and tar"):
        open_store(path)


def test_what_shells_and_file_managers_hand_over_is_told_what_to_be(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"\xff\xd8\xff")
    with pytest.raises(StoreFormatError, match=r"a\.jpg is one picture: give the folder"):
        open_store(tmp_path / "a.jpg")
    with pytest.raises(StoreNotFoundError, match=r"out-\{000000\.\.000003\}\.tar"):
        open_store(tmp_path / "s-*.tar")


def test_leftovers(tmp_path):  # C041
    path = tmp_path / "p.lmdb"
    writer = open_writer(path)
    with pytest.raises(IncompletePackError, match="overwrite"):
        open_store(path)
    with pytest.raises(IncompletePackError, match="overwrite"):
        open_store(tmp_path / "p.lmdb.partial")
    writer.abort()
    with pytest.raises(StoreNotFoundError):
        open_store(path)


def test_a_pipe_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.tar")
    with pytest.raises(StoreFormatError, match="StreamDataset"):
        open_store(tmp_path / "pipe.tar")


def test_endings_of_writers(tmp_path):
    with pytest.raises(OptionError, match=r"\.zip.*\.lmdb.*\.h5.*\.tar"):
        open_writer(tmp_path / "a.zip")
    with pytest.raises(OptionError, match="not both"):
        open_writer(tmp_path / "a.tar", WriterOptions(shard_bytes=1, shard_count=1))
    with pytest.raises(OptionError, match="only tar"):
        open_writer(tmp_path / "a.lmdb", WriterOptions(shard_bytes=1))
    with pytest.raises(OptionError, match="subdir"):
        open_writer(tmp_path / "a.h5", WriterOptions(subdir=True))
    assert list(tmp_path.iterdir()) == []
    assert set(WRITERS) >= {".lmdb", ".h5", ".hdf5", ".tar"}


def test_only_what_is_needed_is_imported(tmp_path):
    path = _pack(tmp_path / "p.lmdb")
    code = (
        "import sys\n"
        "import fastdata\n"
        "assert 'numpy' not in sys.modules\n"
        f"fastdata.open_store({str(path)!r}).read(0)\n"
        "print([m for m in ('torch', 'cv2', 'h5py', 'lmdb', 'PIL', 'torchvision') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_public_name():
    assert fastdata.open_store is open_store
    assert "open_store" in fastdata.__all__


@pytest.mark.slow
def test_a_million_records_open_in_a_second():
    import json
    from pathlib import Path

    script = Path(__file__).resolve().parents[2] / "benchmarks" / "open_pack.py"
    done = subprocess.run([sys.executable, str(script), "--json"], capture_output=True, text=True, check=True)
    values = json.loads(done.stdout)
    assert values["samples"] == 1_000_000
    assert values["seconds"] < 1
    assert values["rss_bytes"] < 100e6
    assert values["private_bytes"] < 40e6
