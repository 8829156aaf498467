"""Names to implementations, imported only when asked for: a new backend is one file and one row of a table."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastdata.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Row", "load", "row_of"]


@dataclass(frozen=True, slots=True)
class Row:
    """One implementation: "package.module:name", and for an optional one the line that installs what it needs."""

    target: str
    install: str = ""


def row_of(table: Mapping[str, Row], name: str, what: str) -> Row:
    """Return the row called ``name``; raise OptionError naming the known ones."""
    try:
        return table[name]
    except KeyError:
        msg = f"{what} {name!r} is not known; known: {', '.join(table)}"
        raise OptionError(msg) from None


def load(row: Row) -> Any:  # noqa: ANN401  each table says what its rows are
    """Import and return what the row names; ImportError passes through."""
    module, _, name = row.target.partition(":")
    return getattr(importlib.import_module(module), name)
