"""Tars that others wrote, and what the index beside ours guards against."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from fastdata import open_store
from fastdata.converters.writers import WriterOptions, open_writer
from fastdata.errors import (
    DuplicateKeyError,
    IncompletePackError,
    MissingPartError,
    OptionError,
    SampleError,
    StaleIndexError,
    StoreError,
    StoreFormatError,
    StoreNotFoundError,
    TruncatedStoreError,
)
from fastdata.stores.tar_store import read_tars
from fastdata.types import Field, Record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

JPEG = b"\xff\xd8\xff\xe0"


def write_tar(path: Path, files: Sequence[tuple[str, bytes]], kind: int = tarfile.USTAR_FORMAT) -> Path:
    with tarfile.open(path, "w", format=kind) as tar:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def write_pack(path: Path, n: int, *, seed: int = 0, size: int = 900, **options: Any) -> list[Record]:
    random = np.random.default_rng(seed)
    records = [
        Record(f"k/{int(k):04d}", (Field("image", "jpeg", JPEG + random.bytes(size)),), int(random.integers(5)), 8, 8)
        for k in random.permutation(n)
    ]
    writer = open_writer(path, WriterOptions(**options))
    for record in records:
        writer.write(record)
    writer.finish({"classes": list("abcde")})
    return records


def keys(store: Any) -> list[str]:
    return [store.key(i) for i in range(len(store))]


def test_samples_of_a_foreign_tar(tmp_path):
    path = write_tar(
        tmp_path / "a.tar",
        [
            ("./x/0.jpg", b"j0"), ("./x/0.cls", b" 7\n"), ("./x/0.json", b'{"who": "me"}'), ("./x/0.seg.png", b"p0"),
            ("x/1.cls", b"-3"), ("x/1.png", b"p1"), ("x/1.json", b"{}"), ("x/1.seg.png", b"p11"),
            ("__meta__.json", b"{}"), ("readme", b"?"), (".hidden.jpg", b"?"), ("x/._1.jpg", b"?"),
            ("__dir__/2.jpg", b"?"),
        ],
    )  # fmt: skip
    with open_store(path) as store:
        assert keys(store) == ["x/0", "x/1"]
        assert store.index.label.tolist() == [7, -3]
        assert store.fields == ("image", "extras", "seg.png")
        assert [bytes(store.read(i)) for i in range(2)] == [b"j0", b"p1"]
        assert [store.codec(i) for i in range(2)] == ["jpeg", "png"]
        assert bytes(store.read(1, "seg.png")) == b"p11"
        assert store.extras(0) == {"who": "me"}
        assert store.info["ignored"] == {"no key and field in its name": 4, "no image": 1}
        assert store.index.width.tolist() == [0, 0]


def test_dots_and_case_as_webdataset_has_them(tmp_path):  # C007 C008 C076
    path = write_tar(
        tmp_path / "a.tar",
        [("run1.5/1.jpg", b"a"), ("run1.5/1.Mask.PNG", b"b"), ("run1.5/1.mask.png", b"c"), ("run1.6/1.JPG", b"d")],
    )
    with open_store(path) as store:
        assert keys(store) == ["run1.5/1", "run1.6/1"]
        assert set(store.fields) == {"image", "Mask.PNG", "mask.png"}
        assert bytes(store.read(0, "Mask.PNG")) == b"b"
        assert bytes(store.read(1)) == b"d"
        assert store.index.fields["mask.png"].length.tolist() == [1, -1]
        with pytest.raises(SampleError, match=r"sample 1 .*'run1\.6/1'.* has no field 'mask\.png'"):
            store.read(1, "mask.png")
        with pytest.raises(OptionError, match="has no field 'depth'; it has image"):
            store.read(1, "depth")


def test_escapes_of_others_are_left_alone(tmp_path):
    with open_store(write_tar(tmp_path / "a.tar", [("a%2Eb%25.jpg", b"1")])) as store:
        assert store.key(0) == "a%2Eb%25"


def test_our_tar_without_its_index(tmp_path):  # C007 C008
    names = ["22.05", "22.06", "scan 2.0 (v1)", "run1.5/1", "run1.6/1", "100%/%2E.", "plain"]
    writer = open_writer(tmp_path / "a.tar", WriterOptions())
    for i, name in enumerate(names):
        writer.write(Record(name, (Field("image", "png", b"%d" % i),), (i / 3, 1.0), 5, 6, {"i": i} if i else {}))
    writer.finish({})
    (tmp_path / "a.fdindex").unlink()
    with open_store(tmp_path / "a.tar") as store:
        assert keys(store) == names
        assert store.label(2) == (np.float32(2 / 3), 1.0)
        assert store.extras(3) == {"i": 3}


def test_raw_pixels_without_an_index(tmp_path):
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8)
    writer = open_writer(tmp_path / "a.tar", WriterOptions())
    writer.write(Record("a", (Field("image", "raw", pixels.tobytes()),), 1, 3, 2))
    writer.finish({})
    with tarfile.open(tmp_path / "a.tar") as tar:
        array = np.load(io.BytesIO(tar.extractfile("a.npy").read()))
        assert np.array_equal(array, pixels.reshape(2, 3, 3))
    for _ in range(2):  # with the index, then without
        with open_store(tmp_path / "a.tar") as store:
            assert bytes(store.read(0)) == pixels.tobytes()
            assert (store.index.width[0], store.index.height[0], store.codec(0)) == (3, 2, "raw")
        (tmp_path / "a.fdindex").unlink(missing_ok=True)


def test_arrays_that_are_no_image_are_bytes(tmp_path):
    def npy(array: Any) -> bytes:
        out = io.BytesIO()
        np.save(out, array, allow_pickle=True)
        return out.getvalue()

    files = [("a.npy", npy(np.zeros((2, 2), np.float32))), ("a.jpg", b"j"), ("b.npy", npy(np.array([{}], object)))]
    with open_store(write_tar(tmp_path / "a.tar", files)) as store:
        assert keys(store) == ["a"]
        assert store.codec(0, "npy") == "bytes"
        assert store.info["ignored"] == {"no image": 1}


class _Evil:
    def __reduce__(self):
        import os

        return os.mkdir, ("pickle-was-run",)


def test_pickles_stay_bytes(tmp_path, monkeypatch):  # no pickle in any file that is read
    import pickle

    monkeypatch.chdir(tmp_path)
    evil = pickle.dumps(_Evil())
    files = [(f"a.{ending}", evil) for ending in ("jpg", "pkl", "pth", "pyd", "pickle", "cls", "json", "npy")]
    with open_store(write_tar(tmp_path / "a.tar", files)) as store:
        assert bytes(store.read(0, "pkl")) == evil
        assert store.index.label is None
        for i in range(len(store)):
            with pytest.raises(StoreFormatError, match="JSON"):
                store.record(i)
    assert not (tmp_path / "pickle-was-run").exists()


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ([b"1", b"2"], [1, 2]),
        ([b"1", None], None),
        ([b"cat", b"dog"], None),
        ([b"1" * 30, b"2"], None),
        ([None, None], None),
    ],
)
def test_labels_of_foreign_tars(tmp_path, files, wanted):
    members = []
    for i, data in enumerate(files):
        members += [(f"{i}.jpg", b"j"), *([(f"{i}.cls", data)] if data is not None else [])]
    with open_store(write_tar(tmp_path / "a.tar", members)) as store:
        assert (None if store.index.label is None else store.index.label.tolist()) == wanted
        there = [f for f in files if f is not None]
        if wanted is None and there:  # what did not become labels is still there
            assert "labels" in store.info
            assert bytes(store.read(0, "cls")) == files[0]


def test_labels_in_json(tmp_path):
    files = [("0.jpg", b"j"), ("0.json", b'{"label": 3}'), ("1.jpg", b"j"), ("1.json", b'{"cls": 4.5}')]
    with open_store(write_tar(tmp_path / "a.tar", files)) as store:
        assert store.index.label.tolist() == [3.0, 4.5]
        assert store.extras(0) == {"label": 3}


def test_a_field_twice(tmp_path):  # C070
    path = write_tar(tmp_path / "twice.tar", [("a.jpg", b"1"), ("a.jpg", b"2"), ("a.cls", b"0"), ("b.jpg", b"3")])
    with pytest.raises(DuplicateKeyError, match=r"twice\.tar.*'a'.*'jpg'"):
        open_store(path)
    contents = read_tars(path, on_duplicate="skip")
    assert contents.info["ignored"] == {"duplicate": 1}
    assert len(contents.index) == 2
    assert contents.index.fields["image"].offset.tolist() == [512, 3584]


def test_a_key_that_comes_again_later(tmp_path):  # C070
    path = write_tar(tmp_path / "twice.tar", [("a.jpg", b"1"), ("b.jpg", b"2"), ("a.jpg", b"3")])
    with pytest.raises(DuplicateKeyError, match=r"twice\.tar.*'a'"):
        open_store(path)
    assert len(read_tars(path, on_duplicate="skip").index) == 2


def test_equal_keys_in_two_shards_are_two_samples(tmp_path):  # C071
    one, two = (write_tar(tmp_path / f"{n}.tar", [("same.jpg", n.encode())]) for n in ("x", "y"))
    for path in ([one, two], f"{one}::{two}"):
        with open_store(path) as store:
            assert [bytes(store.read(i)) for i in range(len(store))] == [b"x", b"y"]


def test_sets_by_range(tmp_path):
    for i in range(3):
        write_tar(tmp_path / f"s-{i:03d}.tar", [(f"{i}.jpg", b"%d" % i)])
    for pattern in ("s-{000..002}.tar", "s-{000..}.tar"):
        with open_store(tmp_path / pattern) as store:
            assert keys(store) == ["0", "1", "2"]
    with open_store(tmp_path / "s-{001..001}.tar") as store:
        assert keys(store) == ["1"]
    with open_store(tmp_path) as store:
        assert keys(store) == ["0", "1", "2"]
    with pytest.raises(MissingPartError, match=r"2 of .*s-003\.tar, .*s-004\.tar"):
        open_store(tmp_path / "s-{001..004}.tar")
    with pytest.raises(StoreNotFoundError, match=r"t-0\.tar"):
        open_store(tmp_path / "t-{0..3}.tar")
    with pytest.raises(OptionError, match="range"):
        open_store(tmp_path / "s-{3..1}.tar")
    with pytest.raises(OptionError, match="range"):
        open_store(tmp_path / "s-{0..99999999999999}.tar")


def test_a_missing_shard_is_named_when_opening(tmp_path):  # C074
    write_pack(tmp_path / "s-{000..}.tar", 12, shard_count=4, samples=12)
    (tmp_path / "s-002.tar").unlink()
    for path in ("s-{000..}.tar", "s-{000..003}.tar", "s.set.fdindex", "."):
        with pytest.raises(MissingPartError, match=r"s-002\.tar"):
            open_store(tmp_path / path)


@pytest.mark.parametrize("gone", [[1], [0, 1]])
def test_an_open_range_with_a_gap_is_an_error(tmp_path, gone):
    write_pack(tmp_path / "s-{000..}.tar", 12, shard_count=4, samples=12)
    for path in [*(tmp_path / f"s-{i:03d}.tar" for i in gone), tmp_path / "s.set.fdindex"]:
        path.unlink()
    (tmp_path / "s-20240101.tar").touch()  # no number of a shard
    with pytest.raises(MissingPartError, match=rf"{len(gone)} of .*s-{gone[0]:03d}\.tar"):
        open_store(tmp_path / "s-{000..}.tar")
    with open_store(tmp_path / "s-{002..}.tar") as store:
        assert len(store) == 6


@pytest.mark.parametrize("name", ["new.tar", "new.fdindex", "."])
def test_a_single_tar_is_renamed_with_its_index(tmp_path, name):
    write_pack(tmp_path / "k.tar", 5)
    for ending in ("tar", "idx", "fdindex"):
        (tmp_path / f"k.{ending}").rename(tmp_path / f"new.{ending}")
    with open_store(tmp_path / name) as store:
        assert store.classes == tuple("abcde")
        assert store.index.fields["image"].checksum.all()


def test_an_index_of_other_tars_is_never_passed_over(tmp_path):
    write_pack(tmp_path / "k.tar", 5)
    write_pack(tmp_path / "other.tar", 6)
    shutil.copy(tmp_path / "k.fdindex", tmp_path / "other.fdindex")
    with pytest.raises(StaleIndexError, match=r"other\.fdindex.*other\.tar.*fastdata repair"):
        open_store(tmp_path / "other.tar")
    write_pack(tmp_path / "s-{000..}.tar", 12, shard_count=4, samples=12)
    shutil.copy(tmp_path / "s.set.fdindex", tmp_path / "k.fdindex")
    shutil.copy(tmp_path / "s.set.fdindex", tmp_path / "n.set.fdindex")
    for i in range(4):
        shutil.copy(tmp_path / f"s-{i:03d}.tar", tmp_path / f"n-{i:03d}.tar")
    for path in ("k.tar", "n-{000..003}.tar"):
        with pytest.raises(StaleIndexError, match=r"fdindex.*s-000\.tar and 3 more"):
            open_store(tmp_path / path)
    (tmp_path / "k.fdindex").unlink()
    (tmp_path / "k.fdindex").symlink_to(tmp_path / "nowhere")
    with pytest.raises(StoreNotFoundError, match=r"k\.fdindex"):
        open_store(tmp_path / "k.tar")


def test_every_way_to_name_a_set(tmp_path):
    records = write_pack(tmp_path / "s-{000..}.tar", 12, shard_count=4, samples=12)
    paths = [f"{tmp_path}/s-{i:03d}.tar" for i in range(4)]
    for path in ("s-{000..}.tar", "s-{000..003}.tar", "s.set.fdindex", "."):
        with open_store(tmp_path / path) as store:
            assert store.info["shards"] == 4
            assert keys(store) == [record.key for record in records]
    with open_store(paths) as store:
        assert store.info["shards"] == 4
    with open_store(paths[1:3]) as store:  # a part of the set: scanned
        assert keys(store) == [record.key for record in records[3:9]]
        assert store.label(0) == records[3].label
    with open_store(paths[1]) as store:
        assert len(store) == 3


def test_a_rewritten_shard_is_noticed(tmp_path):  # C164
    write_pack(tmp_path / "s-{000..}.tar", 40, shard_count=2, samples=40, seed=1)
    (tmp_path / "new").mkdir()
    write_pack(tmp_path / "new" / "s-{000..}.tar", 40, shard_count=2, samples=40, seed=2)  # same sizes, other order
    assert (tmp_path / "s-001.tar").stat().st_size == (tmp_path / "new" / "s-001.tar").stat().st_size
    shutil.copy(tmp_path / "new" / "s-001.tar", tmp_path / "s-001.tar")
    with pytest.raises(StaleIndexError, match=r"s\.set\.fdindex.*s-001\.tar"):
        open_store(tmp_path / "s-{000..}.tar")


@pytest.mark.parametrize("change", ["longer", "shorter", "labels", "swapped"])
def test_a_changed_tar_is_noticed(tmp_path, change):  # C164
    path = tmp_path / "a.tar"
    records = write_pack(path, 20)
    with tarfile.open(path) as tar:
        files = [(m.name, tar.extractfile(m).read()) for m in tar]
    if change == "longer":
        files.append(("zz.jpg", b"1"))
    elif change == "shorter":
        files = files[:-2]
    elif change == "labels":
        files = [(n, bytes([(d[0] - 47) % 5 + 48]) if n.endswith("cls") else d) for n, d in files]
    else:
        files[2:4], files[4:6] = files[4:6], files[2:4]
    write_tar(path, files)
    if change in {"labels", "swapped"}:  # the same size, too
        data = path.read_bytes()
        size = read_tars_size(path)
        path.write_bytes(data[:size].ljust(size, b"\0"))
    with pytest.raises(StaleIndexError, match=r"a\.fdindex.*a\.tar"):
        open_store(path)
    (tmp_path / "a.fdindex").unlink()
    with open_store(path) as store:
        assert abs(len(store) - len(records)) <= 1


def read_tars_size(path: Path) -> int:
    from fastdata.stores.sidecar import read_sidecar

    return read_sidecar(str(path.with_suffix(".fdindex"))).shards[0].size


def test_an_index_of_other_files_does_not_leave_its_folder(tmp_path):
    from fastdata.stores.sidecar import Shard, Sidecar, read_sidecar, write_sidecar

    (tmp_path / "in").mkdir()
    write_pack(tmp_path / "secret.tar", 3)
    sidecar = read_sidecar(str(tmp_path / "secret.fdindex"))
    shard = sidecar.shards[0]
    for name in ("../secret.tar", str(tmp_path / "secret.tar"), "", ".."):
        path = tmp_path / "in" / "a.fdindex"
        path.unlink(missing_ok=True)
        write_sidecar(path, Sidecar(sidecar.info, [Shard(name, shard.size, shard.stamp)], sidecar.columns))
        with pytest.raises(StoreError, match=r"outside|not there|damaged"):
            open_store(path)


def _special(path: Path, flag: bytes, name: str, link: str = "") -> Path:
    with tarfile.open(path, "w") as tar:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = flag, link
        tar.addfile(info)
        image = tarfile.TarInfo("ok.jpg")
        image.size = 1
        tar.addfile(image, io.BytesIO(b"1"))
    return path


def test_links_and_devices_are_never_followed(tmp_path):  # C149
    secret = tmp_path / "secret.jpg"
    secret.write_bytes(b"secret")
    kinds = {tarfile.SYMTYPE: "link", tarfile.LNKTYPE: "link", tarfile.CHRTYPE: "device", tarfile.FIFOTYPE: "pipe"}
    for flag, kind in kinds.items():
        with open_store(_special(tmp_path / "a.tar", flag, "evil.jpg", str(secret))) as store:
            assert keys(store) == ["ok"]
            assert store.info["ignored"] == {kind: 1}


@pytest.mark.parametrize("name", ["../../x.jpg", "/abs/x.jpg", "a/../../x.jpg", "./../x.jpg", ".//../x.jpg", "a/.."])
def test_paths_to_elsewhere_are_refused_by_name(tmp_path, name):  # C149
    with pytest.raises(StoreFormatError) as caught:
        open_store(write_tar(tmp_path / "a.tar", [("ok.jpg", b"1"), (name, b"2")]))
    assert name in str(caught.value)


def test_no_image_at_all(tmp_path):
    with pytest.raises(StoreFormatError, match="none of the 1 samples has an image"):
        open_store(write_tar(tmp_path / "a.tar", [("a.txt", b"1"), ("a.cls", b"1")]))


def test_a_writer_that_was_not_closed(tmp_path):  # C073
    import webdataset

    path, out = tmp_path / "a.tar", io.BytesIO()
    with webdataset.TarWriter(out) as writer:
        for i in range(3):
            writer.write({"__key__": str(i), "jpg": JPEG + bytes(5000), "cls": i})
        path.write_bytes(out.getvalue())
    with pytest.raises(TruncatedStoreError, match="stopped before it was closed"):
        open_store(path)


def test_what_webdataset_writes_is_read(tmp_path):
    import webdataset

    pictures = np.random.default_rng(0).integers(0, 255, (10, 20, 30, 3)).astype(np.uint8)
    with webdataset.ShardWriter(str(tmp_path / "w-%06d.tar"), maxcount=4, verbose=0) as writer:
        for i in range(10):
            extra = {"n": i, "deep": {"list": [1, 2]}}
            writer.write(
                {"__key__": f"dir/{i:03d}", "png": pictures[i], "cls": i % 3, "json": extra, "txt": f"no. {i}"}
            )
    with open_store(tmp_path / "w-{000000..000002}.tar") as store:
        assert keys(store) == [f"dir/{i:03d}" for i in range(10)]
        assert store.index.label.tolist() == [i % 3 for i in range(10)]
        assert store.fields == ("image", "extras", "txt")
        from PIL import Image

        for i in range(10):
            assert np.array_equal(np.asarray(Image.open(io.BytesIO(store.read(i)))), pictures[i])
            assert store.extras(i) == {"n": i, "deep": {"list": [1, 2]}}
            assert bytes(store.read(i, "txt")) == f"no. {i}".encode()
        assert store.index.fields["image"].part.tolist() == [0] * 4 + [1] * 4 + [2] * 2


def test_an_unfinished_set_is_refused_however_it_is_named(tmp_path):  # C073 C047
    write_pack(tmp_path / "s-{000..}.tar", 12, shard_count=4, samples=12)
    (tmp_path / "s.set.fdindex").rename(tmp_path / "s.set.fdindex.partial")
    for path in ("s-{000..}.tar", "s-{000..003}.tar", "s.set.fdindex", "."):
        with pytest.raises(IncompletePackError, match="overwrite"):
            open_store(tmp_path / path)


def test_a_pack_converts_to_itself(tmp_path):
    write_tar(
        tmp_path / "a.tar",
        [("a.jpg", b"1"), ("a.cls", b"1"), ("a.json", json.dumps({"x": 1}).encode()), ("a.left.png", b"2")],
    )
    with open_store(tmp_path / "a.tar") as store:
        writer = open_writer(tmp_path / "b.tar", WriterOptions())
        for record in store.records():
            writer.write(record)
        writer.finish({})
        with open_store(tmp_path / "b.tar") as other:
            assert list(map(repr, map(_plain, store.records()))) == list(map(repr, map(_plain, other.records())))


def _plain(record: Record) -> tuple[object, ...]:
    return record.key, record.label, dict(record.extras), [(f.name, f.codec, bytes(f.data)) for f in record.fields]
