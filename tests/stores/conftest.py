"""The formats that pass the store contract, one row each, and the records they are made of."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from fastdata.converters.writers import WriterOptions, open_writer
from fastdata.types import Field, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from fastdata.types import Label

JPEG = b"\xff\xd8\xff\xe0"

# C001 C007 C008 C010: one stem in several folders, dots anywhere, long paths, other scripts.
ODD_KEYS = (
    "A/x", "B/x", "C/x", "22.05", "22.06", "scan 2.0 (v1)", "run1.5/1", "run1.6/1", "no/dots/at/all", "a.b.c/d.e.f",
    "ключ/画像", "quote'\"/back\\slash", "100%/%2E", "/".join(["deep" * 20] * 8) + "/end", "z",
)  # fmt: skip
# Around what decides how a value is stored: inline or on pages of its own (LMDB), tar blocks, large ones.
SIZES = (5, 511, 512, 513, 1000, 2015, 2030, 2046, 4079, 4080, 4081, 8192, 70_001)


def data_of(name: str, size: int) -> bytes:
    return JPEG + random.Random(f"{name} {size}").randbytes(size - len(JPEG))


def odd_records(label: Callable[[int], Label] = lambda i: i % 3, *, rich: bool = True) -> list[Record]:
    """Records with odd keys; rich ones have a mask and extras too."""
    records = []
    for i, key in enumerate([*ODD_KEYS, *(f"more/{i}" for i in range(10))]):
        fields = [Field("image", "jpeg", data_of(key, SIZES[i % len(SIZES)]))]
        extras: dict[str, Any] = {}
        if rich:
            fields.append(Field("mask", "png", data_of(f"{key} mask", 10 + 700 * (i % 5))))
            extras = {"caption": f"no. {i} é", "box": [1, 2.5, i]}
        records.append(Record(key, tuple(fields), label(i), 10 + i, 20 + i, extras))
    return records


INFO = {"classes": ["a", "b", "c"], "options": {"resize": 256}, "mean": [0.1, 0.2, 0.3], "std": [1.0, 1.0, 1.0]}


@dataclass(frozen=True)
class Format:
    """One row: how to write records, and what such a store can hold."""

    name: str
    kind: str
    write: Callable[[Path, Sequence[Record]], str]
    records: Callable[[], list[Record]] = odd_records
    is_pack: bool = True  # made by a Writer: has info, sizes, checksums, all kinds of labels
    ending: str = ""


def pack(dst: Path, records: Sequence[Record], **options: Any) -> str:
    writer = open_writer(dst, WriterOptions(**options))
    for record in records:
        writer.write(record)
    writer.finish(INFO)
    return str(dst)


def _writer_format(name: str, kind: str, file: str, **options: Any) -> Format:
    return Format(name, kind, lambda folder, records: pack(folder / file, records, **options), ending=file)


def _folder_records() -> list[Record]:
    keys = ("a.1/22.05", "a.1/x", "a.1/nested/deep.x/1", "b/scan 2.0 (v1)", "b/x", "b/run1.5/1", "画像/é")
    fields = [(Field("image", "unknown", data_of(key, SIZES[i])),) for i, key in enumerate(keys)]
    return [Record(key, fields[i], "abю".index(key[0]) if key[0] in "ab" else 2) for i, key in enumerate(keys)]


def _write_folder(folder: Path, records: Sequence[Record]) -> str:
    for record in records:
        path = folder / "tree" / f"{record.key}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(record.fields[0].data)
    return str(folder / "tree")


def _manifest_records() -> list[Record]:
    return [replace(record, label=i + 0.5, extras={"who": f"me, {i}"}) for i, record in enumerate(_folder_records())]


def _write_manifest(folder: Path, records: Sequence[Record]) -> str:
    _write_folder(folder, records)
    rows = [{"path": f"{r.key}.jpg", "label": r.label, **r.extras} for r in records]
    path = folder / "tree" / "list.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


FORMATS = (
    _writer_format("lmdb", "lmdb", "pack.lmdb"),
    _writer_format("lmdb-subdir", "lmdb", "pack.lmdb", subdir=True),
    _writer_format("hdf5", "hdf5", "pack.h5"),
    _writer_format("tar", "tar", "pack.tar"),
    _writer_format("tar-set", "tar", "pack-{000000..}.tar", shard_bytes=30_000),
    Format("folder", "folder", _write_folder, _folder_records, is_pack=False),
    Format("manifest", "manifest", _write_manifest, _manifest_records, is_pack=False),
)


@dataclass(frozen=True)
class Packed:
    """What a test of the contract gets: a store's path and the records that must come out of it."""

    format: Format
    path: str
    records: list[Record]


@pytest.fixture(params=FORMATS, ids=lambda row: row.name)
def row(request: pytest.FixtureRequest) -> Format:
    return request.param


@pytest.fixture(params=[f for f in FORMATS if f.is_pack], ids=lambda row: row.name)
def pack_row(request: pytest.FixtureRequest) -> Format:
    return request.param


@pytest.fixture(scope="session")
def _packs() -> dict[str, Packed]:
    return {}


@pytest.fixture
def packed(row: Format, _packs: dict[str, Packed], tmp_path_factory: pytest.TempPathFactory) -> Packed:
    """One store of each format, written once; tests do not change it."""
    return _written(row, _packs, tmp_path_factory)


@pytest.fixture
def packed_pack(pack_row: Format, _packs: dict[str, Packed], tmp_path_factory: pytest.TempPathFactory) -> Packed:
    """The same for the formats that are packs: whose files are mapped, and that know of themselves."""
    return _written(pack_row, _packs, tmp_path_factory)


def _written(row: Format, packs: dict[str, Packed], tmp_path_factory: pytest.TempPathFactory) -> Packed:
    if row.name not in packs:
        records = row.records()
        packs[row.name] = Packed(row, row.write(tmp_path_factory.mktemp(row.name), records), records)
    return packs[row.name]
