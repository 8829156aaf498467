"""``append``: samples, or a further field of those that are there, added to a pack.

A new pack is written from the old one and the new samples and takes the old one's name when it is whole, so that the
old one is there until then; it needs as much disk again for that time. Readers that have the old one open go on.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import fastdata
from fastdata.converters.column import OF_THE_FILE, Column
from fastdata.converters.options import PackOptions
from fastdata.converters.report import Skipped, write_report
from fastdata.converters.run_lock import RunLock
from fastdata.converters.sources import open_source, order_of
from fastdata.converters.statistics import ChannelSums
from fastdata.converters.working import packed_rows
from fastdata.converters.writers import WriterOptions, is_finished, open_writer
from fastdata.errors import NothingPackedError, OptionError, StoreFormatError, TooManySkippedError
from fastdata.stores.opener import open_store
from fastdata.types import Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fastdata.converters.sources import Source
    from fastdata.stores.store import Store

__all__ = ["AppendReport", "append"]

#: What may be given anew, with what holds where it is not: which of the new samples, and in what order.
_OF_THE_CHOICE: Mapping[str, Any] = MappingProxyType({"shuffle": False, "seed": 0, "limit": None})


@dataclass(frozen=True, slots=True)
class AppendReport:
    """How many samples the pack had, how many were added, what was skipped, and its classes now.

    With ``field``, ``added`` counts the samples that got it, ``without`` those that did not.
    """

    dst: str
    before: int
    added: int
    skipped: tuple[Skipped, ...]
    classes: tuple[str, ...]
    without: int = 0
    field: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-able values."""
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """Yield the summary, a line at a time."""
        if self.field:
            yield f"added field {self.field!r} to {self.added} of the {self.before} samples of {self.dst}"
        else:
            yield f"added {self.added} to the {self.before} samples of {self.dst}"
        if self.without:
            yield f"warning: {self.without} samples got no {self.field!r}, as no file has their keys, or it is broken"
        for one in self.skipped:
            yield f"  skipped {one.path}: {one.reason}"


def append(
    pack: str | os.PathLike[str],
    src: object,
    *,
    field: str | None = None,
    manifest: str | os.PathLike[str] | None = None,
    label_column: str | None = None,
    **options: Any,  # noqa: ANN401  the fields of PackOptions
) -> AppendReport:
    """Add the samples of ``src`` to ``pack``, behind those it has; or, with ``field``, a field to those it has.

    The pack's own options hold; others are an error (OptionError), but for those that say how to run, shuffle, seed and
    limit. Its class numbers stay; new classes get the numbers behind them. So is a key that is there already, and
    labels with class names where the pack's have none, or the reverse; the pack then stays as it is. With ``field`` the
    files of ``src`` are stored as they are (no resizing) under that name with the samples of the same keys, whose size
    they must have (OptionError); files that do not decode, and keys that the pack does not have, are skipped, and
    samples that get none stay without. Crash-safe as ``pack`` is: the old pack or the new one lies there, never a part.
    One run packs or appends to a pack at a time. Raises OptionError, StoreError, PackError.
    """
    path = os.fspath(pack)
    with ExitStack() as stack:
        # Before the old pack is read: what another run adds to it meanwhile would be lost.
        lock = RunLock(path) if is_finished(path) else None
        if lock is not None:
            stack.callback(lock.release)
        old = stack.enter_context(open_store(path, io="pread"))
        if "content_hash" not in old.info:
            why = old.info.get("without_index", "it is no pack of fastdata: pack it first")
            msg = f"nothing can be added to {path}: {why}"
            raise OptionError(msg)
        chosen = _options(old, options)
        source = open_source(src, manifest, label_column=label_column, on_duplicate=chosen.on_duplicate)
        stack.callback(source.close)
        keys = {old.key(i) for i in range(len(old))}
        writer = open_writer(path, _writer_options(old, chosen, len(source)), lock=lock)
        stack.callback(writer.abort)
        if field is not None:
            adding: _Rows | Column = Column(old, field, source.stores, chosen)
        else:
            _check_labels(old, source)
            rows = list(source.rows(order_of(len(source), chosen)))
            twice = [row.key for row in rows if row.key in keys]
            if twice:
                msg = (
                    f"{path} has {len(twice)} of these samples already, the first is {twice[0]!r}; nothing was added: "
                    "give only those that are new, or pack all of them anew"
                )
                raise OptionError(msg)
            adding = _Rows(old, packed_rows(rows, chosen, len(rows)), source.classes, chosen)
        for i in range(len(old)):
            for name, column in old.index.fields.items():
                if column.length[i] >= 0:
                    old.check(i, name)
            writer.write(adding.first(old.record(i)))
        for record in adding.rest():
            writer.write(record)
        adding.judge()
        writer.finish(adding.info(old.info))
        write_report(path, tuple(adding.skipped))
        told = len(old), adding.added, tuple(adding.skipped), adding.classes
        return AppendReport(path, *told, adding.without, field or "")


class _Rows:
    """New samples behind the old ones."""

    def __init__(self, old: Store, results: Iterator[Any], classes: tuple[str, ...], options: PackOptions) -> None:
        self.classes = (*old.classes, *(name for name in classes if name not in old.classes))
        self._numbers = [self.classes.index(name) for name in classes]
        self._results, self._options = results, options
        self._sums, self._old = _sums_of(old), old
        self.skipped: list[Skipped] = []
        self.added = self.without = 0

    def first(self, record: Record) -> Record:
        """Return an old sample as it is."""
        return record

    def rest(self) -> Iterator[Record]:
        """Yield the new samples."""
        for result in self._results:
            if isinstance(result, Skipped):
                self.skipped.append(result)
                continue
            self.added += 1
            self._sums = None if self._sums is None else self._sums + result.sums
            record, label = result.record, result.record.label
            if self._numbers and isinstance(label, int):
                if not 0 <= label < len(self._numbers):
                    msg = f"key {record.key!r} has label {label}, its source {len(self._numbers)} classes: repair it"
                    raise OptionError(msg)
                label = self._numbers[label]
            yield Record(record.key, record.fields, label, record.width, record.height, record.extras)

    def judge(self) -> None:
        """Raise where too little could be added."""
        total = self.added + len(self.skipped)
        if self.skipped and len(self.skipped) > self._options.max_errors * total:
            first = f"{self.skipped[0].path}: {self.skipped[0].reason}"
            msg = f"{len(self.skipped)} of {total} images cannot be packed, more than max_errors; the first: {first}"
            raise TooManySkippedError(msg) if self.added else NothingPackedError(msg)

    def info(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Return the info of the new pack."""
        sums = self._sums
        told = {name: value for name, value in info.items() if name not in OF_THE_FILE}
        told |= {
            "classes": list(self.classes),
            "class_to_idx": {name: number for number, name in enumerate(self.classes)},
            "skipped": int(info.get("skipped", 0)) + len(self.skipped),
            "options": info.get("options") or self._options.facts(),
            "made_by": f"fastdata {fastdata.__version__}",
            "appended": [*info.get("appended", ()), self.added],
        }
        if sums is not None:
            told |= {
                "mean": list(sums.mean),
                "std": list(sums.std),
                "pixels": {"count": sums.count, "values": sums.values, "squares": sums.squares},
            }
        return told


def _check_labels(old: Store, source: Source) -> None:
    """Raise OptionError where labels of the source mean something else than the pack's: numbers and names, or none."""
    labelled, named = old.index.label is not None, bool(old.classes)
    for store in source.stores:
        more, more_named = store.index.label is not None, bool(store.classes)
        if labelled and more and named != more_named:
            one, two = (store.path, old.path) if named else (old.path, store.path)
            msg = (
                f"{one} has labels without class names, {two} has class names: a number would be taken for a class; "
                f"pack {store.path} into a pack of its own (nothing was added)"
            )
            raise OptionError(msg)
        if labelled != more:
            one, two = (old.path, store.path) if labelled else (store.path, old.path)
            columns = store.info.get("columns", ()) if labelled and store.kind == "manifest" else ()
            hint = f" (of its columns {', '.join(columns)}, --label-column NAME says which is the label)"
            msg = f"{one} has labels, {two} has none{hint if columns else ''}: nothing was added"
            raise OptionError(msg)


def _options(old: Store, given: dict[str, Any]) -> PackOptions:
    own = dict(old.info.get("options") or {})
    names = PackOptions.__dataclass_fields__
    unknown = sorted(set(given) - set(names))
    if unknown:
        msg = f"append has no option {unknown[0]!r}; it has {', '.join(names)}"
        raise OptionError(msg)
    try:
        kept: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in own.items() if k in names}
        kept |= dict(_OF_THE_CHOICE)
        facts = PackOptions(**kept).facts() if own else {}
    except (TypeError, ValueError) as error:
        msg = f"{old.path}: its options are damaged ({error})"
        raise StoreFormatError(msg) from error
    for name in sorted((given.keys() & facts.keys()) - _OF_THE_CHOICE.keys()):
        value = list(given[name]) if isinstance(given[name], tuple) else given[name]
        if value != facts[name]:
            msg = (
                f"{old.path} was packed with {name}={facts[name]!r}, and {name}={value!r} was given: samples are added "
                "by the pack's own options; leave it out, or pack into another one"
            )
            raise OptionError(msg)
    return PackOptions(**{**kept, **given})


def _writer_options(old: Store, options: PackOptions, more: int) -> WriterOptions:
    subdir = old.kind == "lmdb" and os.path.isdir(old.path)  # noqa: PTH112  a string
    return WriterOptions(True, subdir, options.shard_size, options.shards, len(old) + more)  # noqa: FBT003


def _sums_of(old: Store) -> ChannelSums | None:
    """Return the pixel sums of the old pack; None where it does not say (mean and std then stay what they were)."""
    told = old.info.get("pixels")
    try:
        return ChannelSums(int(told["count"]), tuple(told["values"]), tuple(told["squares"])) if told else None
    except (KeyError, TypeError, ValueError):
        return None
