"""Files made to do harm: they fail with our errors, in little memory, and run nothing."""

from __future__ import annotations

import ast
import io
import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fastdata.converters import unpack
from fastdata.converters.writers import open_writer
from fastdata.errors import DestinationExistsError, PackError, StoreFormatError
from fastdata.types import Field, Record


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_bomb(kind: str, zeros: bytes) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4)).save(buffer, "PNG")
    header, rest = buffer.getvalue()[:33], buffer.getvalue()[33:]
    if kind == "icc":
        return header + chunk(b"iCCP", b"x\0\0" + zeros) + rest
    if kind == "text":
        return header + chunk(b"zTXt", b"x\0\0" + zeros) + rest
    if kind == "data":  # far more data than the header says there are
        return header + chunk(b"IDAT", zeros) + chunk(b"IEND", b"")
    return header[:8] + chunk(b"IHDR", struct.pack(">II", 2**31 - 1, 2**31 - 1) + header[24:29]) + rest


def test_pictures_that_unfold(tmp_path, outcomes):
    folders, zeros = [], zlib.compress(bytes(400_000_000), 1)
    for kind in ("pixels", "icc", "text", "data"):
        folder = tmp_path / kind
        folder.mkdir()
        (folder / "a.png").write_bytes(png_bomb(kind, zeros))
        folders.append(folder)
    for kind, (opened, verified, packed) in zip(("pixels", "icc", "text", "data"), outcomes(*folders), strict=True):
        assert opened == "ok"  # bytes are bytes
        assert verified in {"ok", "problems"}
        assert packed in {"ok", "PackError"}
        if kind == "pixels":
            assert (verified, packed) == ("problems", "PackError")


def tar_block(name: str, size: bytes, flag: bytes = b"0") -> bytes:
    head = bytearray(512)
    head[: len(name)] = name.encode()
    head[100:124] = b"0000644\0" + b"0000000\0" * 2
    head[124:136], head[136:148], head[156:157] = size, b"00000000000\0", flag
    head[257:265] = b"ustar\x0000"
    head[148:156] = b"%06o\0 " % (sum(head[:148]) + 8 * 32 + sum(head[156:]))
    return bytes(head)


def test_tars_that_claim_too_much(tmp_path, outcomes):
    def pax(size: bytes) -> bytes:
        record = b" size=" + size + b"\n"
        record = str(len(record) + 2).encode() + record
        return tar_block("p", b"%011o\0" % len(record), b"x") + record.ljust(512, b"\0")

    cases = {
        "huge": tar_block("a.jpg", b"\x80" + (2**62).to_bytes(11, "big")),
        "negative": tar_block("a.jpg", b"\xff" * 12),
        "octal": tar_block("a.jpg", b"7" * 11 + b"\0"),
        "name": tar_block("././@LongLink", b"\x80" + (2**33).to_bytes(11, "big"), b"L"),
        "pax": pax(b"9" * 18) + tar_block("a.jpg", b"%011o\0" % 5),
        "sparse": tar_block("a.jpg", b"%011o\0" % 5, b"S"),
        "global": tar_block("g", b"77777777777\0", b"g"),
    }
    for name, data in cases.items():
        (tmp_path / f"{name}.tar").write_bytes(data + bytes(2048))
    for opened, verified, packed in outcomes(*(tmp_path / f"{name}.tar" for name in cases)):
        assert opened in {"StoreFormatError", "TruncatedStoreError"}
        assert packed in {"StoreFormatError", "TruncatedStoreError"}
        assert verified == "problems"


_DEEP = "[" * 300_000


def test_json_of_great_depth_and_wrong_types(tmp_path, make, outcomes):
    import h5py
    import lmdb

    paths = []
    for number, text in enumerate((_DEEP, '{"a":' * 100_000, "[]", "3", '"x"', "{}", '{"format_version": "x"}', "NaN")):
        path = make.write(tmp_path / f"l{number}", "lmdb", make.records(2))
        env = lmdb.open(str(path), subdir=False, lock=False, max_dbs=9, map_size=1 << 26)
        with env, env.begin(write=True, db=env.open_db(b"fastdata")) as txn:
            txn.put(b"info", text.encode())
        paths.append(path)
        path = make.write(tmp_path / f"h{number}", "hdf5", make.records(2))
        with h5py.File(path, "r+") as file:
            del file["info"]
            file.create_dataset("info", data=text, dtype=h5py.string_dtype("utf-8"))
        paths.append(path)
        path = make.write(tmp_path / f"t{number}", "tar", make.records(2))
        prefix = struct.pack("<8sII", b"FDINDEX\x01", len(text), zlib.crc32(text.encode()))
        path.with_suffix(".fdindex").write_bytes(prefix + text.encode() + bytes(4096))
        paths.append(path)
    for number, text in enumerate((_DEEP, "NaN")):
        (tmp_path / f"{number}.jsonl").write_text(text + "\n")
        paths.append(tmp_path / f"{number}.jsonl")
    for path, (opened, verified, packed) in zip(paths, outcomes(*paths), strict=True):
        if path.suffix == ".h5" and opened == "ok":
            assert path.parent.name[1:] in {"5", "6"}  # an info without its facts: the records are still good
            continue
        assert opened == packed
        assert opened.endswith("Error"), path
        assert verified in {"problems", "OptionError"}


def test_extras_of_great_depth(tmp_path, make, outcomes):
    import tarfile

    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name, data in (("a.jpg", make.records(1)[0].fields[0].data), ("a.json", _DEEP.encode())):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    assert outcomes(tmp_path / "a.tar") == [["StoreFormatError", "problems", "StoreFormatError"]]


def test_absurd_counts(tmp_path, make, outcomes):
    import h5py

    cases = {
        "never-written": {"shape": (2**31 - 1, 1, 1), "chunks": (1, 1, 1)},
        "unallocated": {"shape": (2**31 - 1, 1, 1)},
        "nothing-each": {"shape": (2**31 - 1, 0, 1)},
        "large": {"shape": (40_000, 40_000, 3)},
        "compressed": {"shape": (1000, 1000, 1000, 3), "chunks": (1000, 1000, 1, 3), "compression": "gzip"},
        "vlen": {"shape": (2**33,), "dtype": h5py.vlen_dtype(np.uint8)},
    }
    paths = []
    for name, how in cases.items():
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file.create_dataset("images", **{"dtype": np.uint8, **how})
        paths.append(tmp_path / f"{name}.h5")
    path = make.write(tmp_path / "info", "hdf5", make.records(2))
    with h5py.File(path, "r+") as file:
        del file["info"]
        file.create_dataset("info", shape=(1,), dtype="S900000000", chunks=(1,), compression="gzip")
    paths.append(path)
    path = make.write(tmp_path / "keys", "hdf5", make.records(2))
    with h5py.File(path, "r+") as file:
        del file["width"]
        file.create_dataset("width", shape=(2**40,), dtype=np.int32)
    paths.append(path)
    path = make.write(tmp_path / "index", "tar", make.records(2))
    path.with_suffix(".fdindex").write_bytes(struct.pack("<8sII", b"FDINDEX\x01", 0xFFFFFFF0, 0) + bytes(4096))
    paths.append(path)
    path = make.write(tmp_path / "column", "tar", make.records(2))
    row = {"dtype": "<i8", "shape": [2**61], "offset": 0, "crc": 0}
    text = json.dumps({"info": {}, "shards": [], "columns": {"width": row}, "size": 0}).encode()
    path.with_suffix(".fdindex").write_bytes(
        struct.pack("<8sII", b"FDINDEX\x01", len(text), zlib.crc32(text)) + text + bytes(-(16 + len(text)) % 64)
    )
    paths.append(path)
    for path, (opened, verified, packed) in zip(paths, outcomes(*paths), strict=True):
        assert opened in {"StoreFormatError", "TruncatedStoreError"}, path
        assert packed == opened
        assert verified == "problems"


#: The pool's pipes carry what our own children answer.
_MAY = {"pool.py"}
_RUNS = {"eval", "exec", "compile", "os.system", "os.popen", "__import__"}


def test_no_source_runs_what_it_reads():  # C148
    root = Path(__file__).resolve().parents[2]
    files = [*root.glob("fastdata/**/*.py"), *root.glob("converters/**/*.py")]
    assert len(files) > 60
    for path in files:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not {"dill", "cloudpickle", "marshal", "shelve", "joblib"} & set(names), path.name
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            assert called not in _RUNS, (path.name, called)
            assert not called.startswith("pickle.load") or path.name in _MAY, (path.name, called)
            assert "Unpickler" not in called, (path.name, called)
            assert given.get("shell", "False") == "False", (path.name, called)
            if called == "torch.load":
                assert given.get("weights_only") == "True", path.name
            if called in {"np.load", "numpy.load"}:
                assert given.get("allow_pickle", "False") == "False", path.name


def write(path: Path, *keys: str) -> Path:
    writer = open_writer(path)
    for number, key in enumerate(keys):
        writer.write(Record(key, (Field("image", "bytes", b"%d" % number),)))
    writer.finish({})
    return path


def test_unpack_with_names_that_are_one_file_or_too_long(tmp_path):  # C149
    long = write(tmp_path / "long.h5", "a", "x" * 300)
    with pytest.raises(PackError, match="File name too long"):
        unpack(long, tmp_path / "long")
    twice = write(tmp_path / "twice.h5", "b", "a", "b")
    with pytest.raises(DestinationExistsError):
        unpack(twice, tmp_path / "twice")
    with pytest.raises(StoreFormatError, match="two samples would be this one file"):
        unpack(twice, tmp_path / "twice", overwrite=True)
    # Where a disk ignores case, two keys are one file; a link stands in for such a disk.
    cases = write(tmp_path / "cases.h5", "Key", "key")
    assert unpack(cases, tmp_path / "cases").files == 2
    real = Path.lstat
    first = tmp_path / "cases" / "Key.bin"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "lstat", lambda self: real(first if self.name == "key.bin" else self))
        with pytest.raises(StoreFormatError, match="ignores case"):
            unpack(cases, tmp_path / "cases", overwrite=True)
    devices = write(tmp_path / "devices.h5", "con", "a/NUL", "lpt1.x", "dev:null", "a|b")
    assert unpack(devices, tmp_path / "devices").files == 5  # only names here; refused on Windows
    null = write(tmp_path / "null.h5", "../../dev/null")
    with pytest.raises(StoreFormatError):
        unpack(null, tmp_path / "null")
