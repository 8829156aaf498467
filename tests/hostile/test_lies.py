"""Numbers, types and names in a pack that say what is not so: each is an error of ours, never memory, never a hang."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import tarfile
import tracemalloc
import zlib

import h5py
import numpy as np
import pytest

from fastdata import FastLoader
from fastdata.converters import pack, repair, unpack, verify
from fastdata.errors import FastdataError, OptionError, StoreFormatError, TruncatedStoreError
from fastdata.stores.index import Index, KeyColumn
from fastdata.stores.json_values import parse_json
from fastdata.stores.lmdb_file import LmdbFile
from fastdata.stores.lmdb_store import _check_bounds
from fastdata.stores.opener import open_store
from fastdata.stores.reader import open_reader
from fastdata.stores.sidecar import Sidecar, read_sidecar, write_sidecar
from fastdata.stores.tar_headers import StreamSource, members
from fastdata.stores.tar_stream import stream_tar
from fastdata.types import Field, Record, Spans


def rewritten(path, **changed):
    """The index of a tar with other columns, or shards, or info, and sums that fit."""
    side = path.with_suffix(".fdindex")
    old = read_sidecar(str(side))
    columns = {name: column.copy() for name, column in old.columns.items()} | changed.pop("columns", {})
    shards, info = changed.pop("shards", old.shards), {**old.info, **changed.pop("info", {})}
    side.unlink()
    write_sidecar(side, Sidecar(info, shards, columns))
    return columns


@pytest.mark.parametrize(("offset", "length"), [(2**63 - 8, 100), (2**63 - 1, 2**63 - 1), (10, 2**63 - 1)])
def test_offsets_whose_sum_wraps_round(tmp_path, make, offset, length):
    path = make.write(tmp_path / "t", "tar", make.records(3))
    with open_store(path) as store:
        columns = store.index.to_arrays()
    wrong = {"image/offset": columns["image/offset"].copy(), "image/length": columns["image/length"].copy()}
    wrong["image/offset"][1], wrong["image/length"][1] = offset, length
    rewritten(path, columns=wrong)
    with pytest.raises(TruncatedStoreError):
        open_store(path)
    path = make.write(tmp_path / "l", "lmdb", make.records(3))
    with open_store(path) as store:
        arrays = {name: column.copy() for name, column in store.index.to_arrays().items()}
        arrays["image/offset"][1], arrays["image/length"][1] = offset, length
        index = Index.from_arrays(arrays, "here")
        with pytest.raises(TruncatedStoreError):
            _check_bounds(LmdbFile(str(path)), index)
    for io_kind in ("mmap", "pread"):
        reader = open_reader([str(path)], io_kind)
        spans = Spans(*(np.array([value], np.int64) for value in (0, offset, length)))
        with pytest.raises(TruncatedStoreError, match="lies outside the file"):
            reader.address(spans)  # a batch of the compiled core gets addresses only
        reader.close()


@pytest.mark.parametrize("kind", ["lmdb", "tar", "tars"])
def test_samples_in_files_that_are_not_there(tmp_path, make, kind):
    path = make.write(tmp_path / "t", kind, make.records(3))
    with open_store(path) as store:
        index = store.index
    for absent in (False, True):  # a field that a sample does not have lies nowhere, but its number is used
        part, length = index.fields["image"].part.copy(), index.fields["image"].length.copy()
        part[0] = 2**31 - 1
        if absent:
            length[0] = -1
        arrays = {**index.to_arrays(), "image/part": part, "image/length": length}
        with pytest.raises(StoreFormatError, match="a file that the pack does not have"):
            type(index).from_arrays(arrays, "here", 3)
    if kind == "tar":
        part = index.fields["image"].part.copy()
        part[0] = 7
        rewritten(path, columns={"image/part": part})
        with pytest.raises(StoreFormatError):
            open_store(path)


@pytest.mark.parametrize("classes", [5, "ant", {"a": 1}, [["a"]], [1, 2], [None], None, True])
def test_classes_of_another_type(tmp_path, make, kind, classes):
    if kind == "hdf5":
        path = make.write(tmp_path / "p", kind, make.records(2))
        with h5py.File(path, "r+") as file:
            info = json.loads(file["info"][()])
            del file["info"]
            file.create_dataset("info", data=json.dumps(info | {"classes": classes}), dtype=h5py.string_dtype("utf-8"))
    else:
        path = make.write(tmp_path / "p", kind, make.records(2), classes=classes)
    with pytest.raises(StoreFormatError, match="classes"):
        open_store(path)
    assert not verify(path).ok
    with pytest.raises(FastdataError):
        repair(path, tmp_path / "out.h5")


@pytest.mark.parametrize("seals", [[5], [[1]], [["a", "b"]], [[1, 2, 3]], [None], [[True, 1.5]], "x", 7])
def test_seals_that_are_none(tmp_path, make, seals):
    path = make.write(tmp_path / "t", "tar", make.records(2))
    rewritten(path, info={"seals": seals})
    report = verify(path)
    assert report.samples == 2
    assert list(report.lines())


def test_labels_that_are_no_numbers(tmp_path, make):
    path = make.write(tmp_path / "t", "tar", make.records(3))
    for value in (np.nan, np.inf):
        rewritten(path, columns={"label": np.full(3, value)})
        with open_store(path) as store:  # whole numbers alone are compared with what stands in the tar
            assert len(store) == 3
    rewritten(path, columns={"label": np.zeros((3, 2), np.int64)})
    with open_store(path) as store:
        assert store.label(0) == (0, 0)


def test_shards_that_are_no_files(tmp_path, make):
    path = make.write(tmp_path / "t", "tar", make.records(2))
    side = read_sidecar(str(path.with_suffix(".fdindex")))
    path.unlink()
    for number, make_it in enumerate((path.mkdir, lambda: os.mkfifo(path))):
        make_it()
        rewritten(path, shards=[type(side.shards[0])(path.name, path.stat().st_size, side.shards[0].stamp)])
        with pytest.raises(StoreFormatError):
            open_store(path.with_suffix(".fdindex"))
        assert not verify(path.with_suffix(".fdindex")).ok
        path.rmdir() if number == 0 else path.unlink()


def lmdb_of(keys: list[bytes], value: bytes, flags: int = 0) -> bytes:
    """An LMDB file with pages of 16 KiB, which may hold keys longer than the library writes."""
    size = 1 << 14

    def page(number: int, kind: int, body: bytes, bounds: tuple[int, int] = (0, 0)) -> bytes:
        return (struct.pack("<QHHHH", number, 0, kind, *bounds) + body).ljust(size, b"\0")

    nodes, pointers, top = b"", b"", size
    for key in keys:
        node = struct.pack("<HHHH", len(value), 0, 0, len(key)) + key + value
        node += bytes(len(node) & 1)
        top -= len(node)
        nodes, pointers = node + nodes, pointers + struct.pack("<H", top)
    empty = struct.pack("<IHHQQQQQ", size, 0, 0, 0, 0, 0, 0, 2**64 - 1)
    main = struct.pack("<IHHQQQQQ", 0, flags, 1, 0, 1, 0, len(keys), 2)
    meta = struct.pack("<IIQQ48s48sQQ", 0xBEEFC0DE, 1, 0, size * 3, empty, main, 2, 1)
    leaf = pointers.ljust(top - 16, b"\0") + nodes
    return page(0, 8, meta) + page(1, 8, meta) + page(2, 2, leaf, (16 + len(pointers), top))


@pytest.mark.parametrize("flags", [0, 8])
@pytest.mark.parametrize("form", ["%s", "image-%s"])
def test_keys_of_thousands_of_digits(tmp_path, make, form, flags):
    image = make.records(1)[0].fields[0].data
    keys = [(form % ("9" * length)).encode() for length in (4300, 4301, 5000)]
    (tmp_path / "d.lmdb").write_bytes(lmdb_of(keys, image, flags))
    with open_store(tmp_path / "d.lmdb") as store:  # they are names then, and no numbers
        assert len(store) == 3
        assert bytes(store.read(2)) == image


def test_many_columns_on_the_same_bytes(tmp_path, make):
    path = make.write(tmp_path / "t", "tar", make.records(2))
    side = path.with_suffix(".fdindex")
    data = side.read_bytes()
    (length,) = struct.unpack_from("<I", data, 8)
    header, tail = json.loads(data[16 : 16 + length]), bytes(20_000_000)
    row = {"dtype": "|u1", "shape": [len(tail)], "offset": 0, "crc": zlib.crc32(tail)}
    header["columns"] = {str(number): row for number in range(20_000)}
    header["size"] = len(tail)
    text = json.dumps(header).encode()
    head = struct.pack("<8sII", b"FDINDEX\x01", len(text), zlib.crc32(text)) + text
    side.write_bytes(head + bytes(-len(head) % 64) + tail)
    with pytest.raises(StoreFormatError, match="longer than the file"):  # and not after 400 GB of sums
        open_store(path)


def test_heaps_that_lie_over_each_other(tmp_path):
    count = 20_000
    # Each begins 32 bytes behind the last and reaches to the end; an object of 16 bytes hides the next one's head.
    total = 32 * count
    heaps = b"".join(
        b"GCOL\x01\0\0\0" + struct.pack("<Q", total - 32 * i) + struct.pack("<HH4xQ", 1, 0, 16) for i in range(count)
    )
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset("images", (count,), h5py.vlen_dtype(np.uint8))
        data[0] = np.frombuffer(b"\xff\xd8\xff", np.uint8)
        references = data.id.get_offset()
        file.create_dataset("pad", data=np.frombuffer(heaps, np.uint8))
        start = file["pad"].id.get_offset()
    whole = bytearray((tmp_path / "a.h5").read_bytes())
    for i in range(count):
        struct.pack_into("<IQI", whole, references + 16 * i, 16, start + 32 * i, 1)
    (tmp_path / "a.h5").write_bytes(whole)
    with pytest.raises(StoreFormatError, match="over each other"):
        open_store(tmp_path / "a.h5")


def tar_of(*entries: tuple[str, bytes], flag: bytes = b"0") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in entries:
            info = tarfile.TarInfo(name)
            info.size, info.type = len(data), flag
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def test_a_pax_header_of_very_many_records():
    records = b"6 a=b\n" * 174_000  # just under what is read of one header
    blocks = tar_of(("h", records), flag=b"g")[: 512 + -(-len(records) // 512) * 512]
    names = b"".join(b"%d k%06d=\n" % (len(f"k{i:06d}=\n") + 3, i) for i in range(80_000))
    other = tar_of(("h", names), flag=b"g")[: 512 + -(-len(names) // 512) * 512]
    data = blocks * 3 + other + tar_of(*((f"{i}.jpg", b"") for i in range(1000)))
    found = list(members(StreamSource(io.BytesIO(data), "here")))  # was quadratic in both
    assert len(found) == 1000
    long = tar_of(("h", b"x" * 1000), flag=b"L")[:1536]
    with pytest.raises(TruncatedStoreError):
        list(members(StreamSource(io.BytesIO(long * 2000), "here")))  # names without a member


def test_labels_as_long_lists_take_no_more_than_their_text(tmp_path, make):
    image = make.records(1)[0].fields[0].data
    text = b"[" + b"1," * 50_000 + b"1]"
    entries = [(f"{i:03d}.{end}", data) for i in range(16) for end, data in (("jpg", image), ("label.json", text))]
    (tmp_path / "a.tar").write_bytes(tar_of(*entries))
    tracemalloc.start()
    try:
        with open_store(tmp_path / "a.tar") as store:
            assert store.index.label.shape == (16, 50_001)
        assert tracemalloc.get_traced_memory()[1] < 16_000_000  # as Python's floats they would be 26 MB
    finally:
        tracemalloc.stop()


def test_depth_that_one_can_read_and_another_cannot_write(tmp_path, make):
    def nested(depth: int) -> str:
        return '{"a":' * depth + "1" + "}" * depth

    assert parse_json(nested(100))
    assert parse_json("[" + "[]," * 5000 + "[]]")  # wide is not deep
    for depth in (102, 150, 900, 100_000):
        with pytest.raises(ValueError, match="levels"):
            parse_json(nested(depth))
    image = make.records(1)[0].fields[0].data
    for depth, good in ((90, True), (900, False)):
        data = tar_of(("a.jpg", image), ("a.json", nested(depth).encode()))
        (tmp_path / f"{depth}.tar").write_bytes(data)
        if good:
            assert pack(tmp_path / f"{depth}.tar", tmp_path / f"{depth}.lmdb", workers=1).samples == 1
            assert len(list(stream_tar(io.BytesIO(data)))) == 1
            continue
        with pytest.raises(StoreFormatError, match="levels"):
            pack(tmp_path / f"{depth}.tar", tmp_path / f"{depth}.lmdb", workers=1)
        with pytest.raises(StoreFormatError, match="levels"):
            list(stream_tar(io.BytesIO(data)))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("m.jsonl", '{"path": "a", "label": ' + "[" * 95 + "]" * 95 + "}"),
        ("m.jsonl", '{"path": "a", "label": [1e300, 2]}'),
        ("m.jsonl", '{"path": "a", "label": ' + "1" * 5000 + "}"),
        ("m.csv", "path,label\na," + "1" * 5000),
        ("m.csv", "path,label\na,-" + "1" * 5000),
        ("m.csv", "path,label_0,label_1\na,1e300,1"),
    ],
)
def test_labels_of_a_manifest_that_no_number_holds(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(OptionError) as told:
        open_store(tmp_path / name)
    assert len(str(told.value)) < 1000


def test_columns_with_very_large_numbers_in_their_names_are_further_columns(tmp_path):
    (tmp_path / "m.csv").write_text("path,label_" + "9" * 5000 + "\na,1\n")
    with open_store(tmp_path / "m.csv") as store:
        assert store.label(0) is None


def test_a_key_with_a_nul_inside_is_not_taken_for_another():
    keys = KeyColumn(np.frombuffer(b"a\0b\0c\0b\0", np.uint8), np.array([0, 4, 6, 8], np.int64))
    assert [keys[i] for i in range(3)] == ["a\0b", "c", "b"]
    assert keys.find("b") == 2
    assert keys.find("c") == 1


class Touch:
    """Pickled, it makes a file when it is read."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_pickles_stay_bytes_in_every_format_and_on_every_road(tmp_path, make):  # C148
    touched = tmp_path / "touched"
    payload = pickle.dumps(Touch(str(touched)))
    array = io.BytesIO()
    np.save(array, np.array([Touch(str(touched))], object), allow_pickle=True)
    archive = io.BytesIO()
    import zipfile

    with zipfile.ZipFile(archive, "w") as file:  # what torch.save writes
        file.writestr("a/data.pkl", payload)
    image = make.records(1)[0].fields[0].data
    kinds = {"pkl": payload, "pyd": payload, "pickle": payload, "pth": archive.getvalue(), "npy": array.getvalue(),
             "npz": archive.getvalue(), "cbor": payload, "meta.pkl": payload}  # fmt: skip
    entries = [("a.jpg", image), ("a.cls", b"0"), *((f"a.{name}", data) for name, data in kinds.items())]
    (tmp_path / "foreign.tar").write_bytes(tar_of(*entries))
    for out in ("p.lmdb", "p.h5", "p.tar"):
        pack(tmp_path / "foreign.tar", tmp_path / out, workers=1)
    for name in ("foreign.tar", "p.lmdb", "p.h5", "p.tar"):
        path = tmp_path / name
        with open_store(path) as store:
            [record] = store.records()
            assert {field.name: bytes(field.data) for field in record.fields[1:]} == kinds
        assert verify(path).samples == 1
        assert repair(path, tmp_path / f"{name}.repaired.h5").saved == 1
        unpack(path, tmp_path / f"{name}.out")
        assert (tmp_path / f"{name}.out" / "a.pkl.bin").read_bytes() == payload
        assert len(list(FastLoader(path))) == 1
    assert len(list(stream_tar(io.BytesIO((tmp_path / "foreign.tar").read_bytes())))) == 1
    # Only an array of objects for a picture: no sample is an image, and none is read.
    (tmp_path / "objects.tar").write_bytes(tar_of(("a.npy", array.getvalue()), ("a.cls", b"0")))
    with pytest.raises(StoreFormatError, match="none of the 1 samples has an image"):
        open_store(tmp_path / "objects.tar")
    for number, where in enumerate(("info", "extras")):
        path = make.write(tmp_path / str(number), "lmdb", [Record("a", (Field("image", "jpeg", image),), 0)])
        data = path.read_bytes()
        at = data.index(b'{"')
        path.write_bytes(data[:at] + payload + data[at + len(payload) :])
        with pytest.raises(FastdataError):
            open_store(path)
        assert where
    assert not touched.exists()
