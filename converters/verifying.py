"""``verify``: is a pack what was packed, to the last byte; ``judged`` says it sample by sample."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdata.converters.content import ContentHash
from fastdata.converters.salvage import Problem, open_for_saving
from fastdata.converters.whole_files import missing_parts, pack_problems
from fastdata.decoding.facade import decode as decoded_picture
from fastdata.engine.cores import usable_cores
from fastdata.errors import DecodeError, FastdataError
from fastdata.types import TORCHVISION_PIXELS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastdata.stores.store import Store
    from fastdata.types import Field, Record

__all__ = ["VerifyReport", "judged", "row_problems", "verify"]

_PICTURES = frozenset({"jpeg", "png", "webp", "bmp", "gif", "tiff", "avif", "heic", "jxl", "jp2"})
_AHEAD = 32  # records per thread that are looked at at once
_NAMED = 20  # problems that ``lines`` names


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What verify found in a pack: how many samples it says it has, how many of them are good, and every problem.

    checked: samples whose bytes were compared with a checksum. decoded: pictures that were decoded. good: samples
    that ``repair`` saves. notes: what could not be checked, and why.
    """

    path: str
    kind: str
    samples: int
    good: int
    checked: int
    decoded: int
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-able values."""
        return {**asdict(self), "ok": self.ok}

    def lines(self) -> Iterator[str]:
        """Yield the verdict, a line at a time."""
        for problem in self.problems[:_NAMED]:
            yield f"{problem.kind}: {problem.text}"
        if len(self.problems) > _NAMED:
            yield f"... and {len(self.problems) - _NAMED} problems more (--json lists all)"
        yield from self.notes
        decoded = f", {self.decoded} pictures decode" if self.decoded else ""
        unknown = self.samples - self.checked
        without = f"; {unknown} without a checksum" if unknown and self.ok else ""
        if self.kind:  # it was opened
            yield f"{self.path}: {self.checked} of {self.samples} records are as packed{decoded}{without}"
        if not self.ok:
            saved = f"{self.good} of {self.samples} samples can be saved" if self.good else "nothing can be saved"
            how = f": fastdata repair {self.path} OUT" if self.good else "; copy it again, or pack again"
            yield f"{len(self.problems)} problem{'s' * (len(self.problems) != 1)}; {saved}{how}"


def verify(
    path: str | os.PathLike[str],
    *,
    decode: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> VerifyReport:
    """Look at every byte of the pack at ``path`` and report; raise only where nothing lies there.

    Compared are the checksums of all records, the sum over all other bytes (headers, padding, indexes), the shards that
    the index names, the hash over the content, labels with the classes, and keys with each other. With ``decode`` every
    picture is decoded, too. Foreign sets and folders have no checksums: of them, files are read and decoded only.
    """
    opened = open_for_saving(path)
    problems, store = list(opened.problems), opened.store
    if store is None:
        return VerifyReport(os.fspath(path), "", 0, 0, 0, 0, tuple(problems))
    with store:
        found, notes, trusted = pack_problems(store)
        problems += found
        rows = row_problems(store)
        content, good, checked, decoded = ContentHash(), 0, 0, 0
        whole = True
        for i, verdict in enumerate(judged(store, decode=decode)):
            here = [*rows.get(i, ()), *verdict.problems]
            problems += here
            good += verdict.record is not None and not here
            checked += verdict.checked
            decoded += verdict.decoded
            if verdict.record is None:
                whole = False
            else:
                content.add(verdict.record)
            if progress is not None:
                progress(i + 1, len(store))
        told = store.info.get("content_hash")
        if told and whole and told != content.hexdigest():
            text = f"{store.path}: its records are not those it was packed with (content hash {told})"
            problems.append(Problem("index", "", text))
            trusted = trusted and bool(store.info.get("columns"))
        return VerifyReport(
            os.fspath(path), store.kind, len(store), good if opened.trusted and trusted else 0, checked, decoded,
            tuple(problems), tuple(notes),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one sample: its record (None: its bytes are not good), and what is wrong with it.

    A sample of a shard that is missing has no record and no problem of its own: the shard is the problem.
    """

    record: Record | None
    problems: tuple[Problem, ...] = ()
    checked: bool = False
    decoded: int = 0


def judged(store: Store, *, decode: bool = True) -> Iterator[Verdict]:
    """Yield the verdict on each sample, in order; a few threads decode, some dozens of records are in memory."""
    threads, gone = min(usable_cores(), 16), missing_parts(store)
    part = store.index.fields["image"].part if gone else None

    def judge(i: int) -> Verdict:
        return Verdict(None) if part is not None and int(part[i]) in gone else _judge(store, i, decode=decode)

    if threads == 1:
        yield from map(judge, range(len(store)))
        return
    with ThreadPoolExecutor(threads, "fastdata-verify") as pool:
        step = threads * _AHEAD
        for start in range(0, len(store), step):
            rows = range(start, min(start + step, len(store)))
            yield from pool.map(judge, rows)


def _judge(store: Store, i: int, *, decode: bool) -> Verdict:
    try:
        checked = False
        for name, column in store.index.fields.items():
            if column.length[i] >= 0:
                store.check(i, name)
                checked = checked or (name == "image" and bool(column.checksum[i]))
        record = store.record(i)
    except Exception as error:  # noqa: BLE001  one rule for whatever damage raises
        what = str(error) if isinstance(error, FastdataError) else f"{type(error).__name__}: {error}"
        kind = "shard" if isinstance(error, FileNotFoundError) else "record"
        key = store.key(i)
        return Verdict(None, (Problem(kind, key, f"sample {i} ({key!r}): {what}"),))
    if not decode:
        return Verdict(record, (), checked)
    decoded, problems = 0, []
    for field in record.fields:
        reason = _undecodable(field, record, store)
        if reason is None:
            continue
        decoded += not reason
        if reason:
            text = f"{store.path}: field {field.name!r} of sample {i} ({record.key!r}) does not decode: {reason}"
            problems.append(Problem("decode", record.key, text))
    return Verdict(record, tuple(problems), checked, decoded)


def _undecodable(field: Field, record: Record, store: Store) -> str | None:
    """Return why a field is no picture, "" where it is one, None where it is not meant to be one."""
    if field.codec == "raw":
        pixels = record.width * record.height
        good = pixels > 0 and len(field.data) in {pixels, 3 * pixels}
        return "" if good else f"{len(field.data)} bytes are no {record.width} x {record.height} pixels"
    if field.codec not in _PICTURES and not (field.name == "image" and field.codec == "unknown"):
        return None
    try:
        decoded_picture(field.data, mode="RGB" if field.name == "image" else "native", max_pixels=_limit(store))
    except DecodeError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001  decoders raise what they like over broken files
        return f"{type(error).__name__}: {error}"
    return ""


def _limit(store: Store) -> int | None:
    options = store.info.get("options")
    limit = options.get("max_pixels") if isinstance(options, dict) else None
    return limit if isinstance(limit, int) and limit > 0 else TORCHVISION_PIXELS.max_pixels


def row_problems(store: Store) -> dict[int, list[Problem]]:
    """Return what the index alone shows, by sample: labels outside of the classes, keys that stand there twice."""
    found: dict[int, list[Problem]] = {}
    label, count = store.index.label, len(store.classes)
    if count and label is not None and label.ndim == 1:
        for i in np.flatnonzero((label < 0) | (label >= count) | (label != np.floor(label))).tolist():
            text = f"{store.path}: sample {i} ({store.key(i)!r}) has label {label[i]}, there are {count} classes"
            found.setdefault(i, []).append(Problem("label", store.key(i), text))
    for i, first in _repeated_keys(store):
        text = f"{store.path}: sample {i} has the key {store.key(i)!r} of sample {first}"
        found.setdefault(i, []).append(Problem("key", store.key(i), text))
    return found


def _repeated_keys(store: Store) -> Iterator[tuple[int, int]]:
    """Yield (sample, the earlier sample with the same key): by 64-bit hashes, so 8 bytes a sample are held."""
    keys = store.index.keys
    hashes = np.fromiter((hash(keys[i]) for i in range(len(keys))), np.int64, len(keys))
    order = np.argsort(hashes, kind="stable")
    alike = np.flatnonzero(hashes[order][1:] == hashes[order][:-1])
    first: dict[str, int] = {}
    for at in alike.tolist():
        for i in (int(order[at]), int(order[at + 1])):
            earlier = first.setdefault(keys[i], i)
            if earlier != i and i == int(order[at + 1]):
                yield i, earlier
