"""The progress line of ``fastdata pack``: on stderr, only where that is a terminal."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastdata.converters.packing import Progress

__all__ = ["progress_bar"]

_EVERY_S = 0.1


@contextmanager
def progress_bar(*, quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    """Yield what ``pack`` calls after each sample: images/s, MB/s, time left, skipped; None where nobody looks."""
    from rich.console import Console

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("packing"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(), TextColumn("{task.fields[skipped]}"),
    )  # fmt: skip
    bar = Bar(*columns, console=console, transient=True)
    task = bar.add_task("packing", total=None, rate="", skipped="")
    start, shown = time.monotonic(), 0.0

    def show(progress: Progress) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown < _EVERY_S and progress.done < progress.total:
            return
        shown = now
        bar.start()  # not before: its thread would keep pack from forking its workers
        seconds = max(now - start, 1e-9)
        rate = f"{progress.done / seconds:.0f} images/s, {progress.bytes_in / seconds / 1e6:.1f} MB/s"
        skipped = f"{progress.skipped} skipped" if progress.skipped else ""
        bar.update(task, total=progress.total, completed=progress.done, rate=rate, skipped=skipped)

    try:
        yield show
    finally:
        bar.stop()
