"""Whatever happens to a pack's bytes is found, named, and what is good can be saved."""

from __future__ import annotations

import contextlib
import os
import random
import re

import numpy as np
import pytest

from fastdata.cli.main import main
from fastdata.converters import repair, verify
from fastdata.errors import (
    FastdataError,
    NothingPackedError,
    OptionError,
    PackError,
    StaleIndexError,
    StoreNotFoundError,
)
from fastdata.stores.opener import open_store
from fastdata.types import Field, Record

KINDS = ("lmdb", "hdf5", "tar", "tars")


def positions(files: dict[str, bytes], count: int) -> list[tuple[str, int]]:
    """Positions in all files: the first and last bytes of each, and some of every region of 256 bytes."""
    chosen = set()
    pick = random.Random(1)
    for name, data in files.items():
        chosen |= {(name, i) for i in (*range(0, 40, 3), *range(len(data) - 26, len(data)), 257, 300) if i < len(data)}
    everything = [(name, start) for name, data in files.items() for start in range(0, len(data), 256)]
    for name, start in pick.sample(everything, min(count, len(everything))):
        chosen.add((name, pick.randrange(start, min(start + 256, len(files[name])))))
    return sorted(chosen)


def test_a_flipped_bit_anywhere_is_found(small):
    files = small.files
    assert verify(small.path).ok
    missed = []
    for number, (name, at) in enumerate(positions(files, 120)):
        file = small.path.parent / name
        data = bytearray(files[name])
        data[at] ^= 1 << number % 8
        file.write_bytes(data)
        report = verify(small.path, decode=False)
        if report.ok:
            missed.append((name, at))
        assert report.good <= 5
        file.write_bytes(files[name])
    assert missed == []  # no byte of a pack is outside of all sums: none is harmless
    assert verify(small.path).ok


@pytest.fixture
def one_core():
    """Of few records a verify is done before its threads have started."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {random.choice(sorted(before))})
    yield
    os.sched_setaffinity(0, before)


def missed(small, first, step):
    """The bytes, from ``first`` on by ``step``, of which a flipped bit is not found."""
    found = []
    for name, whole in small.files.items():
        file = small.path.parent / name
        for at in range(first, len(whole), step):
            file.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << (at // step + first) % 8)]) + whole[at + 1 :])
            if verify(small.path, decode=False).ok:
                found.append((name, at))
        file.write_bytes(whole)
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("one_core")
def test_one_byte_in_thirty_flipped_is_found(small):
    assert missed(small, 11, 30) == []


@pytest.mark.patient
@pytest.mark.usefixtures("one_core")
@pytest.mark.parametrize("turn", range(8))
def test_every_byte_flipped_in_turn_is_found(small, turn):
    assert missed(small, turn, 8) == []


def test_a_file_cut_short_is_found_at_any_length(small):  # C053
    files = small.files
    pick = random.Random(2)
    for name, data in files.items():
        last = len(data) - 1
        for length in {0, 1, min(511, last), last, max(0, last - 23), max(0, last - 24), *pick.sample(range(last), 15)}:
            (small.path.parent / name).write_bytes(data[:length])
            with contextlib.suppress(StoreNotFoundError):
                assert not verify(small.path, decode=False).ok, (name, length)
        (small.path.parent / name).write_bytes(data)
    assert verify(small.path).ok


def test_bytes_behind_the_end_are_found(small):
    for name, data in small.files.items():
        (small.path.parent / name).write_bytes(data + b"\0")
        assert not verify(small.path).ok, name
        (small.path.parent / name).write_bytes(data)


def damage_record(path, i: int, field: str = "image") -> str:
    """Change one byte of a record; return its key."""
    with open_store(path) as store:
        spans = store.spans(np.array([i]), field)
        key, part = store.key(i), store.parts[int(spans.part[0])]
    with open(part, "r+b") as file:
        file.seek(int(spans.offset[0]) + 30)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 4]))
    return key


@pytest.mark.parametrize("out", ["p.lmdb", "p.h5", "p.tar", "p-{00..}.tar"])
def test_repair_saves_all_but_the_damaged_records(small, tmp_path, out, capsys):
    with open_store(small.path) as store:
        before = {store.key(i): store.record(i) for i in range(5)}
        before = {key: (r.label, r.extras, [bytes(f.data) for f in r.fields]) for key, r in before.items()}
    lost = {damage_record(small.path, 1), damage_record(small.path, 3, "mask")}
    report = verify(small.path)
    assert {(p.kind, p.key) for p in report.problems} == {("record", key) for key in lost}
    assert (report.samples, report.good) == (5, 3)
    assert main(["verify", str(small.path)]) == 1
    err = capsys.readouterr().err
    assert all(key in err for key in lost)
    assert "3 of 5 samples can be saved: fastdata repair" in err
    dst = tmp_path / "out" / out
    assert main(["repair", str(small.path), str(dst)]) == 1  # something was lost
    assert "saved 3 of 5" in capsys.readouterr().out
    assert verify(dst).ok
    with open_store(dst) as store:
        assert [store.key(i) for i in range(3)] == [key for key in before if key not in lost]
        for record in store.records():
            assert (record.label, record.extras, [bytes(f.data) for f in record.fields]) == before[record.key]
        assert store.classes == ("ant", "bee")
        assert store.info["options"] == {"resize": 8}
        assert store.info["repaired"]["lost"] == 2
    with pytest.raises(OptionError):
        repair(small.path, small.path, overwrite=True)


def test_pictures_that_do_not_decode_labels_and_keys_are_named(tmp_path, make, kind):
    good = make.records(6)
    rows = [
        good[0],
        Record("cut", (Field("image", "jpeg", good[1].fields[0].data[:-40]),), 0),
        Record("text", (Field("image", "jpeg", b"no picture"),), 1),
        Record("outside", good[3].fields, 2),
        Record("below", good[4].fields, -1),
        good[5],
    ]
    if kind != "tars":  # a key that stands there twice: a set of tars names its members by keys
        rows.append(Record(good[0].key, good[4].fields, 1, extras={"n": 1}))
    path = make.write(tmp_path / "bad", kind, rows)
    report = verify(path)
    expected = {("decode", "cut"), ("decode", "text"), ("label", "outside"), ("label", "below")}
    twice = {("key", good[0].key)} if kind != "tars" else set()
    assert {(p.kind, p.key) for p in report.problems} == expected | twice
    assert report.good == 2
    assert {p.kind for p in verify(path, decode=False).problems} == {"label"} | ({"key"} if twice else set())
    saved = repair(path, tmp_path / "out.h5")
    assert (saved.saved, saved.samples) == (2, len(rows))
    with open_store(tmp_path / "out.h5") as store:
        assert [store.key(i) for i in range(2)] == [good[0].key, good[5].key]
        assert bytes(store.read(0)) == good[0].fields[0].data


def test_shards_missing_swapped_renamed_and_replaced(tmp_path, make):  # C074 C164
    path = make.write(tmp_path / "set", "tars", make.records(6))
    one, two = tmp_path / "set" / "p-000001.tar", tmp_path / "set" / "p-000002.tar"
    data = one.read_bytes(), two.read_bytes()

    def kinds_and_text() -> tuple[set[str], str]:
        report = verify(path)
        return {p.kind for p in report.problems}, "\n".join(report.lines())

    one.unlink()
    report = verify(path)  # one thing is one problem, whatever else it leads to
    assert [p.text for p in report.problems] == [f"{one}: this shard is missing, with 2 samples; copy it again"]
    assert list(report.lines())[-1].startswith("1 problem; 4 of 6 samples can be saved: fastdata repair")
    saved = repair(path, tmp_path / "saved.tar")
    assert saved.saved == 4
    assert verify(tmp_path / "saved.tar").ok

    one.write_bytes(data[1])
    two.write_bytes(data[0])
    kinds, text = kinds_and_text()
    assert f"{one}: this shard lies there as {two.name}" in text
    assert "6 of 6 samples can be saved" in text
    two.unlink()
    one.rename(tmp_path / "set" / "p-000007.tar")
    two.write_bytes(data[1])
    (tmp_path / "set" / "p-000007.tar").write_bytes(data[0])
    assert "lies there as p-000007.tar: it was renamed" in kinds_and_text()[1]
    one.write_bytes(data[0])
    (stray,) = verify(path).problems  # a stray tar beside the set is none of its files
    assert stray.text.startswith(
        f"{tmp_path / 'set' / 'p-000007.tar'}: this tar lies beside the set, whose index says 3"
    )

    (tmp_path / "set" / "p-000007.tar").unlink()
    one.write_bytes(data[0][:1500])
    kinds, text = kinds_and_text()
    assert f"{one}: another file than the one that was packed" in text
    assert "can be saved" in text
    one.write_bytes(data[0])
    # A stale index: a shard that was rewritten behind its back, with other samples of the same sizes.
    other = make.write(tmp_path / "other", "tars", make.records(6)[::-1])
    one.write_bytes((other.parent / "p-000001.tar").read_bytes())
    kinds, text = kinds_and_text()
    assert "shard" in kinds
    assert f"{one}: another file" in text
    assert "p.set.fdindex was made for another version" in text


def test_a_set_whose_index_is_damaged_or_gone_is_saved_by_its_headers(tmp_path, make):
    path = make.write(tmp_path / "set", "tars", make.records(6))
    index = next((tmp_path / "set").glob("*.fdindex"))
    data = bytearray(index.read_bytes())
    data[data.index(b"ant/0\0bee/1\0") + 4] ^= 1
    index.write_bytes(data)
    assert "class names are lost" in "\n".join(verify(path).lines())
    assert repair(path, tmp_path / "a.lmdb").saved == 6
    index.unlink()
    report = verify(path)
    assert [p.kind for p in report.problems] == ["index"]
    assert "class names and checksums are lost" in report.problems[0].text
    assert main(["repair", str(path), str(tmp_path / "b.lmdb")]) == 0
    with open_store(tmp_path / "b.lmdb") as store:
        assert [store.label(i) for i in range(6)] == [0, 1, 0, 1, 0, 1]


def test_a_set_without_index_and_with_a_gap_is_saved_and_the_gap_named(tmp_path, make, capsys):
    path = make.write(tmp_path / "set", "tars", make.records(6))
    gone = tmp_path / "set" / "p-000001.tar"
    for file in (gone, *(tmp_path / "set").glob("*.fdindex")):
        file.unlink()
    assert f"shard: {gone}: this shard is missing" in next(verify(path).lines())
    assert main(["repair", str(path), str(tmp_path / "a.lmdb")]) == 1
    assert "saved 4 of 4 samples" in (out := capsys.readouterr().out)
    assert "those of 1 missing tar are lost" in out


def test_a_tar_renamed_with_its_index_is_the_same_pack(tmp_path, make):
    path = make.write(tmp_path, "tar", make.records(6))
    for file in list(tmp_path.glob("p.*")):
        file.rename(tmp_path / f"new{file.suffix}")
    path = tmp_path / "new.tar"
    report = verify(path)
    assert (report.ok, report.checked) == (True, 6)
    key = damage_record(path, 2)
    assert [p.key for p in verify(path).problems] == [key]
    data = bytearray(path.read_bytes())
    data[:5] = b"other"
    path.write_bytes(data)  # an ordinary open is refused
    assert "another file than the one that was packed" in verify(path).problems[0].text
    with pytest.raises(StaleIndexError, match=r"fastdata repair .*new\.tar"):
        open_store(path)
    assert repair(path, tmp_path / "out.lmdb").saved == 5
    with open_store(tmp_path / "out.lmdb") as store:
        assert store.classes == ("ant", "bee")


def test_wrong_labels_are_worse_than_none(tmp_path, make):
    import h5py

    path = make.write(tmp_path / "x", "hdf5", make.records(4))
    with h5py.File(path, "r+") as file:
        file["labels"][2] = 0 if file["labels"][2] else 1
    report = verify(path)
    assert any("'label'" in p.text for p in report.problems)
    assert report.good == 0
    with pytest.raises(PackError, match="keys or labels are damaged"):
        repair(path, tmp_path / "out.lmdb")


def test_of_damaged_keys_nothing_is_saved(tmp_path, make, kind, capsys):
    """Samples under each other's names would be worse than none."""
    path = make.write(tmp_path / "x", kind, make.records(4))
    index = path if kind in {"lmdb", "hdf5"} else next(path.parent.glob("*.fdindex"))
    data = bytearray(index.read_bytes())
    blob = b"".join(row.key.encode() for row in make.records(4))
    at = data.index(blob) if blob in data else data.index(make.records(4)[1].key.encode())
    data[at : at + 3] = b"xyz"
    index.write_bytes(data)
    assert main(["verify", str(path)]) == 1
    out = tmp_path / "out.lmdb"
    code = main(["repair", str(path), str(out)])
    if kind in {"lmdb", "hdf5"}:
        assert code == 1
        assert re.search("keys or labels are damaged|'key_blob' of the index was changed", capsys.readouterr().err)
        assert not out.exists()
    else:  # the tars' own headers have the keys
        assert code == 0
        with open_store(out) as store:
            assert sorted(store.key(i) for i in range(4)) == sorted(row.key for row in make.records(4))


@pytest.mark.parametrize("kind", ["lmdb", "hdf5"])
def test_of_a_file_without_its_end_nothing_is_saved(tmp_path, make, kind, capsys):
    path = make.write(tmp_path / "x", kind, make.records(4))
    size = path.stat().st_size
    for length in (size - 30, size - 5000, size // 3):
        os.truncate(path, length)
        capsys.readouterr()
        assert main(["verify", str(path)]) == 1
        assert "nothing can be saved" in capsys.readouterr().err
        assert main(["repair", str(path), str(tmp_path / "out.h5")]) == 1
        assert path.name in capsys.readouterr().err
        assert not (tmp_path / "out.h5").exists()


def test_lmdb_of_another_hand(tmp_path, make):
    import lmdb

    path = make.write(tmp_path / "x", "lmdb", make.records(6))
    with lmdb.open(str(path), subdir=False, readonly=True, lock=False, max_dbs=9) as env:  # others can still read it
        assert env.begin(db=env.open_db(b"images")).get(b"0000000003") == make.records(6)[3].fields[0].data
        env.copy(str(tmp_path / "compact"), compact=True)
    report = verify(tmp_path / "compact")
    assert report.ok
    assert "cannot be checked" in "".join(report.notes)


def test_nothing_there_and_nothing_good(tmp_path, make):
    with pytest.raises(StoreNotFoundError):
        verify(tmp_path / "none.lmdb")
    path = make.write(tmp_path / "x", "lmdb", [Record("a", (Field("image", "jpeg", b"no"),), 0)])
    with pytest.raises(NothingPackedError):
        repair(path, tmp_path / "out.lmdb")
    (tmp_path / "zeros.h5").write_bytes(bytes(9000))
    report = verify(tmp_path / "zeros.h5")
    assert not report.ok
    assert "nothing can be saved" in "\n".join(report.lines())
    assert "of 0" not in "\n".join(report.lines())
    with pytest.raises(FastdataError):
        repair(tmp_path / "zeros.h5", tmp_path / "out.lmdb")
    assert not (tmp_path / "out.lmdb").exists()


def test_folders_are_read_and_decoded(image_folder):
    report = verify(image_folder)
    assert (report.ok, report.samples, report.decoded, report.checked) == (True, 21, 21, 0)
    assert report.notes


def test_a_damaged_heap_of_hdf5_is_an_error_and_no_endless_loop(tmp_path, make):
    path = make.write(tmp_path / "x", "hdf5", make.records(3))
    data = path.read_bytes()
    heap = data.index(b"GCOL")
    # libhdf5 2.0 goes round for ever over a heap whose first object is damaged, so it never gets to see it.
    for at in range(heap, heap + 48):
        for bit in (0, 4):
            path.write_bytes(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
            assert not verify(path, decode=False).ok, (at, bit)
