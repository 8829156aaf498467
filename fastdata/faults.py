"""What failed on the way and was skipped: named, counted, and bounded by a budget."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from fastdata.errors import OptionError, SampleError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Fault", "FaultLog", "OnError"]

OnError = Literal["raise", "skip", "replace"]
_LOG = logging.getLogger("fastdata")
_NAMED = 3  # faults that the summary names


@dataclass(frozen=True, slots=True)
class Fault:
    """One sample that failed: its key, its index in the data set, and why (the error's class, then its text)."""

    key: str
    index: int
    reason: str

    @property
    def kind(self) -> str:
        """The class of the error alone, by which faults are counted."""
        return self.reason.partition(":")[0]


class FaultLog:
    """Takes note of samples that failed, and says when it is too many. Safe for many threads; can be pickled.

    on_error: "raise" makes of the first failure a SampleError; "skip" and "replace" note it (what becomes of the sample
    is the caller's business). budget: how many samples may fail before a SampleError is raised all the same: a count,
    or, below 1, a share of ``total`` samples; None: any number. A sample that fails again (in the next epoch, or drawn
    twice) is one fault. Raises OptionError for values that cannot be meant.
    """

    def __init__(self, on_error: str = "raise", *, budget: float | None = None, total: int | None = None) -> None:
        """Start with no fault."""
        if on_error not in get_args(OnError):
            msg = f"on_error={on_error!r}: expected one of {', '.join(map(repr, get_args(OnError)))}"
            raise OptionError(msg)
        self.on_error = on_error
        self.budget = budget
        self._most = _most(budget, total)
        self._faults: dict[tuple[str, int], Fault] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return the number of samples that failed."""
        return len(self._faults)

    def __iter__(self) -> Iterator[Fault]:
        """Iterate over the samples that failed."""
        return iter(self.faults)

    def __repr__(self) -> str:
        """Return the summary."""
        return f"FaultLog({self.summary()})"

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The samples that failed, in the order in which they first did."""
        with self._lock:
            return tuple(self._faults.values())

    @property
    def counts(self) -> dict[str, int]:
        """The number of failed samples by kind of error, most frequent first."""
        return dict(Counter(fault.kind for fault in self.faults).most_common())

    def add(self, key: str, index: int, error: BaseException) -> None:
        """Note that the sample failed with ``error``; raise SampleError, from it, where it may not be skipped."""
        self.note(key, index, f"{type(error).__name__}: {error}", error)

    def note(self, key: str, index: int, reason: str, error: BaseException | None = None) -> None:
        """Note that the sample failed, and why; raise SampleError, from ``error``, where it may not be skipped."""
        fault = Fault(key, index, reason)
        with self._lock:
            self._faults.setdefault((key, index), fault)
            failed = len(self._faults)
        if self.on_error == "raise":
            msg = f"sample {key!r} (index {index}): {fault.reason}; on_error='skip' goes on without such samples"
            raise SampleError(msg) from error
        if self._most is not None and failed > self._most:
            msg = (
                f"sample {key!r} (index {index}): {fault.reason}; with it, {failed} samples failed, more than the "
                f"{self._most} that are allowed (budget {self.budget}): {self.summary()}"
            )
            raise SampleError(msg) from error

    def summary(self) -> str:
        """Return one line: how many samples failed, of what, and which first."""
        faults, counts = self.faults, self.counts
        if not faults:
            return "no sample failed"
        done = {"raise": "failed", "skip": "skipped", "replace": "replaced"}[self.on_error]
        kinds = ", ".join(f"{number} {kind}" for kind, number in counts.items())
        named = ", ".join(f"{fault.key!r} (index {fault.index})" for fault in faults[:_NAMED])
        more = ", ..." if len(faults) > _NAMED else ""
        return f"{len(faults)} sample{'s' * (len(faults) > 1)} {done} ({kinds}): {named}{more}"

    def anew(self, total: int | None) -> FaultLog:
        """Return a log with the same options and no fault, for an epoch of ``total`` samples."""
        return FaultLog(self.on_error, budget=self.budget, total=total)

    def report(self) -> None:
        """Log the summary as a warning (of the logger "fastdata"), where any sample was passed over."""
        if self._faults and self.on_error != "raise":
            _LOG.warning("%s", self.summary())

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the lock."""
        with self._lock:
            return {name: value for name, value in self.__dict__.items() if name != "_lock"} | {
                "_faults": dict(self._faults)
            }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make a lock anew."""
        self.__dict__.update(state)
        self._lock = threading.Lock()


def _most(budget: float | None, total: int | None) -> int | None:
    """Return the number of faults that ``budget`` allows."""
    if budget is None:
        return None
    whole = isinstance(budget, int | float)
    if not whole or not budget >= 0 or (budget >= 1 and budget != int(budget)):
        msg = f"budget={budget!r}: expected a whole number of samples, or a share of them below 1"
        raise OptionError(msg)
    if budget == 0 or budget >= 1:
        return int(budget)
    if total is None:
        msg = f"budget={budget} is a share, and it is not known of how many samples: give a whole number of them"
        raise OptionError(msg)
    return int(budget * total)
