"""What is on a disk after a power cut, from a record of system calls; recorder.c writes it.

The model is stricter than file systems are: of what was not synced when the power went, any part may be there. A
change of a folder (a name that comes, goes or moves) is safe once that folder was synced, bytes and lengths of a file
once the file was. A rename is one change. What is not safe is kept or lost, each for itself; a write may also be torn
at a sector of 512 bytes, or leave zeros where its bytes belong.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECTOR = 512


@dataclass(frozen=True)
class Call:
    """One system call: see recorder.c for the ops. Paths are relative to the recorded folder, which is "." itself."""

    op: str
    first: str
    second: str
    offset: int
    data: bytes


def read_record(path: Path, under: Path) -> list[Call]:
    data, at, calls = path.read_bytes(), 0, []
    while at < len(data):
        end = data.index(b"\n", at)
        op, first, second, offset, length = data[at:end].decode().split()
        at, texts = end + 1, []
        for size in (int(first), int(second)):
            texts.append(data[at : at + size].decode())
            at += size
        if op != "M":
            texts = [str(Path(text).relative_to(under)) if text else "" for text in texts]
        calls.append(Call(op, *texts, int(offset), data[at : at + int(length)]))
        at += int(length)
    return calls


@dataclass
class Change:
    """What one call does: to a file's bytes (``of`` is the file), or to names in a folder (``of`` is the folder)."""

    of: int
    number: int
    safe_at: int | None = None  # the call after which it is on the disk for good
    entries: dict[tuple[int, str], int | None] = field(default_factory=dict)  # (folder, name) -> file; None: gone
    write: tuple[int, bytes] | None = None
    length: int | None = None


@dataclass
class Tree:
    """Files by path, and all folders."""

    files: dict[str, bytes]
    folders: set[str]

    def make(self, at: Path) -> None:
        for name in sorted(self.folders):
            (at / name).mkdir(parents=True, exist_ok=True)
        for name, data in self.files.items():
            (at / name).write_bytes(data)


class Disk:
    """The recorded calls as changes, each with the moment from which it is safe."""

    def __init__(self, calls: list[Call]) -> None:
        self.calls = calls
        self.changes: list[Change] = []
        self.marks = {call.first: number for number, call in enumerate(calls) if call.op == "M"}
        self._names: dict[tuple[int, str], int] = {}
        self._folders, self._next = {0}, 1
        for number, call in enumerate(calls):
            self._take(number, call)

    def _find(self, path: str) -> int:
        node = 0
        for name in Path(path).parts:
            node = self._names[node, name]
        return node

    def _place(self, path: str) -> tuple[int, str]:
        return self._find(str(Path(path).parent)), Path(path).name

    def _rename(self, number: int, entries: dict[tuple[int, str], int | None]) -> None:
        (folder,) = {folder for folder, _ in entries}
        self.changes.append(Change(folder, number, entries=entries))
        for place, node in entries.items():
            if node is None:
                self._names.pop(place, None)
            else:
                self._names[place] = node

    def _take(self, number: int, call: Call) -> None:
        if call.op in "cmudre":
            self._rename(number, self._entries(call))
        elif call.op == "w":
            self.changes.append(Change(self._find(call.first), number, write=(call.offset, call.data)))
        elif call.op == "t":
            self.changes.append(Change(self._find(call.first), number, length=call.offset))
        elif call.op == "s":
            node = self._find(call.first)
            for change in self.changes:
                if change.of == node and change.safe_at is None:
                    change.safe_at = number
        else:
            assert call.op == "M", f"the model does not know {call}"

    def _entries(self, call: Call) -> dict[tuple[int, str], int | None]:
        """Which names the call makes, and for what."""
        place = self._place(call.first)
        if call.op in "ud":
            return {place: None}
        if call.op in "re":
            other = self._find(call.second) if call.op == "e" else None
            return {place: other, self._place(call.second): self._find(call.first)}
        node, self._next = self._next, self._next + 1
        if call.op == "m":
            self._folders.add(node)
        return {place: node}

    def after(self, calls: int, fate: Callable[[Change, bool], str]) -> Tree:
        """What is there where the power goes after so many calls; ``fate`` says what becomes of what is not safe.

        fate(change, of a folder): "kept", "lost", "zeros" (of a write) or "torn:N" (its first N bytes are there).
        """
        names: dict[tuple[int, str], int] = {}
        data: dict[int, bytearray] = {}
        for change in self.changes:
            if change.number >= calls:
                break
            safe = change.safe_at is not None and change.safe_at < calls
            what = "kept" if safe else fate(change, bool(change.entries))
            if what == "lost":
                continue
            for place, node in change.entries.items():
                if node is None:
                    names.pop(place, None)
                else:
                    names[place] = node
            if change.length is not None:
                file = data.setdefault(change.of, bytearray())
                file[:] = file[: change.length].ljust(change.length, b"\0")
            if change.write is not None:
                _write(data.setdefault(change.of, bytearray()), *change.write, what)
        return self._tree(names, data)

    def _tree(self, names: dict[tuple[int, str], int], data: dict[int, bytearray]) -> Tree:
        tree = Tree({}, set())

        def walk(folder: int, path: str) -> None:
            for (parent, name), node in names.items():
                if parent == folder and node in self._folders:
                    tree.folders.add(f"{path}{name}")
                    walk(node, f"{path}{name}/")
                elif parent == folder:
                    tree.files[f"{path}{name}"] = bytes(data.get(node, b""))

        walk(0, "")
        return tree

    def boundaries(self) -> Iterator[int]:
        """Yield after how many calls something else than a write has just happened, or is about to."""
        for number, call in enumerate(self.calls):
            if call.op not in "wtM":
                yield number
                yield number + 1


def _write(file: bytearray, offset: int, data: bytes, what: str) -> None:
    if what == "zeros":
        data = bytes(len(data))
    elif what.startswith("torn:"):
        data = data[: int(what[5:])]
    if len(file) < offset:
        file.extend(bytes(offset - len(file)))
    file[offset : offset + len(data)] = data
