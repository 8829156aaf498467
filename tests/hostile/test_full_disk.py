"""A disk that fills up while a pack is written: said, exit code 1, and what lay there before is whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
from PIL import Image

NAMES = {"lmdb": "out.lmdb", "hdf5": "out.h5", "tar": "out.tar", "tars": "out-{000000..}.tar"}
#: Packs a small set; then, for each number of bytes, leaves so much room and packs a larger one over it.
RUN = """
import contextlib, ctypes, io, json, os, subprocess, sys
from pathlib import Path
from fastdata.cli.main import main
from fastdata.converters import pack, verify
src, dst, mount, lefts, more = sys.argv[1:]
folder = Path(dst).parent
if mount:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mount}", "tmpfs", folder], check=True)
how = {"shard_size": 30000} if "{" in dst else {}

def leave(room):
    if not mount:
        ctypes.CDLL(None).record_room(ctypes.c_longlong(room))
        return
    (folder / "others").unlink(missing_ok=True)
    if room >= 0:
        free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
        (folder / "others").write_bytes(bytes(free - room))

def there():
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file() and p.name != "others"}

pack(src, dst, workers=1, limit=2, **how)
for left in json.loads(lefts):
    before = there()
    leave(left)
    words = [f"--{name.replace('_', '-')}={value}" for name, value in how.items()] + more.split()
    said, out = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(out):
        code = main(["pack", src, dst, "--workers", "1", "--overwrite", *words])
    leave(-1)
    report = verify(dst)
    assert report.ok, report.problems
    print(json.dumps([code, said.getvalue(), there() == before, report.samples, out.getvalue()]))
    if code == 0:
        break
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    root, rng = tmp_path_factory.mktemp("tree"), np.random.default_rng(0)
    for number in range(12):
        path = root / "ab"[number % 2] / f"{number:02}.bmp"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (60, 80, 3), np.uint8)).save(path)
    return root


@cache
def can_mount() -> bool:
    line = ["unshare", "-m", "sh", "-c", "mount -t tmpfs tmpfs /mnt"]
    try:
        return subprocess.run(line, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def run(recorder, tree, dst, lefts, *, more="", real):
    """What came of it with each room, in a row, until one goes through."""
    dst.parent.mkdir(parents=True)
    line = [sys.executable, "-c", RUN, str(tree), str(dst), "1m" if real else "", json.dumps(lefts), more]
    env = dict(os.environ)
    if real:
        line = ["unshare", "-m", *line]
    else:
        env |= {"LD_PRELOAD": str(recorder), "RECORD_UNDER": str(dst.parent.resolve()), "RECORD_TO": os.devnull}
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=100, env=env)
    assert done.returncode == 0, done.stderr
    return [json.loads(row) for row in done.stdout.splitlines()]


@pytest.mark.parametrize("kind", NAMES)
def test_a_disk_that_fills_up_is_said_and_the_old_pack_stays(recorder, tree, tmp_path, kind):  # C037
    # A disk of one megabyte. Where nothing may be mounted, the C library says that the disk is full.
    rows = run(recorder, tree, tmp_path / "out" / NAMES[kind], [0, 70_000, 300_000], real=can_mount())
    assert [code for code, *_ in rows] == [1, 1, 0]
    for _, said, same, samples, _ in rows[:2]:
        assert said.startswith("fastdata: cannot write "), said
        assert "the disk is full; what lay there before is as it was: free some space" in said
        assert (same, samples, said.count("\n")) == (True, 2, 1)
    assert rows[2][3] == 12


@pytest.mark.parametrize("kind", NAMES)
def test_a_disk_that_fills_up_at_any_length(recorder, tree, tmp_path, kind):
    lefts = [*range(0, 170_000, 30_000), *range(170_000, 400_000, 4_000)]
    *full, last = run(recorder, tree, tmp_path / "out" / NAMES[kind], lefts, real=False)
    for _, said, same, samples, _ in full:
        # A set's files get their names only when the disk has taken all of them: nothing is half.
        assert "the disk is full" in said
        assert (same, samples) == (True, 2)
    assert (last[0], last[3]) == (0, 12)
    assert len(full) > 8


@pytest.mark.parametrize("kind", ["lmdb", "tars"])
def test_resume_goes_on_when_there_is_room_again(recorder, tree, tmp_path, kind):
    rows = run(
        recorder, tree, tmp_path / "out" / NAMES[kind], [100_000, 250_000, -1], more="--resume", real=can_mount()
    )
    assert [code for code, *_ in rows] == [1, 1, 0]
    assert all("the disk is full" in said for _, said, *_ in rows[:2])
    assert "of them were finished by the run before" in rows[2][4]
    assert rows[2][3] == 12
