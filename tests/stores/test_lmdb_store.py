"""LMDB: our reader of the file against the LMDB library, packs that others changed, files of other programs."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
from typing import TYPE_CHECKING, Any

import lmdb
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastdata import open_store
from fastdata.converters.writers import WriterOptions, open_writer
from fastdata.errors import (
    IncompletePackError,
    PackError,
    SampleError,
    StaleIndexError,
    StoreError,
    StoreFormatError,
    TruncatedStoreError,
)
from fastdata.stores.lmdb_file import LmdbFile
from fastdata.types import Field, Record

if TYPE_CHECKING:
    from pathlib import Path

JPEG = b"\xff\xd8\xff\xe0"


def _environment(path: Path, **options: Any) -> lmdb.Environment:
    return lmdb.open(str(path), **{"subdir": False, "lock": False, "max_dbs": 8, "map_size": 1 << 28, **options})


def _pack(path: Path, records: list[Record], **options: Any) -> Path:
    writer = open_writer(path, WriterOptions(**options))
    for record in records:
        writer.write(record)
    writer.finish({"classes": ["a", "b"]})
    return path


def _records(n: int, size: int = 5000) -> list[Record]:
    make = random.Random(n)
    return [Record(f"k{i}", (Field("image", "jpeg", JPEG + make.randbytes(size + i)),), i % 2, 3, 4) for i in range(n)]


def _images(store: Any) -> list[bytes]:
    return [bytes(store.read(i)) for i in range(len(store))]


keys = st.binary(min_size=1, max_size=511)
values = st.one_of(
    st.binary(max_size=40),
    st.integers(0, 20_000).map(lambda n: random.Random(n).randbytes(n)),
    st.sampled_from([2014, 2015, 2016, 2030, 2038, 2039, 2040, 4079, 4080, 4081]).map(lambda n: b"v" * n),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(st.tuples(st.dictionaries(keys, values, max_size=25), st.sets(st.integers(0, 50))), max_size=6),
    named=st.booleans(),
)
def test_reader_sees_what_the_library_sees(tmp_path, steps, named):
    path = tmp_path / "any.lmdb"
    path.unlink(missing_ok=True)
    with _environment(path) as env:
        db = env.open_db(b"some name") if named else env.open_db()
        for put, drop in steps:  # several transactions, so that pages are freed, used again, and merged
            with env.begin(write=True, db=db) as txn:
                for key, value in put.items():
                    txn.put(key, value)
                for at in drop:
                    there = [key for key, _ in txn.cursor()]
                    if at < len(there):
                        txn.delete(there[at])
        with env.begin(db=db) as txn:
            wanted = [(bytes(key), bytes(value)) for key, value in txn.cursor()]
    file = LmdbFile(str(path))
    databases = file.databases()
    assert list(databases) == ([b"some name"] if named else [])
    entries = file.entries(databases[b"some name"] if named else file.main)
    assert [(file.key(entries, i), file.value(entries, i)) for i in range(len(entries))] == wanted
    assert list(file.keys(entries)) == [key for key, _ in wanted]


def test_a_tree_of_many_levels(tmp_path):
    path = tmp_path / "deep.lmdb"
    wanted = {b"%0400d" % i: b"%d" % i for i in range(5000)}
    with _environment(path) as env, env.begin(write=True) as txn:
        for key, value in sorted(wanted.items(), key=hash):
            txn.put(key, value)
    file = LmdbFile(str(path))
    assert file.main.depth >= 5
    entries = file.entries(file.main)
    assert dict(zip(file.keys(entries), (file.value(entries, i) for i in range(len(entries))), strict=True)) == wanted


def test_many_records_are_walked_quickly(tmp_path):
    import time

    path = tmp_path / "many.lmdb"
    with _environment(path) as env, env.begin(write=True) as txn:
        for i in range(100_000):
            txn.put(b"%08d" % i, JPEG + b"%8d" % i)
    start = time.perf_counter()
    with open_store(path) as store:
        assert len(store) == 100_000
        assert bytes(store.read(77_777)) == JPEG + b"   77777"
        assert store.key(5) == "00000005"
    assert time.perf_counter() - start < 10  # under 1 s alone; the bound is for a busy machine


def test_others_read_our_packs(tmp_path):
    cv2 = pytest.importorskip("cv2")
    rows = [np.full((8, 9, 3), 10 * i, np.uint8) for i in range(12)]
    records = [
        Record(f"r{i}", (Field("image", "png", cv2.imencode(".png", a)[1].tobytes()), Field("mask", "bytes", b"m")), i)
        for i, a in enumerate(rows)
    ]
    path = _pack(tmp_path / "a.lmdb", records)
    with _environment(path, readonly=True) as env:
        images, meta = env.open_db(b"images", create=False), env.open_db(b"fastdata", create=False)
        with env.begin() as txn:
            for i, (key, value) in enumerate(txn.cursor(db=images)):
                assert key == b"%010d" % i
                assert (cv2.imdecode(np.frombuffer(value, np.uint8), cv2.IMREAD_COLOR) == rows[i]).all()
            info = json.loads(txn.get(b"info", db=meta))
            labels = np.frombuffer(txn.get(b"index/label", db=meta), info["index"]["label"]["dtype"])
        assert env.stat()["entries"] == 3  # images, the masks, ours
    assert labels.tolist() == list(range(12))


def test_pack_and_read_in_one_process(tmp_path):  # C049
    path = _pack(tmp_path / "a.lmdb", _records(5))
    with open_store(path) as store, open_store(path) as again, _environment(path, readonly=True) as env:
        assert _images(store) == _images(again)
        with env.begin(db=env.open_db(b"images", create=False)) as txn:
            assert [bytes(v) for _, v in txn.cursor()] == _images(store)


def test_map_grows_by_itself(tmp_path):  # C047
    records = _records(700, 90_000)
    path = _pack(tmp_path / "a.lmdb", records)
    assert path.stat().st_size > 60 << 20  # from a map of 1 MiB
    with open_store(path) as store:
        assert len(store) == 700
        assert bytes(store.read(699)) == records[699].fields[0].data


def test_little_is_held_back_in_memory(tmp_path):
    writer = open_writer(tmp_path / "a.lmdb")
    for record in _records(40, 100_000):
        writer.write(record)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) > 40 * 100_000 - (1 << 20)
    writer.abort()


def test_a_map_that_cannot_grow_leaves_nothing(tmp_path, monkeypatch):  # C047
    import fastdata.converters.lmdb_writer as module

    class Stuck:
        def __init__(self, env: lmdb.Environment) -> None:
            self.env = env

        def __getattr__(self, name: str) -> Any:
            return getattr(self.env, name)

        def set_mapsize(self, size: int) -> None:
            raise lmdb.MemoryError(f"no {size} bytes")

    start = module.LmdbWriter._open
    monkeypatch.setattr(module.LmdbWriter, "_open", lambda self, size: Stuck(start(self, size)))
    writer = open_writer(tmp_path / "a.lmdb")

    def run() -> None:
        for record in _records(700, 90_000):
            writer.write(record)
        writer.finish({})

    with pytest.raises(PackError, match=r"a\.lmdb"):
        run()
    writer.abort()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(PackError, match="finished"):
        writer.write(_records(1)[0])


def test_disk_full_is_a_pack_error(tmp_path):
    import resource

    # A limit on the size of a file behaves as a disk that is full. It holds for the process, so a child has it.
    code = (
        "import resource, signal, sys\n"
        "from fastdata.converters.writers import open_writer\n"
        "from fastdata.errors import PackError\n"
        "from fastdata.types import Field, Record\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, 8 << 20))\n"
        "writer = open_writer(sys.argv[1])\n"
        "try:\n"
        "    for i in range(100):\n"
        "        writer.write(Record(f'k{i}', (Field('image', 'jpeg', bytes(1 << 20)),)))\n"
        "    writer.finish({})\n"
        "except PackError as error:\n"
        "    print(error)\n"
    )
    import subprocess
    import sys

    assert resource.RLIMIT_FSIZE is not None
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.lmdb")], capture_output=True, text=True, check=True
    )
    assert "a.lmdb" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [10_240, 20_000, 110_000])
def test_disk_use_is_near_the_payload(tmp_path, size):  # C050
    records = _records(300, size)
    path = _pack(tmp_path / "a.lmdb", records)
    payload = sum(len(r.fields[0].data) for r in records)
    status = path.stat()
    limit = 1.2 if size > 12_000 else 1.25  # 10,240 bytes take three pages of 4,096: 1.2 of it alone
    assert status.st_size <= limit * payload
    assert status.st_blocks * 512 <= limit * payload + 8192
    shutil.copyfile(path, tmp_path / "copy.lmdb")
    with open_store(tmp_path / "copy.lmdb") as store:
        assert len(store) == 300


def test_long_path_and_large_record(tmp_path):  # C010
    key = "/".join(["x" * 99] * 6) + "/end"
    assert len(key) > 600
    big = JPEG + os.urandom(40 << 20)
    path = _pack(tmp_path / "a.lmdb", [Record(key, (Field("image", "jpeg", big),))])
    with open_store(path) as store:
        assert bytes(store.read(store.find(key))) == big


def test_compacted_copy_is_read(tmp_path):
    records = _records(80)
    path = _pack(tmp_path / "a.lmdb", records)
    copy = tmp_path / "copy"
    with _environment(path, readonly=True) as env:
        env.copy(str(copy), compact=True)
    before = copy.read_bytes()
    with open_store(path) as one, open_store(copy) as two:
        assert one.spans(np.arange(80)).offset.tolist() != two.spans(np.arange(80)).offset.tolist()
        assert _images(two) == [r.fields[0].data for r in records]
        assert [two.key(i) for i in range(80)] == [r.key for r in records]
        assert two.classes == ("a", "b")
    assert copy.read_bytes() == before


def _changed(path: Path, change: Any, times: int = 1) -> None:
    for _ in range(times):
        with _environment(path) as env:
            images = env.open_db(b"images", create=False)
            with env.begin(write=True) as txn:
                change(txn, images)


@pytest.mark.parametrize("times", range(1, 6))
def test_changed_value_is_read_as_it_is_now(tmp_path, times):
    records = _records(60)
    path = _pack(tmp_path / "a.lmdb", records)
    new = JPEG + b"new" * 900
    # Several changes, so that the root page comes to lie where it lay before.
    _changed(path, lambda txn, db: txn.put(b"%010d" % 7, new, db=db), times)
    wanted = [r.fields[0].data for r in records]
    wanted[7] = new
    with open_store(path) as store:
        assert _images(store) == wanted
        store.check(6)
        with pytest.raises(StoreFormatError, match="k7"):
            store.check(7)


@pytest.mark.parametrize(
    "change",
    [
        lambda txn, db: txn.delete(b"%010d" % 7, db=db),
        lambda txn, db: txn.put(b"%010d" % 60, b"one more", db=db),
        lambda txn, db: txn.put(b"other", b"one more", db=db),
    ],
    ids=["one less", "one more", "another key"],
)
def test_samples_added_or_removed_are_refused(tmp_path, change):
    path = _pack(tmp_path / "a.lmdb", _records(60))
    _changed(path, change)
    with pytest.raises(StaleIndexError, match="pack again"):
        open_store(path)


def test_other_databases_beside_ours_do_no_harm(tmp_path):
    records = _records(60)
    path = _pack(tmp_path / "a.lmdb", records)
    with _environment(path) as env:
        mine = env.open_db(b"mine")
        with env.begin(write=True) as txn:
            for i in range(500):
                txn.put(b"%d" % i, b"x" * 3000, db=mine)
    with open_store(path) as store:
        assert _images(store) == [r.fields[0].data for r in records]


def test_renamed_unfinished_pack_is_incomplete(tmp_path):  # C041
    writer = open_writer(tmp_path / "a.lmdb")
    for record in _records(700, 90_000):
        writer.write(record)
    shutil.copyfile(tmp_path / "a.lmdb.partial", tmp_path / "b.lmdb")
    writer.abort()
    with pytest.raises(IncompletePackError, match="overwrite"):
        open_store(tmp_path / "b.lmdb")
    assert [p.name for p in tmp_path.iterdir()] == ["b.lmdb"]


def test_cut_short(tmp_path):  # C053
    path = _pack(tmp_path / "a.lmdb", _records(60))
    data = path.read_bytes()
    for cut in (len(data) // 2, len(data) - 25, len(data) - 4096, 5000):  # the last 24 bytes are the seal
        path.write_bytes(data[:cut])
        with pytest.raises(TruncatedStoreError, match=r"a\.lmdb.*shorter than its header says"):
            open_store(path)


def test_column_changed_on_disk_is_found(tmp_path):
    path = _pack(tmp_path / "a.lmdb", _records(2000, 10))
    with open_store(path) as store:
        labels = store.index.label.tobytes()
    data = path.read_bytes()
    at = data.find(labels)
    assert at > 0
    path.write_bytes(data[: at + 100] + b"\x01" + data[at + 101 :])
    with pytest.raises(StoreFormatError, match="label"):
        open_store(path)


def test_newer_format_is_named(tmp_path):
    path = _pack(tmp_path / "a.lmdb", _records(3))
    data = path.read_bytes()
    assert data.count(b'"format_version": 1') == 1
    path.write_bytes(data.replace(b'"format_version": 1', b'"format_version": 9'))
    with pytest.raises(StoreFormatError, match="update fastdata"):
        open_store(path)


def test_index_columns_are_views_of_the_file(tmp_path):
    path = _pack(tmp_path / "a.lmdb", _records(5000, 10))
    with open_store(path) as store:
        for column in (store.index.fields["image"].offset, store.index.label, store.index.keys.blob):
            base = column
            while isinstance(base, np.ndarray):
                base = base.base
            assert type(base).__name__ in {"mmap", "memoryview"}
            assert not column.flags.writeable
            assert column.flags.aligned
    with open_store(path, io="pread") as store:
        assert store.index.label.flags.owndata


# Files of other programs


def _foreign(path: Path, items: dict[bytes, bytes], name: bytes | None = None, **options: Any) -> Path:
    with _environment(path) as env:
        db = env.open_db(name, **options) if name or options else None
        with env.begin(write=True) as txn:
            for key, value in items.items():
                txn.put(key, value, db=db)
    return path


def _jpeg(i: int) -> bytes:
    return JPEG + b"%d" % i * (1 + i * 40)


def test_tensorpack_like(tmp_path):
    items = {b"%08d" % i: _jpeg(i) for i in range(30)} | {b"__keys__": pickle.dumps([b"x"])}
    with open_store(_foreign(tmp_path / "f.lmdb", items)) as store:
        assert _images(store) == [_jpeg(i) for i in range(30)]
        assert store.key(3) == "00000003"
        assert store.label(0) is None
        assert store.kind == "lmdb"


def test_unpadded_numbers_are_taken_in_numeric_order(tmp_path):
    items = {b"%d" % i: _jpeg(i) for i in range(120)} | {b"__len__": b"120", b"__keys__": b"[]"}
    with open_store(_foreign(tmp_path / "f.lmdb", items)) as store:
        assert [store.key(i) for i in range(120)] == [str(i) for i in range(120)]
        assert _images(store) == [_jpeg(i) for i in range(120)]


def test_text_recognition(tmp_path):
    items = {b"image-%09d" % i: _jpeg(i) for i in range(1, 13)} | {b"num-samples": b"12"}
    items |= {b"label-%09d" % i: f"wörd {i}".encode() for i in range(1, 13) if i != 5}
    with open_store(_foreign(tmp_path / "f.lmdb", items)) as store:
        assert _images(store) == [_jpeg(i) for i in range(1, 13)]
        assert bytes(store.read(0, "label")).decode() == "wörd 1"
        assert store.codec(0, "label") == "text"
        assert len(store.record(4).fields) == 1  # no label-000000005
        with pytest.raises(SampleError, match=r"has no field .label., which others have"):
            store.read(4, "label")


def test_stems_in_a_folder_with_data_mdb(tmp_path):
    folder = tmp_path / "set.lmdb"
    items = {f"0801_s{i:03d}".encode(): _jpeg(i) for i in range(9)}
    with lmdb.open(str(folder), map_size=1 << 24) as env, env.begin(write=True) as txn:
        for key, value in items.items():
            txn.put(key, value)
    (folder / "meta_info.txt").write_text("0801_s000.png (480,480,3) 1\n")
    before = sorted((p.name, p.stat().st_mtime_ns) for p in folder.iterdir())
    with open_store(folder) as store:
        assert _images(store) == list(items.values())
        assert store.key(8) == "0801_s008"
    assert sorted((p.name, p.stat().st_mtime_ns) for p in folder.iterdir()) == before


@pytest.mark.parametrize("name", [b"images", b"whatever"])
def test_one_named_database(tmp_path, name):
    with open_store(_foreign(tmp_path / "f.lmdb", {b"k\xff": _jpeg(1), b"l": _jpeg(2)}, name)) as store:
        assert _images(store) == [_jpeg(1), _jpeg(2)]
        assert store.find(store.key(0)) == 0


def test_integer_keys(tmp_path):
    items = {i.to_bytes(8, "little"): _jpeg(i) for i in (3, 300, 7)}
    with open_store(_foreign(tmp_path / "f.lmdb", items, b"data", integerkey=True)) as store:
        assert [store.key(i) for i in range(3)] == ["3", "7", "300"]
        assert _images(store) == [_jpeg(3), _jpeg(7), _jpeg(300)]


def test_binary_keys(tmp_path):
    with open_store(_foreign(tmp_path / "f.lmdb", {b"\0\1": _jpeg(1), b"\0\2": _jpeg(2)})) as store:
        assert [store.key(i) for i in range(2)] == ["0001", "0002"]


def test_pickles_are_refused_unread(tmp_path):
    class Trap:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "sprung"),)

    items = {b"%08d" % i: pickle.dumps(Trap()) for i in range(3)}
    with pytest.raises(StoreFormatError, match="pickle"):
        open_store(_foreign(tmp_path / "f.lmdb", items))
    assert not (tmp_path / "sprung").exists()


def test_no_images_several_databases_or_several_values(tmp_path):
    with pytest.raises(StoreFormatError, match="no image files"):
        open_store(_foreign(tmp_path / "a.lmdb", {b"a": b"text"}))
    with pytest.raises(StoreFormatError, match="no samples"):
        open_store(_foreign(tmp_path / "b.lmdb", {}))
    with pytest.raises(StoreFormatError, match="DUPSORT"):
        open_store(_foreign(tmp_path / "c.lmdb", {b"a": _jpeg(1)}, b"images", dupsort=True))
    _foreign(tmp_path / "d.lmdb", {b"a": _jpeg(1)}, b"one")
    _foreign(tmp_path / "d.lmdb", {b"a": _jpeg(1)}, b"two")
    with pytest.raises(StoreFormatError, match=r"'one'.*'two'"):
        open_store(tmp_path / "d.lmdb")


# Files made to harm


@pytest.mark.parametrize("seed", range(4))
def test_hostile_pages_never_crash(tmp_path, seed):
    items = {b"key%05d" % i: _jpeg(i % 60) for i in range(400)}
    path = _foreign(tmp_path / "f.lmdb", items)
    data = path.read_bytes()
    make = random.Random(seed)
    pages = len(data) // 4096
    numbers = [0, 1, 2, 3, pages - 1, pages, 0xFFFF, 0x7FFF_FFFF_FFFF, 2**63 - 1, 2**64 - 1]
    refused = 0
    for _ in range(250):
        changed = bytearray(data)
        for _ in range(make.randrange(1, 4)):
            page = make.choice([0, 1, make.randrange(pages)])
            width = make.choice([2, 2, 4, 8])
            at = page * 4096 + 2 * make.randrange(0, make.choice([12, 40, 90, 2040]))
            value = make.choice([*numbers, make.getrandbits(16), make.randrange(pages)])
            changed[at : at + width] = (value & (2 ** (8 * width) - 1)).to_bytes(width, "little")
        path.write_bytes(changed)
        try:
            with open_store(path) as store:
                _images(store)
        except StoreError:
            refused += 1
    assert refused > 25


def test_a_circle_of_pages_is_refused(tmp_path):
    path = _foreign(tmp_path / "f.lmdb", {b"%0400d" % i: b"v" for i in range(3000)})
    file = LmdbFile(str(path))
    assert file.main.depth > 2
    root = file.main.root
    data = bytearray(path.read_bytes())
    pointer = int.from_bytes(data[root * 4096 + 16 : root * 4096 + 18], "little")
    for child in (root, 0, file.last_page + 1, file.last_page):
        at = root * 4096 + pointer
        data[at : at + 4] = child.to_bytes(4, "little")
        path.write_bytes(data)
        with pytest.raises(StoreFormatError):
            open_store(path)


def test_a_page_shared_by_all_is_no_bomb(tmp_path):
    # Every child of the root is one and the same page: walked naively, each level would multiply the work.
    path = _foreign(tmp_path / "f.lmdb", {b"%0400d" % i: b"v" for i in range(3000)})
    root = LmdbFile(str(path)).main.root
    data = bytearray(path.read_bytes())
    count = (int.from_bytes(data[root * 4096 + 12 : root * 4096 + 14], "little") - 16) // 2
    assert count > 1
    pointers = [int.from_bytes(data[root * 4096 + 16 + 2 * i :][:2], "little") for i in range(count)]
    first = data[root * 4096 + pointers[0] :][:4]
    for pointer in pointers:
        data[root * 4096 + pointer : root * 4096 + pointer + 4] = first
    path.write_bytes(data)
    with pytest.raises(StoreFormatError, match=r"circle|other pages"):
        open_store(path)


def test_a_node_that_claims_too_much_is_refused(tmp_path):
    path = _foreign(tmp_path / "f.lmdb", {b"a": _jpeg(1), b"b": JPEG + bytes(9000)})
    data = path.read_bytes()
    root = LmdbFile(str(path)).main.root
    for slot, says in ((0, "beyond its page"), (1, "beyond the last page")):
        node = root * 4096 + int.from_bytes(data[root * 4096 + 16 + 2 * slot :][:2], "little")
        changed = bytearray(data)
        changed[node : node + 4] = b"\xff\xff\xff\xff"  # the value's size
        path.write_bytes(changed)
        with pytest.raises(StoreFormatError, match=says):
            open_store(path)


def test_a_foreign_file_cut_inside_a_value_is_refused(tmp_path):  # C053
    path = _foreign(tmp_path / "f.lmdb", {b"a": _jpeg(1), b"b": JPEG + bytes(90_000)})
    file = LmdbFile(str(path))
    entries = file.entries(file.main)
    data = path.read_bytes()
    path.write_bytes(data[: max(int(entries.offset[1]) + 8000, (file.main.root + 1) * 4096)])
    with pytest.raises(TruncatedStoreError, match="shorter than its header says"):
        open_store(path)
