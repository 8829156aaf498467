"""The labels of a manifest: integers, numbers, class names or vectors, found out from all rows together."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdata.errors import OptionError
from fastdata.stores.json_values import parse_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

__all__ = ["LabelColumn", "label_columns"]

_NUMBERED = re.compile(r"label[_.]?([0-9]{1,9})")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")  # 007 is a name: as a number it would lose its zeros
_MOST_DIGITS = 20  # of int64, and a sign
_LARGEST = float(np.finfo(np.float32).max)
_INT64 = range(-(1 << 63), 1 << 63)


def label_columns(columns: Iterable[str]) -> list[str]:
    """Return the columns that make the label: ``label``, or ``label_0``, ``label_1``, ... by number, or none."""
    names = list(columns)
    if "label" in names:
        return ["label"]
    numbered = [name for name in names if _NUMBERED.fullmatch(name)]
    return sorted(numbered, key=lambda name: int(name.removeprefix("label").strip("_.")))


class LabelColumn:
    """Collects the labels row by row; ``build`` says what they are."""

    def __init__(self, path: str, *, typed: bool) -> None:
        """Start empty; ``path`` is for messages; where values are ``typed`` (JSON), text is a name, even "3"."""
        self._path, self._typed = path, typed
        self._values: list[int | float | str | tuple[float, ...]] = []
        self._texts: list[str] | None = []  # as they stood there, as long as each could be a class name

    def add(self, number: int, values: Sequence[object]) -> None:
        """Append the label of row ``number``: one value, or several that make a vector."""
        value = values[0] if len(values) == 1 else list(values)
        parsed = value if self._typed and isinstance(value, str) and value else _parsed(value)
        if parsed is None:
            msg = f"{self._path}: row {number} has no label of use ({value!r:.200}); give each row one, or none"
            raise OptionError(msg)
        if isinstance(parsed, tuple) and any(_LARGEST < abs(one) < math.inf for one in parsed):
            msg = f"{self._path}: row {number} has a label beyond {_LARGEST:.3g}, the most that float32 holds"
            raise OptionError(msg)
        if self._values and isinstance(parsed, tuple) != isinstance(self._values[0], tuple):
            msg = f"{self._path}: row {number}: the label {value!r:.200} is of another kind than those before it"
            raise OptionError(msg)
        if isinstance(parsed, tuple) and self._values and len(parsed) != len(self._values[0]):  # type: ignore[arg-type]
            msg = f"{self._path}: row {number} has {len(parsed)} labels, the rows before it {len(self._values[0])}"  # type: ignore[arg-type]
            raise OptionError(msg)
        self._values.append(parsed)
        if not isinstance(value, str) or isinstance(parsed, tuple):
            self._texts = None
        elif self._texts is not None:
            self._texts.append(value)

    def build(self) -> tuple[NDArray[Any], list[str] | None]:
        """Return the labels (int64 (n,), float64 (n,) or float32 (n, k)) and, where they were names, the classes."""
        kinds = {type(value) for value in self._values}
        if kinds == {tuple}:
            return np.array(self._values, np.float32), None
        if kinds == {int}:
            return np.array(self._values, np.int64), None
        if kinds <= {int, float}:
            return np.array(self._values, np.float64), None
        if self._texts is None:
            msg = f"{self._path}: some labels are names, others numbers; write all as numbers, or all as text"
            raise OptionError(msg)
        classes = sorted(set(self._texts))
        number = {name: i for i, name in enumerate(classes)}
        return np.array([number[text] for text in self._texts], np.int64), classes


def _parsed(value: object) -> int | float | str | tuple[float, ...] | None:
    if isinstance(value, list):
        numbers = [None if isinstance(one, list) else _parsed(one) for one in value]  # a list of lists is no vector
        good = numbers and all(isinstance(one, (int, float)) for one in numbers)
        return tuple(float(one) for one in numbers) if good else None  # type: ignore[arg-type]
    if isinstance(value, (bool, int)):
        return int(value) if int(value) in _INT64 else None
    if isinstance(value, float):
        return value
    return _from_text(value) if isinstance(value, str) and value.strip() else None


def _from_text(text: str) -> int | float | str | tuple[float, ...] | None:
    text = text.strip()
    if _INTEGER.fullmatch(text):
        # Of more digits than int64 has; Python itself refuses to read some thousands of them.
        return int(text) if len(text) <= _MOST_DIGITS and int(text) in _INT64 else None
    if text.startswith("["):
        try:
            value = parse_json(text)
        except ValueError:
            return text
        return _parsed(value)
    if "_" not in text and not re.fullmatch(r"-?0[0-9]+", text):
        try:
            return float(text)
        except ValueError:
            pass
    return text
