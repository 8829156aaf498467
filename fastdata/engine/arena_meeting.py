"""Ranks of one job find each other's arena: the first to bind a name makes it, the others open what it has.

The name is a socket's in Linux's abstract namespace: binding is atomic, no file is made, and the kernel forgets the
name when the last holder dies, however it dies. Nobody serves the socket: a connection tells who listens (SO_PEERCRED),
and the memory is opened from that process's descriptors, which the kernel allows the same user only.
"""

from __future__ import annotations

import hashlib
import os
import socket
import struct
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from fastdata.engine.shared_arena import SharedArena, new_memory, open_of_process
from fastdata.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["meet"]

_PATIENCE = 5.0  # seconds, for a maker that has bound the name and does not listen yet
_BACKLOG = 4096  # connections are never accepted; each rank makes one


def meet(slots: int, size: int, identity: Hashable) -> SharedArena:
    """Return the arena that the processes of this job with an equal ``identity`` share; a private one if that fails.

    A job is what one parent process started. ``size`` is the first one's.
    """
    about = repr((identity, slots, os.getuid(), os.getppid(), _started(os.getppid()))).encode(
        "utf-8", "surrogateescape"
    )
    label = "-" + hashlib.blake2b(about, digest_size=16).hexdigest()
    address = f"\0fastdata-cache{label}"
    give_up = time.monotonic() + _PATIENCE
    while True:
        place = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            place.bind(address)
        except OSError:
            place.close()
        else:
            arena = SharedArena(new_memory(slots, size, label), place.close)
            place.listen(_BACKLOG)
            return arena
        found = _of_maker(address, label)
        if found is not None:
            return found
        if time.monotonic() > give_up:
            return SharedArena.make(slots, size)
        time.sleep(0.005)


def _of_maker(address: str, label: str) -> SharedArena | None:
    """Return the maker's arena, or None where there is none (yet)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(0.2)
        try:
            caller.connect(address)
            credentials = caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        except OSError:
            return None
    process, user, _ = struct.unpack("3i", credentials)
    if user != os.getuid():
        return None
    wanted = f"/memfd:fastdata-cache{label} (deleted)"
    with suppress(OSError, OptionError, ValueError):
        for name in os.listdir(f"/proc/{process}/fd"):  # noqa: PTH208  names, thousands of them
            with suppress(OSError):
                if os.readlink(f"/proc/{process}/fd/{name}") == wanted:  # noqa: PTH115  the text is compared
                    return SharedArena(open_of_process(process, int(name)))
    return None


def _started(process: int) -> str:
    """Return when a process started, in the kernel's ticks: its number alone may be used again."""
    try:
        with open(f"/proc/{process}/stat", encoding="ascii", errors="replace") as file:  # noqa: PTH123  one line
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
