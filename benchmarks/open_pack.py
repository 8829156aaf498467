"""How long it takes to open a pack of a million records, and how much memory: prints a table, or JSON with --json."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_OPEN = """
import json, sys, time
def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))
import fastdata
before = status("VmRSS")
start = time.perf_counter()
store = fastdata.open_store(sys.argv[1])
seconds = time.perf_counter() - start
values = {"seconds": seconds, "rss_bytes": status("VmRSS"), "rss_grew_bytes": status("VmRSS") - before,
          "peak_bytes": status("VmHWM"), "private_bytes": status("RssAnon")}
assert store.read(len(store) - 1)[:3] == b"\\xff\\xd8\\xff"
values["samples"] = len(store)
print(json.dumps(values))
"""


def write_pack(path: Path, samples: int) -> float:
    """Write a pack of tiny records whose index is that of a real one; return seconds."""
    from fastdata.converters.writers import WriterOptions, open_writer
    from fastdata.types import Field, Record

    start = time.perf_counter()
    writer = open_writer(path, WriterOptions(samples=samples))
    for i in range(samples):
        image = Field("image", "jpeg", b"\xff\xd8\xff" + i.to_bytes(8, "little"))
        writer.write(Record(f"n{i % 1000:08d}/n{i % 1000:08d}_{i}", (image,), i % 1000, 500, 375))
    writer.finish({"classes": [f"n{i:08d}" for i in range(1000)]})
    return time.perf_counter() - start


def measure(path: Path) -> dict[str, float]:
    """Open the pack in a new process; return seconds and bytes."""
    done = subprocess.run([sys.executable, "-c", _OPEN, str(path)], capture_output=True, text=True, check=True)
    values: dict[str, float] = json.loads(done.stdout)
    return values


def main() -> None:
    """Write a pack, open it three times, print the best time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--ending", default=".lmdb", help="the format, by its ending")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"pack{options.ending}")
        written = write_pack(path, options.samples)
        best = min((measure(path) for _ in range(3)), key=lambda values: values["seconds"])
        values = {**best, "write_seconds": written, "file_bytes": path.stat().st_size, "format": options.ending}
    if options.json:
        print(json.dumps(values, indent=1))
        return
    print(f"{values['samples']:,} samples in {values['file_bytes'] / 1e6:.0f} MB, written in {written:.1f} s")
    print(f"opened in {values['seconds']:.3f} s; resident {values['rss_bytes'] / 1e6:.0f} MB, of it private "
          f"{values['private_bytes'] / 1e6:.0f} MB; at most {values['peak_bytes'] / 1e6:.0f} MB")  # fmt: skip


if __name__ == "__main__":
    main()
