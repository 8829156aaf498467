"""Interleaved rounds: every contender once per round, so that a machine whose speed drifts is fair to all."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Timing", "interleave"]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of each counted round, and how many items each of them handled."""

    seconds: tuple[float, ...]
    items: int

    @property
    def median(self) -> float:
        """The median of the seconds."""
        return statistics.median(self.seconds)

    @property
    def rate(self) -> float:
        """Items per second in the median round."""
        return self.items / self.median

    @property
    def spread(self) -> float:
        """The slowest round over the fastest: how noisy the machine was."""
        return max(self.seconds) / min(self.seconds)


def interleave(contenders: Mapping[str, Callable[[], int]], rounds: int, warmups: int = 1) -> dict[str, Timing]:
    """Run every contender ``warmups`` + ``rounds`` times in turn; each returns how many items it handled."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    items = dict.fromkeys(contenders, 0)
    for number in range(warmups + rounds):
        for name, run in contenders.items():
            start = time.perf_counter()
            items[name] = run()
            if number >= warmups:
                seconds[name].append(time.perf_counter() - start)
    return {name: Timing(tuple(times), items[name]) for name, times in seconds.items()}
