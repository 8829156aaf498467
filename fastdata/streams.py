"""The stream and event operations that a prefetcher needs: a seam, so that a test double can check their order.

``CudaStreams`` is one CUDA device; ``PlainStreams`` any device without streams of its own, where every operation is
done when its call returns.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Protocol

import torch

from fastdata.errors import LoaderError, OptionError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

__all__ = ["CudaStreams", "PlainStreams", "Streams", "checked_device", "open_streams"]


class Streams(Protocol):
    """One device with a side stream of its own; streams and events are opaque to the caller."""

    side: Any
    ahead: bool  # whether work that is started here goes on beside the caller's

    def current(self) -> Any:  # noqa: ANN401  a stream of the implementation
        """Return the stream that the caller's work on the device goes to now."""
        ...

    def use(self, stream: Any) -> AbstractContextManager[object]:  # noqa: ANN401
        """Return a context in which ``stream`` is current."""
        ...

    def wait_stream(self, stream: Any, other: Any) -> None:  # noqa: ANN401
        """Let what ``stream`` gets from now on wait for what ``other`` has got so far."""
        ...

    def record_event(self, stream: Any) -> Any:  # noqa: ANN401
        """Return an event that is done when all that ``stream`` has got so far is."""
        ...

    def wait_event(self, stream: Any, event: Any) -> None:  # noqa: ANN401
        """Let what ``stream`` gets from now on wait for ``event``."""
        ...

    def done(self, event: Any) -> bool:  # noqa: ANN401
        """Return whether ``event`` is done, without waiting."""
        ...

    def synchronize(self, event: Any) -> None:  # noqa: ANN401
        """Wait for ``event``, here."""
        ...

    def pin(self, tensor: Any) -> Any:  # noqa: ANN401  a tensor, or an object with pin_memory() and to()
        """Return ``tensor`` in page-locked memory: itself if it lies there (or on a device) already."""
        ...

    def copy(self, tensor: Any) -> Any:  # noqa: ANN401
        """Start the copy of a pinned ``tensor`` to the device on the current stream; return its target."""
        ...

    def record_stream(self, tensor: Any, stream: Any) -> None:  # noqa: ANN401
        """Keep the tensor's memory, after its death, until what ``stream`` had got by then is done."""
        ...


class CudaStreams:
    """One CUDA device, ``device`` with its index, and one side stream on it that lives as long as this object."""

    ahead = True

    def __init__(self, device: torch.device) -> None:
        """Make the side stream; CUDA is initialised here."""
        self._device = device
        self.side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def current(self) -> torch.cuda.Stream:
        """Return the device's current stream; raise LoaderError while a CUDA graph is captured on it."""
        if torch.cuda.is_current_stream_capturing():
            msg = (
                "a CUDA graph is being captured: fetch the batch before the capture, copy it into the graph's static "
                "input, and replay; next() of a loader cannot be part of a graph"
            )
            raise LoaderError(msg)
        return torch.cuda.current_stream(self._device)

    def use(self, stream: torch.cuda.Stream) -> AbstractContextManager[object]:
        """Return a context in which ``stream`` and its device are current."""
        return torch.cuda.stream(stream)

    def wait_stream(self, stream: torch.cuda.Stream, other: torch.cuda.Stream) -> None:
        """Let ``stream`` wait for ``other``'s work so far."""
        stream.wait_stream(other)

    def record_event(self, stream: torch.cuda.Stream) -> torch.cuda.Event:
        """Return an event at the end of ``stream``'s work so far; waiting for it does not spin."""
        # blocking: the CPU has decoding to do meanwhile
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        event.record(stream)
        return event

    def wait_event(self, stream: torch.cuda.Stream, event: torch.cuda.Event) -> None:
        """Let ``stream`` wait for ``event``."""
        stream.wait_event(event)

    def done(self, event: torch.cuda.Event) -> bool:
        """Return whether ``event`` is done."""
        return bool(event.query())  # type: ignore[no-untyped-call]

    def synchronize(self, event: torch.cuda.Event) -> None:
        """Wait for ``event``."""
        event.synchronize()

    def pin(self, tensor: Any) -> Any:  # noqa: ANN401
        """Return ``tensor`` pinned (torch's caching host allocator), itself when it is pinned or on a device."""
        if not isinstance(tensor, torch.Tensor):
            return tensor.pin_memory()
        if tensor.device.type != "cpu" or tensor.is_pinned():
            return tensor
        return _same_type(tensor.pin_memory(), tensor)

    def copy(self, tensor: Any) -> Any:  # noqa: ANN401
        """Start a non_blocking copy to the device; a tensor that is there already is returned itself."""
        moved = tensor.to(self._device, non_blocking=True)
        return _same_type(moved, tensor) if isinstance(tensor, torch.Tensor) else moved

    def record_stream(self, tensor: Any, stream: torch.cuda.Stream) -> None:  # noqa: ANN401
        """Record ``stream`` with the allocator; what lies on no CUDA device needs it not."""
        if not isinstance(tensor, torch.Tensor) or tensor.is_cuda:
            tensor.record_stream(stream)


class PlainStreams:
    """A device without streams (the CPU): copies are done at once, events always, nothing is pinned."""

    side = None
    ahead = False

    def __init__(self, device: torch.device) -> None:
        """Remember the device."""
        self._device = device

    def current(self) -> None:
        """Return nothing: there is no stream."""

    def use(self, stream: None) -> AbstractContextManager[object]:  # noqa: ARG002
        """Return a context that does nothing."""
        return contextlib.nullcontext()

    def wait_stream(self, stream: None, other: None) -> None:
        """Do nothing."""

    def record_event(self, stream: None) -> None:
        """Return nothing: all is done."""

    def wait_event(self, stream: None, event: None) -> None:
        """Do nothing."""

    def done(self, event: None) -> bool:  # noqa: ARG002
        """Return True."""
        return True

    def synchronize(self, event: None) -> None:
        """Do nothing."""

    def pin(self, tensor: Any) -> Any:  # noqa: ANN401
        """Return ``tensor`` itself."""
        return tensor

    def copy(self, tensor: Any) -> Any:  # noqa: ANN401
        """Return ``tensor`` on the device: itself where it is there already."""
        moved = tensor.to(self._device)
        return _same_type(moved, tensor) if isinstance(tensor, torch.Tensor) else moved

    def record_stream(self, tensor: Any, stream: None) -> None:  # noqa: ANN401
        """Do nothing."""


def open_streams(device: torch.device | str | int) -> Streams:
    """Return the streams of ``device``; "cuda" is the device that is current now. Raise OptionError if it is not there.

    Keep what is returned, and give it to every prefetcher of one loader: the allocator keeps memory for each stream
    apart, so a side stream for each epoch would reserve the memory of the batches for each anew.
    """
    found = checked_device(device)
    if found.type != "cuda":
        return PlainStreams(found)
    return CudaStreams(torch.device("cuda", torch.cuda.current_device()) if str(found) == "cuda" else found)


def checked_device(device: torch.device | str | int) -> torch.device:
    """Return ``device`` as torch's value; raise OptionError for one that is not there, or none at all."""
    try:
        found = torch.device(device)
    except RuntimeError as error:
        msg = f"device={device!r}: {str(error).splitlines()[0]}; expected 'cpu', 'cuda' or 'cuda:N'"
        raise OptionError(msg) from None
    if found.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count == 0:
            msg = f'device={device!r}: no CUDA device is available here; device="cpu" gives the same values'
            raise OptionError(msg)
        if found.index is not None and found.index >= count:
            msg = f"device={device!r}: there are {count} CUDA devices, 'cuda:0' to 'cuda:{count - 1}'"
            raise OptionError(msg)
    return found


def _same_type(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return ``tensor`` in the Tensor subclass of ``like``, with its attributes (torchvision's boxes have some)."""
    if type(tensor) is type(like):
        return tensor
    typed = tensor.as_subclass(type(like))
    typed.__dict__.update(like.__dict__)
    return typed
