"""The targets: each parser of ours as a function of some bytes, which may raise a FastdataError and nothing else.

For containers the bytes are a program of edits to a good file; sums are then made to fit.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import h5py
import numpy as np

from fastdata.converters import repair, unpack, verify
from fastdata.converters.inspecting import describe
from fastdata.converters.verifying import row_problems
from fastdata.decoding.facade import decode
from fastdata.decoding.header import probe, sniff
from fastdata.decoding.jpeg_markers import is_sound
from fastdata.decoding.pixels import load_pixels
from fastdata.decoding.restart_markers import blocks_near, columns_of
from fastdata.errors import DecodeError, FastdataError, KeyNotFoundError, StoreError
from fastdata.stores.hdf5_layout import COLUMNS
from fastdata.stores.lmdb_file import LmdbFile
from fastdata.stores.lmdb_store import META, _values
from fastdata.stores.opener import open_store
from fastdata.stores.store import Store
from fastdata.stores.tar_stream import stream_tar
from fastdata.types import Field, PixelPolicy, Record
from fuzzing.edits import LONGEST, patched, programs
from fuzzing.good_files import PAD, GoodFiles
from fuzzing.inputs import images, infos, key_names, manifests
from fuzzing.sums import (
    joined_sidecar,
    json_end,
    reseal,
    sidecar_parts,
    with_column_sums,
    with_png_sums,
    with_sidecar_sums,
    with_tar_sums,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fuzzing.good_files import Seed

__all__ = ["TARGETS", "Target", "Workshop", "clear"]

_PIXELS = 1_000_000


class Workshop:
    """A folder with good files, and a function for each target."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.good = folder, GoodFiles(folder / "good")
        self.input = folder / "input"
        self.input.mkdir(exist_ok=True)

    def lmdb(self, program: bytes) -> None:
        """The LMDB file: meta pages, trees, nodes, overflow pages."""
        self._open_patched("lmdb", program)

    def hdf5(self, program: bytes) -> None:
        """HDF5: superblock, headers, heaps, and what we make of them."""
        self._open_patched("hdf5", program)

    def tar(self, program: bytes) -> None:
        """The scan of a tar without an index; header checksums are made to fit."""
        seed, rest = self._chosen("tar", program)
        data = patched(seed.data, seed.hot, rest)
        if program[:1] and program[0] & 128:
            data = with_tar_sums(data)
        self._open(seed.name, data)

    def tar_stream(self, program: bytes) -> None:
        """A tar from a pipe."""
        seed, rest = self._chosen("tar", program)
        data = patched(seed.data, seed.hot, rest)
        if program[:1] and program[0] & 128:
            data = with_tar_sums(data)
        try:
            for record in stream_tar(io.BytesIO(data), "skip" if program[:1] and program[0] & 64 else "raise"):
                assert record.fields
        except StoreError:
            pass

    def sidecar(self, program: bytes) -> None:
        """The index of a tar: its header and columns, sums made to fit."""
        seed, rest = self._chosen("sidecar", program)
        data = patched(seed.data, seed.hot, rest)
        tar = self.good.folder / "i.tar"
        if program[:1] and program[0] & 128:
            data = with_sidecar_sums(data)
        target = self.input / "i.tar"
        if not target.exists():
            target.write_bytes(tar.read_bytes())
        (self.input / "i.fdindex").write_bytes(data)
        use_path(target)

    def info(self, text: bytes) -> None:
        """A pack's info: any JSON in the place of what the packer wrote, in each format."""
        kind = text[0] % 3 if text else 0
        text = text[1 : PAD + 1]
        if kind == 2:
            seed = self.good.of("sidecar")[0]
            header, tail = sidecar_parts(seed.data)
            encoded = json.dumps({**header, "info": 0}).replace('"info": 0', '"info": %s').encode() % text
            target = self.input / "i.tar"
            if not target.exists():
                target.write_bytes((self.good.folder / "i.tar").read_bytes())
            (self.input / "i.fdindex").write_bytes(joined_sidecar(encoded, tail))
            use_path(target, thorough=True)
            return
        seed = self.good.of(("lmdb", "hdf5")[kind])[0]
        at = seed.data.index(b'{"class') if b'{"class' in seed.data else seed.data.index(b'{"')
        end = json_end(seed.data, at)
        told = json.loads(seed.data[at:end])
        # What the reader itself needs comes first, as JSON's later keys would win over it.
        kept = {n: told[n] for n in ("index", "stamp", "format_version", "sealed", "columns") if n in told}
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        new = json.dumps({**kept, **value}).encode() if isinstance(value, dict) else text
        room = end - at
        data = seed.data[:at] + (new[:room].ljust(room)) + seed.data[end:]
        self._open(seed.name, data, thorough=True)

    def columns(self, program: bytes) -> None:
        """The columns of a pack's index, sums made to fit."""
        kind, rest = (program[0] % 3 if program else 0), program[1:]
        if kind == 2:
            self.sidecar(b"\x80" + rest)
            return
        seed = self.good.of(("lmdb", "hdf5")[kind])[0]
        spans = self._column_spans(("lmdb", "hdf5")[kind])
        hot = tuple(p for start, length in spans.values() for p in range(start, start + length, 4))
        data = patched(seed.data, hot, bytes(b for i, b in enumerate(rest)))
        if len(data) == len(seed.data):
            data = with_column_sums(data, spans)
        self._open(seed.name, data)

    def verify(self, program: bytes) -> None:
        """verify and repair: whatever is wrong is said, and what repair saves verifies."""
        kind = ("lmdb", "hdf5", "tar")[program[0] % 3 if program else 0]
        seed = self.good.of(kind)[0]
        data = patched(seed.data, seed.hot, program[1:])
        path = self.input / seed.name
        path.write_bytes(data)
        if kind != "tar" and program[:1] and program[0] & 128:
            reseal(path)
        report = verify(path, decode=False)
        list(report.lines())
        json.dumps(report.to_dict())
        if report.good:
            out = self.input / "out.tar"
            try:
                repair(path, out, overwrite=True, decode=False)
            except FastdataError:
                return
            assert verify(out, decode=False).ok

    def manifest(self, text: bytes) -> None:
        """CSV, TSV and JSON lines."""
        ending = (".csv", ".tsv", ".jsonl")[text[0] % 3 if text else 0]
        self._open(f"m{ending}", text[1:], no_files=True)

    def header(self, data: bytes) -> None:
        """The headers of image files, and the markers of a JPEG."""
        sniff(data)
        try:
            found = probe(data)
        except DecodeError:
            return
        assert found.width > 0
        assert found.height > 0
        assert 1 <= found.orientation <= 8
        if found.codec == "jpeg":
            is_sound(data, found)
            if found.block_width:
                columns = columns_of(found.width, found.block_width)
                assert columns % blocks_near(columns, 1 + data[-1]) == 0

    def decode(self, data: bytes) -> None:
        """Decoding, and what packing makes of a file; sums of PNG chunks are made to fit."""
        data = with_png_sums(data)
        shapes = []
        for work in (
            lambda: load_pixels(data, PixelPolicy(max_pixels=_PIXELS)).array,
            lambda: decode(data, max_pixels=_PIXELS),
            lambda: decode(data, mode="native", max_pixels=_PIXELS),
        ):
            try:
                pixels = work()
            except DecodeError:
                continue
            assert pixels.dtype == np.uint8
            assert pixels.size <= _PIXELS * 4
            shapes.append(pixels.shape[0] * pixels.shape[1])
        assert len(set(shapes)) <= 1

    def names(self, data: bytes) -> None:
        """unpack: keys, class names and names of fields that point anywhere."""
        words = [w.decode("utf-8", "surrogateescape") for w in data.split(b"\n")][:4]
        key, folder, field = (words + ["k", "c", "f"][len(words) :])[:3] if len(words) < 3 else words[:3]
        if "\0" in key:
            return
        fields = (Field("image", "bytes", b"1"), Field(field, "bytes", b"2"))
        store = MemoryStore([Record(key, fields, 0)], (folder,))
        root = self.input / "names"
        outside = set(self.input.iterdir()) | {root}
        with contextlib.suppress(FastdataError):
            unpack(store, root / "in", overwrite=True)
        assert set(self.input.iterdir()) <= outside
        assert not root.exists() or {p.name for p in root.iterdir()} <= {"in"}
        clear(root)

    def _chosen(self, kind: str, program: bytes) -> tuple[Seed, bytes]:
        seeds = self.good.of(kind)
        return seeds[(program[0] & 63) % len(seeds) if program else 0], program[1:]

    def _open_patched(self, kind: str, program: bytes) -> None:
        seed, rest = self._chosen(kind, program)
        self._open(seed.name, patched(seed.data, seed.hot, rest))

    def _open(self, name: str, data: bytes, *, no_files: bool = False, thorough: bool = False) -> None:
        path = self.input / name
        path.write_bytes(data)
        use_path(path, no_files=no_files, thorough=thorough)

    def _column_spans(self, kind: str) -> dict[str, tuple[int, int]]:
        """Where each column of the index lies in the first good file, in bytes."""
        path = str(self.good.folder / self.good.of(kind)[0].name)
        if kind == "lmdb":
            file = LmdbFile(path)
            values = _values(file, file.databases()[META])
            return {name.decode().removeprefix("index/"): span for name, span in values.items() if b"index/" in name}
        spans: dict[str, tuple[int, int]] = {}

        def note(name: str, one: object) -> None:
            if isinstance(one, h5py.Dataset) and one.dtype.kind in "iuf" and not name.startswith("bytes/"):
                ours = COLUMNS.get(name, name.removeprefix("fields/") if "/" in name else f"image/{name}")
                spans[ours] = (one.id.get_offset(), one.nbytes)

        with h5py.File(path) as file:
            file.visititems(note)
        return spans


class MemoryStore(Store):
    """A Store of given records: keys and names that no writer of ours would take."""

    def __init__(self, rows: list[Record], classes: tuple[str, ...]) -> None:
        self.rows, self.classes = rows, classes
        self.path = "memory"

    def __len__(self) -> int:
        return len(self.rows)

    def record(self, i: int) -> Record:
        return self.rows[i]


def use_path(path: Path, *, no_files: bool = False, thorough: bool = False) -> None:
    """Open and use what lies there; every FastdataError is right."""
    try:
        store = open_store(path)
    except FastdataError:
        pass
    else:
        with store:
            use(store, files=not no_files)
    if thorough:
        list(verify(path, decode=False).lines())


def use(store: Store, *, files: bool = True) -> None:
    """Everything that readers do with a store."""
    repr(store)
    json.dumps(describe(store))
    row_problems(store)
    assert isinstance(store.class_to_idx, dict)
    n = len(store)
    some = [*range(min(n, 6)), *range(max(n - 2, 6), n)]
    for i in some:
        key = store.key(i)
        store.label(i)
        try:
            assert n > 1000 or store.key(store.find(key)) == key
        except KeyNotFoundError:  # a buffer of keys that is damaged
            assert "\0" in store.index.keys.blob.tobytes()[:-1].decode("latin-1")
        if not files:
            continue
        try:
            record = store.record(i)
        except FastdataError:
            continue
        assert all(isinstance(field.codec, str) for field in record.fields)
    if not files or not n:
        return
    for name in store.fields:
        rows = np.array([i for i in some if store.index.fields[name].length[i] >= 0], np.int64)
        try:
            encoded = store.fetch(rows, name)
            store.will_need(rows, name)
        except FastdataError:
            continue
        for address, length in zip(encoded.address.tolist(), encoded.length.tolist(), strict=True):
            if length:  # memory that is not ours ends the process here
                ctypes.string_at(address, 1)
                ctypes.string_at(address + length - 1, 1)


def clear(folder: Path) -> None:
    """Remove a folder that tests have filled."""
    shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Target:
    """One parser: the method of Workshop that feeds it, the inputs to begin with, and how long inputs may be."""

    begin: Callable[[], list[bytes]]
    longest: int
    words: tuple[str, ...] = ()


_JSON_WORDS = (
    '"classes"', '"options"', '"max_pixels"', '"seals"', '"columns"', '"index"', '"dtype"', '"shape"', '"stamp"',
    '"sealed"', '"content_hash"', "null", "true", "1e999", "NaN", "[[", "{}", "[]", '"\\ud800"', "9223372036854775808",
)  # fmt: skip
TARGETS: dict[str, Target] = {
    "lmdb": Target(programs, LONGEST),
    "hdf5": Target(programs, LONGEST),
    "tar": Target(programs, LONGEST),
    "tar_stream": Target(programs, LONGEST),
    "sidecar": Target(programs, LONGEST),
    "columns": Target(programs, LONGEST),
    "verify": Target(programs, LONGEST),
    "info": Target(infos, PAD, _JSON_WORDS),
    "manifest": Target(
        manifests, 20_000, ("path", "label", "label_0", "file_name", '{"path": "a", ', '"label": ', "[1,", '"')
    ),
    "header": Target(images, 4096, ("ftypavif", "Exif\\x00\\x00", "IHDR", "acTL", "eXIf", "VP8X", "tiff:Orientation")),
    "decode": Target(images, 4096, ("ftypavif", "Exif\\x00\\x00", "IHDR", "acTL", "iCCP", "zTXt", "VP8X", "tRNS")),
    "names": Target(key_names, 600, ("../", "/", "\\x00", "..", "con")),
}
