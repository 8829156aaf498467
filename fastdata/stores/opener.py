"""``open_store``: finds out by content what lies at a path; a new format is one file and one row."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from fastdata.errors import IncompletePackError, StoreFormatError, StoreNotFoundError
from fastdata.registry import Row, load
from fastdata.stores.image_types import is_image_name
from fastdata.stores.index import Index, KeyColumn, SpanColumn
from fastdata.stores.reader import stamp_of
from fastdata.stores.store import Contents, Store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fastdata.stores.reader import Io

__all__ = ["open_store"]

_HEAD = 4096  # bytes of a file that the rows below look at
_PARTIAL = ".partial"  # what converters.atomic puts behind the name of a pack in the making
#: What a folder of nothing but tars holds.
_BESIDE_TARS = {".tar", ".idx", ".partial", ".json", ".jsonl", ".yaml", ".txt", ".md", ".sqlite"}
_BRACES = re.compile(r"\{\d+\.\.\d*\}")


def open_store(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    io: Io = "mmap",
    *,
    on_duplicate: Literal["raise", "skip"] = "raise",
) -> Store:
    """Open a pack, a folder of images or a manifest, whatever it is; found out by its content, not by its name.

    path: a file, a folder, a set of tar files (``out-{000000..000003}.tar``, a list of paths, or several joined by
    ``::``). io="mmap" maps files (no copies); "pread" maps nothing, copies each value, and survives a file that is cut
    short while it is read. on_duplicate="skip" takes the first of equal members of a tar that has no index (each is
    counted in info["ignored"]). Raises StoreNotFoundError, IncompletePackError, TruncatedStoreError or
    StoreFormatError; reading raises StaleIndexError where a file was replaced before anything was read of it.
    """
    where = [os.fspath(p) for p in path] if isinstance(path, (list, tuple)) else os.fspath(path)  # type: ignore[arg-type]
    row = _row_for(where)
    more: dict[str, Any] = {"mapped": io != "pread"} if row in _PACKS else {}
    contents: Contents = load(row)(where, **more, **({"on_duplicate": on_duplicate} if row is _TARS else {}))
    if not contents.whole_files:  # files are opened at the first read: the working folder may be another by then
        parts = [os.path.abspath(part) for part in contents.parts]  # noqa: PTH100
        contents = replace(contents, parts=parts, stamps=[stamp_of(part) for part in parts])
    if io == "pread":
        contents = replace(contents, index=_in_memory(contents.index))
    again = where if isinstance(where, list) or _is_set(where) else os.path.abspath(where)  # noqa: PTH100  a string
    return Store(contents, partial(open_store, again, io=io, on_duplicate=on_duplicate), io)


def _row_for(where: str | list[str]) -> Row:
    if isinstance(where, list) or _is_set(where):
        return _TARS
    head = _head(where)
    for sniff, row in _TABLE:
        if sniff(where, head):
            return row
    if is_image_name(where):
        msg = f"{where} is one picture: give the folder that it lies in, or a manifest (.csv, .tsv, .jsonl) of pictures"
        raise StoreFormatError(msg)
    what = f"its first bytes are {head[:16].hex(' ')}" if head else "the file is empty"
    known = "LMDB, HDF5 and tar packs, folders of images, and .csv, .tsv or .jsonl manifests"
    msg = f"{where}: not a format that is known here ({what}); known are {known}"
    raise StoreFormatError(msg)


def _is_set(where: str) -> bool:
    return ("::" in where or _BRACES.search(where) is not None) and not os.path.exists(where)  # noqa: PTH110


def _head(where: str) -> bytes:
    """Return the first bytes of a file, none for a folder."""
    if where.rstrip("/\\").endswith(_PARTIAL) and os.path.exists(where):  # noqa: PTH110
        raise _incomplete(where)
    try:
        mode = os.stat(where).st_mode  # noqa: PTH116
        if stat.S_ISDIR(mode):
            return b""
        if not stat.S_ISREG(mode):
            msg = f"{where}: neither a file nor a folder; what can only be read once is for StreamDataset"
            raise StoreFormatError(msg)
        with open(where, "rb") as file:  # noqa: PTH123
            return file.read(_HEAD)
    except (FileNotFoundError, NotADirectoryError) as error:
        if os.path.exists(where + _PARTIAL):  # noqa: PTH110
            raise _incomplete(where + _PARTIAL) from error
        msg = f"{where}: nothing lies there; give the path of a pack, a folder of images or a manifest"
        if "*" in where:
            msg += "; patterns are not expanded here: shards are named as a range, as out-{000000..000003}.tar"
        raise StoreNotFoundError(msg) from error
    except PermissionError as error:
        msg = f"{where}: no permission to read it"
        raise StoreFormatError(msg) from error


def _incomplete(path: str) -> IncompletePackError:
    return IncompletePackError(
        f"{path} is an incomplete pack: the run that wrote it was stopped, or is still at work; wait for it, or pack "
        "again with overwrite (--overwrite)"
    )


def _is_lmdb(where: str, head: bytes) -> bool:
    # A meta page is a 16-byte page header, then the magic number 0xBEEFC0DE in the machine's own order (mdb.c).
    return head[16:20] in {b"\xde\xc0\xef\xbe", b"\xbe\xef\xc0\xde"} or os.path.isfile(os.path.join(where, "data.mdb"))  # noqa: PTH113, PTH118


def _is_hdf5(where: str, head: bytes) -> bool:
    # The signature lies at 0 or, behind a user block, at 512, 1024, 2048, ... (HDF5 file format, section II.A).
    del where
    return any(head[at : at + 8] == b"\x89HDF\r\n\x1a\n" for at in (0, 512, 1024, 2048))


def _is_tar(where: str, head: bytes) -> bool:
    if os.path.isdir(where):  # noqa: PTH112
        return _is_folder_of_tars(where)
    if where.endswith(".fdindex"):
        return True
    block = head[:512]
    if len(block) < 512:  # noqa: PLR2004  a tar block
        return False
    if block[257:262] == b"ustar" or (where.endswith(".tar") and not any(block)):  # an archive of nothing is zeros
        return True
    digits = block[148:156].strip(b" \0")
    # The checksum sums the header's bytes, its own field as spaces (POSIX ustar); tars older than that have no magic.
    return re.fullmatch(rb"[0-7]+", digits) is not None and int(digits, 8) == sum(block[:148]) + 256 + sum(block[156:])


def _is_folder_of_tars(where: str) -> bool:
    endings = set()
    with os.scandir(where) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if is_image_name(entry.name) or entry.is_dir():
                return False  # by the first entry or so in a folder of a million images
            endings.add(os.path.splitext(entry.name)[1])  # noqa: PTH122
    return ".fdindex" in endings or (".tar" in endings and endings <= _BESIDE_TARS)


def _is_manifest(where: str, head: bytes) -> bool:
    return where.lower().endswith((".csv", ".tsv", ".jsonl")) and not os.path.isdir(where) and b"\0" not in head  # noqa: PTH112


def _is_folder(where: str, head: bytes) -> bool:
    del head
    return os.path.isdir(where)  # noqa: PTH112


_TARS = Row("fastdata.stores.tar_store:read_tars")
_PACKS = (Row("fastdata.stores.lmdb_store:read_lmdb"), Row("fastdata.stores.hdf5_store:read_hdf5"), _TARS)
_TABLE: tuple[tuple[Callable[[str, bytes], bool], Row], ...] = (
    *zip((_is_lmdb, _is_hdf5, _is_tar), _PACKS, strict=True),
    (_is_manifest, Row("fastdata.stores.manifest_store:read_manifest")),
    (_is_folder, Row("fastdata.stores.folder_store:read_folder")),
)


def _in_memory(index: Index) -> Index:
    """Return the index in memory of its own: views of a file that is cut short would end the process."""

    def copied(value: Any) -> Any:  # noqa: ANN401  a column or a group of columns
        return type(value)(**{f.name: getattr(value, f.name).copy() for f in fields(value)})

    keys: KeyColumn = copied(index.keys)
    columns: dict[str, SpanColumn] = {name: copied(column) for name, column in index.fields.items()}
    label = None if index.label is None else index.label.copy()
    return Index(keys, label, index.width.copy(), index.height.copy(), columns)
