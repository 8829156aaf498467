"""Good files of every format, small, and the positions in them that matter."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import h5py
import lmdb
import numpy as np
from PIL import Image

from fastdata.converters.writers import WriterOptions, open_writer
from fastdata.stores.opener import open_store
from fastdata.types import Field, Record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Bytes of blanks in an info, in whose place another text fits.
PAD = 3000


def picture(seed: int, kind: str = "JPEG", mode: str = "RGB", **how: object) -> bytes:
    """A small picture as a file."""
    pixels = np.random.default_rng(seed).integers(0, 256, (8 + seed % 5, 9, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(buffer, kind, **how)
    return buffer.getvalue()


def records(count: int = 4) -> list[Record]:
    """Records with a mask, extras and class labels."""
    made = []
    for i in range(count):
        fields = (Field("image", "jpeg", picture(i)), Field("mask", "png", picture(i, "PNG", "L")))
        made.append(Record(f"{('ant', 'bee')[i % 2]}/{i}", fields, i % 2, 9, 8 + i, {"caption": f"no. {i}"}))
    return made


INFO = {
    "classes": ["ant", "bee"], "class_to_idx": {"ant": 0, "bee": 1}, "options": {"resize": 8, "max_pixels": 10**6},
    "mean": [0.5] * 3, "std": [0.2] * 3, "encoder": "x", "ignored": {"hidden": 1}, "pad": " " * PAD,
}  # fmt: skip


@dataclass(frozen=True)
class Seed:
    """A good file: its name, its bytes, and the positions that matter."""

    name: str
    data: bytes
    hot: tuple[int, ...] = ()


def cold_spans(path: Path) -> list[tuple[int, int]]:
    """Where the values of a pack lie: of no interest to the parser of its container."""
    with open_store(path) as store:
        columns = store.index.fields.values()
        return [(int(o), int(n)) for c in columns for o, n in zip(c.offset, c.length, strict=True) if n > 0]


def hot_of(path: Path) -> tuple[int, ...]:
    """Positions of bytes that are neither values of records nor long runs of one byte."""
    data = np.frombuffer(path.read_bytes(), np.uint8)
    keep = np.ones(len(data), np.bool_)
    for start, length in cold_spans(path):
        keep[start : start + length] = False
    filled = np.flatnonzero(data)
    near = np.zeros(len(data), np.bool_)
    for shift in range(-8, 9):
        near[np.clip(filled + shift, 0, len(data) - 1)] = True
    pad = path.read_bytes().find(b" " * 500)
    if pad >= 0:
        keep[pad : pad + PAD] = False
    return tuple(np.flatnonzero(keep & near).tolist())


def tar_hot(data: bytes) -> Iterator[int]:
    """The positions of headers in a tar."""
    for start in range(0, len(data) - 511, 512):
        if data[start + 257 : start + 262] == b"ustar":
            yield from range(start, start + 345)


class GoodFiles:
    """Makes the good files in ``folder``, each kind when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self._seeds: dict[str, list[Seed]] = {}

    def of(self, kind: str) -> list[Seed]:
        """The good files of one kind, made when first asked for."""
        if kind not in self._seeds:
            self._seeds[kind] = list(getattr(self, f"_{kind}_seeds")())
        return self._seeds[kind]

    def _pack(self, name: str, rows: list[Record] | None = None, **options: object) -> Path:
        path = self.folder / name
        writer = open_writer(path, WriterOptions(**options))
        for row in rows or records():
            writer.write(row)
        writer.finish(INFO)
        return path

    def _lmdb_seeds(self) -> Iterator[Seed]:
        path = self._pack("a.lmdb")
        yield Seed(path.name, path.read_bytes(), hot_of(path))
        schemes = {
            "numbers": [(b"%d" % i, picture(i)) for i in range(12)],
            "ocr": [(b"%s-%09d" % (n, i), picture(i) if n == b"image" else b"text") for n in (b"image", b"label")
                    for i in range(1, 4)],
            "names": [(b"a/%d" % i, picture(i) + bytes(3000)) for i in range(3)] + [(b"__len__", b"3")],
        }  # fmt: skip
        for name, items in schemes.items():
            path = self.folder / f"{name}.lmdb"
            with lmdb.open(str(path), subdir=False, lock=False, max_dbs=2, map_size=1 << 22) as env:
                base = env.open_db(b"images") if name == "names" else None
                with env.begin(write=True, db=base) as txn:
                    for key, value in items:
                        txn.put(key, value)
            yield Seed(path.name, path.read_bytes(), hot_of(path))
        path = self.folder / "integers.lmdb"
        with lmdb.open(str(path), subdir=False, lock=False, max_dbs=2, map_size=1 << 22) as env:
            base = env.open_db(b"data", integerkey=True)
            with env.begin(write=True, db=base) as txn:
                for i in range(3):
                    txn.put(struct.pack("<Q", i), picture(i))
        yield Seed(path.name, path.read_bytes(), hot_of(path))

    def _hdf5_seeds(self) -> Iterator[Seed]:
        path = self._pack("a.h5")
        yield Seed(path.name, path.read_bytes(), hot_of(path))
        pixels = np.random.default_rng(1).integers(0, 256, (3, 4, 5, 3), np.uint8)
        for name in ("plain", "chunked", "encoded"):
            path = self.folder / f"{name}.h5"
            with h5py.File(path, "w") as file:
                if name == "encoded":
                    data = file.create_dataset("images", (3,), h5py.vlen_dtype(np.uint8))
                    for i in range(3):
                        data[i] = np.frombuffer(picture(i), np.uint8)
                else:
                    file.create_dataset("images", data=pixels, chunks=(1, 4, 5, 3) if name == "chunked" else None)
                file.create_dataset("labels", data=np.arange(3) + 0.5)
            yield Seed(path.name, path.read_bytes(), hot_of(path))

    def _tar_seeds(self) -> Iterator[Seed]:
        path = self._pack("a.tar")
        path.with_suffix(".fdindex").unlink()
        yield Seed(path.name, path.read_bytes(), hot_of(path))
        import tarfile

        for name, form in (("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT)):
            buffer = io.BytesIO()
            with tarfile.open(fileobj=buffer, mode="w", format=form, pax_headers={"comment": "x"}) as tar:
                array = io.BytesIO()
                np.save(array, np.zeros((2, 3, 3), np.uint8))
                for member, data in (
                    ("a.jpg", picture(1)), ("a.cls", b"1"), ("a.json", b'{"label": [1, 0.5]}'),
                    ("d/b.npy", array.getvalue()), ("d/b.label.json", b"[1.0, 2]"),
                    ("e/" + "long/" * 40 + "c.png", picture(2, "PNG")),
                ):  # fmt: skip
                    entry = tarfile.TarInfo(member)
                    entry.size = len(data)
                    tar.addfile(entry, io.BytesIO(data))
                for kind in (tarfile.SYMTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE):
                    entry = tarfile.TarInfo(f"x{kind[0]}")
                    entry.type, entry.linkname = kind, "/etc/passwd"
                    tar.addfile(entry)
            data = buffer.getvalue()[:-9000] if len(buffer.getvalue()) % 10240 == 0 else buffer.getvalue()
            yield Seed(f"{name}.tar", data + bytes(1024), tuple(tar_hot(data)))

    def _sidecar_seeds(self) -> Iterator[Seed]:
        path = self._pack("i.tar").with_suffix(".fdindex")
        yield Seed("i.fdindex", path.read_bytes(), ())
