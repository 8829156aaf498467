"""The delivery: the iterator a user holds; it counts what it gives, and tells what is known of it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fastdata.engine.over import Over

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastdata.engine.batches import BatchInfo
    from fastdata.engine.resume import Progress
    from fastdata.faults import FaultLog

__all__ = ["Delivery"]


class Delivery(Over):
    """One pass over a loader.

    next_info: gives what is known of the next batch, once for each (failures_drawn: and once for each that fails).
    note: is told it, or None, when a batch is delivered. length: gives the loader's length. faults: says at the end of
    the epoch what failed. own: makes of a batch what is the user's to keep.
    """

    def __init__(  # noqa: PLR0913  what an iterator of a loader is asked for
        self,
        batches: Iterator[Any],
        progress: Progress,
        next_info: Callable[[], BatchInfo] | None,
        *,
        note: Callable[[BatchInfo | None], None],
        length: Callable[[], int],
        faults: FaultLog,
        failures_drawn: bool = False,
        own: Callable[[Any], Any] | None = None,
    ) -> None:
        """Borrow all."""
        super().__init__(batches)
        self._progress, self._next_info, self._own = progress, next_info, own
        self._note, self._length, self._faults, self._failures_drawn = note, length, faults, failures_drawn

    def __len__(self) -> int:
        """Return the loader's length."""
        return self._length()

    def __next__(self) -> Any:  # noqa: ANN401
        """Return the next batch."""
        try:
            batch = next(self._batches)
        except StopIteration:
            if not self._progress.finished:
                self._progress.finished = True
                self._faults.report()
            raise
        except Exception:
            self._progress.fail()
            if self._next_info is not None and self._failures_drawn:
                with suppress(IndexError):  # behind the last batch: a worker was killed, and no batch failed
                    self._next_info()
            raise
        self._progress.deliver()
        self._note(None if self._next_info is None else self._next_info())
        return batch if self._own is None else self._own(batch)
