"""Worker processes for packing: a concurrent.futures.Executor over children that answer through pipes.

Why not ProcessPoolExecutor: with fork it copies a threaded parent's locks; with spawn or forkserver it runs the
caller's main script again in every worker, so a script without an ``if __name__ == "__main__"`` guard breaks, and
torch is imported once per worker where the script does. These children import what a task names, nothing else (and
nothing at all where the parent has a single thread and can be forked); they end with their parent, however it ends,
and they never see its Ctrl-C.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import queue
import selectors
import signal
import threading
import warnings
from concurrent.futures import BrokenExecutor, Executor, Future
from typing import IO, TYPE_CHECKING, Any

from fastdata.converters.child import fork_child, fork_is_safe, spawn_child

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastdata.converters.child import Child

__all__ = ["WorkerDiedError", "WorkerPool", "serve"]

_PRELOAD = "fastdata.converters.work"  # imported before the first task, while the parent still opens source and writer
_UP = "up"  # what a child says when it is ready for its first task
_PATIENCE_S = 5.0  # for a worker that was told to end, before it is killed
_START_S = 120.0  # for a worker's first sign of life: its imports may come from a slow disk
_MOST_DEATHS = 100  # of workers in a run: more is no file's fault, but the machine's


class WorkerDiedError(BrokenExecutor):
    """A worker process ended in the middle of a task."""


class WorkerPool(Executor):
    """Runs picklable, importable functions in ``workers`` child processes; each has one task at a time.

    A worker that dies, or has no answer after ``timeout`` seconds and is killed, fails its task with WorkerDiedError,
    and another one takes its place; after a hundred deaths every later task fails. shutdown ends the children.
    """

    def __init__(self, workers: int, timeout: float | None = None) -> None:
        """Start the children (at once, so that they import side by side)."""
        self._timeout, self._deaths, self._lock = timeout, 0, threading.Lock()
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._broken: WorkerDiedError | None = None
        self._ended = self._closed = False
        self._children: list[Child] = []
        self._threads: list[threading.Thread] = []
        try:
            forks = fork_is_safe()
            for _ in range(workers):
                self._children.append(fork_child(_answer, self._children) if forks else spawn_child())
        except BaseException:
            self._kill()
            raise
        for child in self._children:
            thread = threading.Thread(target=self._feed, args=(child,), name="fastdata-pack", daemon=True)
            self._threads.append(thread)
            thread.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:  # noqa: ANN401  Executor's own
        """Queue ``fn(*args, **kwargs)`` for the next free worker."""
        future: Future[Any] = Future()
        with self._lock:  # what is queued behind the end would wait for ever
            if self._ended:
                msg = "cannot submit to a pool that was shut down"
                raise RuntimeError(msg)
            if self._broken:
                raise self._broken
            self._tasks.put((future, fn, args, kwargs))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002  Executor's own
        """End the children, after the queued tasks or, with ``cancel_futures``, right away; may be called twice."""
        with self._lock:
            # A worker that dies while its queued tasks are being finished is still replaced.
            first, self._ended = not self._ended, True
            self._closed = self._closed or cancel_futures
        if cancel_futures:
            self._drain(None)
            self._kill()
        if first or cancel_futures:
            for _ in self._threads:
                self._tasks.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def _feed(self, child: Child) -> None:
        up = False
        while (task := self._tasks.get()) is not None:
            future, fn, args, kwargs = task
            if not future.set_running_or_notify_cancel():
                continue
            try:
                up = up or _is_up(child, self._timeout)
                good, value = _ask(child, (fn, args, kwargs), self._timeout)
            except (EOFError, OSError, pickle.UnpicklingError) as error:
                slow = isinstance(error, TimeoutError)
                text = f"it had no answer for {self._timeout:g} s and was stopped" if slow else _how(child)
                died = WorkerDiedError(f"a worker process ended in the middle of its work ({text})")
                another = self._another(child)
                if another is None:
                    with self._lock:
                        self._broken = died
                    future.set_exception(died)
                    self._drain(died)
                    break
                child, up = another, False
                future.set_exception(died)
                continue
            except Exception as error:  # noqa: BLE001  what cannot be pickled is the caller's to see
                future.set_exception(error)
                continue
            if good:
                future.set_result(value)
            else:
                future.set_exception(value)
            del future, value, task  # an answer must not live until the next one
        _end(child)

    def _another(self, dead: Child) -> Child | None:
        """Return a new child in the place of a dead one, None where the pool ends or too many have died."""
        dead.hang_up()
        dead.kill()
        dead.wait(_PATIENCE_S)
        with self._lock:
            self._deaths += 1
            if self._closed or self._deaths > _MOST_DEATHS:
                return None
            try:
                child = spawn_child()  # this process has threads by now: no fork
            except OSError:
                return None
            self._children[self._children.index(dead)] = child
            return child

    def _drain(self, error: BaseException | None) -> None:
        """Take all tasks off the queue; the words to end stay, as each is for another thread."""
        ends = 0
        with contextlib.suppress(queue.Empty):
            while True:
                task = self._tasks.get_nowait()
                if task is None:
                    ends += 1
                elif error is None:
                    task[0].cancel()
                elif task[0].set_running_or_notify_cancel():
                    task[0].set_exception(error)
        for _ in range(ends):
            self._tasks.put(None)

    def _kill(self) -> None:
        with self._lock:
            for child in self._children:
                child.kill()


_Task = tuple["Future[Any]", "Callable[..., Any]", tuple[Any, ...], dict[str, Any]]


def _ask(child: Child, request: object, timeout: float | None) -> tuple[bool, Any]:
    child.requests.write(pickle.dumps(request, pickle.HIGHEST_PROTOCOL))
    child.requests.flush()
    # One answer a request: nothing of the next one can lie in the stream's buffer.
    if timeout is not None and not _has_answer(child, timeout):
        raise TimeoutError
    return pickle.load(child.answers)  # type: ignore[no-any-return]  # noqa: S301  our own child's answer


def _is_up(child: Child, timeout: float | None) -> bool:
    """Wait for the child's first sign of life, which does not count as work; raise as ``_ask`` does."""
    if timeout is not None and not _has_answer(child, max(timeout, _START_S)):
        raise TimeoutError
    return pickle.load(child.answers) == _UP  # type: ignore[no-any-return]  # noqa: S301  our own child's answer


def _has_answer(child: Child, timeout: float) -> bool:
    with selectors.DefaultSelector() as selector:  # not select(): descriptors may be beyond 1024
        selector.register(child.answers, selectors.EVENT_READ)
        return bool(selector.select(timeout))


def _how(child: Child) -> str:
    code = child.wait(_PATIENCE_S)
    if code is None:
        return "it closed its pipe"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"


def _end(child: Child) -> None:
    child.hang_up()
    if child.wait(_PATIENCE_S) is None:
        child.kill()
        child.wait(_PATIENCE_S)


def serve() -> None:
    """Answer requests on stdin until it ends: the main loop of a child that is a fresh interpreter."""
    _answer(*_take_streams())


def _answer(requests: IO[bytes], answers: IO[bytes]) -> None:
    importlib.import_module(_PRELOAD)
    with contextlib.suppress(OSError):  # the parent is gone: the first request says so, too
        answers.write(pickle.dumps(_UP))
        answers.flush()
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
