"""The headers of a tar, parsed from a file or from a pipe: USTAR, GNU long names, PAX paths and sizes.

Layout: POSIX.1-2017 ``pax`` (ustar interchange format and pax extended headers) and GNU tar's manual, "Basic Tar
Format". Nothing is extracted and no link is followed: a member is a name and a span of bytes.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Protocol

from fastdata.errors import StoreFormatError, TruncatedStoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["BLOCK", "FileSource", "Header", "Member", "Source", "StreamSource", "members", "parse_header"]

BLOCK = 512
_ZEROS = bytes(BLOCK)
_MOST_EXTENDED = 1 << 20  # bytes of one long name or PAX header: paths have 4,096, and memory must stay bounded
_LARGEST = 1 << 62  # bytes: offsets stay far inside int64, whatever a header claims
_SKIP_STEP = 1 << 20
_PAX_KEYS, _SPARSE = (b"path", b"size"), b"GNU.sparse."

_REGULAR = b"0\x007"  # "7", contiguous, is a regular file everywhere but on one system of 1989
_NO_DATA = b"123456"  # links, devices, folders, pipes: whatever their size field says, no data follow (tarfile agrees)
_KINDS = {
    "1": "link", "2": "link", "3": "device", "4": "device", "5": "folder", "6": "pipe",
}  # fmt: skip


class Source(Protocol):
    """Bytes in order: what the parser needs of a file or a pipe."""

    where: str

    def tell(self) -> int:
        """Return the offset of the next byte."""
        ...

    def take(self, n: int) -> bytes:
        """Return the next n bytes, fewer only at the end."""
        ...

    def skip_to(self, offset: int) -> bool:
        """Go on to ``offset``; return False where the data end before it."""
        ...


@dataclass(frozen=True, slots=True)
class Header:
    """One header block: name, size in bytes, type flag (one character) and the user's name, which marks our packs."""

    name: str
    size: int
    flag: str
    user: bytes = b""


@dataclass(frozen=True, slots=True)
class Member:
    """One member: its name, kind ("file", "link", "device", "folder", "pipe", "other"), and the span of its data."""

    name: str
    kind: str
    offset: int
    size: int
    user: bytes = b""


class FileSource:
    """A file read with pread in small windows: skipping pixels costs nothing. The caller owns the descriptor."""

    _WINDOW = 4096  # one page: a header and, for small members, the next ones as well

    def __init__(self, descriptor: int, where: str) -> None:
        """Read from offset 0 of ``descriptor``; ``where`` names it in errors."""
        self.where = where
        self.size = os.fstat(descriptor).st_size
        self._descriptor, self._offset = descriptor, 0
        self._window, self._start = b"", 0

    def tell(self) -> int:
        """Return the offset of the next byte."""
        return self._offset

    def take(self, n: int) -> bytes:
        """Return the next n bytes, fewer only at the end of the file."""
        at = self._offset - self._start
        if not 0 <= at <= len(self._window) - n:
            self._window, self._start, at = self._read(max(n, self._WINDOW)), self._offset, 0
        data = self._window[at : at + n]
        self._offset += len(data)
        return data

    def skip_to(self, offset: int) -> bool:
        """Go on to ``offset`` without reading."""
        self._offset = offset
        return offset <= self.size

    def _read(self, n: int) -> bytes:
        data = b""
        while len(data) < n and (more := os.pread(self._descriptor, n - len(data), self._offset + len(data))):
            data += more
        return data


class StreamSource:
    """Any file object with ``read``: a pipe, a socket, a decompressor. Holds no more than it was asked for."""

    def __init__(self, file: BinaryIO, where: str) -> None:
        """Read on from where ``file`` stands, which counts as offset 0."""
        self.where = where
        self._file, self._offset = file, 0

    def tell(self) -> int:
        """Return the number of bytes read so far."""
        return self._offset

    def take(self, n: int) -> bytes:
        """Return the next n bytes, fewer only at the end of the stream."""
        pieces, missing = [], n
        while missing:
            piece = self._file.read(min(missing, _SKIP_STEP))  # a hostile size must not allocate before data come
            if not piece:
                break
            pieces.append(piece)
            missing -= len(piece)
        self._offset += n - missing
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def skip_to(self, offset: int) -> bool:
        """Read and forget up to ``offset``."""
        while self._offset < offset:
            if not self.take(min(_SKIP_STEP, offset - self._offset)):
                return False
        return True


def members(source: Source) -> Iterator[Member]:
    """Yield the members in order; between two of them the caller may ``take`` the current one's data from the source.

    Raises StoreFormatError for a damaged or hostile header, TruncatedStoreError where the archive ends too early: also
    where its end mark (two blocks of zeros) is missing, for then its writer was stopped.
    """
    everywhere: dict[str, bytes] = {}
    while True:
        header, extended, global_ = _next_header(source)
        everywhere.update(global_)
        if header is None:
            return
        name, size = _overridden(header, {**everywhere, **extended}, source)
        kind, size = _kind_and_size(header, name, size)
        offset = source.tell()
        end = offset + -(-size // BLOCK) * BLOCK
        yield Member(name, kind, offset, size, header.user)
        if not source.skip_to(end):
            what = f"the archive ends inside member {name!r} ({size} bytes from {offset})"
            msg = f"{source.where}: {what}: it was cut short"
            raise TruncatedStoreError(msg)


def parse_header(block: bytes, where: str) -> Header | None:
    """Return what one block of 512 bytes says, None for zeros; raise StoreFormatError unless it is a header."""
    if block == _ZEROS:
        return None
    if len(block) != BLOCK or not _checksum_fits(block):
        msg = f"{where}: this is no tar header (its checksum is wrong): the archive is damaged, or no tar"
        raise StoreFormatError(msg)
    name = _text(block[:100])
    flag = chr(block[156])
    # Only POSIX headers have a prefix; GNU's put times there.
    if block[257:263] == b"ustar\0" and (prefix := _text(block[345:500])):
        name = f"{prefix}/{name}"
    return Header(name, _number(block[124:136], name, where), flag, block[265:297].rstrip(b"\0"))


def _next_header(source: Source) -> tuple[Header | None, dict[str, bytes], dict[str, bytes]]:
    """Return the next real header, with what the extended headers before it say of it and of all that follow."""
    extended: dict[str, bytes] = {}
    global_: dict[str, bytes] = {}
    while True:
        at = source.tell()
        block = source.take(BLOCK)
        where = f"{source.where}, byte {at}"
        if len(block) < BLOCK:
            raise _no_end(source.where, at)
        header = parse_header(block, where)
        if header is None:
            if source.take(BLOCK) == _ZEROS:
                return None, extended, global_
            raise _no_end(source.where, at)
        if header.flag not in "LKxgX":
            return header, extended, global_
        payload = _extended_payload(source, header, where)
        if header.flag == "L":
            extended["path"] = payload.split(b"\0", 1)[0]
        elif header.flag in "xX":
            extended.update(_pax_records(payload, where))
        elif header.flag == "g":
            global_.update(_pax_records(payload, where))


def _extended_payload(source: Source, header: Header, where: str) -> bytes:
    if header.size > _MOST_EXTENDED:
        msg = f"{where}: an extended header claims {header.size} bytes (at most {_MOST_EXTENDED} are read)"
        raise StoreFormatError(msg)
    padded = -(-header.size // BLOCK) * BLOCK
    payload = source.take(padded)
    if len(payload) < padded:
        raise _no_end(source.where, source.tell())
    return payload[: header.size]


def _pax_records(payload: bytes, where: str) -> dict[str, bytes]:
    """Return what matters of a PAX header: of records "LENGTH KEY=VALUE" and a line feed; LENGTH counts all of that."""
    records: dict[str, bytes] = {}
    at = 0
    while at < len(payload) and payload[at]:  # some writers pad with zeros
        digits, space, _ = payload[at : at + 20].partition(b" ")
        length = int(digits) if space and digits.isdigit() else 0
        record = payload[at + len(digits) + 1 : at + length]
        key, equals, value = record.partition(b"=")
        if not equals or not value.endswith(b"\n") or at + length > len(payload):
            msg = f"{where}: a PAX header has a damaged record"
            raise StoreFormatError(msg)
        # Others are of no use here, and a header that holds for all members may have thousands of them.
        if key in _PAX_KEYS or key.startswith(_SPARSE):
            records[key.decode() if key in _PAX_KEYS else _SPARSE.decode()] = value[:-1]
        at += length
    return records


def _overridden(header: Header, extended: dict[str, bytes], source: Source) -> tuple[str, int]:
    """Return name and size of a member after its extended headers."""
    name, size = header.name, header.size
    if "path" in extended:
        name = extended["path"].split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
    if header.flag == "S" or _SPARSE.decode() in extended:
        msg = f"{source.where}: member {name!r} is sparse, which is not supported: make the tar without --sparse"
        raise StoreFormatError(msg)
    if "size" in extended:
        text = extended["size"]
        if not text.isdigit() or len(text) > 19:  # noqa: PLR2004  digits of 2**63
            msg = f"{source.where}: member {name!r} has the size {text[:40]!r} in its PAX header"
            raise StoreFormatError(msg)
        size = int(text)
    if size > _LARGEST:
        msg = f"{source.where}: member {name!r} claims {size} bytes"
        raise StoreFormatError(msg)
    return name, size


def _kind_and_size(header: Header, name: str, size: int) -> tuple[str, int]:
    flag = header.flag.encode("latin-1")
    if flag in _NO_DATA:
        return _KINDS[header.flag], 0
    if flag not in _REGULAR:
        return "other", size
    # Before USTAR, a folder was a file whose name ends in a slash.
    return ("folder", 0) if flag == b"\0" and name.endswith("/") else ("file", size)


def _no_end(where: str, at: int) -> TruncatedStoreError:
    return TruncatedStoreError(
        f"{where}: the archive ends at byte {at} without its end mark (two blocks of zeros): it was cut short, or its "
        "writer was stopped before it was closed; copy it again or write it again"
    )


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def _number(field: bytes, name: str, where: str) -> int:
    """Return the number in a header field: octal digits, or base 256 with the first bit set (GNU)."""
    if field[0] == 0x80:  # noqa: PLR2004  GNU's mark of a positive number in base 256
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0")
    try:
        # int() takes underscores and signs; octal digits are all that may stand here.
        if digits.strip(b"01234567"):
            raise ValueError  # noqa: TRY301  one message for both ways to be wrong
        return int(digits or b"0", 8)
    except ValueError:
        msg = f"{where}: member {name!r} has the size {field!r}, which is no size"
        raise StoreFormatError(msg) from None


def _checksum_fits(block: bytes) -> bool:
    digits = block[148:156].strip(b" \0")
    if not digits or digits.strip(b"01234567"):
        return False
    wanted = int(digits, 8)
    rest = block[:148] + b" " * 8 + block[156:BLOCK]
    # Some old writers summed signed characters (POSIX asks for unsigned ones); accept both, as every reader does.
    return wanted == sum(rest) or wanted == sum(struct.unpack("512b", rest))
