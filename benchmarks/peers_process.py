"""One contender in a process of its own: its threads, memory and crashes are nobody else's; rounds go by a pipe."""

from __future__ import annotations

import contextlib
import gc
import importlib
import multiprocessing
import shutil
import tempfile
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from peers_settings import MEAN, STD

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    import torch
    from peers_settings import Settings

__all__ = ["Contender", "Look", "private_megabytes"]

_PATIENCE = 300  # seconds for a contender's answer: compiling, a round
_LINE = 300  # characters of an error that are worth a row


@dataclass(frozen=True, slots=True)
class Look:
    """What a contender's batches are: shape of an image, dtype, mean in grey levels of some thousand of them."""

    shape: tuple[int, ...]
    dtype: str
    mean: float
    first_batch_seconds: float
    private_megabytes: float


class Contender:
    """A peer that is open and waits; ``failure`` says why where it is not: "missing: ..." or "failed: ..."."""

    def __init__(self, peer: str, folder: Path, settings: Settings, *, epochs: int, looked_at: int) -> None:
        """Write the peer's data, start its process and wait until it is open.

        epochs: of a round. looked_at: images of the warm-up at least.
        """
        self.failure = ""
        self._scratch = Path(tempfile.mkdtemp(dir=settings.scratch))
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        own = replace(settings, scratch=self._scratch)
        self._process = context.Process(target=_serve, args=(other, f"peers_{peer}", folder, own, epochs, looked_at))
        try:
            module = importlib.import_module(f"peers_{peer}")
            if hasattr(module, "prepare"):
                module.prepare(folder, own)
        except Exception as error:  # noqa: BLE001  one contender's failure is a row of the table
            self.failure = _failure(error)
            return
        self._process.start()
        other.close()
        self._ask()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def warm_up(self) -> Look | None:
        """Take a round that is not counted, and look at its batches; None where it fails."""
        answer = self._ask("look")
        return answer if isinstance(answer, Look) else None

    def round(self) -> tuple[int, float] | None:
        """Return (images, seconds) of a round; None where it fails."""
        answer = self._ask("round")
        return answer if isinstance(answer, tuple) else None

    def close(self) -> None:
        """End the process and remove its files; may be called twice."""
        if self._process.pid is not None and self._process.is_alive():
            with contextlib.suppress(OSError):  # it ended by itself meanwhile
                self._pipe.send("end")
            self._process.join(10)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _ask(self, word: str = "") -> object:
        if self.failure:
            return None
        try:
            if word:
                self._pipe.send(word)
            answer = self._pipe.recv() if self._pipe.poll(_PATIENCE) else f"failed: no answer in {_PATIENCE} s"
        except (EOFError, OSError):
            self._process.join(10)
            answer = f"failed: its process ended with exit code {self._process.exitcode}"
        if isinstance(answer, str) and answer != "open":
            self.failure = answer
        return answer


def private_megabytes() -> float:
    """Return RssAnon of this process and of all processes below it, in MB (10**6 bytes)."""
    waiting, total = [Path("/proc/self")], 0
    while waiting:
        process = waiting.pop()
        try:
            lines = (process / "status").read_text().splitlines()
            children = [file.read_text().split() for file in process.glob("task/*/children")]
        except OSError:
            continue  # it just ended
        total += next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))
        waiting += [Path("/proc", child) for some in children for child in some]
    return total * 1024 / 1e6


def _serve(pipe: Connection, module: str, folder: Path, settings: Settings, epochs: int, looked_at: int) -> None:
    warnings.simplefilter("ignore")  # peers warn of their own dependencies
    loader = None
    try:
        loader = importlib.import_module(module).open(folder, settings)
        pipe.send("open")
        while (word := pipe.recv()) != "end":
            pipe.send(_look(loader, looked_at) if word == "look" else _round(loader, epochs))
    except EOFError:
        pass  # the benchmark was interrupted
    except Exception as error:  # noqa: BLE001  one contender's failure is a row of the table
        pipe.send(_failure(error))
    loader = None
    gc.collect()  # worker processes end here, not in the middle of Python's own end


def _failure(error: Exception) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    kind = "missing" if isinstance(error, ImportError) else "failed"
    return f"{kind}: {text if len(text) < _LINE else '...' + text[-_LINE:]}"


def _round(loader: Any, epochs: int) -> tuple[int, float]:  # noqa: ANN401
    count, start = 0, time.perf_counter()
    for _ in range(epochs):
        for images in loader:
            count += len(images)
    return count, time.perf_counter() - start


def _look(loader: Any, least: int) -> Look:  # noqa: ANN401
    means: list[float] = []
    start, first, count = time.perf_counter(), 0.0, 0
    while count < least:
        for images in loader:
            first = first or time.perf_counter() - start
            means.append(_levels(images))
            count += len(images)
            shape, dtype = tuple(images.shape[1:]), str(images.dtype)
        if not means:
            msg = "an epoch without a batch: too few images for the batch size"
            raise ValueError(msg)
    return Look(shape, dtype, sum(means) / len(means), first, private_megabytes())


def _levels(images: torch.Tensor) -> float:
    mean = images[:, :, ::3].float().mean((0, 2, 3))  # every third row is enough
    if images.is_floating_point():
        mean = 255 * (mean * mean.new_tensor(STD) + mean.new_tensor(MEAN))
    return float(mean.mean())
