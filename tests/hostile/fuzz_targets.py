"""What is fuzzed: each parser of ours as a function of some bytes, which may raise a FastdataError and nothing else.

``benchmarks/fuzz.py`` feeds the targets by coverage, the tests by hypothesis. For containers the bytes are a program of
edits to a good file, made here by code; sums are then made to fit, so that what lies behind them is reached.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import h5py
import lmdb
import numpy as np
from PIL import Image

from fastdata.converters import repair, unpack, verify
from fastdata.converters.inspecting import describe
from fastdata.converters.seal import SEAL_BYTES, rest_sum, spans_of
from fastdata.converters.verifying import row_problems
from fastdata.converters.writers import WriterOptions, open_writer
from fastdata.decoding.facade import decode
from fastdata.decoding.header import probe, sniff
from fastdata.decoding.jpeg_markers import is_sound
from fastdata.decoding.pixels import load_pixels
from fastdata.decoding.restart_markers import blocks_near, columns_of
from fastdata.errors import DecodeError, FastdataError, KeyNotFoundError, StoreError
from fastdata.stores.opener import open_store
from fastdata.stores.store import Store
from fastdata.stores.tar_stream import stream_tar
from fastdata.types import Field, PixelPolicy, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

__all__ = ["TARGETS", "Target", "Workshop", "patched"]

_EDIT = 12  # bytes of one edit: operation u8, place u24, value u64, little-endian
_MOST_EDITS = 20
_INTERESTING = (
    0, 1, 2, 3, 7, 8, 16, 17, 127, 128, 255, 256, 511, 512, 4095, 4096, 4097, 32767, 32768, 65535, 65536, 2**24 - 1,
    2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**47, 2**53, 2**62, 2**63 - 4096, 2**63 - 1, 2**63, 2**64 - 4096,
    2**64 - 2, 2**64 - 1,
)  # fmt: skip
_PAD = 3000  # bytes of blanks in an info, in whose place another text fits
_PIXELS = 1_000_000


def patched(whole: bytes, hot: Sequence[int], program: bytes) -> bytes:
    """Return ``whole`` after the edits of a program; ``hot`` are the positions where most edits should go."""
    data = bytearray(whole)
    for start in range(0, min(len(program), _MOST_EDITS * _EDIT) - _EDIT + 1, _EDIT):
        how, value = program[start], int.from_bytes(program[start + 4 : start + _EDIT], "little")
        place = int.from_bytes(program[start + 1 : start + 4], "little")
        if not data:
            break
        place = hot[place % len(hot)] % len(data) if how & 8 and hot else place % len(data)
        operation, width = how & 7, 1 << (how & 3)
        if how & 16:
            value = _INTERESTING[value % len(_INTERESTING)]
        if operation < 5:  # 4: one bit
            old = int.from_bytes(data[place : place + width], "little")
            value = old ^ 1 << value % 8 if operation == 4 else old + value % 33 - 16 if how & 32 else value
            order = "big" if how & 64 else "little"
            data[place : place + width] = (value % 2 ** (8 * width)).to_bytes(width, order)
        elif operation == 5:
            del data[place + (value % 512 if how & 32 else 0) :]
        elif operation == 6:
            del data[place : place + value % 4096]
        else:
            source, length = value % len(data), (value >> 32) % 4096
            data[place : place + (0 if how & 32 else length)] = data[source : source + length]
    return bytes(data)


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
    "mean": [0.5] * 3, "std": [0.2] * 3, "encoder": "x", "ignored": {"hidden": 1}, "pad": " " * _PAD,
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
        keep[pad : pad + _PAD] = False
    return tuple(np.flatnonzero(keep & near).tolist())


class Workshop:
    """Makes the good files in ``folder``, and has a function for each target."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.input = folder / "input"
        (folder / "seeds").mkdir(exist_ok=True)
        self.input.mkdir(exist_ok=True)
        self._seeds: dict[str, list[Seed]] = {}

    # --- good files -----------------------------------------------------------------------------------------------

    def seeds(self, kind: str) -> list[Seed]:
        """The good files of one kind, made when first asked for."""
        if kind not in self._seeds:
            self._seeds[kind] = list(getattr(self, f"_{kind}_seeds")())
        return self._seeds[kind]

    def _pack(self, name: str, rows: list[Record] | None = None, **options: object) -> Path:
        path = self.folder / "seeds" / name
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
            path = self.folder / "seeds" / f"{name}.lmdb"
            with lmdb.open(str(path), subdir=False, lock=False, max_dbs=2, map_size=1 << 22) as env:
                base = env.open_db(b"images") if name == "names" else None
                with env.begin(write=True, db=base) as txn:
                    for key, value in items:
                        txn.put(key, value)
            yield Seed(path.name, path.read_bytes(), hot_of(path))
        path = self.folder / "seeds" / "integers.lmdb"
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
            path = self.folder / "seeds" / f"{name}.h5"
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

    # --- targets --------------------------------------------------------------------------------------------------

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
        tar = self.folder / "seeds" / "i.tar"
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
        text = text[1 : _PAD + 1]
        if kind == 2:
            seed = self.seeds("sidecar")[0]
            header, tail = sidecar_parts(seed.data)
            encoded = json.dumps({**header, "info": 0}).replace('"info": 0', '"info": %s').encode() % text
            target = self.input / "i.tar"
            if not target.exists():
                target.write_bytes((self.folder / "seeds" / "i.tar").read_bytes())
            (self.input / "i.fdindex").write_bytes(joined_sidecar(encoded, tail))
            use_path(target, thorough=True)
            return
        seed = self.seeds(("lmdb", "hdf5")[kind])[0]
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
        seed = self.seeds(("lmdb", "hdf5")[kind])[0]
        spans = self._column_spans(("lmdb", "hdf5")[kind])
        hot = tuple(p for start, length in spans.values() for p in range(start, start + length, 4))
        data = patched(seed.data, hot, bytes(b for i, b in enumerate(rest)))
        if len(data) == len(seed.data):
            data = with_column_sums(data, spans)
        self._open(seed.name, data)

    def verify(self, program: bytes) -> None:
        """verify and repair: whatever is wrong is said, and what repair saves verifies."""
        kind = ("lmdb", "hdf5", "tar")[program[0] % 3 if program else 0]
        seed = self.seeds(kind)[0]
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

    # --- parts ----------------------------------------------------------------------------------------------------

    def _chosen(self, kind: str, program: bytes) -> tuple[Seed, bytes]:
        seeds = self.seeds(kind)
        return seeds[(program[0] & 63) % len(seeds) if program else 0], program[1:]

    def _open_patched(self, kind: str, program: bytes) -> None:
        seed, rest = self._chosen(kind, program)
        self._open(seed.name, patched(seed.data, seed.hot, rest))

    def _open(self, name: str, data: bytes, *, no_files: bool = False, thorough: bool = False) -> None:
        path = self.input / name
        path.write_bytes(data)
        use_path(path, no_files=no_files, thorough=thorough)

    def _column_spans(self, kind: str) -> dict[str, tuple[int, int]]:
        """Where each column of the index lies in the first seed."""
        path = self.folder / "seeds" / self.seeds(kind)[0].name
        data = path.read_bytes()
        with open_store(path) as store:
            arrays = {name: a.tobytes() for name, a in store.index.to_arrays().items()}
        spans = {}
        for name, raw in arrays.items():
            if kind == "hdf5" and name.endswith(("/offset", "/part")):
                continue  # stored otherwise
            at = data.rfind(raw) if len(raw) > 3 else -1
            if at >= 0:
                spans[name] = (at, len(raw))
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
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


# --- sums that fit --------------------------------------------------------------------------------------------------


def tar_hot(data: bytes) -> Iterator[int]:
    """The positions of headers in a tar."""
    for start in range(0, len(data) - 511, 512):
        if data[start + 257 : start + 262] == b"ustar":
            yield from range(start, start + 345)


def with_tar_sums(data: bytes) -> bytes:
    """The tar with the right checksum in everything that looks like a header."""
    made = bytearray(data)
    for start in range(0, len(data) - 511, 512):
        block = made[start : start + 512]
        if block[257:262] == b"ustar" or block[148:149].isdigit():
            block[148:156] = b" " * 8
            made[start + 148 : start + 156] = b"%06o\0 " % sum(block)
    return bytes(made)


def sidecar_parts(data: bytes) -> tuple[dict, bytes]:
    """Header and columns of an index."""
    length = struct.unpack_from("<I", data, 8)[0]
    return json.loads(data[16 : 16 + length]), data[-(-(16 + length) // 64) * 64 :]


def joined_sidecar(header: bytes, tail: bytes) -> bytes:
    """An index with the right sum over its header."""
    return (
        struct.pack("<8sII", b"FDINDEX\x01", len(header), zlib.crc32(header))
        + header
        + bytes(-(16 + len(header)) % 64)
        + tail
    )


def with_sidecar_sums(data: bytes) -> bytes:
    """The index with sums that fit, as far as it can be understood."""
    try:
        header, tail = sidecar_parts(data)
        for row in header["columns"].values():
            nbytes = np.dtype(row["dtype"]).itemsize * int(np.prod(row["shape"], dtype=object))
            row["crc"] = zlib.crc32(tail[row["offset"] : row["offset"] + nbytes])
        header["size"] = len(tail)
    except Exception:  # noqa: BLE001  whatever the edits have made of it
        return data
    return joined_sidecar(json.dumps(header).encode(), tail)


def json_end(data: bytes, at: int) -> int:
    """Where the JSON object that begins at ``at`` ends."""
    return at + json.JSONDecoder().raw_decode(data[at : at + 20_000].decode("latin-1"))[1]


def with_column_sums(data: bytes, spans: dict[str, tuple[int, int]]) -> bytes:
    """A file whose info has the right sums of its columns; blanks in the info make room."""
    at = data.find(b'{"')
    try:
        while (info := json.loads(data[at : (end := json_end(data, at))])) and "pad" not in info:
            at = data.index(b'{"', at + 1)
        for name, (start, length) in spans.items():
            crc = zlib.crc32(data[start : start + length])
            if name in info.get("index", {}):
                info["index"][name]["crc32"] = crc
            if name in info.get("columns", {}):
                info["columns"][name] = crc
        separators = (",", ":") if b'":' in data[at : at + 40] and b'": ' not in data[at : at + 40] else (", ", ": ")
        info["pad"] = ""
        text = json.dumps(info, separators=separators).encode()
        return data[:at] + text + b" " * (end - at - len(text)) + data[end:]
    except (ValueError, TypeError, AttributeError, KeyError):
        return data


def reseal(path: Path) -> None:
    """Give a damaged file a seal that fits, where it can still be opened."""
    data = path.read_bytes()
    size = len(data) - SEAL_BYTES
    try:
        with open_store(path, io="pread") as store:
            head = struct.pack("<8sQI", b"FDSEAL\0\0", size, rest_sum(path, *spans_of(store.index, 0), size))
    except FastdataError:
        return
    path.write_bytes(data[:size] + head + struct.pack("<I", zlib.crc32(head)))


def with_png_sums(data: bytes) -> bytes:
    """A PNG whose chunks have the right sums."""
    if data[:4] != b"\x89PNG":
        return data
    made, at = bytearray(data), 8
    while at + 12 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        end = at + 8 + length
        if end + 4 > len(data):
            break
        made[end : end + 4] = struct.pack(">I", zlib.crc32(data[at + 4 : end]))
        at = end + 4
    return bytes(made)


# --- inputs to begin with -------------------------------------------------------------------------------------------


def programs() -> list[bytes]:
    """Programs of a few edits, of every kind."""
    rng = np.random.default_rng(3)
    made = [bytes([n]) for n in (*range(6), 128, 129, 130, 131)]
    for _ in range(60):
        edits = rng.integers(0, 256, (int(rng.integers(1, 4)), _EDIT), np.uint8)
        edits[:, 0] = (edits[:, 0] & 0x60) | rng.choice([8, 9, 10, 11, 24, 25, 26, 27, 12, 5, 7], len(edits))
        made.append(bytes([int(rng.integers(0, 256))]) + edits.tobytes())
    return made


def infos() -> list[bytes]:
    """Infos that are not what they should be."""
    values = [5, "x", [], [[1]], {"a": 1}, [1, 2], ["a", "a"], None, True, 1e999, -1, 2**70, [None], "\ud800", ["\0"]]
    made = [json.dumps({name: value}).encode() for name in
            ("classes", "options", "mean", "seals", "columns", "content_hash", "index", "sealed", "stamp", "ignored",
             "format_version", "shards", "fields")
            for value in values]  # fmt: skip
    made += [json.dumps({"options": {"max_pixels": value}}).encode() for value in values]
    texts = [b"{}", b"[]", b"[" * 2000, b"1" * 5000, b"NaN", b'{"classes": NaN}', b'"x"', b"", b"\xff"]
    return [bytes([kind]) + text for text in (*made, *texts) for kind in range(3)]


def manifests() -> list[bytes]:
    """Manifests of all kinds, good and odd."""
    csv = [b"path,label\na.jpg,cat\nb.jpg,dog\n", b"path;label\na.jpg;1\n", b'path,label,x\n"a,b.jpg",1.5,"q""\n"\n',
           b"file_name,label_0,label_1\na.png,1,0\n", b"path\n../../x\n/abs\n", b"path,label\na,[1;2]\na,007\n",
           b"\xef\xbb\xbfpath\na"]  # fmt: skip
    lines = [b'{"path": "a.jpg", "label": 3}\n', b'{"file_name": "a", "label": [1, 2], "x": {"y": []}}\n',
             b'{"path": "a", "label": "cat"}\n{"path": "a", "label": "3"}',
             b'{"path": "a", "label": 1e400}']  # fmt: skip
    made = [bytes([0]) + text for text in csv] + [bytes([2]) + text for text in lines]
    return made + [bytes([1]) + text.replace(b",", b"\t") for text in csv]


def images() -> list[bytes]:
    """Small files of all formats."""
    exif = Image.Exif()
    exif[0x0112] = 6
    made = [picture(1), picture(2, mode="L"), picture(3, mode="CMYK"), picture(4, progressive=True),
            picture(5, restart_marker_rows=1), picture(1, exif=exif)]  # fmt: skip
    made += [picture(1, "PNG", mode, exif=exif) for mode in ("RGB", "L", "P", "1", "RGBA", "LA")]
    made += [picture(1, "WEBP", exif=exif, lossless=True), picture(1, "WEBP", "RGBA"), picture(2, "WEBP")]
    made += [
        picture(1, kind)
        for kind in ("BMP", "GIF", "TIFF", "JPEG2000", "AVIF", "PPM", "PCX", "SGI", "DDS", "ICO", "TGA")
    ]
    made += [
        picture(1, "TIFF", mode, compression=how)
        for mode, how in (("1", "group4"), ("RGB", "tiff_lzw"), ("L", "jpeg"), ("RGB", "tiff_deflate"))
    ]
    frames = [Image.new("P", (9, 8), i) for i in range(3)]
    for kind in ("GIF", "PNG", "WEBP", "TIFF"):
        buffer = io.BytesIO()
        frames[0].save(buffer, kind, save_all=True, append_images=frames[1:])
        made.append(buffer.getvalue())
    wide = io.BytesIO()
    Image.fromarray(np.arange(60, dtype=np.uint16).reshape(6, 10) * 900).save(wide, "PNG")
    return [*made, wide.getvalue()]


def key_names() -> list[bytes]:
    """Names that lead elsewhere."""
    keys = (
        b"a/b",
        b"../x",
        b"/abs",
        b"a/../../x",
        b"",
        b".",
        b"a//b",
        b"con",
        b"x" * 300,
        b"a\\..\\b",
        b"\xff",
        b"a\0b",
    )
    return [
        b"\n".join((key, folder, field))
        for key in keys
        for folder, field in ((b"c", b"f"), (b"..", b"f"), (b"c", b"/../../x"))
    ]


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
    "lmdb": Target(programs, 1 + _MOST_EDITS * _EDIT),
    "hdf5": Target(programs, 1 + _MOST_EDITS * _EDIT),
    "tar": Target(programs, 1 + _MOST_EDITS * _EDIT),
    "tar_stream": Target(programs, 1 + _MOST_EDITS * _EDIT),
    "sidecar": Target(programs, 1 + _MOST_EDITS * _EDIT),
    "columns": Target(programs, 1 + _MOST_EDITS * _EDIT),
    "verify": Target(programs, 1 + _MOST_EDITS * _EDIT),
    "info": Target(infos, _PAD, _JSON_WORDS),
    "manifest": Target(
        manifests, 20_000, ("path", "label", "label_0", "file_name", '{"path": "a", ', '"label": ', "[1,", '"')
    ),
    "header": Target(images, 4096, ("ftypavif", "Exif\\x00\\x00", "IHDR", "acTL", "eXIf", "VP8X", "tiff:Orientation")),
    "decode": Target(images, 4096, ("ftypavif", "Exif\\x00\\x00", "IHDR", "acTL", "iCCP", "zTXt", "VP8X", "tRNS")),
    "names": Target(key_names, 600, ("../", "/", "\\x00", "..", "con")),
}
