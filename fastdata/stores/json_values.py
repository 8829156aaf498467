"""JSON out of files that nobody trusts."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["parse_json"]

#: Levels of lists and objects. What is read is written, hashed and walked by others: all of them can go so deep.
_MOST_DEPTH = 100


def parse_json(text: str | bytes | bytearray) -> Any:  # noqa: ANN401  any JSON value
    """Return what a JSON text says; raise ValueError, and nothing else, where it is damaged or made to do harm."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(_too_deep()) from None
    opened = (text.count("[") + text.count("{")) if isinstance(text, str) else text.count(b"[") + text.count(b"{")
    if opened > _MOST_DEPTH and _is_deep(value):
        raise ValueError(_too_deep())
    return value


def _is_deep(value: Any) -> bool:  # noqa: ANN401
    level = [value]
    for _ in range(_MOST_DEPTH):
        level = [
            inner
            for one in level
            if isinstance(one, (dict, list))
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return any(isinstance(one, (dict, list)) for one in level)


def _too_deep() -> str:
    return f"lists or objects in each other to more than {_MOST_DEPTH} levels"
