"""The soak of benchmarks/, shortened: readers are killed while others go on, and nothing grows or differs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).resolve().parents[2] / "benchmarks" / "soak.py"


def soak(tmp_path, minutes, pictures):
    report = tmp_path / "soak.json"
    line = [sys.executable, SOAK, f"--minutes={minutes}", f"--pictures={pictures}", f"--json={report}"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(report.read_text())


@pytest.mark.slow
def test_twenty_seconds(tmp_path):
    report = soak(tmp_path, 1 / 3, 64)
    assert report["wrong"] == []
    assert set(report["batches_compared"]) == {"pair", "victim", "workers"}


@pytest.mark.patient
def test_five_minutes(tmp_path):
    report = soak(tmp_path, 5, 480)
    assert report["wrong"] == []
    assert report["events"]["kills of readers"] > 5
    assert report["events"]["kills of workers"] > 5
