"""``pack``: any source to any writer, in one loop; the work is done by an executor, the order is the source's."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import fastdata
from fastdata.converters.apart import keep_apart
from fastdata.converters.content import ContentHash
from fastdata.converters.encoding import encoder_name
from fastdata.converters.options import PackOptions
from fastdata.converters.pool import WorkerPool
from fastdata.converters.report import PackReport, Skipped, write_report
from fastdata.converters.restarts import check_restarts
from fastdata.converters.sources import Source, open_source, order_of
from fastdata.converters.spool import Spool, remove_spool
from fastdata.converters.statistics import ChannelSums
from fastdata.converters.working import Ending, Work, pace_of, results_of
from fastdata.converters.writers import WriterOptions, is_finished, open_writer
from fastdata.engine.cores import usable_cores
from fastdata.errors import NothingPackedError, OptionError, PackError, TooManySkippedError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor

    from fastdata.converters.work import Packed
    from fastdata.types import Writer

__all__ = ["Progress", "pack"]

_NAMED = 10  # JPEGs without markers that the report names
_LATE_MARGIN = 100  # skipped samples beyond max_errors after which going on is pointless


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is: samples done of all, of which skipped, and bytes read and written so far."""

    done: int
    total: int
    skipped: int
    bytes_in: int
    bytes_out: int


def pack(
    src: object,
    dst: str | os.PathLike[str],
    *,
    manifest: str | os.PathLike[str] | None = None,
    label_column: str | None = None,
    executor: Executor | None = None,
    progress: Callable[[Progress], None] | None = None,
    **options: Any,  # noqa: ANN401  the fields of PackOptions
) -> PackReport:
    """Pack ``src`` (a path, a Store, or a list of them) into ``dst``; its ending says the format; return a report.

    options: those of PackOptions. manifest: pack what this CSV, TSV or JSONL file lists, its paths relative to the
    folder ``src`` (None: to its own); a manifest may be ``src`` itself, too. label_column: its column that is the
    label, where that is called neither label nor label_0, label_1, ... executor: runs the work instead of processes of
    ours; its functions and arguments are picklable, workers * 4 images are in flight (up to 16 where all become small),
    and it stays open. progress: called in this thread after each sample. Order, keys and bytes do not depend on workers
    or executor. The pack appears under its name only when it is whole; nothing is written to ``src``. Raises
    OptionError, StoreError for the source, and PackError; skipped files are named beside the pack, in
    ``dst.report.jsonl``, when too many of them end the run, too.
    """
    chosen = _options(options)
    check_restarts(chosen)
    name = str(dst)
    with ExitStack() as stack:
        source = open_source(src, manifest, label_column=label_column, on_duplicate=chosen.on_duplicate)
        stack.callback(source.close)
        keep_apart(source.places, name)
        _refuse_further_pictures(source, chosen)
        order = order_of(len(source), chosen)
        workers = min(chosen.workers or usable_cores(), max(1, len(order)))
        if executor is None and workers > 1:
            executor = stack.enter_context(Ending(WorkerPool(workers, chosen.worker_timeout)))
        overwrite = chosen.overwrite or (chosen.resume and not is_finished(name))
        spool = None
        if chosen.resume and (overwrite or not is_finished(name)):
            spool = Spool(name, _depends_on(chosen))
            stack.callback(spool.close)
        writer = open_writer(name, _writer_options(chosen, len(order), overwrite=overwrite))
        stack.callback(writer.abort)
        run = _Run(name, source, chosen, workers, progress)
        pace = pace_of(chosen, workers, len(order))
        report = run.through(results_of(source.rows(order), Work(executor, chosen, spool), pace), writer, len(order))
        if spool is not None:
            report = replace(report, resumed=spool.taken)
            spool.close()
        remove_spool(name)  # of a run before, too, that was to go on and is not needed any more
        return report


def _writer_options(options: PackOptions, samples: int, *, overwrite: bool) -> WriterOptions:
    return WriterOptions(overwrite, options.subdir, options.shard_size, options.shards, samples)


def _depends_on(options: PackOptions) -> dict[str, Any]:
    """Return what a finished sample depends on beside its source; not its place in the pack."""
    places = {"shuffle", "seed", "limit", "subdir", "shard_size", "shards"}
    facts = {name: value for name, value in options.facts().items() if name not in places}
    return {**facts, "encoder": encoder_name(options), "version": fastdata.__version__}


def _options(given: dict[str, Any]) -> PackOptions:
    known = [f.name for f in fields(PackOptions)]
    unknown = sorted(set(given) - set(known))
    if unknown:
        msg = f"pack has no option {unknown[0]!r}; it has {', '.join(known)}"
        raise OptionError(msg)
    return PackOptions(**given)


def _refuse_further_pictures(source: Source, options: PackOptions) -> None:
    """Raise OptionError where the image would be resized and a mask or a second view of it would not."""
    names = source.further_pictures() if options.resize is not None else []
    if names:
        msg = f"field {names[0]!r} of the source is a picture, too, and would keep its size: pack without resize"
        raise OptionError(msg)


class _Run:
    """One packing run's bookkeeping, in the parent."""

    def __init__(
        self,
        dst: str,
        source: Source,
        options: PackOptions,
        workers: int,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self._dst, self._source, self._options, self._workers = dst, source, options, workers
        self._progress = progress
        self._start = time.perf_counter()
        self._skipped: list[Skipped] = []
        self._differs: Counter[str] = Counter()
        self._drafted: Counter[str] = Counter()
        self._unmarked = 0
        self._unmarked_first: list[str] = []
        self._truncated: list[Skipped] = []
        self._sums, self._hash = ChannelSums(), ContentHash()
        self._samples = self._bytes_in = self._bytes_out = self._smaller = self._kept = 0

    def through(self, results: Iterator[Packed | Skipped], writer: Writer, total: int) -> PackReport:
        """Write everything; the pack is finished when this returns."""
        for done, result in enumerate(results, 1):
            if isinstance(result, Skipped):
                self._skip(result, total)
            else:
                self._take(result, writer)
            if self._progress is not None:
                self._progress(Progress(done, total, len(self._skipped), self._bytes_in, self._bytes_out))
        self._judge(total)
        writer.finish(self._info())
        write_report(self._dst, (*self._skipped, *self._truncated))
        return self._report()

    def _skip(self, skipped: Skipped, total: int) -> None:
        if self._options.on_error == "raise":
            how = "on_error='skip' (--on-error skip) passes it"
            msg = f"{skipped.path} (key {skipped.key!r}) cannot be packed: {skipped.reason}; {how}"
            raise PackError(msg)
        self._skipped.append(skipped)
        if len(self._skipped) > self._options.max_errors * total + _LATE_MARGIN:
            self._judge(total)

    def _take(self, packed: Packed, writer: Writer) -> None:
        writer.write(packed.record)
        self._samples += 1
        self._bytes_in += packed.bytes_in
        self._bytes_out += len(packed.record.fields[0].data)
        self._smaller += packed.smaller
        self._kept += packed.kept
        if packed.differs:
            self._differs.update(packed.differs)
        if packed.drafted:
            self._drafted[packed.drafted] += 1
        if packed.unmarked:
            self._unmarked += 1
            if len(self._unmarked_first) < _NAMED:
                self._unmarked_first.append(f"key {packed.record.key!r}: {packed.unmarked}")
        if packed.truncated is not None:
            self._truncated.append(packed.truncated)
        self._sums += packed.sums
        self._hash.add(packed.record)

    def _judge(self, total: int) -> None:
        """Raise, with the report written, where too little was packed."""
        skipped = self._skipped
        if skipped and (len(skipped) > self._options.max_errors * total or not self._samples):
            write_report(self._dst, tuple(skipped))
            first = f"the first: {skipped[0].path}: {skipped[0].reason}; all are in {self._dst}.report.jsonl"
            if not self._samples:
                msg = f"nothing could be packed: {len(skipped)} of {total} images were skipped; {first}"
                raise NothingPackedError(msg)
            allowed = f"{self._options.max_errors:.1%}"
            msg = f"{len(skipped)} of {total} images cannot be packed, more than max_errors ({allowed}); {first}"
            raise TooManySkippedError(msg)
        if not self._samples:
            msg = f"nothing to pack: {', '.join(store.path for store in self._source.stores)} has no images"
            raise NothingPackedError(msg)

    def _info(self) -> dict[str, Any]:
        classes = self._source.classes
        return {
            "classes": list(classes),
            "class_to_idx": {name: number for number, name in enumerate(classes)},
            "mean": list(self._sums.mean),
            "std": list(self._sums.std),
            "content_hash": self._hash.hexdigest(),
            "pixels": {"count": self._sums.count, "values": self._sums.values, "squares": self._sums.squares},
            "skipped": len(self._skipped),
            "options": self._options.facts(),
            "encoder": encoder_name(self._options),
            "made_by": f"fastdata {fastdata.__version__}",
        }

    def _report(self) -> PackReport:
        return PackReport(
            dst=self._dst,
            samples=self._samples,
            classes=self._source.classes,
            bytes_in=self._bytes_in,
            bytes_out=self._bytes_out,
            skipped=tuple(self._skipped),
            ignored=self._source.ignored,
            unlabelled=self._source.unlabelled,
            flat=self._source.flat,
            without_index=self._source.without_index,
            differs=dict(self._differs),
            smaller=self._smaller,
            kept=self._kept,
            mean=self._sums.mean,
            std=self._sums.std,
            content_hash=self._hash.hexdigest(),
            workers=self._workers,
            seconds=time.perf_counter() - self._start,
            fidelity=self._options.fidelity,
            drafted=dict(self._drafted),
            unmarked=self._unmarked,
            unmarked_first=tuple(self._unmarked_first),
            truncated=tuple(self._truncated),
        )
