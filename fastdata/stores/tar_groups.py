"""Members of a tar to samples, as webdataset has it: neighbours with one key are one sample. No pickle is ever read."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from fastdata.errors import DuplicateKeyError
from fastdata.stores.json_values import parse_json
from fastdata.stores.tar_names import MARK, image_rank, split_name, unescape

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator

    from fastdata.stores.tar_headers import Member, Source
    from fastdata.types import Label

__all__ = ["LABEL_FIELDS", "NPY_HEADER", "OnDuplicate", "Part", "Sample", "group", "npy_shape"]

OnDuplicate = Literal["raise", "skip"]

#: Fields that hold a label: an integer in ASCII, and (ours) a float or a list of floats as JSON.
LABEL_FIELDS = ("cls", "label.json")
NPY_HEADER = 4096  # bytes of an .npy looked at: numpy writes 128 for any shape of an image
_MOST_LABEL = 1 << 20
_INTEGER = re.compile(rb"\s*[+-]?\d{1,18}\s*")  # 18 digits always fit into int64
_NPY = re.compile(rb"\{'descr': '[|<>=]u1', 'fortran_order': False, 'shape': \((\d+), (\d+), ([13])\), \} *\n")


@dataclass(frozen=True, slots=True)
class Part:
    """One member of a sample and as much of its data as was asked for."""

    member: Member
    data: bytes


@dataclass(slots=True)
class Sample:
    """The members of one sample by field, in the order of the tar."""

    key: str
    parts: dict[str, Part] = field(default_factory=dict)

    @property
    def image(self) -> str | None:
        """The field that is the image: the best by image_rank, None without one."""
        ranked = [
            (*rank, position, name)
            for position, name in enumerate(self.parts)
            if (rank := image_rank(name)) and (name.lower() != "npy" or npy_shape(self.parts[name].data))
        ]
        return min(ranked)[-1] if ranked else None

    def label(self) -> Label:
        """Return the label: of ``cls``, of our ``label.json``, else of "label" or "cls" in ``json``; None without."""
        if "cls" in self.parts:
            data = self.parts["cls"].data
            return int(data) if _INTEGER.fullmatch(data) else None
        if "label.json" in self.parts:
            return _number(_json(self.parts["label.json"]))
        value = _json(self.parts["json"]) if "json" in self.parts else None
        if isinstance(value, dict):
            for name in ("label", "cls"):
                if (label := _number(value.get(name))) is not None:
                    return label
        return None


def group(
    members: Iterator[Member], source: Source, ignored: Counter[str], on_duplicate: OnDuplicate, *, whole: bool
) -> Iterator[Sample]:
    """Yield the samples in order; count in ``ignored`` what is no part of one.

    whole: take all data; otherwise only those of labels and JSON, and the beginnings of arrays.
    Raises DuplicateKeyError where a sample has one field twice, unless ``on_duplicate`` is "skip": the first counts.
    """
    current: Sample | None = None
    for member in members:
        if member.kind != "file":
            ignored[member.kind] += 1
            continue
        cut = split_name(member.name, source.where)
        if cut is None:
            ignored["no key and field in its name"] += 1
            continue
        key, name = cut
        if member.user == MARK:
            key = unescape(key)
        if current is None or current.key != key:
            if current is not None:
                yield current
            current = Sample(key)
        if name in current.parts:
            if on_duplicate == "raise":
                how = "on_duplicate='skip' (pack --on-duplicate skip) takes the first"
                msg = f"{source.where}: sample {key!r} has the field {name!r} twice; {how}"
                raise DuplicateKeyError(msg)
            ignored["duplicate"] += 1
            continue
        current.parts[name] = Part(member, source.take(_wanted(member, name, whole=whole)))
    if current is not None:
        yield current


def npy_shape(data: bytes) -> tuple[int, int, int] | None:
    """Return (bytes before the pixels, height, width) of an .npy that holds a uint8 HWC image, None of any other.

    Layout: numpy.lib.format, version 1.0. The header is matched, never evaluated.
    """
    if data[:8] != b"\x93NUMPY\x01\x00":
        return None
    start = 10 + int.from_bytes(data[8:10], "little")
    match = _NPY.fullmatch(data[10:start]) if start <= len(data) else None
    return (start, int(match[1]), int(match[2])) if match else None


def _wanted(member: Member, name: str, *, whole: bool) -> int:
    if whole:
        return member.size
    if name in LABEL_FIELDS or name == "json":
        return member.size if member.size <= _MOST_LABEL else 0
    return min(member.size, NPY_HEADER) if name.lower() == "npy" else 0


def _json(part: Part) -> Any:  # noqa: ANN401  any JSON value
    try:
        return parse_json(part.data)
    except ValueError:
        return None


def _number(value: Any) -> Label:  # noqa: ANN401  any JSON value
    if isinstance(value, list) and value and all(_is_number(v) for v in value):
        return tuple(float(v) for v in value)
    return value if _is_number(value) else None


def _is_number(value: object) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):
        return -(2**63) <= value < 2**63
    return isinstance(value, float)
