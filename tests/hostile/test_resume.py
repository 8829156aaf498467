"""``resume``: finished work is kept and not done again, and the end is the same as without a stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fastdata.converters import pack, verify
from fastdata.converters import work as works
from fastdata.errors import DestinationExistsError, NothingPackedError, OptionError, PackError, TooManySkippedError

ENDINGS = ("out.lmdb", "out.h5", "out.tar", "out-{000000..}.tar")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for number in range(24):
        path = tmp_path / "src" / ("ant" if number < 12 else "bee") / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (20, 30, 3), np.uint8)).save(path)
    return tmp_path / "src"


@pytest.fixture
def packed(monkeypatch) -> list[str]:
    """The keys of the rows that are packed in this process, not taken from what was kept."""
    keys: list[str] = []
    real = works._pack

    def note(row, *rest):
        keys.append(row.key)
        return real(row, *rest)

    monkeypatch.setattr(works, "_pack", note)
    return keys


def stop_at(count):
    def progress(state):
        if state.done == count:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("name", ENDINGS)
def test_a_stopped_run_goes_on_and_ends_the_same(tree, tmp_path, packed, name):  # C038
    whole = pack(tree, tmp_path / "whole" / name, resize=16, workers=1, shuffle=True)
    how = {"resize": 16, "workers": 1, "shuffle": True, "resume": True}
    packed.clear()
    dst = tmp_path / "part" / name
    for count in (9, 17):
        with pytest.raises(KeyboardInterrupt):
            pack(tree, dst, progress=stop_at(count), **how)
    report = pack(tree, dst, **how)
    assert report.resumed >= 17
    assert len(packed) == len(set(packed)) == 24  # none is packed twice
    assert (report.content_hash, report.mean, report.std) == (whole.content_hash, whole.mean, whole.std)
    assert verify(dst).ok
    assert {p.name for p in dst.parent.iterdir()} == {p.name for p in (tmp_path / "whole").iterdir()}
    if name.endswith(".tar"):
        for path in dst.parent.glob("*.tar"):
            assert path.read_bytes() == (tmp_path / "whole" / path.name).read_bytes()


@pytest.mark.parametrize("name", ["out.lmdb", "out.h5", "out-{000000..}.tar"])
def test_killed_at_60_percent(tree, tmp_path, name):  # C038 C113
    for number in range(24, 300):
        os.link(tree / "ant" / f"{number % 12:02}.png", tree / "ant" / f"{number}.png")
    dst = tmp_path / "out" / name
    words = [sys.executable, "-m", "fastdata.cli.main", "pack", str(tree), str(dst), "--workers", "2", "--resume"]
    child = subprocess.Popen([*words, "--resize", "200", "--upscale"], stdout=subprocess.DEVNULL)
    spool = Path(f"{dst}.resume") / "samples"
    deadline = time.monotonic() + 60
    while (not spool.exists() or spool.stat().st_size < 400_000) and time.monotonic() < deadline:
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()
    with pytest.raises(DestinationExistsError, match=r"resume|overwrite"):
        pack(tree, dst, resize=200, upscale=True, workers=1)
    report = pack(tree, dst, resize=200, upscale=True, workers=2, resume=True)
    assert report.samples == 300
    assert report.resumed > 10
    again = pack(tree, tmp_path / "fresh.lmdb", resize=200, upscale=True, workers=2)
    assert report.content_hash == again.content_hash
    assert not spool.parent.exists()


def test_what_failed_is_tried_again(tree, tmp_path, packed):  # C040
    bad, good = tree / "ant" / "03.png", (tree / "ant" / "03.png").read_bytes()
    bad.write_bytes(b"unreadable")
    with pytest.raises(PackError):
        pack(tree, tmp_path / "out.lmdb", workers=1, resume=True, max_errors=0)
    bad.write_bytes(good)
    packed.clear()
    report = pack(tree, tmp_path / "out.lmdb", workers=1, resume=True, max_errors=0)
    assert packed == ["ant/03"]
    assert report.content_hash == pack(tree, tmp_path / "b.lmdb", workers=1).content_hash
    for path in tree.rglob("*.png"):
        path.write_bytes(b"no")
    with pytest.raises((NothingPackedError, TooManySkippedError)):
        pack(tree, tmp_path / "c.lmdb", workers=1, resume=True)


def test_changed_sources_are_packed_again(tree, tmp_path, packed):
    dst = tmp_path / "out.h5"
    with pytest.raises(KeyboardInterrupt):
        pack(tree, dst, workers=1, resume=True, progress=stop_at(10))
    Image.new("RGB", (9, 9), (1, 2, 3)).save(tree / "ant" / "02.png")  # changed
    (tree / "ant" / "04.png").unlink()  # gone
    Image.new("RGB", (9, 9), (3, 2, 1)).save(tree / "ant" / "00a.png")  # new
    (tree / "aaa").mkdir()
    (tree / "ant" / "05.png").rename(tree / "aaa" / "05.png")  # another class, so all labels move
    packed.clear()
    report = pack(tree, dst, workers=1, resume=True)
    assert {"ant/02", "ant/00a", "aaa/05"} <= set(packed)
    assert len(packed) < 20
    assert report.content_hash == pack(tree, tmp_path / "fresh.h5", workers=1).content_hash


def test_other_options_are_refused(tree, tmp_path):
    dst = tmp_path / "out.lmdb"
    with pytest.raises(KeyboardInterrupt):
        pack(tree, dst, workers=1, resume=True, resize=16, progress=stop_at(10))
    with pytest.raises(OptionError, match=r"resize was 16 and is 17.*overwrite"):
        pack(tree, dst, workers=1, resume=True, resize=17)
    # Order, number and shape of the pack are another matter.
    assert pack(tree, dst, workers=2, resume=True, resize=16, shuffle=True, seed=4, limit=20).resumed > 3
    with pytest.raises(DestinationExistsError):
        pack(tree, dst, workers=1, resume=True, resize=16)
    with pytest.raises(KeyboardInterrupt):
        pack(tree, dst, workers=1, resume=True, overwrite=True, resize=16, progress=stop_at(10))
    assert verify(dst).samples == 20  # what was there is still there
    assert pack(tree, dst, workers=1, overwrite=True, resize=17).resumed == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.lmdb", "src"]


def test_a_torn_or_damaged_end_is_packed_again(tree, tmp_path, packed):
    dst, spool = tmp_path / "out.lmdb", tmp_path / "out.lmdb.resume" / "samples"
    with pytest.raises(KeyboardInterrupt):
        pack(tree, dst, workers=1, resume=True, progress=stop_at(12))
    data = bytearray(spool.read_bytes())
    data[len(data) // 2] ^= 1
    spool.write_bytes(data[:-100])
    packed.clear()
    report = pack(tree, dst, workers=1, resume=True)
    assert 12 + 1 <= len(packed) < 24
    assert report.content_hash == pack(tree, tmp_path / "fresh.lmdb", workers=1).content_hash


@pytest.mark.parametrize("name", ENDINGS)
def test_a_run_without_resume_leaves_nothing_of_the_one_before(tree, tmp_path, name):
    with pytest.raises(KeyboardInterrupt):
        pack(tree, tmp_path / name, workers=1, resume=True, progress=stop_at(12))
    assert (tmp_path / f"{name}.resume").is_dir()
    assert pack(tree, tmp_path / name, workers=1).resumed == 0
    assert not (tmp_path / f"{name}.resume").exists()


def test_two_runs_do_not_share_what_is_kept(tree, tmp_path):
    def other(state):
        if state.done == 5:
            with pytest.raises(PackError, match="another run"):
                pack(tree, tmp_path / "out.lmdb", workers=1, resume=True)

    assert pack(tree, tmp_path / "out.lmdb", workers=1, resume=True, progress=other).samples == 24


_OPENS = """
import sys
from fastdata.converters import pack
src, dst = sys.argv[1:]
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)

def stop(state):
    if state.done == 12:
        raise KeyboardInterrupt

try:
    pack(src, dst, workers=1, resume=True, progress=stop)
except KeyboardInterrupt:
    pass
first = {path for path in opened if path.startswith(src) and path.endswith(".png")}
opened.clear()
report = pack(src, dst, workers=1, resume=True)
second = [path for path in opened if path.startswith(src) and path.endswith(".png")]
print(len(first), len(second), len(first & set(second)), report.resumed, report.samples)
"""


@pytest.mark.parametrize("name", ENDINGS)
def test_what_is_kept_is_not_opened_again(tree, tmp_path, name):  # C038
    line = [sys.executable, "-c", _OPENS, str(tree), str(tmp_path / "out" / name)]
    done = subprocess.run(line, capture_output=True, text=True, check=True, timeout=100)
    first, second, both, resumed, samples = map(int, done.stdout.split())
    assert both == 0
    assert first == resumed >= 12
    assert (first + second, samples) == (24, 24)
