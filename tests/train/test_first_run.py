"""The first thing a stranger runs: sample, pack, train, with nothing but defaults."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_sample_pack_train_in_one_line_shows_falling_loss(tmp_path):
    commands = "sample images", "pack images out.lmdb --resize 256", "train out.lmdb --steps 40"
    line = " && ".join(f"{sys.executable} -m fastdata.cli.main {command}" for command in commands)
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run(
        ["/bin/sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    losses = [float(number) for number in re.findall(r"loss ([\d.]+)  lr", done.stdout)]
    assert len(losses) == 4
    assert losses[0] > 1.2  # four classes at random: ln 4 = 1.39
    assert losses[-1] < 0.6
    assert re.search(r"1280 images in [\d.]+ s: \d+ images/s, \d+% of the time waiting for data", done.stdout)
