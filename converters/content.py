"""The content hash of a pack: equal for equal records in equal order, whatever the format and the number of workers."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii as _quoted
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdata.types import Record, by_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastdata.types import Field, Label

__all__ = ["ContentHash", "DigestedRecord", "record_digest"]

_TO_JSON = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_SIZE = 16  # bytes: two of 2**32 records are alike by chance with 1 in 2**64


@dataclass(frozen=True, slots=True)
class DigestedRecord(Record):
    """A record whose digest is known already: a worker has hashed its bytes, the one writer of all need not."""

    digest: bytes = b""

    __reduce__ = by_fields

    @classmethod
    def of(
        cls, key: str, fields: tuple[Field, ...], label: Label, size: tuple[int, int], extras: Mapping[str, Any]
    ) -> DigestedRecord:
        """Return a record with its digest; size is (width, height)."""
        return cls(key, fields, label, *size, extras, _digest(key, fields, label, extras))


class ContentHash:
    """A running hash over records, in order."""

    def __init__(self) -> None:
        """Start with no records."""
        self._hash = hashlib.blake2b(digest_size=_SIZE)

    def add(self, record: Record) -> None:
        """Count in the next record: its key, label, extras, and each field's name, codec and bytes."""
        known = record.digest if isinstance(record, DigestedRecord) else b""
        self.add_digest(known or record_digest(record))

    def add_digest(self, digest: bytes) -> None:
        """Count in the next record by its ``record_digest``."""
        self._hash.update(digest)

    def hexdigest(self) -> str:
        """Return the hash of the records so far as 32 hexadecimal digits."""
        return self._hash.hexdigest()


def record_digest(record: Record) -> bytes:
    """Return the 16-byte BLAKE2b digest of one record. Width and height follow from the bytes and do not count."""
    return _digest(record.key, record.fields, record.label, record.extras)


def _digest(key: str, fields: tuple[Field, ...], label: Label, extras: Mapping[str, Any]) -> bytes:
    ordered = sorted(fields, key=lambda f: (f.name != "image", f.name)) if len(fields) > 1 else fields
    # JSON with sorted names, put together here: a tenth of the price. Lengths come first, so that no two different
    # records give the same stream of bytes.
    listed = ",".join([f"[{_quoted(f.name)},{_quoted(f.codec)},{len(f.data)}]" for f in ordered])
    more = _TO_JSON.encode(dict(extras)) if extras else "{}"
    number = str(label) if type(label) is int else _TO_JSON.encode(_as_stored(label))
    head = f'{{"extras":{more},"fields":[{listed}],"key":{_quoted(key)},"label":{number}}}\n'
    digest = hashlib.blake2b(head.encode(), digest_size=_SIZE)
    for field in ordered:
        digest.update(field.data)
    return digest.digest()


def _as_stored(label: Label) -> Label:
    """Return a label as an Index gives it back: vectors are float32, and integers among floats become floats."""
    if isinstance(label, tuple):
        return tuple(np.array(label, np.float32).tolist())
    return int(label) if isinstance(label, float) and label.is_integer() else label
