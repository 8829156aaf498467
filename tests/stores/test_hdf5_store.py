"""HDF5 packs: plain h5py reads ours, we read what we understand of others', and refuse the rest by name."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest
from PIL import Image

from fastdata import open_store
from fastdata.converters.hdf5_writer import Hdf5Writer
from fastdata.converters.writers import WriterOptions, open_writer
from fastdata.errors import (
    IncompletePackError,
    StoreError,
    StoreFormatError,
    StoreNotFoundError,
    TruncatedStoreError,
)
from fastdata.stores.hdf5_store import read_hdf5
from fastdata.types import Field, Record

if TYPE_CHECKING:
    from collections.abc import Sequence


def png(i: int) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.full((4 + i, 5, 3), i, np.uint8)).save(out, "PNG")
    return out.getvalue()


def pack(path: Path, records: Sequence[Record], block_bytes: int = 1 << 20) -> Path:
    writer = Hdf5Writer(path, WriterOptions(), block_bytes=block_bytes)
    for record in records:
        writer.write(record)
    writer.finish({"classes": ["cat", "dög"]})
    return path


def encoded(n: int, size: int = 100) -> list[Record]:
    random = np.random.default_rng(n)
    return [
        Record(f"{i}", (Field("image", "jpeg", b"\xff\xd8\xff" + random.bytes(size)),), i % 2, 5, 4) for i in range(n)
    ]


def raw(n: int, shape: tuple[int, int, int] = (3, 4, 3), **more: Any) -> list[Record]:
    height, width, _ = shape
    pixels = np.random.default_rng(0).integers(0, 256, (n, *shape)).astype(np.uint8)
    return [Record(f"{i}", (Field("image", "raw", p.tobytes()),), i, width, height, more) for i, p in enumerate(pixels)]


def test_three_lines_of_plain_h5py(tmp_path):
    path = pack(tmp_path / "a.h5", [Record(f"{i}", (Field("image", "png", png(i)),), i % 2) for i in range(30)], 500)
    i = 17
    with h5py.File(path) as f:
        part, start, length = f["part"][i], f["start"][i], f["length"][i]
        image = Image.open(io.BytesIO(f[f"bytes/{part:04d}"][start : start + length]))
        label = f["classes"].asstr()[f["labels"][i]]
        assert part > 0
    assert (image.size, image.getpixel((0, 0)), label) == ((5, 21), (17, 17, 17), "dög")


def test_raw_blocks_are_pictures(tmp_path):
    records = raw(10, note="extras lie in blocks of their own")
    path = pack(tmp_path / "a.h5", records, block_bytes=4 * 36)
    with h5py.File(path) as f:
        shapes = {name: f["bytes"][name].shape for name in f["bytes"]}
        pictures = [s for s in shapes.values() if len(s) == 4]
        assert pictures == [(4, 3, 4, 3), (4, 3, 4, 3), (2, 3, 4, 3)]
        i = 5
        picture = f[f"bytes/{f['part'][i]:04d}"][f["start"][i] // f["length"][i]]
        assert picture.tobytes() == records[i].fields[0].data
    with open_store(path) as store:
        assert [bytes(store.read(i)) for i in range(10)] == [r.fields[0].data for r in records]
        assert store.extras(9) == {"note": "extras lie in blocks of their own"}


def test_raw_pictures_of_several_sizes_share_flat_blocks(tmp_path):
    records = raw(3) + raw(3, (2, 2, 1)) + raw(3, (5, 1, 3))
    path = pack(tmp_path / "a.h5", records)
    with h5py.File(path) as f:
        assert [f["bytes"][name].ndim for name in f["bytes"]] == [4, 1]
    with open_store(path) as store:
        assert [bytes(store.read(i)) for i in range(9)] == [r.fields[0].data for r in records]


def test_blocks_are_filled_and_large_values_lie_alone(tmp_path):
    records = [*encoded(5, 300), *encoded(1, 5000), *encoded(5, 300)]
    path = pack(tmp_path / "a.h5", records, block_bytes=1000)
    with h5py.File(path) as f:
        sizes = [f["bytes"][name].size for name in f["bytes"]]
        for name in f["bytes"]:
            dataset = f["bytes"][name]
            assert (dataset.chunks, dataset.compression, dataset.dtype) == (None, None, np.uint8)
    assert sizes == [909, 606, 5003, 909, 606]


def test_no_handle_stays_open(tmp_path):
    path = pack(tmp_path / "a.h5", encoded(20))
    with open_store(path) as store:
        assert not h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE)
        store.read(3)
        with h5py.File(path, "r+") as f:  # no lock is held: another program may open it even for writing
            f.attrs["note"] = 1
        path.unlink()
        assert len(store.read(4)) == 103


def _read_bytes() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("rchar"))


def test_a_random_epoch_reads_each_byte_once(
    tmp_path,
):  # C064: nothing is chunked, so nothing is read for its neighbour
    records = encoded(400, 20_000)
    path = pack(tmp_path / "a.h5", records)
    payload = sum(len(r.fields[0].data) for r in records)
    with open_store(path, io="pread") as store:
        order = np.random.default_rng(0).permutation(len(store))
        store.read(0)
        before = _read_bytes()
        for i in order.tolist():
            store.read(i)
        assert payload <= _read_bytes() - before <= 1.01 * payload
        spans = store.spans(np.arange(len(store)))
        ends = spans.offset + spans.length
        assert (np.sort(spans.offset)[1:] >= np.sort(ends)[:-1]).all()
    assert path.stat().st_size < 1.05 * payload


def test_columns_of_large_packs_are_mapped(tmp_path):
    path = pack(tmp_path / "a.h5", encoded(3000, 5))
    with open_store(path) as store:
        image = store.index.fields["image"]
        for column in (image.length, image.checksum, store.index.label, store.index.width, store.index.keys.offset):
            assert column.base is not None
            assert not column.flags.writeable


def test_absent_and_unfinished(tmp_path):  # C065
    with pytest.raises(StoreNotFoundError):
        read_hdf5(tmp_path / "a.h5")
    writer = open_writer(tmp_path / "a.h5", WriterOptions())
    for record in encoded(5):
        writer.write(record)
    with pytest.raises(IncompletePackError, match="overwrite"):
        read_hdf5(tmp_path / "a.h5")
    writer._writer._images.flush()
    writer._writer._file.flush()
    os.link(tmp_path / "a.h5.partial", tmp_path / "renamed.h5")
    with pytest.raises(StoreFormatError):
        open_store(tmp_path / "renamed.h5")
    writer._writer._close()
    with pytest.raises(IncompletePackError, match="overwrite"):
        open_store(tmp_path / "renamed.h5")
    writer.abort()
    assert [p.name for p in tmp_path.iterdir()] == ["renamed.h5"]


def test_foreign_pictures_with_labels(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (7, 4, 5, 3)).astype(np.uint8)
    for labels, wanted in (
        (np.arange(7, dtype=np.uint8), list(range(7))),
        (np.arange(7).reshape(7, 1), list(range(7))),
        (np.arange(7) / 2, [i / 2 for i in range(7)]),
        (np.eye(7, 3), [tuple(row) for row in np.eye(7, 3)]),
    ):
        with h5py.File(tmp_path / "a.h5", "w") as f:
            f["images"] = images
            f["labels"] = labels
            f["other"] = np.zeros((7, 2))
        with open_store(tmp_path / "a.h5") as store:
            assert [bytes(store.read(i)) for i in range(7)] == [image.tobytes() for image in images]
            assert [store.label(i) for i in range(7)] == wanted
            assert (store.codec(0), store.key(6), store.find("00000006")) == ("raw", "00000006", 6)
            assert (store.index.width[0], store.index.height[0]) == (5, 4)


def test_foreign_grey_pictures_and_no_labels(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f["x"] = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    with open_store(tmp_path / "a.h5") as store:
        assert bytes(store.read(1)) == bytes(range(12, 24))
        assert store.label(0) is None


@pytest.mark.parametrize("per_chunk", [1, 3])
def test_foreign_chunks_of_whole_pictures(tmp_path, per_chunk):
    images = np.random.default_rng(0).integers(0, 256, (7, 4, 5, 3)).astype(np.uint8)
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f.create_dataset("x", data=images, chunks=(per_chunk, 4, 5, 3), maxshape=(None, 4, 5, 3))
        f["y"] = np.arange(7)
    with open_store(tmp_path / "a.h5") as store:
        assert [bytes(store.read(i)) for i in range(7)] == [image.tobytes() for image in images]
        assert (store.label(6), store.codec(0), store.index.width[0]) == (6, "raw", 5)


def test_foreign_encoded_images(tmp_path):
    values = [png(i) for i in range(9)] + [b"", b"x" * 70_000, b"y" * 4096, b"z"] + [b"%d" % i for i in range(2000)]
    with h5py.File(tmp_path / "a.h5", "w") as f:
        images = f.create_dataset("images", (len(values),), h5py.vlen_dtype(np.uint8))
        for i, value in enumerate(values):
            images[i] = np.frombuffer(value, np.uint8)
        images[3] = np.frombuffer(b"written anew, longer than before" * 30, np.uint8)
        f["labels"] = np.arange(len(values))
    values[3] = b"written anew, longer than before" * 30
    with open_store(tmp_path / "a.h5") as store:
        assert [bytes(store.read(i)) for i in range(len(store))] == values
        assert (store.label(8), store.codec(8)) == (8, "unknown")


def test_damaged_heaps_raise_only_our_errors(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as f:
        images = f.create_dataset("images", (5,), h5py.vlen_dtype(np.uint8))
        for i in range(5):
            images[i] = np.frombuffer(png(i), np.uint8)
        start = images.id.get_offset()
    data = path.read_bytes()
    heap = data.index(b"GCOL")
    random = np.random.default_rng(0)
    refused = 0
    for at in [*range(start, start + 80), *range(heap, heap + 40)]:
        path.write_bytes(data[:at] + bytes([int(random.integers(256))]) + data[at + 1 :])
        try:
            with open_store(path) as store:
                for i in range(len(store)):
                    store.read(i)
        except StoreError:
            refused += 1
    assert refused > 40
    path.write_bytes(data[: heap + 100])
    with pytest.raises(StoreError):
        open_store(path)


def _vlen(f: Any) -> None:
    f.create_dataset("images", (3,), h5py.vlen_dtype(np.uint8), chunks=(1,))


def _unwritten_chunk(f: Any) -> None:
    f.create_dataset("i", (9, 3, 4, 3), np.uint8, chunks=(1, 3, 4, 3))[0] = 1


def _virtual(f: Any) -> None:
    layout = h5py.VirtualLayout((2, 3, 4, 3), np.uint8)
    layout[:] = h5py.VirtualSource("/etc/passwd", "x", (2, 3, 4, 3))
    f.create_virtual_dataset("images", layout)


def _external_link(f: Any) -> None:
    f["images"] = h5py.ExternalLink("/etc/passwd", "/x")
    f["soft"] = h5py.SoftLink("/images")


FOREIGN = {
    "nothing": (lambda _: None, "no dataset"),
    "vlen in chunks": (_vlen, "not contiguous"),
    "unwritten chunk": (_unwritten_chunk, "never written"),
    "chunked": (
        lambda f: f.create_dataset("i", data=np.zeros((9, 3, 4, 3), np.uint8), chunks=(9, 2, 4, 3)),
        "contiguous",
    ),
    "gzip": (lambda f: f.create_dataset("i", data=np.zeros((9, 3, 4, 3), np.uint8), compression="gzip"), "contiguous"),
    "virtual": (_virtual, "contiguous"),
    "external link": (_external_link, "no dataset"),
    "external storage": (
        lambda f: f.create_dataset("i", (1, 3, 4, 3), np.uint8, external=[("/etc/passwd", 0, 36)]),
        "contiguous",
    ),
    "floats": (lambda f: f.create_dataset("images", data=np.zeros((2, 3, 4, 3))), r"images float64 \(2, 3, 4, 3\)"),
    "two": (lambda f: [f.create_dataset(n, data=np.zeros((2, 3, 4), np.uint8)) for n in "ab"], "exactly one"),
    "unwritten": (lambda f: f.create_dataset("images", (2, 3, 4, 3), np.uint8), "contiguous"),
    "group": (lambda f: f.create_group("images"), "no dataset"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_layouts_that_are_refused(tmp_path, name):
    make, what = FOREIGN[name]
    with h5py.File(tmp_path / "a.h5", "w") as f:
        make(f)
    with pytest.raises(StoreFormatError, match=what):
        open_store(tmp_path / "a.h5")


def _replaced(f: Any, name: str, value: Any, **more: Any) -> None:
    del f[name]
    if value is not None:
        f.create_dataset(name, data=value, **more)


def _linked(f: Any, name: str) -> None:
    f.move(name, "elsewhere")
    f[name] = h5py.SoftLink("/elsewhere")


HOSTILE = {
    "negative start": lambda f: _replaced(f, "start", np.full(9, -1)),
    "start beyond": lambda f: _replaced(f, "start", np.full(9, 2**62)),
    "length beyond": lambda f: _replaced(f, "length", np.full(9, 2**62)),
    "part beyond": lambda f: _replaced(f, "part", np.full(9, 7, np.int32)),
    "part negative": lambda f: _replaced(f, "part", np.full(9, -1, np.int32)),
    "fewer rows": lambda f: _replaced(f, "length", np.ones(8, np.int64)),
    "another type": lambda f: _replaced(f, "start", np.zeros(9)),
    "matrix": lambda f: _replaced(f, "start", np.zeros((9, 2), np.int64)),
    "missing column": lambda f: _replaced(f, "checksum", None),
    "missing block": lambda f: _replaced(f, "bytes/0000", None),
    "block of floats": lambda f: _replaced(f, "bytes/0000", np.zeros(10_000)),
    "chunked block": lambda f: _replaced(f, "bytes/0000", np.zeros(10_000, np.uint8), chunks=(100,)),
    "compressed column": lambda f: _replaced(f, "start", np.zeros(9, np.int64), compression="gzip"),
    "soft link": lambda f: _linked(f, "start"),
    "block through a link": lambda f: _linked(f, "bytes/0000"),
    "blocks elsewhere": lambda f: _linked(f, "bytes"),
    "codec unknown": lambda f: _replaced(f, "codec", np.full(9, 200, np.uint8)),
    "keys too long": lambda f: _replaced(f, "keys/offset", np.full(10, 2**62)),
    "keys backwards": lambda f: _replaced(f, "keys/offset", np.arange(10)[::-1].copy()),
    "info no json": lambda f: _replaced(f, "info", "{"),
    "info a list": lambda f: _replaced(f, "info", "[]"),
    "info numbers": lambda f: _replaced(f, "info", np.zeros(3)),
    "info absent": lambda f: _replaced(f, "info", None),
    "fields a dataset": lambda f: f.create_dataset("fields", data=1),
    "version": lambda f: f.attrs.modify("fastdata_version", 99),
    "version a string": lambda f: f.attrs.create("fastdata_version", "x"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_packs_are_refused(tmp_path, name):
    path = pack(tmp_path / "a.h5", encoded(9))
    with h5py.File(path, "r+") as f:
        HOSTILE[name](f)
    with pytest.raises(StoreError):
        open_store(path)


def test_cut_files(tmp_path):
    path = pack(tmp_path / "a.h5", encoded(9, 3000))
    data = path.read_bytes()
    for cut in (len(data) - 25, len(data) // 2, 3000):  # the last 24 bytes are the seal, which verify looks at
        path.write_bytes(data[:cut])
        with pytest.raises(TruncatedStoreError):
            open_store(path)


def test_a_user_block_shifts_everything(tmp_path):
    images = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    with h5py.File(tmp_path / "a.h5", "w", userblock_size=1024) as f:
        f["images"] = images
    with open_store(tmp_path / "a.h5") as store:
        assert bytes(store.read(1)) == images[1].tobytes()


def test_many_blocks_keep_their_order(tmp_path):
    records = encoded(300, 20)
    path = pack(tmp_path / "a.h5", records, block_bytes=1)
    with h5py.File(path) as f:
        assert len(f["bytes"]) == 300
    with open_store(path) as store:
        assert [bytes(store.read(i)) for i in range(300)] == [r.fields[0].data for r in records]


def test_info_larger_than_an_attribute(tmp_path):  # HDF5's attributes end at 64 KiB
    writer = open_writer(tmp_path / "a.h5", WriterOptions())
    classes = [f"class number {i} with a long name" for i in range(10_000)]
    writer.write(encoded(1)[0])
    writer.finish({"classes": classes})
    with open_store(tmp_path / "a.h5") as store:
        assert list(store.classes) == classes
