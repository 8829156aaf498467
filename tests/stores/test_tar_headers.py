"""The tar parser against Python's tarfile, and against bytes that mean harm."""

from __future__ import annotations

import io
import os
import tarfile
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastdata.errors import StoreError, StoreFormatError, TruncatedStoreError
from fastdata.stores.tar_headers import FileSource, StreamSource, members, parse_header

if TYPE_CHECKING:
    from pathlib import Path

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def tar_of(files: list[tuple[str, bytes]], kind: int = tarfile.PAX_FORMAT, **changes: object) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=kind) as tar:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for attribute, value in changes.items():
                setattr(info, attribute, value)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def parsed(data: bytes) -> list[tuple[str, str, bytes]]:
    return [(m.name, m.kind, data[m.offset : m.offset + m.size]) for m in members(StreamSource(io.BytesIO(data), "x"))]


def set_field(data: bytes, start: int, value: bytes) -> bytes:
    """Change a header field of the first member and put its checksum right."""
    block = bytearray(data[:512])
    block[start : start + len(value)] = value
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + data[512:]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("length", [1, 50, 99, 100, 101, 155, 156, 200, 254, 255, 256, 257, 600, 4000])
def test_names_of_all_lengths(kind, length):
    name = ("d" * 49 + "/") * (length // 50) + "f" * (length % 50 or 1)
    try:
        data = tar_of([(name, b"first"), ("second", b"x" * 1025)], FORMATS[kind])
    except ValueError:
        assert kind == "ustar"  # which has no place for it
        return
    assert parsed(data) == [(name, "file", b"first"), ("second", "file", b"x" * 1025)]


@settings(max_examples=60, deadline=None)
@given(
    names=st.lists(
        st.text(st.characters(exclude_characters="\0/", exclude_categories=("Cs",)), min_size=1, max_size=120).filter(
            lambda s: s not in {".", ".."}
        ),
        min_size=1,
        max_size=4,
    ),
    sizes=st.lists(st.integers(0, 1600), min_size=4, max_size=4),
    kind=st.sampled_from(list(FORMATS)),
    mtime=st.one_of(st.integers(0, 2**33 - 1), st.floats(0, 2**31)),
)
def test_what_tarfile_writes_is_read(names, sizes, kind, mtime):
    files = [(name, bytes([i]) * sizes[i]) for i, name in enumerate(names)]
    try:
        data = tar_of(files, FORMATS[kind], mtime=int(mtime) if kind == "ustar" else mtime)
    except ValueError:
        assert kind == "ustar"
        return
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        wanted = [(info.name, info.size) for info in tar]
    assert [(name, len(content)) for name, _, content in parsed(data)] == wanted
    assert [content for _, _, content in parsed(data)] == [content for _, content in files]


def test_bytes_that_are_no_text_come_back():
    name = b"caf\xe9.jpg".decode("utf-8", "surrogateescape")
    for kind in FORMATS.values():
        assert parsed(tar_of([(name, b"1")], kind))[0][0].encode("utf-8", "surrogateescape") == b"caf\xe9.jpg"


def test_global_pax_headers_hold_for_all():
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "hello"}) as tar:
        for name in ("a", "b"):
            tar.addfile(tarfile.TarInfo(name))
    assert [name for name, _, _ in parsed(out.getvalue())] == ["a", "b"]


@pytest.mark.parametrize(
    ("flag", "kind"),
    [
        (tarfile.SYMTYPE, "link"), (tarfile.LNKTYPE, "link"), (tarfile.CHRTYPE, "device"), (tarfile.BLKTYPE, "device"),
        (tarfile.FIFOTYPE, "pipe"), (tarfile.DIRTYPE, "folder"), (tarfile.CONTTYPE, "file"), (b"Z", "other"),
        (tarfile.AREGTYPE, "file"),
    ],
)  # fmt: skip
def test_kinds_of_members(flag, kind):
    data = tar_of([("a", b""), ("b", b"22")], tarfile.USTAR_FORMAT)
    assert parsed(set_field(data, 156, flag)) == [("a", kind, b""), ("b", "file", b"22")]


def test_links_with_a_size_have_no_data():
    data = set_field(tar_of([("a", b""), ("b", b"22")]), 156, b"1")
    assert parsed(set_field(data, 124, b"00000001000\0"))[1] == ("b", "file", b"22")


def test_sizes_in_base_256():
    data = tar_of([("a", b"x" * 700), ("b", b"22")], tarfile.GNU_FORMAT)
    assert parsed(set_field(data, 124, b"\x80" + (700).to_bytes(11, "big"))) == parsed(data)


@pytest.mark.parametrize(
    "size",
    [b"\xff" * 12, b"\xff" * 11 + b"\0", b"-0000000001\0", b"0x000000001\0", b"1_000000000\0", b"+0000000001\0",
     b"00000000009\0", b"\x80" + b"\x7f" + b"\xff" * 10, b"\xc0" + bytes(11)],
)  # fmt: skip
def test_hostile_sizes_are_refused_by_name(size):
    data = set_field(tar_of([("evil.jpg", b"x" * 700)]), 124, size)
    with pytest.raises(StoreFormatError, match=r"evil\.jpg"):
        parsed(data)


@pytest.mark.parametrize("size", [b"77777777777\0", b"\x80\0\0\0\x3f" + b"\xff" * 7, b"00010000000\0"])
def test_sizes_beyond_the_end_are_refused(size):
    data = set_field(tar_of([("evil.jpg", b"x" * 700)]), 124, size)
    with pytest.raises(TruncatedStoreError, match=r"evil\.jpg"):
        parsed(data)


@pytest.mark.parametrize(
    "records", [b"99 path=a\n", b"x", b"0 path=a\n", b"10 path=a", b"-9 path=aa\n", b" 9 path=a\n"]
)
def test_damaged_pax_records_are_refused(records):
    data = set_field(tar_of([("p", records), ("a", b"1")], tarfile.USTAR_FORMAT), 156, b"x")
    with pytest.raises(StoreFormatError, match="PAX"):
        parsed(data)


@pytest.mark.parametrize("value", ["-1", "1e3", "99999999999999999999", "", " 5", "9223372036854775807"])
def test_hostile_pax_sizes_are_refused(value):
    record = f" size={value}\n".encode()
    record = b"%d%s" % (len(record) + (1 if len(record) < 9 else 2), record)
    data = set_field(tar_of([("p", record), ("evil.jpg", b"1")], tarfile.USTAR_FORMAT), 156, b"x")
    with pytest.raises(StoreFormatError, match=r"evil\.jpg"):
        parsed(data)


def test_long_extended_headers_do_not_allocate():
    data = set_field(tar_of([("n", b"x" * 2000)]), 156, b"L")
    with pytest.raises(StoreFormatError, match="extended header"):
        parsed(set_field(data, 124, b"77777777777\0"))


def test_sparse_members_are_refused():
    data = set_field(tar_of([("holes.jpg", b"x")]), 156, b"S")
    with pytest.raises(StoreFormatError, match=r"holes\.jpg.*sparse"):
        parsed(data)


@pytest.mark.parametrize("kind", FORMATS.values())
def test_every_cut_is_seen(kind):  # C073
    data = tar_of([("d/" * 60 + "a", b"x" * 600), ("b", b"y" * 10)], kind)
    end = data.rstrip(b"\0")
    whole = -(-len(end) // 512) * 512 + 1024  # up to the end mark; beyond it lies padding
    for cut in range(0, whole, 37):
        with pytest.raises(TruncatedStoreError, match="cut short"):
            parsed(data[:cut])
    assert len(parsed(data[:whole])) == 2


def _read_all(data: bytes, path: Path) -> None:
    path.write_bytes(data)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        from_file = [(m.name, m.offset, m.size) for m in members(FileSource(descriptor, "x"))]
    finally:
        os.close(descriptor)
    assert from_file == [(m.name, m.offset, m.size) for m in members(StreamSource(io.BytesIO(data), "x"))]


@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=2048))
def test_random_bytes_raise_only_our_errors(data, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "random.tar"
    for content in (data, data.ljust(512, b"\0") + bytes(1024)):
        try:
            _read_all(content, path)
        except StoreError:
            continue
        assert not content[:1024].strip(b"\0")  # nobody draws a checksum by chance


@settings(max_examples=300, deadline=None)
@given(data=st.data(), kind=st.sampled_from(list(FORMATS.values())))
def test_changed_headers_raise_only_our_errors(data, kind, tmp_path_factory):
    name = "n" * data.draw(st.sampled_from([5, 90, 99]))
    block = bytearray(tar_of([(name, b"x" * 600), ("b", b"y")], kind, mtime=1.5 if kind == tarfile.PAX_FORMAT else 1))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.one_of(st.integers(100, 160), st.integers(0, len(block) - 1)))
        block[at] = data.draw(st.integers(0, 255))
    for start in range(0, len(block), 512):  # every block's checksum right, so that the parser gets further
        if block[start + 257 : start + 262] == b"ustar":
            block[start + 148 : start + 156] = b" " * 8
            block[start + 148 : start + 156] = b"%06o\0 " % sum(block[start : start + 512])
    try:
        _read_all(bytes(block), tmp_path_factory.getbasetemp() / "changed.tar")
    except StoreError:
        return


@given(block=st.binary(min_size=512, max_size=512))
def test_one_block_is_a_header_or_an_error(block):
    try:
        assert parse_header(block, "x") is None or block[:100]
    except StoreFormatError:
        return
