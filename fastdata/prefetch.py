"""Batches on the device before they are asked for: copies on a side stream, beside the work of the step before.

The rules, each with a test that fails without it (sources: apex's data_prefetcher, pytorch-image-models PR 2784, the
CUDA semantics page of PyTorch):

- the side stream waits for the consumer's before each copy: what the source left on the device is written by then;
- the consumer's stream waits for the event of the batch it gets, and for no later copy;
- every tensor that is handed out is recorded with the consumer's stream: its memory belongs to the side stream's pool,
  which would give it to the next copy as soon as Python lets go of it;
- the source's batch, and what was pinned of it, lives until its copy is done.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from fastdata.errors import LoaderError, OptionError
from fastdata.nested import map_tensors, tensors
from fastdata.streams import Streams, checked_device, open_streams

if TYPE_CHECKING:
    import torch

__all__ = ["CudaPrefetcher"]

Transform = Callable[[Any], Any]


class CudaPrefetcher:
    """An iterable of the batches of ``batches``, in order and in their own types, on ``device``.

    batches: any iterable of nested batches (fastdata.nested says which containers are known); each iter() of the
    prefetcher starts one of its own there. device: "cuda", "cuda:1", or "cpu" (any device without streams), where
    batches are moved and transformed as they are asked for, with the same values. transform: called with each batch
    on the device, on the side stream (fastdata.device_ops.Normalizer), so that uint8 crosses the bus. depth: copies
    that are started ahead of the batch asked for; device memory holds depth + 1 batches besides the consumer's.
    streams: those of the device (fastdata.streams.open_streams), for an owner who makes a prefetcher an epoch.

    Pinned tensors are copied straight from where they lie, others are pinned first. At most depth + 1 batches of the
    source are held, each until its copy is done. The consumer owns what it gets. A failure of the source or of the
    transform is raised after the batches before it. No thread is started; next() inside a CUDA graph capture raises
    LoaderError. Attributes that are not here are those of ``batches`` (dataset, sampler, ...), but for its state.
    Raises OptionError for a device that is not there.
    """

    def __init__(
        self,
        batches: Iterable[Any],
        device: torch.device | str | int,
        transform: Transform | None = None,
        *,
        depth: int = 2,
        streams: Streams | None = None,
    ) -> None:
        """Check the arguments; neither the source nor the device is touched before iter()."""
        if depth < 1:
            msg = f"depth={depth}: expected at least 1 batch ahead"
            raise OptionError(msg)
        self.batches = batches
        self.device = checked_device(device)
        self._transform = transform
        self._depth = depth
        self._streams = streams
        self._epochs = 0

    def __len__(self) -> int:
        """Return the number of batches of the source; TypeError where it has none."""
        return len(self.batches)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        """Start an epoch: iterators do not share batches, only the side stream."""
        if self._streams is None:
            self._streams = open_streams(self.device)  # not before: which device is current may be set until now
        self._epochs += 1
        return _Epoch(
            self.batches,
            self._streams,
            self._transform,
            depth=self._depth if self._streams.ahead else 0,
            again=self._epochs > 1,
        )

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        """Return the source's attribute."""
        # A source's state counts what the source gave, which is ahead of what was delivered here.
        if name.startswith("_") or name in {"batches", "state_dict", "load_state_dict"}:
            msg = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(msg)
        return getattr(self.batches, name)


class _Epoch:
    """One pass over the source. Owns the source's iterator, the copies under way and what they read."""

    def __init__(
        self, batches: Iterable[Any], streams: Streams, transform: Transform | None, *, depth: int, again: bool
    ) -> None:
        self._streams = streams
        self._transform = transform
        self._depth = depth
        self._ready: deque[tuple[Any, Any]] = deque()  # batch on the device, event
        self._held: deque[tuple[Any, Any]] = deque()  # event, what its copy reads
        self._error: Exception | None = None
        self._source: Iterator[Any] | None = None
        self._source = iter(batches)
        self._own = self._source is not batches
        self._must_give = again and not self._own

    def __iter__(self) -> _Epoch:
        return self

    def __next__(self) -> Any:  # noqa: ANN401
        current = self._streams.current()
        while self._source is not None and len(self._ready) <= self._depth:
            self._start(self._source, current)
        if not self._ready:
            error, self._error = self._error, None
            self.close()
            if error is not None:
                raise error
            raise StopIteration
        batch, event = self._ready.popleft()
        self._streams.wait_event(current, event)
        for tensor in tensors(batch):
            self._streams.record_stream(tensor, current)
        self._release(self._depth + 1)  # waits for nothing; what is done goes back to the source now
        return batch

    def _start(self, source: Iterator[Any], current: Any) -> None:  # noqa: ANN401
        """Take one batch from the source and start its copy and transform on the side stream."""
        self._release(self._depth)
        try:
            batch = next(source)
        except StopIteration:
            self._end(self._empty_again() if self._must_give else None)
            return
        except Exception as error:  # noqa: BLE001  raised again when the batches before it are delivered
            self._end(error)
            return
        self._must_give = False
        streams, keep = self._streams, [batch]

        def move(leaf: Any) -> Any:  # noqa: ANN401
            pinned = streams.pin(leaf)
            keep.append(pinned)
            return streams.copy(pinned)

        streams.wait_stream(streams.side, current)
        moved = None
        try:
            with streams.use(streams.side):
                moved = map_tensors(batch, move)
                if self._transform is not None:
                    moved = self._transform(moved)
        except Exception as error:  # noqa: BLE001
            self._end(error)
            return
        finally:
            event = streams.record_event(streams.side)
            self._held.append((event, keep))
        self._ready.append((moved, event))

    def _end(self, error: Exception | None) -> None:
        """Take nothing more from the source; ``error`` is raised when all before it is delivered."""
        self._error = error
        source, self._source = self._source, None
        close = getattr(source, "close", None)
        if self._own and callable(close):
            close()

    def _release(self, most: int) -> None:
        """Let go of what finished copies have read, and wait until no more than ``most`` batches are held."""
        while self._held:
            event = self._held[0][0]
            if not self._streams.done(event):
                if len(self._held) <= most:
                    return
                self._streams.synchronize(event)
            self._held.popleft()

    def close(self) -> None:
        """End the epoch: wait for the copies under way, let go of all batches and of the source."""
        self._ready.clear()
        self._release(0)
        if self._source is not None:
            self._end(None)

    def __del__(self) -> None:
        if not sys.is_finalizing() and hasattr(self, "_held"):
            self.close()

    @staticmethod
    def _empty_again() -> LoaderError:
        return LoaderError(
            "the source gave no batch in this epoch: it is an iterator, which can be read once; give CudaPrefetcher "
            "an iterable (a loader, a list) that starts anew at every iter()"
        )
