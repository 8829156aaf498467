"""Small packs of every format, made of records with a mask, extras and labels."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from fastdata.converters.writers import WriterOptions, open_writer
from fastdata.types import Field, Record

if TYPE_CHECKING:
    from collections.abc import Callable

_LIMIT_MB = 300  # beyond what the interpreter and the libraries take; also what the README says
#: Opens, reads, verifies and packs each path in a process that may not take more.
_CHILD = """
import json, resource, sys
from fastdata.cli.main import main
from fastdata.converters import pack, verify
from fastdata.errors import FastdataError
from fastdata.stores.opener import open_store
import h5py, lmdb, numpy, PIL.PngImagePlugin, PIL.JpegImagePlugin
import fastdata.stores.tar_store, fastdata.stores.lmdb_store, fastdata.stores.hdf5_store, fastdata.converters.packing
paths, limit = sys.argv[2:], int(sys.argv[1])
pages = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (pages + limit * 2**20,) * 2)
for path in paths:
    said = []
    for what in ("open", "verify", "pack"):
        try:
            if what == "open":
                with open_store(path) as store:
                    for record in store.records():
                        pass
            elif what == "verify":
                report = verify(path)
                said.append("ok" if report.ok else "problems")
                continue
            else:
                pack(path, path + ".out.lmdb", workers=1, overwrite=True, on_error="raise")
            said.append("ok")
        except FastdataError as error:
            said.append(type(error).__name__ if len(str(error)) < 2000 else "a long text")
    print(json.dumps(said), flush=True)
"""


def _outcomes(*paths: Path) -> list[list[str]]:
    """What opening, verifying and packing each path came to, in one process with little memory to spare."""
    line = [sys.executable, "-c", _CHILD, str(_LIMIT_MB), *map(str, paths)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(row) for row in done.stdout.splitlines()]


NAMES = {"lmdb": "p.lmdb", "hdf5": "p.h5", "tar": "p.tar", "tars": "p-{000000..}.tar"}
INFO = {"classes": ["ant", "bee"], "class_to_idx": {"ant": 0, "bee": 1}, "options": {"resize": 8}, "mean": [0.5] * 3}


def encoded(seed: int, kind: str = "JPEG") -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (8 + seed, 9, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def records(count: int = 5) -> list[Record]:
    made = []
    for i in range(count):
        fields = (Field("image", "jpeg", encoded(i)), Field("mask", "png", encoded(i, "PNG")))
        made.append(Record(f"{('ant', 'bee')[i % 2]}/{i}", fields, i % 2, 9, 8 + i, {"caption": f"no. {i}"}))
    return made


def write(folder: Path, kind: str, rows: list[Record], **info: object) -> Path:
    """Write a pack of ``kind`` into ``folder``; the sets have one sample in each shard but the last."""
    folder.mkdir(parents=True, exist_ok=True)
    options = WriterOptions(shard_count=3, samples=len(rows)) if kind == "tars" else WriterOptions()
    writer = open_writer(folder / NAMES[kind], options)
    for row in rows:
        writer.write(row)
    writer.finish({**INFO, **info})
    return folder / NAMES[kind]


@dataclass(frozen=True)
class Fixture:
    """A pack in a folder of its own; ``files`` are all of its files by name."""

    kind: str
    path: Path

    @property
    def files(self) -> dict[str, bytes]:
        return {p.name: p.read_bytes() for p in sorted(self.path.parent.iterdir())}

    def restore(self, files: dict[str, bytes]) -> None:
        for path in self.path.parent.iterdir():
            path.unlink()
        for name, data in files.items():
            (self.path.parent / name).write_bytes(data)


@pytest.fixture(params=list(NAMES))
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Fixture:
    return Fixture(request.param, write(tmp_path / "pack", request.param, records()))


class Make:
    """How tests make packs of their own."""

    records = staticmethod(records)
    write = staticmethod(write)


@pytest.fixture
def make() -> Make:
    return Make()


@pytest.fixture(params=list(NAMES))
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session")
def outcomes() -> Callable[..., list[list[str]]]:
    return _outcomes


@pytest.fixture(scope="session")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What LD_PRELOAD takes to see, or refuse, what a process writes."""
    library = tmp_path_factory.mktemp("recorder") / "recorder.so"
    line = [
        "cc",
        "-shared",
        "-fPIC",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-o",
        library,
        Path(__file__).with_name("recorder.c"),
        "-ldl",
    ]
    subprocess.run(line, check=True)
    return library
