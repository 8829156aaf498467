"""Programs of edits: some bytes that say how a good file becomes a broken one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

_EDIT = 12  # bytes of one edit: operation u8, place u24, value u64, little-endian
_MOST_EDITS = 20
_INTERESTING = (
    0, 1, 2, 3, 7, 8, 16, 17, 127, 128, 255, 256, 511, 512, 4095, 4096, 4097, 32767, 32768, 65535, 65536, 2**24 - 1,
    2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**47, 2**53, 2**62, 2**63 - 4096, 2**63 - 1, 2**63, 2**64 - 4096,
    2**64 - 2, 2**64 - 1,
)  # fmt: skip
#: Bytes of the longest program; its first chooses the file and whether sums are made to fit.
LONGEST = 1 + _MOST_EDITS * _EDIT


def patched(whole: bytes, hot: Sequence[int], program: bytes) -> bytes:
    """Return ``whole`` after the edits of a program; ``hot`` are the positions where most edits should go."""
    data = bytearray(whole)
    for start in range(0, min(len(program), _MOST_EDITS * _EDIT) - _EDIT + 1, _EDIT):
        how, value = program[start], int.from_bytes(program[start + 4 : start + _EDIT], "little")
        place = int.from_bytes(program[start + 1 : start + 4], "little")
        if not data:
            break
        place = hot[place % len(hot)] % len(data) if how & 8 and hot else place % len(data)
        operation, width = how & 7, 1 << (how & 3)
        if how & 16:
            value = _INTERESTING[value % len(_INTERESTING)]
        if operation < 5:  # 4: one bit
            old = int.from_bytes(data[place : place + width], "little")
            value = old ^ 1 << value % 8 if operation == 4 else old + value % 33 - 16 if how & 32 else value
            order = "big" if how & 64 else "little"
            data[place : place + width] = (value % 2 ** (8 * width)).to_bytes(width, order)
        elif operation == 5:
            del data[place + (value % 512 if how & 32 else 0) :]
        elif operation == 6:
            del data[place : place + value % 4096]
        else:
            source, length = value % len(data), (value >> 32) % 4096
            data[place : place + (0 if how & 32 else length)] = data[source : source + length]
    return bytes(data)


def programs() -> list[bytes]:
    """Programs of a few edits, of every kind."""
    rng = np.random.default_rng(3)
    made = [bytes([n]) for n in (*range(6), 128, 129, 130, 131)]
    for _ in range(60):
        edits = rng.integers(0, 256, (int(rng.integers(1, 4)), _EDIT), np.uint8)
        edits[:, 0] = (edits[:, 0] & 0x60) | rng.choice([8, 9, 10, 11, 24, 25, 26, 27, 12, 5, 7], len(edits))
        made.append(bytes([int(rng.integers(0, 256))]) + edits.tobytes())
    return made
