"""What others make of the tars we write, and what is left when writing stops."""

from __future__ import annotations

import gc
import io
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastdata import open_store
from fastdata.converters import repair
from fastdata.converters.tar_members import header_of
from fastdata.converters.writers import WriterOptions, open_writer
from fastdata.errors import DestinationExistsError, IncompletePackError, OptionError, PackError, StoreNotFoundError
from fastdata.stores.sidecar import read_sidecar, write_sidecar
from fastdata.stores.tar_names import escape, split_name, unescape
from fastdata.types import Field, Record

JPEG = b"\xff\xd8\xff\xe0"


def picture(i: int) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.full((8 + i, 10, 3), i, np.uint8)).save(out, "PNG")
    return out.getvalue()


def record(i: int, key: str = "", size: int = 900, **more: Any) -> Record:
    data = JPEG + random.Random(i).randbytes(size)
    return Record(key or f"class{i % 3}/{i:04d}", (Field("image", "jpeg", data),), i % 3, 10, 8 + i, **more)


def pack(path: Path, records: list[Record], **options: Any) -> Path:
    writer = open_writer(path, WriterOptions(**options))
    for each in records:
        writer.write(each)
    writer.finish({"classes": ["a", "b", "c"]})
    return path


# webdataset leaves its files for the garbage collector, which complains; so collect inside the test.
leaky = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")


@pytest.fixture
def collected():
    yield
    gc.collect()


def as_tarfile(name: str, size: int, kind: int = tarfile.USTAR_FORMAT) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = size, 0o444, 0
    info.uname = info.gname = "fastdata"
    return info.tobuf(kind, "utf-8", "surrogateescape")


@settings(max_examples=100, deadline=None)
@given(
    key=st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1, max_size=130),
    size=st.one_of(st.integers(0, 10_000), st.integers(0, 2**40)),
)
def test_headers_are_those_of_tarfile(key, size):
    name = f"{escape(key)}.jpg"
    try:
        wanted = as_tarfile(name, size)
    except ValueError:
        wanted = as_tarfile(name, size, tarfile.PAX_FORMAT)
    assert header_of(key, "jpg", size) == wanted
    assert tarfile.TarInfo.frombuf(header_of(key, "jpg", size)[-512:], "utf-8", "surrogateescape").isreg()


@given(st.lists(st.text(st.characters(exclude_characters="\0/", exclude_categories=("Cs",)), min_size=1), min_size=1))
def test_escapes_keep_every_key_whole(names):  # C007 C008
    key = "/".join(name for name in names if name not in {".", ".."}) or "k"
    assert unescape(escape(key)) == key
    if not key.startswith("__"):
        assert split_name(f"{escape(key)}.seg.png", "x") == (escape(key), "seg.png")


def test_the_tar_command_reads_all(tmp_path):  # C163
    keys = ["22.05", "scan 2.0 (v1)", "run1.5/1", "é/画像", "d/" * 60 + "long", "n" * 200, "q" * 300]
    path = pack(tmp_path / "a.tar", [record(i, key, extras={"i": i}) for i, key in enumerate(keys)])
    wanted = [f"{escape(key)}.{ending}" for key in keys for ending in ("jpg", "cls", "json")]
    done = subprocess.run(["tar", "--quoting-style=literal", "-tf", path], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == wanted
    assert done.stderr == ""
    with tarfile.open(path) as tar:
        assert tar.getnames() == wanted
        assert {m.mtime for m in tar} == {0}


def test_short_names_cost_one_block(tmp_path):  # C163
    records = [record(i, size=100) for i in range(100)]
    path = pack(tmp_path / "a.tar", records)
    members = 200
    assert (path.stat().st_size - sum(len(r.fields[0].data) + 1 for r in records)) / members <= 1024
    with path.open("rb") as file:
        blocks = list(iter(lambda: file.read(512), b""))
    assert not [b for b in blocks if b[257:262] == b"ustar" and b[156:157] not in {b"0", b"\0"}]


@leaky
@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize("name", ["a.tar", "s-{000000..}.tar"])
def test_webdataset_reads_ours(tmp_path, name):  # C163 C067
    import webdataset

    records = [
        Record(f"c.{i % 2}/{i}.x", (Field("image", "png", picture(i)),), i % 2, 10, 8 + i, {"n": i}) for i in range(12)
    ]
    options = {"shard_count": 3, "samples": 12} if "{" in name else {}
    path = str(pack(tmp_path / name, records, **options)).replace("..}", "..000002}")
    dataset = webdataset.WebDataset(path, shardshuffle=False, empty_check=False).decode("pil")
    got = [(s["__key__"], s["png"].size, s["png"].getpixel((0, 0)), s["cls"], s["json"]) for s in dataset]
    assert got == [(f"c.{i % 2}/{i}%2Ex", (10, 8 + i), (i, i, i), i % 2, {"n": i}) for i in range(12)]
    assert len(list(webdataset.WebDataset(path, shardshuffle=False).to_tuple("png", "cls", "json"))) == 12


@leaky
@pytest.mark.usefixtures("collected")
def test_float_and_vector_labels_for_webdataset(tmp_path):
    import webdataset

    for label in (0.25, (1.0, 2.5)):
        records = [Record(f"{i}", (Field("image", "png", picture(i)),), label, 1, 1) for i in range(3)]
        path = pack(tmp_path / "a.tar", records, overwrite=True)
        for sample in webdataset.WebDataset(str(path), shardshuffle=False).decode():
            assert sample["label.json"] == (list(label) if isinstance(label, tuple) else label)
        with open_store(path) as store:
            assert store.label(2) == label


def test_every_sample_has_the_same_fields(tmp_path):
    mask, caption = Field("mask", "png", b"m"), Field("caption", "text", b"hello")
    records = [
        record(0, extras={"a": 1}),
        record(1),
    ]
    records[0] = Record("0", (*records[0].fields, mask, caption), 0, 1, 1, {"a": 1})
    path = pack(tmp_path / "a.tar", records)
    with tarfile.open(path) as tar:
        endings = Counter(member.name.partition(".")[2] for member in tar)
    assert endings == dict.fromkeys(("jpg", "cls", "mask.png", "caption.txt", "json"), 2)
    with open_store(path) as store:  # and we still know what was absent
        assert store.index.fields["mask"].length.tolist() == [1, -1]
        assert [f.name for f in store.record(1).fields] == ["image"]
        assert store.extras(1) == {}


def test_nothing_is_lost_where_samples_differ(tmp_path):
    late = Record("late", (Field("image", "jpeg", JPEG), Field("mask", "png", b"m")), 1, 1, 1, {"x": 1})
    with open_store(pack(tmp_path / "a.tar", [record(0), late, record(2)])) as store:
        assert store.extras(1) == {"x": 1}
        assert bytes(store.read(1, "mask")) == b"m"
        assert store.label(2) == 2


@pytest.mark.parametrize(
    ("first", "second"), [(1, 0.5), (1, None), (None, 1), (0.5, None), ((1.0, 2.0), 1), ((1.0,), (1.0, 2.0))]
)
def test_labels_of_two_kinds_are_refused(tmp_path, first, second):
    writer = open_writer(tmp_path / "a.tar", WriterOptions())
    writer.write(Record("a", (Field("image", "jpeg", JPEG),), first))
    with pytest.raises(OptionError, match="'b'"):
        writer.write(Record("b", (Field("image", "jpeg", JPEG),), second))
    writer.abort()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["", "a/b", ".hidden", "jpg", "JPG", "cls"])
def test_names_that_a_tar_cannot_hold(tmp_path, name):
    writer = open_writer(tmp_path / "a.tar", WriterOptions())
    with pytest.raises(OptionError, match="'k'"):
        writer.write(Record("k", (Field("image", "jpeg", JPEG), Field(name, "bytes", b"1")), 1))
    writer.abort()


def test_equal_records_make_equal_bytes(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    records = [record(i, extras={"i": i}) for i in range(20)]
    for folder in ("one", "two"):
        pack(tmp_path / folder / "s-{000..}.tar", records, shard_bytes=10_000)
        time.sleep(0.01)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name


@pytest.mark.parametrize(("n", "count"), [(10, 3), (3, 5), (12, 4), (1, 1), (7, 7)])
def test_a_number_of_shards(tmp_path, n, count):
    pack(tmp_path / "s-{00..}.tar", [record(i) for i in range(n)], shard_count=count, samples=n)
    with open_store(tmp_path / "s-{00..}.tar") as store:
        assert len(store) == n
        sizes = Counter(store.index.fields["image"].part.tolist())
        assert len(sizes) == len(store.parts) == min(n, count)
        assert max(sizes.values()) - min(sizes.values()) <= 1


def test_a_closed_range_is_a_number_of_shards(tmp_path):
    pack(tmp_path / "s-{05..07}.tar", [record(i) for i in range(9)], samples=9)
    assert sorted(p.name for p in tmp_path.glob("*.tar")) == ["s-05.tar", "s-06.tar", "s-07.tar"]
    with open_store(tmp_path / "s-{05..07}.tar") as store:
        assert len(store) == 9


def test_shards_split_by_size_and_samples_stay_whole(tmp_path):  # C035
    records = [record(i, size=30_000 if i == 5 else 2_000, extras={"i": i}) for i in range(12)]
    pack(tmp_path / "s-{000000..}.tar", records, shard_bytes=16_000)
    by_shard = []
    for path in sorted(tmp_path.glob("*.tar")):
        with tarfile.open(path) as tar:
            names = tar.getnames()
        keys = [name.partition(".")[0] for name in names]
        assert [keys.count(key) for key in keys] == [3] * len(keys)
        by_shard.append(sorted(set(keys)))
        assert path.stat().st_size <= 16_000 or keys == [records[5].key] * 3
    assert [records[5].key] in by_shard  # larger than the limit: a shard of its own
    with open_store(tmp_path / "s-{000000..}.tar") as store:
        assert [store.key(i) for i in range(12)] == [r.key for r in records]


def test_options_that_do_not_go_together(tmp_path):
    for name, options, what in (
        ("a.tar", {"shard_bytes": 10}, r"a-\{000000\.\.\}\.tar"),
        ("a-{0..}.tar", {"shard_count": 3}, "number of samples"),
        ("a-{3..1}.tar", {}, "range"),
    ):
        with pytest.raises(OptionError, match=what):
            open_writer(tmp_path / name, WriterOptions(**options))
    assert not list(tmp_path.iterdir())
    writer = open_writer(tmp_path / "a-{0..1}.tar", WriterOptions(shard_bytes=2000))
    writer.write(record(0))
    writer.write(record(1))
    with pytest.raises(OptionError, match="longer range"):
        writer.write(record(2))
    writer.abort()
    assert not list(tmp_path.iterdir())


def test_dali_index(tmp_path):
    records = [record(i, key="with space/é.x" if i == 2 else "", extras={"i": i}) for i in range(5)]
    pack(tmp_path / "s-{0..}.tar", records, shard_count=2, samples=5)
    rows = 0
    for path in sorted(tmp_path.glob("*.tar")):
        lines = path.with_suffix(".idx").read_text().splitlines()
        version, count = lines[0].split(" ")
        assert (version, int(count)) == ("v1.2", len(lines) - 1)
        data = path.read_bytes()
        with tarfile.open(path) as tar:
            wanted = [(m.name.partition(".")[2], m.offset_data, m.size) for m in tar]
        got = []
        for line in lines[1:]:
            words = line.split()
            assert len(words) == 12  # three members of four words
            got += [(words[i], int(words[i + 1]), int(words[i + 2])) for i in range(0, 12, 4)]
        assert got == wanted
        assert data[got[0][1] : got[0][1] + 4] == JPEG
        rows += len(lines) - 1
    assert rows == 5


def test_overwriting_by_fewer_shards_leaves_no_old_ones(tmp_path):
    path = tmp_path / "s-{000..}.tar"
    pack(path, [record(i) for i in range(20)], shard_count=5, samples=20)
    (tmp_path / "other.tar").write_bytes(b"not ours")
    with pytest.raises(DestinationExistsError, match="overwrite"):
        open_writer(path, WriterOptions(shard_count=2, samples=6))
    pack(path, [record(i + 100) for i in range(6)], shard_count=2, samples=6, overwrite=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "other.tar", "s-000.idx", "s-000.tar", "s-001.idx", "s-001.tar", "s.set.fdindex",
    ]  # fmt: skip
    with open_store(path) as store:
        assert len(store) == 6


def test_giving_names_may_stop_anywhere(tmp_path, monkeypatch):  # C047 C073: the index has its name last
    from fastdata.converters import atomic

    for overwrite in (False, True):
        for stop in range(8):
            folder = tmp_path / f"{overwrite}{stop}"
            folder.mkdir()
            path = folder / "s-{000..}.tar"
            old = [record(i) for i in range(6)]
            if overwrite:
                pack(path, old, shard_count=3, samples=6)
            writer = open_writer(path, WriterOptions(overwrite=overwrite, shard_count=3, samples=6))
            for i in range(6):
                writer.write(record(i + 50))
            calls = iter(range(100))
            real = atomic._replace

            def failing(source, dst, real=real, calls=calls, stop=stop):
                if next(calls) == stop:
                    raise OSError(28, "No space left on device")
                real(source, dst)

            monkeypatch.setattr(atomic, "_replace", failing)
            try:
                writer.finish({})
            except PackError:
                writer.abort()
                for name in ("s-{000..}.tar", "s.set.fdindex", "s-{000..002}.tar"):
                    with pytest.raises(IncompletePackError):
                        open_store(folder / name)
            else:
                assert stop == 7  # three tars, three .idx, the index
            monkeypatch.undo()
            pack(path, old, shard_count=3, samples=6, overwrite=True)
            with open_store(path) as store:
                assert store.key(0) == old[0].key
            assert not list(folder.glob("*.partial"))


_WRITES = """
import sys
from fastdata.converters.writers import WriterOptions, open_writer
from fastdata.types import Field, Record
dst, overwrite = sys.argv[1], sys.argv[2] == "True"
print("up", flush=True)
options = WriterOptions(overwrite=overwrite, **({"shard_bytes": 200_000} if "{" in dst else {}))
writer = open_writer(dst, options)
for i in range(60):
    writer.write(Record(f"new{i}", (Field("image", "jpeg", b"\\xff\\xd8\\xff" + bytes(20_000)),), 1, 1, 1))
writer.finish({"classes": ["x", "y"]})
"""


@pytest.mark.parametrize("name", ["s-{000000..}.tar", "a.h5"])
def test_killed_at_random_moments(tmp_path, name):  # C041 C047 C065 C073
    outcomes = Counter()
    waits = random.Random(name)
    for turn in range(20):
        folder = tmp_path / str(turn)
        folder.mkdir()
        overwrite = turn % 2 == 1
        if overwrite:
            pack(folder / name, [record(i) for i in range(9)])
        child = subprocess.Popen(
            [sys.executable, "-c", _WRITES, str(folder / name), str(overwrite)], stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(waits.uniform(0, 0.12))
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        try:
            with open_store(folder / name) as store:
                n = len(store)
                assert n == (60 if store.key(0).startswith("new") else 9)
                for i in range(n):
                    store.check(i)
                    assert store.label(i) is not None
                outcomes[n] += 1
        except IncompletePackError:
            outcomes["refused"] += 1
        except StoreNotFoundError:  # killed before it began
            outcomes["refused"] += 1
        shutil.rmtree(folder)
    assert sum(outcomes.values()) == 20


def test_writing_after_finish(tmp_path):
    writer = open_writer(tmp_path / "a.tar", WriterOptions())
    writer.write(record(0))
    writer.finish({})
    writer.finish({})
    writer.abort()
    with pytest.raises(PackError, match="finished"):
        writer.write(record(1))
    with open_store(tmp_path / "a.tar") as store:
        assert len(store) == 1


def test_no_descriptor_stays_open(tmp_path):
    before = len(list(Path("/proc/self/fd").iterdir()))
    pack(tmp_path / "s-{000..}.tar", [record(i) for i in range(30)], shard_bytes=8000)
    with open_store(tmp_path / "s-{000..}.tar") as store:
        assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1  # the mapping of the index, however many shards
        assert len(store.parts) > 3


@pytest.mark.parametrize("other", ["a_{000000..}.tar", "a-{000..}.tar", "a-{0..3}.tar"])
def test_a_set_of_another_spelling_is_not_removed(tmp_path, other):
    for number in range(2):
        writer = open_writer(tmp_path / "a-{000000..}.tar", WriterOptions(overwrite=number == 1, shard_bytes=1))
        for key in "xyz":
            writer.write(Record(key, (Field("image", "jpeg", b"\xff\xd8"),), 0))
        writer.finish({})
    before = sorted(p.name for p in tmp_path.iterdir())
    with pytest.raises(OptionError, match=r"spelled in another way \(a-000000.tar\)"):
        open_writer(tmp_path / other, WriterOptions(overwrite=True, shard_bytes=1))
    assert sorted(p.name for p in tmp_path.iterdir()) == before


@pytest.mark.parametrize("name", ["a.tar", "a-{000..}.tar"])
def test_what_a_killed_run_left_is_called_an_incomplete_pack(tmp_path, name):
    dst = tmp_path / name
    code = (
        "import os, signal, sys\n"
        "from fastdata.converters.writers import open_writer\n"
        "from fastdata.types import Field, Record\n"
        "open_writer(sys.argv[1]).write(Record('k', (Field('image', 'jpeg', b'x'),)))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(dst)], check=False).returncode == -signal.SIGKILL
    with pytest.raises(DestinationExistsError, match=r"\.partial is an incomplete pack.*; overwrite"):
        open_writer(dst)
    (tmp_path / f"{name}.resume").mkdir()
    with pytest.raises(DestinationExistsError, match=r"incomplete pack.*--resume"):
        open_writer(dst)


def test_a_copied_index_costs_no_other_pack(tmp_path):
    one, two = tmp_path / "one.tar", tmp_path / "two.tar"
    pack(one, [record(i) for i in range(3)])
    for ending in (".tar", ".idx", ".fdindex"):
        shutil.copy(one.with_suffix(ending), two.with_suffix(ending))
    before = {path.name: path.read_bytes() for path in tmp_path.glob("one.*")}
    pack(two, [record(9)], overwrite=True)
    assert {path.name: path.read_bytes() for path in tmp_path.glob("one.*")} == before
    shutil.copy(one.with_suffix(".fdindex"), two.with_suffix(".fdindex"))
    assert repair(one, two, overwrite=True, decode=False).saved == 3
    assert {path.name: path.read_bytes() for path in tmp_path.glob("one.*")} == before
    with open_store(two) as store:
        assert len(store) == 3


def test_an_index_may_name_no_file_but_shards_of_its_set(tmp_path):
    dst = tmp_path / "a-{000..}.tar"
    pack(dst, [record(i) for i in range(4)], shard_count=2, samples=4)
    (tmp_path / "a-001.tar").rename(tmp_path / "001.tar")
    index = tmp_path / "a.set.fdindex"
    read = read_sidecar(str(index))
    shards = [read.shards[0], replace(read.shards[1], name="001.tar")]
    write_sidecar(tmp_path / "new", replace(read, shards=shards))  # its columns are mapped from the old one
    (tmp_path / "new").replace(index)
    with pytest.raises(OptionError, match=r"\(001\.tar\)"):
        pack(dst, [record(9)], overwrite=True)
    assert (tmp_path / "001.tar").exists()
