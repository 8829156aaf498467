"""A soak: hours of simulated training from packs while readers and their workers are killed at random moments.

Three readers run side by side on the same packs (LMDB, HDF5, tar, a set of tars; one after the other): two loaders in
one process, whose memory and descriptors are followed; a reader that is killed again and again and goes on from its
saved state; and a loader whose worker processes are killed. Every batch of all of them is compared with checksums made
from the source files beforehand. At the end the packs must be the same to the byte.

    python benchmarks/soak.py [--minutes 40] [--pictures 480] [--pause 0.05] [--seed 0] [--json FILE]

Exit code 1 where a batch differed, a pack changed, a reader ended by itself, or memory, descriptors or threads grew.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import queue
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastdata.bench.machine import facts
from fastdata.converters import pack, verify
from fastdata.sample import draw_samples

NAMES = ("out.lmdb", "out.h5", "out.tar", "out-{000000..}.tar")
READER = Path(__file__).with_name("soak_reader.py")
SEEDS = [1, 2, 3, 5]
SHOWN = 120  # points of a curve in the report
WARM_UP, WARM_UP_S = 0.2, 120.0  # of the run, and seconds at least: caches and allocators fill
GROWTH_SHARE = 0.05  # of private memory, what is no growth: allocators keep what they had
START_S = 300.0  # until all readers have read something
AT_WORK = 0.8  # of the victim's kills come when it reads, the others wherever it is, at its imports, too
COUNTS_MORE = 2  # descriptors or threads: a look may fall between an opening and a closing


@dataclass(slots=True)
class Process:
    """A reader at work: its curves and what it told."""

    role: str
    child: subprocess.Popen[str]
    up: bool = False
    next_kill: float = 0.0
    pids: list[int] = field(default_factory=list)


class Soak:
    """Starts readers, kills what is to be killed, and keeps count."""

    def __init__(self, packs: list[Path], known: dict[str, Any], folder: Path, *, pause: float, seed: int) -> None:
        """Start all readers."""
        self._packs, self._known, self._folder, self._pause = packs, known, folder, pause
        self._pick = random.Random(seed)  # noqa: S311  when to kill is no secret
        self._told: queue.SimpleQueue[tuple[Process, dict[str, Any] | None]] = queue.SimpleQueue()
        self.events: Counter[str] = Counter()
        self.batches: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.curves: dict[str, list[dict[str, float]]] = {}
        self._seen: dict[int, int] = {}
        self._began = time.monotonic()
        self._readers = [self._start(role) for role in ("pair", "victim", "workers")]

    def run(self, seconds: float) -> None:
        """Let it run for so long from when all have begun to read, then end everything."""
        try:
            while len(self.batches) < len(self._readers) and time.monotonic() < self._began + START_S:
                with contextlib.suppress(queue.Empty):
                    self._hear(*self._told.get(timeout=1))
            self._began = time.monotonic()
            while (left := self._began + seconds - time.monotonic()) > 0:
                with contextlib.suppress(queue.Empty):
                    self._hear(*self._told.get(timeout=min(0.2, left)))
                self._kill_some()
        finally:
            for reader in self._readers:
                # Worker processes of a killed reader look for their parent every few seconds, and end.
                reader.child.kill()
                reader.child.wait()

    def _start(self, role: str) -> Process:
        turn = {"pair": 0, "victim": 1, "workers": 2}[role]
        packs = [str(p) for p in (*self._packs[turn:], *self._packs[:turn])]
        job = {"role": role, "packs": packs, "known": self._known, "pause": self._pause}
        job["state"] = str(self._folder / "state.pt")
        child = subprocess.Popen(
            [sys.executable, str(READER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        assert child.stdin is not None
        child.stdin.write(json.dumps(job))
        child.stdin.close()
        reader = Process(role, child, next_kill=self._soon())
        threading.Thread(target=self._listen, args=(reader,), daemon=True).start()
        return reader

    def _listen(self, reader: Process) -> None:
        assert reader.child.stdout is not None
        for line in reader.child.stdout:
            with contextlib.suppress(ValueError):  # a line that was torn by a kill
                self._told.put((reader, json.loads(line)))
        reader.child.stdout.close()
        self._told.put((reader, None))

    def _hear(self, reader: Process, told: dict[str, Any] | None) -> None:
        if told is None:
            self._ended(reader)
            return
        event = told.pop("event")
        self.events[f"{reader.role}: {event}"] += 1
        if event in {"up", "alive"}:
            reader.next_kill = reader.next_kill if reader.up else self._soon()
            reader.up = True
            self._note(reader, told)
        elif event == "workers":
            reader.pids = told["pids"]
        elif event == "differs":
            self.wrong.append(f"{reader.role}: batch {told['at']} of epoch {told['epoch']}, seed {told['seed']}")
        elif event == "lost":
            self.events[f"lost workers, seen as {told['error']}"] += 1

    def _note(self, reader: Process, told: dict[str, Any]) -> None:
        if (batches := told.pop("batches", None)) is not None:
            self.batches[reader.role] += batches - self._seen.get(reader.child.pid, 0)
            self._seen[reader.child.pid] = batches
            at = round(time.monotonic() - self._began, 1)
            self.curves.setdefault(reader.role, []).append({"seconds": at, **told})

    def _ended(self, reader: Process) -> None:
        code = reader.child.wait()
        if code != -signal.SIGKILL:
            self.wrong.append(f"{reader.role}: it ended by itself with exit code {code}")
        self._readers[self._readers.index(reader)] = self._start(reader.role)

    def _kill_some(self) -> None:
        """Kill the victim, and a worker of the loader that has some, when their time has come."""
        for reader in self._readers:
            if time.monotonic() < reader.next_kill:
                continue
            if reader.role == "victim":
                if not reader.up and self._pick.random() < AT_WORK:
                    reader.next_kill = self._soon()
                    continue
                reader.child.kill()
                self.events["kills of readers"] += 1
                reader.next_kill = float("inf")
            elif reader.role == "workers":
                if reader.pids:
                    pid = self._pick.choice(reader.pids)
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                        self.events["kills of workers"] += 1
                    reader.pids = []
                reader.next_kill = self._soon()

    def _soon(self) -> float:
        return time.monotonic() + self._pick.uniform(2, 30)


def grown(curve: list[dict[str, float]]) -> list[str]:
    """Return what grew, in words: medians of the first and the last third behind the warm-up are compared."""
    start = max(WARM_UP_S, WARM_UP * curve[-1]["seconds"]) if curve else 0.0
    curve = [point for point in curve if point["seconds"] >= start]
    third = len(curve) // 3
    if third < 2:  # noqa: PLR2004  too short to say
        return []
    found = []
    for name in ("anonymous", "descriptors", "threads"):
        early, late = (statistics.median(p[name] for p in part) for part in (curve[:third], curve[-third:]))
        allowed = GROWTH_SHARE * early if name == "anonymous" else COUNTS_MORE
        if late - early > allowed:
            found.append(f"{name} grew from {early:.1f} to {late:.1f}")
    return found


def thinned(curve: list[dict[str, float]]) -> list[dict[str, float]]:
    """Return some points of a curve, rounded, the first and the last among them."""
    step = max(1, -(-len(curve) // SHOWN))
    some = [*curve[::step], *curve[-1:]]
    return [{name: round(value, 1) for name, value in point.items()} for point in some]


def digest(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file."""
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


def soak(folder: Path, *, minutes: float, pictures: int, pause: float, seed: int) -> dict[str, Any]:
    """Run and return the report; its "wrong" is empty where all went well."""
    files = folder / "files"
    draw_samples(files, count=pictures, seed=seed, size=(240, 180))
    (folder / "packs").mkdir()
    packs = [folder / "packs" / name for name in NAMES]
    for path in packs:
        pack(files, path, workers=1, **({"shards": 3} if "{" in path.name else {}))  # type: ignore[arg-type]
    before = digest(folder / "packs")
    line = json.dumps({"files": str(files), "seeds": SEEDS})
    made = subprocess.run([sys.executable, str(READER)], input=line, stdout=subprocess.PIPE, text=True, check=True)
    run = Soak(packs, json.loads(made.stdout), folder, pause=pause, seed=seed)
    run.run(60 * minutes)
    wrong = list(run.wrong)
    wrong += [f"{role}: {what}" for role in ("pair", "workers") for what in grown(run.curves.get(role, []))]
    wrong += ["a pack's bytes changed"] * (digest(folder / "packs") != before)
    wrong += [f"{path.name} is not what was packed" for path in packs if not verify(path).ok]
    if run.events["workers: lost"] > run.events["kills of workers"]:
        wrong.append("workers: more of them were lost than killed")
    wrong += [f"{role}: it has read nothing" for role in ("pair", "victim", "workers") if not run.batches[role]]
    return {
        "what": "soak",
        "minutes": minutes,
        "setting": {"pictures": pictures, "batch_size": 32, "packs": list(NAMES), "pause": pause, "seed": seed},
        "batches_compared": dict(run.batches),
        "events": dict(sorted(run.events.items())),
        "wrong": wrong,
        "curves": {role: thinned(curve) for role, curve in run.curves.items() if role != "victim"},
        "machine": facts(),
    }


def main() -> int:
    """Run, print the report's end; with --json write all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=40)
    parser.add_argument("--pictures", type=int, default=480)
    parser.add_argument("--pause", type=float, default=0.05, help="seconds a training step waits (default: 0.05)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fastdata-soak-") as scratch:
        report = soak(Path(scratch), minutes=given.minutes, pictures=given.pictures, pause=given.pause, seed=given.seed)
    for role, curve in report["curves"].items():
        first, last = curve[min(len(curve) - 1, int(len(curve) * WARM_UP))], curve[-1]
        print(f"{role}: {report['batches_compared'][role]} batches; after the warm-up {first}, at the end {last}")
    print({name: count for name, count in report["events"].items() if "kills" in name})
    print("wrong:", report["wrong"] or "nothing")
    if given.json:
        given.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 1 if report["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
