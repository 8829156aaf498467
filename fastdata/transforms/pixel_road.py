"""Pixel steps for a whole batch: decode to uint8, change picture by picture, then the levels."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdata.errors import OptionError
from fastdata.transforms.picture import Picture, Room
from fastdata.transforms.pixel_ops import apply, apply_to_floats
from fastdata.transforms.pixel_steps import WholeBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fastdata.transforms.pixel_steps import PixelStep
    from fastdata.transforms.plan import Plan
    from fastdata.types import Levels

    Bytes = NDArray[np.uint8]
    Rows = list[list[float]]

__all__ = ["checked", "fill"]

#: Fewer pictures than this are not worth a thread, which takes 0.1 ms to start.
_PICTURES_EACH = 8


def fill(
    plan: Plan,
    draws: NDArray[np.float64],
    out: NDArray[Any],
    levels: Levels | None,
    decode: Callable[[Bytes], dict[int, Any]],
    *,
    threads: int = 1,
) -> dict[int, Any]:
    """Fill ``out`` (n, H, W, C) as ``plan`` says; return what ``decode`` returns: the failures by position.

    draws: float64 (n, plan.draws). out: a view of memory that is contiguous as (n, H, W, C) or (n, C, H, W); uint8, or
    of the dtype of ``levels`` (C, 256). decode: fills a uint8 (n, H, W, 3) of any strides. Float batches are decoded
    into their own memory; only a grey batch of uint8 or 16-bit floats takes more of a batch's size. At most ``threads``
    threads share the pictures, and end with the call. Raises OptionError where a user's function gives something else
    than a batch.
    """
    decoded = _room_in(out)
    failed = decode(decoded.transpose(0, 2, 3, 1))
    for row in failed:
        decoded[row] = 0  # a user's function sees no foreign memory
    rows: Rows = draws[:, sum(step.draws for step in plan.steps) :].tolist()
    copies, channels, at = levels is not None, 3, 0
    *stages, last = _stages(plan.pixels)
    for steps in stages:
        if isinstance(steps[0], WholeBatch):
            _whole(steps[0], decoded, channels)
            continue

        def change(part: range, steps: Sequence[PixelStep] = steps, channels: int = channels, at: int = at) -> None:
            room = Room(*out.shape[1:3], copies=copies)
            for row in part:
                picture = _run(steps, decoded[row], rows[row][at:], room, channels)
                picture.write(decoded[row, : picture.channels], None)

        _share(change, len(rows), threads)
        channels = _channels(steps, channels)
        at += sum(step.draws for step in steps)

    def finish(part: range) -> None:
        room = Room(*out.shape[1:3], copies=copies)
        for row in part:
            u = rows[row][at:]
            picture = _run(last, decoded[row], u, room, channels)
            pixels = out[row].transpose(2, 0, 1)
            picture.write(pixels, levels)
            u = u[sum(step.draws for step in last) :]
            for step in plan.finish:
                apply_to_floats(step, pixels, u)
                u = u[step.draws :]

    _share(finish, len(rows), threads)
    return failed


def _share(work: Callable[[range], None], count: int, threads: int) -> None:
    """Call ``work`` with runs of 0..count, in threads where that is worth starting them; raise what one raises."""
    threads = min(threads, count // _PICTURES_EACH)
    if threads <= 1:
        work(range(count))
        return
    edges = [count * part // threads for part in range(threads + 1)]
    with ThreadPoolExecutor(threads - 1, "fastdata-pixels") as pool:
        others = [pool.submit(work, range(*edge)) for edge in pairwise(edges[1:])]
        work(range(edges[1]))
    for other in others:
        other.result()


def _room_in(out: NDArray[Any]) -> Bytes:
    """Return memory for the decoded planes, uint8 (n, 3, H, W): in ``out`` where it has that room.

    The planes of a float picture are its last bytes: what writes them to floats takes a copy of them first.
    """
    count, height, width, channels = out.shape
    if out.dtype == np.uint8 and channels == 3:  # noqa: PLR2004  RGB
        return out.transpose(0, 3, 1, 2)
    size, bytes_out = 3 * height * width, out.itemsize * channels * height * width
    if bytes_out < size:
        return np.empty((count, 3, height, width), np.uint8)
    memory = out if out.flags.c_contiguous else out.transpose(0, 3, 1, 2)
    flat: Bytes = memory.reshape(count, channels * height * width).view(np.uint8)
    return flat[:, bytes_out - size :].reshape(count, 3, height, width)


def _stages(steps: Sequence[PixelStep]) -> list[list[PixelStep]]:
    """Return the steps in runs: a whole batch's step alone, and a run (it may be empty) at the end."""
    stages: list[list[PixelStep]] = [[]]
    for step in steps:
        if isinstance(step, WholeBatch):
            stages += [[step], []]
        else:
            stages[-1].append(step)
    return [*(stage for stage in stages[:-1] if stage), stages[-1]]


def _channels(steps: Sequence[PixelStep], channels: int) -> int:
    for step in steps:
        channels = getattr(step, "channels", None) or channels
    return channels


def _run(steps: Sequence[PixelStep], planes: Bytes, u: Sequence[float], room: Room, channels: int) -> Picture:
    """Return the picture after the steps; ``planes`` may have changed."""
    if not planes.flags.c_contiguous or room.copies:
        own: Bytes = room.array("picture", np.uint8, 3)
        own[...] = planes
        planes = own
    picture = Picture(planes, room, channels)
    at = 0
    for step in steps:
        apply(step, picture, u[at : at + step.draws])
        at += step.draws
    return picture


def _whole(step: WholeBatch, decoded: Bytes, channels: int) -> None:
    """Hand a copy (n, H, W, C), contiguous and writable, to the user's function, and take its result back."""
    if not len(decoded):
        return
    given = np.ascontiguousarray(decoded[:, :channels].transpose(0, 2, 3, 1))
    if np.shares_memory(given, decoded):
        given = given.copy()
    decoded[:, :channels] = checked(step.function, given).transpose(0, 3, 1, 2)


def checked(function: Callable[[Bytes], Bytes | None], given: Bytes) -> Bytes:
    """Return what ``function`` makes of the batch, or the batch itself if it gives None, having changed it in place."""
    result = function(given)
    if result is None:
        return given
    if not isinstance(result, np.ndarray) or result.dtype != np.uint8 or result.shape != given.shape:
        got = f"{result.dtype} {result.shape}" if isinstance(result, np.ndarray) else f"a {type(result).__name__}"
        name = getattr(function, "__qualname__", repr(function))
        raise OptionError(
            f"batch_op {name}: expected uint8 {given.shape} back, or None for a change in place; got {got}"
        )
    return result
