"""A tar from something that cannot seek."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tarfile
import threading
from typing import TYPE_CHECKING

import pytest

from fastdata import open_store
from fastdata.converters.writers import WriterOptions, open_writer
from fastdata.errors import DuplicateKeyError, StoreError, StoreFormatError, TruncatedStoreError
from fastdata.stores.tar_stream import stream_tar
from fastdata.types import Field, Record

if TYPE_CHECKING:
    from collections.abc import Sequence


def tar_of(files: Sequence[tuple[str, bytes]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def plain(record: Record) -> tuple[object, ...]:
    fields = [(f.name, f.codec, bytes(f.data)) for f in record.fields]
    return record.key, record.label, record.width, record.height, dict(record.extras), fields


def test_the_stream_gives_what_the_store_gives(tmp_path):
    writer = open_writer(tmp_path / "a.tar", WriterOptions())
    for i, key in enumerate(["22.05", "run1.5/1", "x" * 300, "plain"]):
        fields = (Field("image", "raw", bytes(range(12))), Field("mask.png", "png", b"%d" % i))
        writer.write(Record(key, fields, i, 2, 2, {"n": i}))
    writer.finish({})
    (tmp_path / "a.fdindex").unlink()
    with (tmp_path / "a.tar").open("rb") as file, open_store(tmp_path / "a.tar") as store:
        streamed = [plain(record) for record in stream_tar(file)]
        assert streamed == [plain(record) for record in store.records()]
        assert [row[0] for row in streamed] == ["22.05", "run1.5/1", "x" * 300, "plain"]


def test_a_pipe_is_enough():
    data = tar_of([(f"{i:04d}.{ending}", b"%d" % i) for i in range(500) for ending in ("jpg", "cls")])
    reading, writing = os.pipe()

    def feed() -> None:
        # Whoever has read the mark of the end may leave before the zeros behind it are written.
        with contextlib.suppress(BrokenPipeError), os.fdopen(writing, "wb", buffering=0) as file:
            for start in range(0, len(data), 777):  # short writes, short reads
                file.write(data[start : start + 777])

    thread = threading.Thread(target=feed)
    thread.start()
    with os.fdopen(reading, "rb", buffering=0) as file:
        records = [(record.key, record.label) for record in stream_tar(file)]
    thread.join()
    assert records == [(f"{i:04d}", i) for i in range(500)]


_FLAT = """
import io, resource, sys, tarfile
from fastdata.stores.tar_stream import stream_tar
class Endless(io.RawIOBase):
    "A tar of n samples of 1 MB that never exists as a whole and cannot seek."
    def __init__(self, n):
        self.n, self.i, self.rest = n, 0, memoryview(b"")
    def read(self, size):
        if not self.rest:
            self.i += 1
            info = tarfile.TarInfo(f"{self.i}.jpg")
            info.size = 1 << 20
            self.rest = memoryview(info.tobuf() + bytes(1 << 20) if self.i <= self.n else bytes(1024))
        piece, self.rest = self.rest[:size], self.rest[size:]
        return bytes(piece)
peaks = []
for n in (50, 500):
    assert sum(1 for _ in stream_tar(Endless(n))) == n
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
print(*peaks)
"""


def test_memory_is_flat():
    done = subprocess.run([sys.executable, "-c", _FLAT], capture_output=True, text=True, check=True)
    few, many = map(int, done.stdout.split())
    assert many - few < 4096  # kilobytes


def test_duplicates():  # C070
    data = tar_of([("a.jpg", b"1"), ("a.jpg", b"2"), ("a.cls", b"5"), ("b.jpg", b"3")])
    with pytest.raises(DuplicateKeyError, match=r"shard-7.*'a'.*'jpg'"):
        list(stream_tar(io.BytesIO(data), where="shard-7"))
    got = [(r.key, bytes(r.fields[0].data), r.label) for r in stream_tar(io.BytesIO(data), on_duplicate="skip")]
    assert got == [("a", b"1", 5), ("b", b"3", None)]


def test_a_cut_stream_gives_no_half_sample():  # C073
    data = tar_of([(f"{i}.{ending}", b"%d" % i) for i in range(4) for ending in ("jpg", "cls")])
    for cut in range(0, 8 * 1024 + 1024, 300):
        got = []
        with pytest.raises(TruncatedStoreError):
            got.extend(stream_tar(io.BytesIO(data[:cut])))
        assert all(record.label == int(record.key) for record in got)


def test_hostile_names_and_json():  # C149
    for files, what in (([("../x.jpg", b"1")], r"\.\./x\.jpg"), ([("a.jpg", b"1"), ("a.json", b"{")], "JSON")):
        with pytest.raises(StoreFormatError, match=what):
            list(stream_tar(io.BytesIO(tar_of(files))))


def test_a_size_that_lies_does_not_allocate():
    data = bytearray(tar_of([("a.jpg", b"1")]))
    data[124:136] = b"77777777777\0"
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])
    with pytest.raises(StoreError):
        list(stream_tar(io.BytesIO(bytes(data))))
