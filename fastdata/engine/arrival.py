"""What becomes of batches behind the engine or the workers: their device, and what is done to them there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastdata.engine.mixing import in_turn
from fastdata.streams import open_streams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import torch

    from fastdata.engine.course import Course
    from fastdata.engine.mixing import Mixer, Valid
    from fastdata.streams import Streams

__all__ = ["Arrival"]


class Arrival:
    """Brings batches to a device, and mixes them; its one side stream stays from epoch to epoch.

    torch keeps the memory of each stream apart. Picklable: the stream is this process's alone. prefetch: what copies
    ahead, as CudaPrefetcher does.
    """

    def __init__(self, mixer: Mixer | None, prefetch: Callable[..., Iterable[Any]]) -> None:
        """Open nothing yet."""
        self.mixer, self._prefetch = mixer, prefetch
        self._streams: Streams | None = None

    def of(
        self,
        batches: Iterator[Any],
        device: str | torch.device | None,
        course: Course,
        steps: Sequence[Callable[[Any], Any]],
        valid: Valid | None,
    ) -> Iterator[Any]:
        """Return the batches on their device, behind ``steps`` and mixed; valid tells of a batch by its number."""
        if self.mixer is not None:
            batches = mixing = self.mixer.over(batches, course.key(), course.place, valid, here=device is None)
            steps = [*steps, mixing]
        if device is None:
            return batches
        if self._streams is None:
            self._streams = open_streams(device)
        return iter(self._prefetch(batches, device, in_turn(steps), streams=self._streams))

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the stream."""
        return {**self.__dict__, "_streams": None}
