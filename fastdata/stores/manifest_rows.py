"""The rows of a manifest file, and further columns of theirs kept as JSON in one buffer."""

from __future__ import annotations

import csv
import json
from array import array
from typing import TYPE_CHECKING, Any

from fastdata.errors import OptionError
from fastdata.stores.json_values import parse_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["ExtrasColumn", "read_rows"]


def read_rows(path: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield (row number from 1, row by column); values of CSV and TSV are strings; raise OptionError naming the row."""
    # newline="" is csv's own rule; a byte order mark is dropped; names in other encodings survive as in os.fsdecode.
    with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:  # noqa: PTH123
        if path.lower().endswith(".jsonl"):
            yield from _json_rows(path, file)
        else:
            yield from _table_rows(path, file, "\t" if path.lower().endswith(".tsv") else None)


def _json_rows(path: str, lines: Iterable[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    number = 0
    for line in lines:
        if not line.strip():
            continue
        number += 1
        try:
            row = parse_json(line)
        except ValueError as error:
            msg = f"{path}: row {number} is not JSON: {error}"
            raise OptionError(msg) from error
        if not isinstance(row, dict):
            msg = f"{path}: row {number} is no JSON object but a {type(row).__name__}"
            raise OptionError(msg)
        yield number, row


def _table_rows(path: str, lines: Iterable[str], delimiter: str | None) -> Iterator[tuple[int, Mapping[str, Any]]]:
    iterator = iter(lines)
    first = next(iterator, "")
    if delimiter is None:  # spreadsheets of half the world write semicolons
        delimiter = ";" if first.count(";") > first.count(",") else ","

    def again() -> Iterator[str]:
        yield first
        yield from iterator

    rows = csv.reader(again(), delimiter=delimiter)
    number = 0
    try:
        header = [name.strip() for name in next(rows, [])]
        if len(set(header)) != len(header):
            msg = f"{path}: two columns of the header have the same name: {', '.join(map(repr, header))}"
            raise OptionError(msg)
        for values in rows:
            if not values:
                continue
            number += 1
            if len(values) != len(header):
                msg = f"{path}: row {number} has {len(values)} columns, the header {len(header)}"
                raise OptionError(msg)
            yield number, dict(zip(header, values, strict=True))
    except csv.Error as error:
        msg = f"{path}: row {number + 1} cannot be read: {error}"
        raise OptionError(msg) from error


class ExtrasColumn:
    """One JSON object for each row, in one buffer: a million rows cost their text, no objects."""

    def __init__(self) -> None:
        """Start empty."""
        self._blob, self._end = bytearray(), array("q", [0])
        self.names: dict[str, None] = {}  # of all columns so far, in order

    def add(self, extras: Mapping[str, Any]) -> None:
        """Append a row's object."""
        if extras:
            self.names.update(dict.fromkeys(extras))
            self._blob += json.dumps(extras).encode()
        self._end.append(len(self._blob))

    def row(self, i: int) -> Mapping[str, Any]:
        """Return the object of row ``i``."""
        text = self._blob[self._end[i] : self._end[i + 1]]
        return json.loads(text) if text else {}
