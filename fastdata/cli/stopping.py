"""What a packing that is stopped says: by Ctrl-C, a batch system's SIGTERM, or a closed terminal's SIGHUP."""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["TerminatedError", "stoppable"]


_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class TerminatedError(KeyboardInterrupt):
    """SIGTERM or SIGHUP came (``number``): the run ends as at a Ctrl-C, all cleaned up, with another exit code."""

    def __init__(self, number: int = signal.SIGTERM) -> None:
        """Remember which it was."""
        super().__init__()
        self.number = int(number)


@contextmanager
def stoppable(dst: str, *, resume: bool | None) -> Iterator[None]:
    """Say on stderr, where the run inside is stopped, what lies at ``dst`` and how to go on; raise again."""
    here = threading.current_thread() is threading.main_thread()
    # What somebody handles or ignores already (nohup and SIGHUP) stays as it is.
    ours = [number for number in _SIGNALS if here and signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, _terminate)
    try:
        yield
    except KeyboardInterrupt:
        with suppress(OSError):  # a closed terminal shows nothing
            print(f"fastdata: {_left(dst, resume=bool(resume))}", file=sys.stderr)
        raise
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _terminate(number: int, _: object) -> NoReturn:
    for one in _SIGNALS:
        if signal.getsignal(one) is _terminate:
            signal.signal(one, signal.SIG_IGN)  # a second one must not interrupt the cleaning up
    raise TerminatedError(number)


def _left(dst: str, *, resume: bool) -> str:
    from fastdata.converters.writers import is_half

    if is_half(dst):
        return f"{dst} is incomplete now, and does not open: give the same command again, with --overwrite"
    if resume:
        return "finished work is kept; the same command goes on with it"
    return f"{dst} is as it was before; the same command begins anew (--resume would keep finished work)"
