"""What every store does, whatever its format."""

from __future__ import annotations

import ctypes
import hashlib
import multiprocessing
import pickle
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fastdata import open_store
from fastdata.converters.seal import SEAL_BYTES, has_seal
from fastdata.converters.writers import WriterOptions, open_writer
from fastdata.errors import (
    ChecksumError,
    DestinationExistsError,
    IncompletePackError,
    KeyNotFoundError,
    OptionError,
    StaleIndexError,
    StoreClosedError,
    StoreError,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def _digest(store: Any) -> str:
    whole = hashlib.sha256()
    for i in range(len(store)):
        for name in store.fields:
            if name != "extras" and store.index.fields[name].length[i] >= 0:
                whole.update(store.read(i, name))
        whole.update(repr((store.key(i), store.label(i))).encode())
    return whole.hexdigest()


def _assert_equal(store: Any, records: Any) -> None:
    assert len(store) == len(records)
    for i, wanted in enumerate(records):
        got = store.record(i)
        assert (got.key, got.label, dict(got.extras)) == (wanted.key, wanted.label, dict(wanted.extras))
        assert (got.width, got.height) == (wanted.width, wanted.height)
        assert [(f.name, f.codec, bytes(f.data)) for f in got.fields] == [
            (f.name, f.codec, bytes(f.data)) for f in wanted.fields
        ]


def test_everything_comes_back(packed):  # C001 C007 C008 C010
    with open_store(packed.path) as store:
        assert store.kind == packed.format.kind
        assert store.fields[0] == "image"
        _assert_equal(store, packed.records)


def test_pread_gives_the_same(packed):
    with open_store(packed.path, io="pread") as store:
        _assert_equal(store, packed.records)


def test_unknown_io_is_refused(packed):
    if packed.format.is_pack:
        with pytest.raises(OptionError, match="pread"):
            open_store(packed.path, io="aio")


def test_spans_are_the_places_in_the_files(packed):
    with open_store(packed.path) as store:
        for name in store.fields:
            rows = np.flatnonzero(store.index.fields[name].length >= 0)
            spans = store.spans(rows, name)
            for row, part, offset, length in zip(rows, *spans, strict=True):
                with Path(store.parts[part]).open("rb") as file:
                    file.seek(offset)
                    assert file.read(length) == bytes(store.read(int(row), name))


def test_views_are_read_only_and_flat(packed):
    with open_store(packed.path) as store:
        view = store.read(0)
        assert isinstance(view, memoryview)
        assert view.readonly
        assert (view.format, view.ndim) == ("B", 1)


def test_packs_are_read_without_copies(packed_pack):
    with open_store(packed_pack.path) as store:
        one, two = (np.frombuffer(store.read(3), np.uint8).__array_interface__["data"][0] for _ in range(2))
        assert one == two


@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_fetch_gives_addresses_of_the_bytes(packed, io):
    with open_store(packed.path, io=io) as store:
        order = np.random.default_rng(1).permutation(len(store)).astype(np.int64)
        encoded = store.fetch(order)
        assert encoded.address.dtype == np.uint64
        assert encoded.length.dtype == np.int64
        for at, i in enumerate(order.tolist()):
            wanted = packed.records[i].fields[0].data
            assert ctypes.string_at(int(encoded.address[at]), int(encoded.length[at])) == wanted
            assert bytes(encoded.views[at]) == wanted
        assert len(store.fetch(order[:0])) == 0


def test_keys_are_found(packed):
    with open_store(packed.path) as store:
        for i, record in enumerate(packed.records):
            assert store.find(record.key) == i
        for wrong in ("", "nothing", packed.records[0].key + "x", packed.records[1].key[1:] or "q"):
            with pytest.raises(KeyNotFoundError):
                store.find(wrong)


def test_positions_are_checked(packed):
    with open_store(packed.path) as store:
        n = len(store)
        assert bytes(store.read(-1)) == packed.records[-1].fields[0].data
        for wrong in (n, -n - 1):
            with pytest.raises(IndexError, match=str(n)):
                store.read(wrong)
        with pytest.raises(OptionError, match="image"):
            store.read(0, "nothing")


def test_info_of_a_pack(packed_pack):  # C002
    with open_store(packed_pack.path) as store:
        assert store.classes == ("a", "b", "c")
        assert store.class_to_idx == {"a": 0, "b": 1, "c": 2}
        assert store.info["options"] == {"resize": 256}
        assert store.info["mean"] == [0.1, 0.2, 0.3]
        assert store.info["samples"] == len(packed_pack.records)
        assert store.info["format_version"] == 1
        assert store.info["fields"] == list(store.fields)
        for i in range(len(store)):
            store.check(i)
            assert store.index.fields["image"].checksum[i] != 0


def test_content_hash_is_that_of_the_records(pack_row, tmp_path):
    from fastdata.converters.content import ContentHash

    records = pack_row.records()
    wanted = ContentHash()
    for record in records:
        wanted.add(record)
    with open_store(pack_row.write(tmp_path, records)) as store:
        assert store.info["content_hash"] == wanted.hexdigest()
        again = ContentHash()
        for record in store.records():
            again.add(record)
        assert again.hexdigest() == wanted.hexdigest()


@pytest.mark.parametrize(
    ("label", "dtype"),
    [
        (lambda i: i - 5, np.int64),
        (lambda i: i / 7, np.float64),
        (lambda i: (float(i), 0.5), np.float32),
        (lambda _: None, None),
    ],
    ids=["int", "float", "vector", "none"],
)
def test_labels_of_all_kinds(pack_row, tmp_path, label, dtype):
    from dataclasses import replace

    records = [replace(record, label=label(i)) for i, record in enumerate(pack_row.records())]
    with open_store(pack_row.write(tmp_path, records)) as store:
        assert (store.index.label is None) if dtype is None else (store.index.label.dtype == dtype)
        assert [store.label(i) for i in range(len(store))] == [record.label for record in records]


def test_pickle_travels_as_the_path(packed):
    with open_store(packed.path) as store:
        store.read(0)
        data = pickle.dumps(store)
        assert len(data) < 1000
        with pickle.loads(data) as other:
            assert _digest(other) == _digest(store)


def test_pickle_keeps_io(packed):
    with open_store(packed.path, io="pread") as store, pickle.loads(pickle.dumps(store)) as other:
        assert type(other._reader) is type(store._reader)


def test_many_threads(packed):
    with open_store(packed.path) as store:
        wanted = [record.fields[0].data for record in packed.records]
        start = threading.Barrier(8)

        def work(seed: int) -> None:
            start.wait()
            for i in np.random.default_rng(seed).integers(0, len(store), 200).tolist():
                assert bytes(store.read(i)) == wanted[i]

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))


def _in_fork(store: Any, queue: Any) -> None:
    queue.put(_digest(store))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_forked_processes(packed, io):  # C052: the parent has read, then forks
    context = multiprocessing.get_context("fork")
    with open_store(packed.path, io=io) as store:
        wanted = _digest(store)
        queue = context.SimpleQueue()
        children = [context.Process(target=_in_fork, args=(store, queue)) for _ in range(3)]
        for child in children:
            child.start()
        assert [queue.get() for _ in children] == [wanted] * 3
        for child in children:
            child.join(30)
            assert child.exitcode == 0
        assert _digest(store) == wanted


def test_spawned_process(packed):  # C052: another interpreter, which gets the pickle
    code = (
        "import pickle, sys, hashlib\n"
        "store = pickle.load(sys.stdin.buffer)\n"
        "print(hashlib.sha256(b''.join(bytes(store.read(i)) for i in range(len(store)))).hexdigest())\n"
    )
    with open_store(packed.path) as store:
        store.read(0)
        done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(store), capture_output=True, check=True)
    wanted = hashlib.sha256(b"".join(record.fields[0].data for record in packed.records)).hexdigest()
    assert done.stdout.decode().strip() == wanted


def test_close_leaves_views_good(packed):
    store = open_store(packed.path)
    view, encoded = store.read(2), store.fetch(np.arange(3))
    keep = encoded.keep
    store.close()
    store.close()
    wanted = packed.records[2].fields[0].data
    assert bytes(view) == wanted
    assert ctypes.string_at(int(encoded.address[2]), len(wanted)) == wanted
    assert keep is not None
    with pytest.raises(StoreClosedError):
        store.read(0)


def test_two_stores_on_one_path(packed):  # C058
    one, two = open_store(packed.path), open_store(packed.path)
    wanted = _digest(one)
    one.close()
    assert _digest(two) == wanted
    two.close()


def test_same_keys_in_two_packs(row, tmp_path):  # C061
    from dataclasses import replace

    records = row.records()
    other = [
        replace(r, fields=(replace(r.fields[0], data=r.fields[0].data[:-1] + b"!"), *r.fields[1:])) for r in records
    ]
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one, two = row.write(tmp_path / "one", records), row.write(tmp_path / "two", other)
    with open_store(one) as first, open_store(two) as second:
        _assert_equal(first, records)
        _assert_equal(second, other)


def _listing(folder: Path) -> list[tuple[str, int, int]]:
    return sorted((str(p), p.lstat().st_mtime_ns, p.lstat().st_size) for p in folder.rglob("*"))


def test_folders_without_write_permission(row, tmp_path):  # C055
    folder, free = tmp_path / "locked", tmp_path / "free"
    folder.mkdir()
    free.mkdir()
    path, other = row.write(folder, row.records()), row.write(free, row.records())
    paths = [folder, *folder.rglob("*")]
    for each in paths:
        each.chmod(0o555 if each.is_dir() else 0o444)
    before = _listing(folder)
    code = (
        "import os, sys\n"
        "from fastdata import open_store\n"
        "open_store(sys.argv[3]).read(0)\n"  # what it imports may lie where the other user may not look
        "if os.getuid() == 0:\n"
        "    for up in __import__('pathlib').Path(sys.argv[2]).parents: os.chmod(up, up.stat().st_mode | 0o055)\n"
        "    os.setgid(65534); os.setuid(65534)\n"
        "store = open_store(sys.argv[1])\n"
        "print(sum(len(store.read(i)) for i in range(len(store))))\n"
    )
    modes = {up: up.stat().st_mode for up in folder.parents}
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, path, str(folder), other], capture_output=True, text=True, check=False
        )
    finally:
        for up, mode in modes.items():
            if up.stat().st_mode != mode:
                up.chmod(mode)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == sum(len(record.fields[0].data) for record in row.records())
    assert _listing(folder) == before
    for each in paths:
        each.chmod(0o755)


def _copy(path: str, folder: Path) -> Path:
    source = Path(path)
    for beside in source.parent.iterdir():  # an index beside the pack comes along
        if beside.is_dir():
            shutil.copytree(beside, folder / beside.name)
        else:
            shutil.copy(beside, folder)
    return folder / source.name


def _main_file(path: Path) -> Path:
    if "{" in path.name:
        return path.with_name(path.name.replace("{000000..}", "000000"))
    if "{" in path.name:
        return path.with_name(path.name.replace("{000000..}", "000001"))
    return path / "data.mdb" if path.is_dir() else path


def _reads_or_refuses(path: Path, check: Callable[[Any], None]) -> bool:
    """Open and read everything: True where that went well; any error must be one of ours."""
    try:
        with open_store(path) as store:
            check(store)
    except StoreError:
        return False
    return True


def test_cut_files_are_refused(pack_row, tmp_path):  # C053
    records = pack_row.records()
    (tmp_path / "whole").mkdir()
    whole = pack_row.write(tmp_path / "whole", records)
    path = _copy(whole, tmp_path)
    file, whole_file = _main_file(path), _main_file(Path(whole))
    data = file.read_bytes()
    cuts = {*range(0, len(data), max(1, len(data) // 60)), *range(40), 511, 512, 513, 4095, 4097, 8192, len(data) // 2}
    cuts |= {len(data) - n for n in (1, 2, 100, 511, 512, 4095, 4096, 4097)}
    for cut in sorted(cuts):
        file.write_bytes(data[:cut])
        if _reads_or_refuses(path, lambda store: _assert_equal(store, records)):
            # Without (all of) its seal a file has all its records still; that it was cut is for verify to find.
            end = len(data) - SEAL_BYTES if has_seal(whole_file) else len(data)
            assert not any(data[cut:end]), f"cut to {cut} of {len(data)} bytes: opened as if nothing were missing"


def test_changed_bytes_never_crash(pack_row, tmp_path):
    records = pack_row.records()[:6]
    (tmp_path / "whole").mkdir()
    path = _copy(pack_row.write(tmp_path / "whole", records), tmp_path)
    file = _main_file(path)
    data = file.read_bytes()
    random = np.random.default_rng(5)

    def look(store: Any) -> None:
        for i in range(len(store)):
            store.record(i)
            store.find(store.key(i))
        store.fetch(np.arange(len(store)))

    for _ in range(300):
        changed = bytearray(data)
        for _ in range(int(random.integers(1, 5))):
            at = int(random.integers(0, len(data)))
            changed[at : at + 8] = random.bytes(len(changed[at : at + 8])) if random.integers(2) else b"\xff" * 8
        file.write_bytes(changed[: len(data)])
        _reads_or_refuses(path, look)


def test_changed_image_is_found_by_check(pack_row, tmp_path):
    records = pack_row.records()
    path = pack_row.write(tmp_path, records)
    with open_store(path) as store:
        spans = store.spans(np.array([12]))
        part = store.parts[int(spans.part[0])]
    with Path(part).open("r+b") as file:
        file.seek(int(spans.offset[0]) + 20)
        file.write(b"\x00\xff\x00\xff\x00")

    # A tar's index compares some of the headers when it is opened, and may see the change by then.
    def check() -> None:
        with open_store(path) as store:
            store.check(11)
            store.check(12)

    with pytest.raises((ChecksumError, StaleIndexError)):
        check()


_KILLED = """
import sys
from fastdata.converters.writers import WriterOptions, open_writer
from fastdata.types import Field, Record
writer = open_writer(sys.argv[1], WriterOptions(subdir=sys.argv[2] == "subdir"))
i = 0
while True:
    writer.write(Record(f"key{i}", (Field("image", "jpeg", b"\\xff\\xd8\\xff" + bytes(100_000)),), 1, 1, 1))
    i += 1
    if i == 400:
        print("much is written", flush=True)
"""


def test_killed_writer_leaves_nothing_that_opens(pack_row, tmp_path):  # C041 C047
    dst = tmp_path / pack_row.ending
    kind = "subdir" if "subdir" in pack_row.name else "file"
    child = subprocess.Popen([sys.executable, "-c", _KILLED, str(dst), kind], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stdout.readline().startswith(b"much")
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
    assert not dst.exists()
    leftovers = sorted(tmp_path.iterdir())
    assert leftovers
    with pytest.raises(IncompletePackError, match="overwrite"):
        open_store(dst)
    for leftover in leftovers:
        with pytest.raises(StoreError):
            open_store(leftover)
    with pytest.raises(DestinationExistsError, match="overwrite"):
        open_writer(dst, WriterOptions(subdir=kind == "subdir"))
    path = _again(dst, kind, pack_row.records())
    with open_store(path) as store:
        _assert_equal(store, pack_row.records())
    assert not [p for p in tmp_path.iterdir() if "partial" in p.name]


def _again(dst: Path, kind: str, records: Any) -> Path:
    writer = open_writer(dst, WriterOptions(subdir=kind == "subdir", overwrite=True))
    for record in records:
        writer.write(record)
    writer.finish({"classes": ["a", "b", "c"]})
    return dst


def test_existing_destination_is_kept(pack_row, tmp_path):
    records = pack_row.records()
    path = pack_row.write(tmp_path, records)
    options = WriterOptions(subdir="subdir" in pack_row.name)
    with pytest.raises(DestinationExistsError, match="overwrite"):
        open_writer(path, options)
    writer = open_writer(path, WriterOptions(subdir=options.subdir, overwrite=True))
    writer.write(records[0])
    with open_store(path) as store:  # the old pack stays whole until the new one is finished
        _assert_equal(store, records)
    writer.abort()
    writer.abort()
    with open_store(path) as store:
        _assert_equal(store, records)
        again = _again(Path(path), "subdir" if options.subdir else "file", records[:3])
        _assert_equal(store, records)  # whoever has it open keeps what was there
    with open_store(again) as store:
        _assert_equal(store, records[:3])


def test_no_samples_at_all(pack_row, tmp_path):
    with open_store(pack_row.write(tmp_path, [])) as store:
        assert len(store) == 0
        assert list(store.records()) == []
        with pytest.raises(IndexError):
            store.read(0)


def test_nothing_is_left_beside_a_pack(pack_row, tmp_path):
    path = pack_row.write(tmp_path, pack_row.records())
    names = {p.name for p in tmp_path.rglob("*")}
    assert not [name for name in names if "lock" in name or "partial" in name]
    assert _main_file(Path(path)).name in names
