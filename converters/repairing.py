"""``repair``: what is good of a damaged pack, as a new pack of any format."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastdata.converters.apart import keep_apart
from fastdata.converters.salvage import Problem, open_for_saving
from fastdata.converters.verifying import judged, row_problems
from fastdata.converters.whole_files import pack_problems
from fastdata.converters.writers import WriterOptions, open_writer
from fastdata.errors import NothingPackedError, OptionError, PackError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from fastdata.stores.store import Store

__all__ = ["RepairReport", "repair"]

#: What a writer says of its own file: of the damaged one it is no longer true.
_OF_THE_FILE = frozenset(
    {
        "format",
        "format_version",
        "samples",
        "fields",
        "shards",
        "content_hash",
        "sealed",
        "seals",
        "columns",
        "ignored",
        "without_index",
    }
)


@dataclass(frozen=True, slots=True)
class RepairReport:
    """How many samples were saved into ``dst``, and what was wrong with the pack and with those that were not.

    uncounted: missing tars of a set without an index, of which nobody knows how many samples they had.
    """

    path: str
    dst: str
    samples: int
    saved: int
    problems: tuple[Problem, ...]
    uncounted: int = 0

    @property
    def whole(self) -> bool:
        """Whether every sample was saved."""
        return self.saved == self.samples and not self.uncounted

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-able values."""
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """Yield the summary, a line at a time: each problem, then what was saved."""
        for problem in self.problems:
            yield f"{problem.kind}: {problem.text}"
        tars = f"{self.uncounted} missing tar{'s' * (self.uncounted != 1)}"
        more = f"; those of {tars} are lost" if self.uncounted else ""
        yield f"saved {self.saved} of {self.samples} samples of {self.path} into {self.dst}{more}"


def repair(
    path: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    decode: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> RepairReport:
    """Write the samples of ``path`` whose bytes are as packed, and that decode, into a new pack ``dst``, in order.

    Classes, options, mean and standard deviation are kept; of equal keys the first is. What is lost is named in the
    report. Where keys or labels themselves are damaged nothing is saved (PackError): wrong labels are worse than none.
    Raises NothingPackedError where no sample is good, PackError, OptionError, StoreNotFoundError.
    """
    _keep_apart(path, dst)
    opened = open_for_saving(path)
    store, problems = opened.store, list(opened.problems)
    if store is None:
        msg = f"{os.fspath(path)}: nothing of it can be saved: {'; '.join(p.text for p in problems)}"
        raise PackError(msg)
    with store:
        keep_apart(store.parts, os.fspath(dst))
        found, _, trusted = pack_problems(store)
        problems += found
        if not (trusted and opened.trusted):
            msg = f"{store.path}: its keys or labels are damaged, so nothing can be saved: {found[0].text}"
            raise PackError(msg)
        report = _save(store, os.fspath(dst), problems, _How(overwrite, decode, progress))
        return replace(report, uncounted=opened.uncounted)


@dataclass(frozen=True, slots=True)
class _How:
    overwrite: bool
    decode: bool
    progress: Callable[[int, int], None] | None


def _save(store: Store, dst: str, problems: list[Problem], how: _How) -> RepairReport:
    rows, saved = row_problems(store), 0
    writer = open_writer(dst, _writer_options(store, dst, overwrite=how.overwrite))
    try:
        for i, verdict in enumerate(judged(store, decode=how.decode)):
            here = [*rows.get(i, ()), *verdict.problems]
            problems += here
            if verdict.record is not None and not here:
                writer.write(verdict.record)
                saved += 1
            if how.progress is not None:
                how.progress(i + 1, len(store))
        if not saved:
            msg = f"{store.path}: none of its {len(store)} samples is good; nothing was written"
            raise NothingPackedError(msg)
        writer.finish(_info(store.info, len(store) - saved))
    finally:
        writer.abort()
    return RepairReport(store.path, dst, len(store), saved, tuple(problems))


def _info(info: Mapping[str, Any], lost: int) -> dict[str, Any]:
    kept = {name: value for name, value in info.items() if name not in _OF_THE_FILE}
    return {**kept, "repaired": {"content_hash": info.get("content_hash", ""), "lost": lost}}


def _writer_options(store: Store, dst: str, *, overwrite: bool) -> WriterOptions:
    options = store.info.get("options")
    size, count = (options.get(n) if isinstance(options, dict) else None for n in ("shard_size", "shards"))
    if "{" not in dst:
        size = count = None
    return WriterOptions(overwrite, shard_bytes=size, shard_count=count, samples=len(store))


def _keep_apart(path: str | os.PathLike[str], dst: str | os.PathLike[str]) -> None:
    source, target = Path(path).absolute(), Path(dst).absolute()
    if source.resolve() == target.resolve() or (source.is_dir() and source.resolve() in target.resolve().parents):
        msg = f"{target} is the damaged pack, or lies in it: nothing is written there; choose another name"
        raise OptionError(msg)
