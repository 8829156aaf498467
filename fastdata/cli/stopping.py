"""What a packing that is stopped says: by Ctrl-C, or by the SIGTERM of a batch system that takes the machine back."""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["TerminatedError", "stoppable"]


class TerminatedError(KeyboardInterrupt):
    """SIGTERM came: the run ends as at a Ctrl-C, with everything cleaned up, and another exit code."""


@contextmanager
def stoppable(dst: str, *, resume: bool | None) -> Iterator[None]:
    """Say on stderr, where the run inside is stopped, what lies at ``dst`` and how to go on; raise again."""
    here = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    if here and before is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    except KeyboardInterrupt:
        print(f"fastdata: {_left(dst, resume=bool(resume))}", file=sys.stderr)
        raise
    finally:
        if here and before is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, before)


def _terminate(*_: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not interrupt the cleaning up
    raise TerminatedError


def _left(dst: str, *, resume: bool) -> str:
    from fastdata.converters.writers import is_half

    if is_half(dst):
        return f"{dst} is incomplete now, and does not open: give the same command again, with --overwrite"
    if resume:
        return "finished work is kept; the same command goes on with it"
    return f"{dst} is as it was before; the same command begins anew (--resume would keep finished work)"
