"""A pack appears under its name only when it is whole and on the disk; the hash of its content."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from fastdata.converters.atomic import Partial, partial_path, writing
from fastdata.converters.content import ContentHash, record_digest
from fastdata.converters.writers import WriterOptions, open_writer
from fastdata.errors import DestinationExistsError, PackError
from fastdata.types import Field, Record


def test_a_file_gets_its_name_at_commit(tmp_path):
    partial = Partial(tmp_path / "deep" / "a.lmdb")
    partial.path.write_bytes(b"data")
    assert partial.path == partial_path(tmp_path / "deep" / "a.lmdb") == tmp_path / "deep" / "a.lmdb.partial"
    assert not partial.dst.exists()
    partial.commit()
    partial.commit()
    partial.abort()
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["a.lmdb"]
    assert partial.dst.read_bytes() == b"data"


def test_synced_before_it_is_named(tmp_path, monkeypatch):
    events = []
    fsync, rename = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append(Path(f"/proc/self/fd/{fd}").readlink().name), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (events.append("rename"), rename(a, b)))
    partial = Partial(tmp_path / "a.lmdb")
    partial.path.write_bytes(b"data")
    partial.commit()
    assert events == ["a.lmdb.partial", "rename", tmp_path.name]


@pytest.mark.parametrize("old", ["file", "folder"])
@pytest.mark.parametrize("new", ["file", "folder"])
def test_overwrite_keeps_the_old_one_to_the_end(tmp_path, old, new):
    dst = tmp_path / "a.lmdb"
    for path, kind, data in ((dst, old, b"old"), (tmp_path / "a.lmdb.partial", old, b"leftover")):
        if kind == "folder":
            path.mkdir()
            path = path / "data.mdb"  # noqa: PLW2901
        path.write_bytes(data)
    with pytest.raises(DestinationExistsError, match="exists already; overwrite"):
        Partial(dst)
    partial = Partial(dst, overwrite=True)
    assert not partial.path.exists()
    assert (dst / "data.mdb" if old == "folder" else dst).read_bytes() == b"old"
    if new == "folder":
        partial.path.mkdir()
    (partial.path / "data.mdb" if new == "folder" else partial.path).write_bytes(b"new")
    partial.commit()
    assert [p.name for p in tmp_path.iterdir()] == ["a.lmdb"]
    assert (dst / "data.mdb" if new == "folder" else dst).read_bytes() == b"new"


def test_a_leftover_is_named(tmp_path):  # C041
    (tmp_path / "a.lmdb.partial").write_bytes(b"half")
    with pytest.raises(DestinationExistsError, match=r"a\.lmdb\.partial is an incomplete pack.*overwrite"):
        Partial(tmp_path / "a.lmdb")
    assert (tmp_path / "a.lmdb.partial").read_bytes() == b"half"


def test_disk_errors_name_the_pack():
    with pytest.raises(PackError, match=r"cannot write out\.tar: the disk is full"), writing("out.tar"):
        raise OSError(28, "No space left on device")
    with pytest.raises(PackError, match=r"cannot write out\.tar: Permission denied"), writing("out.tar"):
        raise PermissionError(13, "Permission denied")
    with pytest.raises(DestinationExistsError), writing("out.tar"):
        raise DestinationExistsError("as it was")  # noqa: EM101


def test_content_hash_sees_all_but_sizes():
    record = Record("k", (Field("image", "jpeg", b"ab"), Field("mask", "png", b"c")), 1, 5, 5, {"x": 1})
    same = [
        record,
        replace(record, width=7, height=0),
        replace(record, label=1.0),
        replace(record, fields=(Field("image", "jpeg", memoryview(b"ab")), Field("mask", "png", b"c"))),
    ]
    other = [
        replace(record, key="l"),
        replace(record, label=2),
        replace(record, label=None),
        replace(record, extras={}),
        replace(record, fields=record.fields[:1]),
        replace(record, fields=(Field("image", "png", b"ab"), record.fields[1])),
        replace(record, fields=(Field("image", "jpeg", b"a"), Field("mask", "png", b"bc"))),
    ]
    assert len({record_digest(r) for r in same}) == 1
    assert len({record_digest(r) for r in [record, *other]}) == len(other) + 1
    assert record_digest(replace(record, label=(0.1,))) != record_digest(record)


def test_content_hash_depends_on_order_and_not_on_who_saw_the_bytes():
    one, two = (Record(k, (Field("image", "jpeg", k.encode()),)) for k in "ab")
    hashes = []
    for order in ((one, two), (two, one)):
        whole, digests = ContentHash(), ContentHash()
        for record in order:
            whole.add(record)
            digests.add_digest(record_digest(record))
        assert whole.hexdigest() == digests.hexdigest()
        hashes.append(whole.hexdigest())
    assert hashes[0] != hashes[1]
    assert len(hashes[0]) == 32


@pytest.mark.parametrize("name", ["md.lmdb", "w.h5", "t.tar"])
def test_a_folder_of_other_files_is_not_replaced(tmp_path, name):
    writer = WriterOptions(overwrite=True)
    (tmp_path / name).mkdir()
    (tmp_path / name / "data.mdb").write_bytes(b"LMDB's")
    (tmp_path / name / "notes.txt").write_text("mine")
    with pytest.raises(DestinationExistsError, match=r"the first: notes\.txt"):
        written(tmp_path / name, writer)
    (tmp_path / name / "notes.txt").unlink()
    (tmp_path / f"{name}.partial" / "data.mdb").mkdir(parents=True)  # a folder of that name is not LMDB's
    with pytest.raises(PackError):
        written(tmp_path / name, writer)
    assert (tmp_path / name / "data.mdb").read_bytes() == b"LMDB's"
    (tmp_path / f"{name}.partial" / "data.mdb").rmdir()
    (tmp_path / f"{name}.partial").rmdir()
    written(tmp_path / name, writer)
    assert not (tmp_path / name).is_dir()


def written(dst, options):
    writer = open_writer(dst, options)
    try:
        writer.write(Record("k", (Field("image", "jpeg", b"\xff\xd8\xff"),), 0, 1, 1))
        writer.finish({})
    finally:
        writer.abort()
