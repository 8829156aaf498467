"""Any per-image Decoder as a BatchDecoder: a pool of threads that takes the images of all batches one at a time."""

from __future__ import annotations

import os
import queue
import threading
import weakref
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from fastdata.decoding.resample import resample_into
from fastdata.errors import DecodeError, OptionError
from fastdata.types import CODEC_IDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fastdata.types import Decoder, Encoded, Geometry, Levels, Mode

__all__ = ["Resample", "ThreadedBatchDecoder"]

_RAW = CODEC_IDS["raw"]


class Resample(Protocol):
    """What brings a decoded picture into its place: resample_into, or what gives the same within a grey level."""

    def __call__(
        self,
        pixels: NDArray[np.uint8],
        geometry: Geometry,
        row: int,
        out: NDArray[Any],
        *,
        levels: Levels | None = None,
    ) -> None:
        """Fill ``out`` (h, w, C) with what ``geometry``'s ``row`` shows of ``pixels`` (H, W, C uint8, whole)."""
        ...


class _Batch:
    """One call of decode_batch: how many images are left, and what failed."""

    __slots__ = ("_left", "_lock", "done", "error", "failures", "work")

    def __init__(self, count: int, work: Callable[[int], None]) -> None:
        self.work = work
        self.failures: dict[int, DecodeError] = {}
        self.error: BaseException | None = None
        self.done = threading.Event()
        self._left = count
        self._lock = threading.Lock()

    def run(self, position: int) -> None:
        try:
            self.work(position)
        except DecodeError as error:
            self.failures[position] = error
        except BaseException as error:  # noqa: BLE001  the caller raises it: it is about the call, not about one image
            self.error = error
        with self._lock:
            self._left -= 1
            last = not self._left
        if last:
            self.done.set()


class ThreadedBatchDecoder:
    """Decodes batches by a Decoder in ``threads`` threads, which all calls share, first come first served.

    The threads start with the first batch (in a forked child, with its first one), are daemons, and end with close()
    or when the object is dropped.
    """

    def __init__(self, decoder: Decoder, threads: int, *, resample: Resample = resample_into) -> None:
        """Take decoder and resampler, which must be usable from many threads; no thread starts yet."""
        if threads < 1:
            msg = f"threads must be 1 or more, not {threads}"
            raise OptionError(msg)
        self._decoder, self._resample = decoder, resample
        self._count = threads
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[tuple[_Batch, int] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._process = 0
        self._closed = False

    def decode_batch(
        self,
        encoded: Encoded,
        geometry: Geometry,
        out: NDArray[Any],
        *,
        levels: Levels | None = None,
    ) -> dict[int, DecodeError]:
        """Fill ``out`` (n, H, W, C), as types.BatchDecoder says; return the failures by position."""
        count = len(encoded)
        if not count:
            return {}

        def work(position: int) -> None:
            self._fill(encoded, geometry, position, out, levels)

        batch = _Batch(count, work)
        with self._lock:  # held until all are queued: what close() queues comes behind them
            jobs = self._started()
            for position in range(count):
                jobs.put((batch, position))
        batch.done.wait()
        if batch.error is not None:
            raise batch.error
        return dict(sorted(batch.failures.items()))

    def close(self) -> None:
        """Stop the threads once the batches begun are done; may be called twice."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            threads, self._threads = self._threads, []
            if self._process == os.getpid():
                for _ in threads:
                    self._jobs.put(None)
        if self._process == os.getpid():
            for thread in threads:
                if thread is not threading.current_thread():
                    thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _fill(
        self, encoded: Encoded, geometry: Geometry, position: int, out: NDArray[Any], levels: Levels | None
    ) -> None:
        """Fill ``out[position]`` of a batch; raise a DecodeError, whatever went wrong with the image."""
        channels = out.shape[3]
        mode: Mode = "L" if channels == 1 else "RGB"
        try:
            if encoded.codec[position] == _RAW:
                pixels = _raw_pixels(encoded, position, channels)
            else:
                pixels = self._decoder(encoded.views[position], mode)
            self._resample(pixels, geometry, position, out[position], levels=levels)
        except (DecodeError, OptionError):
            raise
        except Exception as error:  # one bad image must take neither the thread nor the batch with it
            msg = f"{type(error).__name__}: {error}"
            raise DecodeError(msg) from error

    def _started(self) -> queue.SimpleQueue[tuple[_Batch, int] | None]:
        # A forked child has this object but not its threads, and a queue whose lock another thread may have held. The
        # lock of this object is held for microseconds only; a child made in that moment is the caller's own race.
        if self._closed:
            msg = "this decoder is closed"
            raise OptionError(msg)
        if self._process != os.getpid():
            self._process = os.getpid()
            self._jobs = queue.SimpleQueue()
            self._threads = [
                threading.Thread(target=_serve, args=(self._jobs,), name=f"fastdata-decode-{number}", daemon=True)
                for number in range(self._count)
            ]
            for thread in self._threads:
                thread.start()
            weakref.finalize(self, _dismiss, self._jobs, self._count).atexit = False
        return self._jobs


def _dismiss(jobs: queue.SimpleQueue[tuple[_Batch, int] | None], count: int) -> None:
    for _ in range(count):
        jobs.put(None)


def _serve(jobs: queue.SimpleQueue[tuple[_Batch, int] | None]) -> None:
    while True:
        job = jobs.get()
        if job is None:
            return
        batch, position = job
        batch.run(position)
        del job, batch  # an idle thread keeps no batch alive


def _raw_pixels(encoded: Encoded, position: int, channels: int) -> NDArray[np.uint8]:
    width, height = int(encoded.width[position]), int(encoded.height[position])
    stored = np.frombuffer(encoded.views[position], np.uint8)
    if not width or not height or stored.size % (width * height):
        msg = f"raw record of {stored.size} bytes is not {width} x {height} pixels"
        raise DecodeError(msg)
    pixels = stored.reshape(height, width, -1)
    if pixels.shape[2] == channels:
        return pixels
    if pixels.shape[2] == 1:
        return np.repeat(pixels, channels, axis=2)
    if pixels.shape[2] == 3 and channels == 1:  # noqa: PLR2004  RGB to grey, with Pillow's weights
        from PIL import Image  # noqa: PLC0415  rare

        return np.asarray(Image.frombuffer("RGB", (width, height), stored, "raw", "RGB", 0, 1).convert("L"))[..., None]
    msg = f"raw record has {pixels.shape[2]} channels, {channels} are asked for"
    raise DecodeError(msg)
