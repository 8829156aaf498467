"""A child process with a pipe to and from it: forked where that is safe, a fresh interpreter everywhere else."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Child", "fork_child", "fork_is_safe", "spawn_child"]

_BOOT = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from fastdata.converters.pool import serve; serve()"
_PIPE_BYTES = 1 << 20  # Linux's default most: an answer of a few images goes through in one piece
_POLL_S = 0.01
#: Libraries that start threads of their own, or hold what a forked copy must not have.
_THREADED = frozenset({"torch", "cv2", "tensorflow", "jax", "pyarrow", "sklearn", "IPython", "ray", "dask"})


class Child:
    """A running child: ``requests`` goes to its stdin, ``answers`` comes from it. Owned by the pool."""

    def __init__(
        self, pid: int, requests: IO[bytes], answers: IO[bytes], process: subprocess.Popen[bytes] | None
    ) -> None:
        """Take over the pipes; process is None for a forked child."""
        self.pid, self.requests, self.answers = pid, requests, answers
        self._process = process
        self._code: int | None = None
        self._lock = threading.Lock()
        with contextlib.suppress(ImportError, AttributeError, OSError):
            import fcntl  # noqa: PLC0415  not everywhere

            fcntl.fcntl(answers, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def wait(self, seconds: float) -> int | None:
        """Return the exit code (minus the signal that ended it), None if it still runs after so many seconds."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self._process.wait(seconds)
            return None
        deadline = time.monotonic() + seconds
        while self._poll() is None and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return self._code

    def kill(self) -> None:
        """End it at once; nothing happens where it has ended already."""
        if self._process is not None:
            self._process.kill()
        elif self._poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def hang_up(self) -> None:
        """Close both pipes: a child that is not at work ends."""
        for stream in (self.requests, self.answers):
            with contextlib.suppress(OSError):
                stream.close()

    def _poll(self) -> int | None:
        with self._lock:  # a child is waited for once, or its number may be another process's by then
            if self._code is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self._code = os.waitstatus_to_exitcode(status)
            return self._code


def fork_is_safe() -> bool:
    """Whether this process has one thread only, as far as one can know, so that a copy of it holds no foreign locks.

    numpy's OpenBLAS threads do not count: they are stopped before a fork, by its own handler.
    """
    return sys.platform == "linux" and threading.active_count() == 1 and not _THREADED & sys.modules.keys()


def fork_child(serve: Callable[[IO[bytes], IO[bytes]], None], others: Sequence[Child]) -> Child:
    """Return a copy of this process that runs ``serve(requests, answers)`` and ends; it imports nothing again."""
    request_out, request_in = os.pipe()
    answer_out, answer_in = os.pipe()
    # An interrupt between the fork and the child's own session would unwind the caller's stack in the copy, too.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 counts OpenBLAS's threads, too
            pid = os.fork()
        if not pid:
            _be_a_child(serve, (request_out, answer_in), (request_in, answer_out), others)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.close(request_out)
    os.close(answer_in)
    return Child(pid, os.fdopen(request_in, "wb"), os.fdopen(answer_out, "rb"), None)


def _be_a_child(
    serve: Callable[[IO[bytes], IO[bytes]], None],
    ours: tuple[int, int],
    parents: tuple[int, int],
    others: Sequence[Child],
) -> None:
    """Never returns: what the parent has registered for its own end (temporary folders, ...) must not run here."""
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
        gc.freeze()  # the parent's objects are not ours to finalise
        for descriptor in parents:
            os.close(descriptor)
        for other in others:
            other.hang_up()
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)  # what a library prints goes where errors go, as in a fresh interpreter
        os.dup2(2, 1)
        serve(os.fdopen(ours[0], "rb"), os.fdopen(ours[1], "wb"))
        code = 0
    finally:
        os._exit(code)


def spawn_child() -> Child:
    """Return a fresh interpreter that runs ``pool.serve()``."""
    process = subprocess.Popen(  # noqa: S603  our own interpreter and text
        [sys.executable, "-c", _BOOT, json.dumps(sys.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    return Child(process.pid, process.stdin, process.stdout, process)
