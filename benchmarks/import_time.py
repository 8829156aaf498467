"""What ``import fastdata`` costs: wall time of a process that imports it, over one that imports nothing.

    python benchmarks/import_time.py [--rounds 10] > import_time.json

Prints JSON: medians in seconds, what the import system itself counts (``-X importtime``), and which modules it brought
that a bare interpreter has not. Asserts nothing: a machine that is busy is no error.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import statistics
import subprocess
import sys
import time

# The package's root and the command line: what a user waits for before anything of theirs runs.
STATEMENTS = ("import fastdata", "import fastdata.cli.main")
_LINE = re.compile(r"import time:\s*\d+\s*\|\s*(\d+)\s*\|\s*(\S+)$")


def wall(statement: str) -> float:
    """Return the seconds a process takes that runs ``statement``."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True)
    return time.perf_counter() - start


def counted(statement: str) -> float:
    """Return the seconds that ``-X importtime`` counts for the module that ``statement`` imports."""
    name = statement.split()[1]
    text = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", statement], check=True, capture_output=True, text=True
    ).stderr
    times = {match[2]: int(match[1]) for match in map(_LINE.match, text.splitlines()) if match}
    return times[name] / 1e6


def brought(statement: str) -> list[str]:
    """Return the top-level modules that ``statement`` adds to a bare interpreter."""
    code = f"import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    text = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    return sorted({name.partition(".")[0] for name in text.split()})


def main() -> None:
    """Measure in turns, so that a busy moment hits all alike, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    bare: list[float] = []
    walls: dict[str, list[float]] = {statement: [] for statement in STATEMENTS}
    for statement in STATEMENTS:
        wall(statement)  # files into the page cache, bytecode written
    for _ in range(rounds):
        bare.append(wall("pass"))
        for statement in STATEMENTS:
            walls[statement].append(wall(statement))
    floor = statistics.median(bare)
    result = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "rounds": rounds,
        "bare_python_s": round(floor, 4),
        "over_bare_s": {name: round(statistics.median(times) - floor, 4) for name, times in walls.items()},
        "importtime_s": {
            name: round(statistics.median(counted(name) for _ in range(rounds)), 4) for name in STATEMENTS
        },
        "import_fastdata_brings": brought("import fastdata"),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
