"""An LMDB file, read without the LMDB library: databases, keys and the places of values, as numpy arrays.

The structures are those of mdb.c of LMDB 0.9 on 64-bit machines (data version 1). A page has a header of 16 bytes:
number u64, pad u16, flags u16, then lower and upper u16 (on overflow pages: the number of pages u32), then u16 offsets
of nodes. A node: u16 lo, hi, flags, key size, then the key; in a leaf lo + hi * 65536 is the value's size and the value
(or, with F_BIGDATA, the u64 number of its first overflow page) follows; in a branch lo, hi and flags are the child's
number. Nothing of the file is trusted: every number is checked before it is followed.
"""

from __future__ import annotations

import os
import struct
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from fastdata.errors import StoreFormatError, TruncatedStoreError
from fastdata.stores.mapping import FileBytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["Database", "Entries", "LmdbFile"]

_MAGIC, _VERSION = 0xBEEFC0DE, 1
_HEADER = 16  # bytes of a page header, and before the node offsets
_NODE = 8  # bytes of a node before its key
_DB = struct.Struct("<IHHQQQQQ")  # MDB_db: pad, flags, depth, branch, leaf and overflow pages, entries, root
_META = struct.Struct(
    "<IIQQ48s48sQQ"
)  # MDB_meta: magic, version, address, map size, free db, main db, last page, txnid
_P_BRANCH, _P_LEAF, _P_OVERFLOW, _P_META, _P_KIND = 0x01, 0x02, 0x04, 0x08, 0x6F
_F_BIGDATA, _F_SUBDATA, _F_DUPDATA = 0x01, 0x02, 0x04
_DUPSORT, _INTEGERKEY = 0x04, 0x08
_NO_PAGE = 0xFFFF_FFFF_FFFF_FFFF
_MOST_DEPTH = 32  # mdb.c CURSOR_STACK
_PAGE_SIZES = {1 << power for power in range(8, 16)}


@dataclass(frozen=True, slots=True)
class Database:
    """The record of one database: its tree and what is counted of it."""

    flags: int
    depth: int
    branch_pages: int
    leaf_pages: int
    overflow_pages: int
    entries: int
    root: int

    @property
    def integer_keys(self) -> bool:
        """Whether keys are integers in the machine's own form."""
        return bool(self.flags & _INTEGERKEY)

    def stamp(self) -> dict[str, int]:
        """Return all numbers: as long as they (and the transaction) are the same, so are the places of the values."""
        return asdict(self)


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Entries of a database in its key order; int64 arrays (n,): where in the file key and value lie, in bytes."""

    key_offset: NDArray[np.int64]
    key_length: NDArray[np.int64]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    named: NDArray[np.bool_]

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self.offset)


class LmdbFile:
    """An LMDB file at its newest transaction, mapped or read by pages; arrays made from it keep the memory alive."""

    def __init__(self, path: str, *, mapped: bool = True) -> None:
        """Open the file and read its meta pages; raise TruncatedStoreError or StoreFormatError."""
        self.path = path
        with open(path, "rb") as file:  # noqa: PTH123
            self.size = os.fstat(file.fileno()).st_size
            if self.size < _HEADER + _META.size:
                msg = f"{path}: the file is shorter than an LMDB header says it is ({self.size} bytes); copy it again"
                raise TruncatedStoreError(msg)
            self._file = FileBytes(file.fileno(), path, mapped=mapped)
        #: All bytes of the file; what is not mapped has those of the trees walked so far.
        self.data = self._file.data
        self.page_size, self.last_page, self.txnid, self.main = self._newest_meta()
        #: Whether the file is shorter than its header says. LMDB itself leaves a short tail where the last pages were
        #: given back before they were written, so only a page that is needed and missing is an error in foreign files.
        self.is_short = (self.last_page + 1) * self.page_size > self.size
        pages = self.size // self.page_size
        whole = self.data[: pages * self.page_size]
        self._bytes = whole.reshape(pages, self.page_size)
        self._shorts = whole.view("<u2").reshape(pages, self.page_size // 2)
        self._longs = whole.view("<u8").reshape(pages, self.page_size // 8)

    def databases(self) -> dict[bytes, Database]:
        """Return the named databases."""
        entries = self.entries(self.main)
        found = {}
        for row in np.flatnonzero(entries.named).tolist():
            name, value = self.key(entries, row), self.value(entries, row)
            if len(value) != _DB.size:
                self._refuse(f"the record of database {name!r} has {len(value)} bytes instead of {_DB.size}")
            found[name] = self._database(value)
        return found

    def entries(self, database: Database) -> Entries:
        """Walk a database's tree, level by level; raise StoreFormatError where it is no tree."""
        if database.flags & _DUPSORT:
            self._refuse("a database with several values for one key (DUPSORT) holds no images in a known layout")
        leaves = self._leaves(database)
        page, pointer = self._nodes(leaves)
        start = page * self.page_size + pointer
        low, high, flags, key_length = (self._short(start, at) for at in (0, 2, 4, 6))
        key_offset = start + _NODE
        offset = key_offset + key_length
        length = low | high << 16
        if (flags & _F_DUPDATA).any():
            self._refuse("a key has several values (DUPSORT)")
        big = (flags & _F_BIGDATA) != 0
        inside = pointer + _NODE + key_length + np.where(big, 8, length)
        if (inside > self.page_size).any():
            self._refuse("a node reaches beyond its page")
        if big.any():
            offset[big] = self._overflow(offset[big], length[big])
        if len(offset) != database.entries:
            self._refuse(f"the tree has {len(offset)} entries, its record says {database.entries}")
        return Entries(key_offset, key_length, offset, length, (flags & _F_SUBDATA) != 0)

    def key(self, entries: Entries, row: int) -> bytes:
        """Return one key."""
        start = int(entries.key_offset[row])
        return self.data[start : start + int(entries.key_length[row])].tobytes()

    def keys(self, entries: Entries) -> Iterator[bytes]:
        """Yield all keys in order."""
        view = self.data.data
        for start, length in zip(entries.key_offset.tolist(), entries.key_length.tolist(), strict=True):
            yield bytes(view[start : start + length])

    def value(self, entries: Entries, row: int) -> bytes:
        """Return a copy of one value."""
        return self._file.copy(int(entries.offset[row]), int(entries.length[row]))

    def part(self, offset: int, length: int) -> NDArray[np.uint8]:
        """Return a view of a run of bytes."""
        return self._file.part(offset, length)

    def release(self) -> None:
        """Tell the system that the pages touched so far need not stay in this process (they come back when touched)."""
        self._file.release()

    def _newest_meta(self) -> tuple[int, int, int, Database]:
        first = self._meta(0)
        if first is None:
            big = self._file.copy(_HEADER, 4) == _MAGIC.to_bytes(4, "big")
            why = "written on a big-endian machine" if big else "no meta page of a known version (0.9, 64 bit)"
            self._refuse(why)
        page_size = struct.unpack_from("<I", first[4])[0]
        if page_size not in _PAGE_SIZES:
            self._refuse(f"a page size of {page_size} bytes")
        metas = [meta for meta in (first, self._meta(page_size)) if meta is not None]
        newest = max(metas, key=lambda meta: int(meta[7]))
        last_page = int(newest[6])
        if last_page >= 1 << 47:  # beyond any address space: the size in bytes would overflow
            self._refuse(f"a last page of {last_page}")
        return page_size, last_page, int(newest[7]), self._database(newest[5], last_page)

    def _meta(self, start: int) -> tuple[Any, ...] | None:
        if start + _HEADER + _META.size > self.size:
            return None
        page = self._file.copy(start, _HEADER + _META.size)
        flags = int.from_bytes(page[10:12], "little")
        meta = _META.unpack(page[_HEADER:])
        return meta if meta[:2] == (_MAGIC, _VERSION) and flags & _P_META else None

    def _database(self, record: bytes, last_page: int | None = None) -> Database:
        database = Database(*_DB.unpack(record)[1:])
        last_page = self.last_page if last_page is None else last_page
        counts = database.branch_pages, database.leaf_pages, database.overflow_pages
        empty = database.root == _NO_PAGE
        if (
            database.depth > _MOST_DEPTH
            or max(counts) > last_page
            or (database.root > last_page and not empty)
            or (database.depth == 0) != empty
            or (empty and database.entries)
        ):
            self._refuse("the record of a database has impossible numbers")
        return database

    def _leaves(self, database: Database) -> NDArray[np.int64]:
        if database.root == _NO_PAGE:
            return np.zeros(0, np.int64)
        level, branches = np.array([database.root], np.int64), 0
        for _ in range(database.depth - 1):
            branches += len(level)
            if branches > database.branch_pages:
                self._refuse("a tree has more branch pages than its record says")
            level = self._children(level)
        if len(level) != database.leaf_pages or branches != database.branch_pages:
            self._refuse("a tree has other pages than its record says")
        self._check_pages(level, _P_LEAF)
        return level

    def _children(self, branches: NDArray[np.int64]) -> NDArray[np.int64]:
        self._check_pages(branches, _P_BRANCH)
        page, pointer = self._nodes(branches)
        start = page * self.page_size + pointer
        low, high, top = (self._short(start, at) for at in (0, 2, 4))
        return low | high << 16 | top << 32

    def _check_pages(self, pages: NDArray[np.int64], kind: int) -> None:
        """Raise unless all pages exist, differ, and say of themselves which page and of what kind they are."""
        if not len(pages):
            self._refuse("a branch page without children")
        if int(pages.min()) < 2 or int(pages.max()) > self.last_page:  # noqa: PLR2004  0 and 1 are the meta pages
            self._refuse("a page number beyond the last page")
        if int(pages.max()) >= len(self._bytes):
            raise self._short_file(int(pages.max()))
        self._touch(pages, self.page_size)
        good = (self._longs[pages, 0] == pages.astype(np.uint64)) & (self._shorts[pages, 5] & _P_KIND == kind)
        if not good.all() or len(np.unique(pages)) != len(pages):
            self._refuse("a page of a tree is not what its parent says (a page overwritten, or a circle)")

    def _touch(self, pages: NDArray[np.int64], length: int) -> None:
        """Have the first ``length`` bytes of all pages in ``data``; whole pages that lie side by side are one read."""
        if self._file.is_mapped or not len(pages):
            return
        pages = np.unique(pages)
        step = length // self.page_size  # 1 for whole pages, else 0: each is a run of its own
        for run in np.split(pages, np.flatnonzero(np.diff(pages) != step) + 1):
            self._file.part(int(run[0]) * self.page_size, len(run) * length)

    def _nodes(self, pages: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return page and offset in the page of every node, in order."""
        lower, upper = self._shorts[pages, 6].astype(np.int64), self._shorts[pages, 7].astype(np.int64)
        count = (lower - _HEADER) >> 1
        # A node takes 8 bytes at least beside its 2 bytes of offset.
        if ((lower < _HEADER) | (lower > upper) | (upper > self.page_size) | (count * 10 > self.page_size)).any():
            self._refuse("a page header with impossible bounds")
        page = np.repeat(pages, count)
        slot = np.arange(len(page)) - np.repeat(np.cumsum(count) - count, count)
        pointer = self._shorts[page, _HEADER // 2 + slot].astype(np.int64)
        if ((pointer < np.repeat(upper, count)) | (pointer + _NODE > self.page_size) | (pointer & 1 == 1)).any():
            self._refuse("a node outside its page")
        return page, pointer

    def _short(self, start: NDArray[np.int64], at: int) -> NDArray[np.int64]:
        """Return the u16 at ``start + at`` of each node; nodes lie at even offsets."""
        flat: NDArray[np.int64] = self._shorts.reshape(-1)[(start + at) >> 1].astype(np.int64)
        return flat

    def _overflow(self, pointer: NDArray[np.int64], length: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where values on overflow pages begin; ``pointer`` (not aligned) is where the page number is stored."""
        number = self.data[pointer[:, None] + np.arange(8)].view("<u8")[:, 0]
        if ((number < 2) | (number > self.last_page)).any():  # noqa: PLR2004
            self._refuse("an overflow page beyond the last page")
        offset: NDArray[np.int64] = number.astype(np.int64) * self.page_size + _HEADER
        if (offset + length > (self.last_page + 1) * self.page_size).any():
            self._refuse("a value that reaches beyond the last page")
        if (offset + length > self.size).any():
            raise self._short_file(int(number.max()))
        # One page read for each of these, so not all are looked at: the values are anywhere in a file of any size.
        some = number[:: max(1, len(number) // 64)].astype(np.int64)
        some = some[some < len(self._bytes)]
        self._touch(some, _HEADER)
        if (
            not (self._longs[some, 0] == some.astype(np.uint64)).all()
            or ((self._shorts[some, 5] & _P_KIND) != _P_OVERFLOW).any()
        ):
            self._refuse("an overflow page is not what its leaf says")
        return offset

    def short_file(self) -> TruncatedStoreError:
        """Return the error for a file that is shorter than its header says."""
        return self._short_file(self.last_page)

    def _short_file(self, page: int) -> TruncatedStoreError:
        needed = (max(page, self.last_page) + 1) * self.page_size
        return TruncatedStoreError(
            f"{self.path}: the file is shorter than its header says ({self.size} of {needed} bytes): it was cut short, "
            "often by a copy that was not finished; copy it again or pack again"
        )

    def _refuse(self, what: str) -> NoReturn:
        msg = f"{self.path}: not an LMDB file that can be read here: {what}"
        raise StoreFormatError(msg)
