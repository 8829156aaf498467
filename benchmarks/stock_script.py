"""A stock ImageNet-style script with one changed line: images/s of its training epochs with FastLoader over DataLoader.

The script is tests/wrappers/imagenet_script.py: ImageFolder, Compose, DataLoader with worker processes, a small network
on the CPU. Measured with the network (what the script as a whole gains, where the processor also trains) and without
(what the loader gains). Prints the ratios; writes results/stock_script.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_SCRIPT = _HERE.parent / "tests" / "wrappers" / "imagenet_script.py"
_THEIRS, _OURS = "from torch.utils.data import DataLoader\n", "from fastdata import FastLoader as DataLoader\n"


def run(script: Path, data: Path, out: Path, arguments: list[str]) -> float:
    """Return the images/s of the script's last epoch: its first starts workers and fills the page cache."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"}
    command = [sys.executable, str(script), str(data), "--epochs", "2", "--out", str(out), *arguments]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    seconds: list[float] = json.loads(out.with_suffix(".0.json").read_text())["seconds"]
    return 1 / seconds[-1]


def main() -> None:
    """Run both scripts in turn and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("images", type=Path, help="an ImageFolder tree")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--out", type=Path, default=_HERE / "results" / "stock_script.json")
    options = parser.parse_args()
    common = ["-j", str(options.workers), "--size", str(options.size), "-b", "64"]
    found: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in ("train", "val"):
            (root / name).symlink_to(options.images.resolve())
        text = _SCRIPT.read_text()
        (root / "dataloader.py").write_text(text)
        (root / "fastloader.py").write_text(text.replace(_THEIRS, _OURS))
        for _ in range(options.rounds):
            for mode, more in (("load only", ["--no-network"]), ("load and train", [])):
                for name in ("dataloader", "fastloader"):
                    rate = run(root / f"{name}.py", root, root / name, [*common, *more])
                    found.setdefault(mode, {}).setdefault(name, []).append(rate)
    result = {
        "workers": options.workers,
        "size": options.size,
        "rounds": options.rounds,
        "images_per_s": {m: {n: statistics.median(r) for n, r in rates.items()} for m, rates in found.items()},
        "ratio": {
            mode: statistics.median(
                ours / theirs for ours, theirs in zip(rates["fastloader"], rates["dataloader"], strict=True)
            )
            for mode, rates in found.items()
        },
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
