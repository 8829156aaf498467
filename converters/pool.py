"""Worker processes for packing: a concurrent.futures.Executor over plain child processes of the interpreter.

Why not ProcessPoolExecutor: with fork it copies a threaded parent's locks; with spawn or forkserver it runs the
caller's main script again in every worker, so a script without an ``if __name__ == "__main__"`` guard breaks, and
torch is imported once per worker where the script does. These children import what a task names, nothing else; they
end with their parent, however it ends, and they never see its Ctrl-C.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import warnings
from concurrent.futures import BrokenExecutor, Executor, Future
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["WorkerDiedError", "WorkerPool", "serve"]

_BOOT = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from fastdata.converters.pool import serve; serve()"
_PRELOAD = "fastdata.converters.work"  # imported before the first task, while the parent still opens source and writer
_PATIENCE_S = 5.0  # for a worker that was told to end, before it is killed
_PIPE_BYTES = 1 << 20  # Linux's default most: an answer of a few images goes through in one piece


class WorkerDiedError(BrokenExecutor):
    """A worker process ended in the middle of a task."""


class WorkerPool(Executor):
    """Runs picklable, importable functions in ``workers`` child processes; each has one task at a time.

    A worker that dies fails its task and every later one with WorkerDiedError. shutdown ends the children.
    """

    def __init__(self, workers: int) -> None:
        """Start the children (at once, so that they import side by side)."""
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._broken: WorkerDiedError | None = None
        self._closed = False
        self._children: list[subprocess.Popen[bytes]] = []
        self._threads: list[threading.Thread] = []
        try:
            for _ in range(workers):
                self._children.append(_start())
        except BaseException:
            self._kill()
            raise
        for child in self._children:
            thread = threading.Thread(target=self._feed, args=(child,), name="fastdata-pack", daemon=True)
            self._threads.append(thread)
            thread.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:  # noqa: ANN401  Executor's own
        """Queue ``fn(*args, **kwargs)`` for the next free worker."""
        if self._closed:
            msg = "cannot submit to a pool that was shut down"
            raise RuntimeError(msg)
        if self._broken:
            raise self._broken
        future: Future[Any] = Future()
        self._tasks.put((future, fn, args, kwargs))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002  Executor's own
        """End the children, after the queued tasks or, with ``cancel_futures``, right away; may be called twice."""
        first, self._closed = not self._closed, True
        if cancel_futures:
            self._drain(None)
            self._kill()
        if first or cancel_futures:
            for _ in self._threads:
                self._tasks.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def _feed(self, child: subprocess.Popen[bytes]) -> None:
        while (task := self._tasks.get()) is not None:
            future, fn, args, kwargs = task
            if not future.set_running_or_notify_cancel():
                continue
            try:
                good, value = _ask(child, (fn, args, kwargs))
            except (EOFError, OSError, pickle.UnpicklingError):
                self._broken = WorkerDiedError(f"a worker process ended in the middle of its work ({_how(child)})")
                future.set_exception(self._broken)
                self._drain(self._broken)
                break
            except Exception as error:  # noqa: BLE001  what cannot be pickled is the caller's to see
                future.set_exception(error)
                continue
            if good:
                future.set_result(value)
            else:
                future.set_exception(value)
            del future, value, task  # an answer must not live until the next one
        _end(child)

    def _drain(self, error: BaseException | None) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                task = self._tasks.get_nowait()
                if task is None:
                    continue
                if error is None:
                    task[0].cancel()
                elif task[0].set_running_or_notify_cancel():
                    task[0].set_exception(error)

    def _kill(self) -> None:
        for child in self._children:
            child.kill()


_Task = tuple["Future[Any]", "Callable[..., Any]", tuple[Any, ...], dict[str, Any]]


def _start() -> subprocess.Popen[bytes]:
    child = subprocess.Popen(  # noqa: S603  our own interpreter and text
        [sys.executable, "-c", _BOOT, json.dumps(sys.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl  # noqa: PLC0415  not everywhere

        assert child.stdout is not None
        fcntl.fcntl(child.stdout, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return child


def _ask(child: subprocess.Popen[bytes], request: object) -> tuple[bool, Any]:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(pickle.dumps(request, pickle.HIGHEST_PROTOCOL))
    child.stdin.flush()
    return pickle.load(child.stdout)  # type: ignore[no-any-return]  # noqa: S301  our own child's answer


def _how(child: subprocess.Popen[bytes]) -> str:
    try:
        code = child.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        return "it closed its pipe"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"


def _end(child: subprocess.Popen[bytes]) -> None:
    for stream in (child.stdin, child.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    try:
        child.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def serve() -> None:
    """Answer requests on stdin until it ends: the main loop of a child."""
    requests, answers = _take_streams()
    importlib.import_module(_PRELOAD)
    warnings.simplefilter("ignore")  # of Pillow, about files that decode all the same; those that do not are reported
    while True:
        try:
            fn, args, kwargs = pickle.load(requests)  # noqa: S301  our own parent's request
        except (EOFError, OSError):
            return
        answer: tuple[bool, Any]
        try:
            answer = True, fn(*args, **kwargs)
        except Exception as error:  # noqa: BLE001  the parent raises it
            answer = False, error
        try:
            data = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # noqa: BLE001  the parent must get an answer
            data = pickle.dumps((False, RuntimeError(f"a worker's answer cannot be sent: {error}")))
        try:
            answers.write(data)
            answers.flush()
        except OSError:  # the parent is gone
            return
        del answer, data


def _take_streams() -> tuple[IO[bytes], IO[bytes]]:
    """Keep the two pipes to ourselves: a library that reads stdin or prints must not meet the protocol."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return requests, answers
