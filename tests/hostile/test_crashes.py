"""After any crash DST is the old pack, the new one, or says that it is incomplete; messages say what happened."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fastdata.converters import pack, verify
from fastdata.errors import IncompletePackError, PackError, StoreFormatError, StoreNotFoundError
from fastdata.stores.opener import open_store

NAMES = {"lmdb": "out.lmdb", "hdf5": "out.h5", "tar": "out.tar", "tars": "out-{000000..}.tar"}


def fill(folder: Path, count: int, *, first: int = 0) -> Path:
    rng = np.random.default_rng(first)
    for number in range(first, first + count):
        path = folder / ("ant" if number % 2 else "bee") / f"{number:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (20, 30, 3), np.uint8)).save(path)
    return folder


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return fill(tmp_path / "src", 24)


def is_whole(dst: Path, *counts: int) -> bool:
    """Whether a whole pack of one of these sizes lies there; False where it says that it is none."""
    try:
        with open_store(dst) as store:
            assert len(store) in counts
    except (IncompletePackError, StoreNotFoundError):
        return False
    assert verify(dst).ok
    return True


_WRITERS = """
import os, signal, sys
from fastdata.converters import append, pack
src, more = sys.argv[1:]

def write_for_ever(dst, how):
    parent = os.getppid()
    pack(src, dst, workers=1, limit=9, **how)
    print("up", os.getpid(), flush=True)
    while os.getppid() == parent:
        pack(src, dst, workers=1, limit=7, overwrite=True, **how)
        append(dst, more, workers=1)
        pack(src, dst, workers=1, limit=9, overwrite=True, **how)

for line in sys.stdin:  # a writer for each line: forked, as all is imported
    dst = line.strip()
    pid = os.fork()
    if not pid:
        write_for_ever(dst, {"shard_size": 6000} if "{" in dst else {})
        os._exit(0)
    print("ended", -os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


def killed(tmp_path: Path, kind: str, turns: range) -> None:
    """Kill writers that replace a pack by another, or add to it, again and again, each at a random moment."""
    tree, more = fill(tmp_path / "src", 24), fill(tmp_path / "more", 2, first=90)
    pick = random.Random(f"{kind} {turns}")
    line = [sys.executable, "-c", _WRITERS, str(tree), str(more)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as writers:
        assert writers.stdin is not None
        assert writers.stdout is not None
        for turn in turns:
            dst = tmp_path / str(turn) / NAMES[kind]
            writers.stdin.write(f"{dst}\n")
            word, pid = writers.stdout.readline().split()
            assert word == "up"
            time.sleep(pick.uniform(0.0, 0.15))
            os.kill(int(pid), signal.SIGKILL)
            assert writers.stdout.readline() == f"ended {signal.SIGKILL}\n"
            # One file is replaced at once; the files of a set are not, and then it says so.
            assert is_whole(dst, 7, 9) or kind in {"tar", "tars"}
            pack(tree, dst, workers=1, limit=9, overwrite=True)  # C113: the next run works at once
            assert is_whole(dst, 9)
            assert not [p for p in dst.parent.iterdir() if ".partial" in p.name]
            shutil.rmtree(dst.parent)


@pytest.mark.parametrize("kind", NAMES)
def test_killed_at_random_moments(tmp_path, kind):  # C041 C047 C065 C073 C113
    killed(tmp_path, kind, range(20))


@pytest.mark.patient
@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("first", range(20, 200, 10))
def test_killed_two_hundred_times(tmp_path, kind, first):
    killed(tmp_path, kind, range(first, first + 10))


@pytest.mark.parametrize("kind", NAMES)
def test_each_sync_and_rename_may_fail(tree, tmp_path, monkeypatch, kind):  # C037 C047
    dst = tmp_path / "out" / NAMES[kind]
    more = {"shard_size": 15_000} if kind == "tars" else {}
    pack(tree, dst, workers=1, limit=9, **more)
    real = {name: getattr(os, name) for name in ("fsync", "replace", "rename")}
    for stop in range(100):
        calls = iter(range(1000))

        def failing(name, *args, calls=calls, stop=stop):
            if next(calls) == stop:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real[name](*args)

        for name in real:
            monkeypatch.setattr(os, name, lambda *args, name=name, failing=failing: failing(name, *args))
        try:
            pack(tree, dst, workers=1, limit=7, overwrite=True, **more)
        except PackError as error:
            assert str(dst.parent) in str(error)  # noqa: PT017  the name of the pack or of a file of its set
            monkeypatch.undo()
            if not is_whole(dst, 7, 9):
                assert kind in {"tar", "tars"}
                pack(tree, dst, workers=1, limit=9, overwrite=True, **more)
        else:
            break
    assert 2 < stop < 99
    monkeypatch.undo()
    assert is_whole(dst, 7)


_SMALL_FILES = """
import resource, signal, sys
from fastdata.converters import pack
from fastdata.errors import PackError
src, dst = sys.argv[1:]
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for limit in [*range(0, 24000, 1500), *range(24000, 200000, 16000)]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        pack(src, dst, workers=1, limit=7, overwrite=True)
    except PackError as error:
        print("refused" if "cannot write" in str(error) else error, flush=True)
    else:
        print("done", flush=True)
        break
"""


@pytest.mark.parametrize("kind", NAMES)
def test_a_disk_that_is_full_at_any_length(tree, tmp_path, kind):  # C037: a limit of file sizes stands in for it
    dst = tmp_path / "out" / NAMES[kind]
    pack(tree, dst, workers=1, limit=9)
    before = {p.name: p.read_bytes() for p in dst.parent.iterdir()}
    line = [sys.executable, "-c", _SMALL_FILES, str(tree), str(dst)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=100)
    outcomes = done.stdout.split("\n")
    assert (set(outcomes[:-2]), outcomes[-2:]) == ({"refused"}, ["done", ""]), done.stderr
    assert is_whole(dst, 7)
    assert {p.name for p in dst.parent.iterdir()} == set(before)


_OTHER_USER = """
import contextlib, os, sys, tempfile
import fastdata.cli.pack_progress as bar
from fastdata.cli.main import main
src, dst, when = sys.argv[1:]
with tempfile.TemporaryDirectory() as folder:  # what another user may not import is imported by now
    assert main(["pack", src, folder + "/" + os.path.basename(dst), "--workers", "1"]) == 0
    assert main(["pack", src, src + "/x.lmdb", "--workers", "1"]) == 2
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
def progress(state):
    if state.done == 5 and when == "during":
        os.chmod(os.path.dirname(dst), 0o555)
bar.progress_bar = lambda *, quiet: contextlib.nullcontext(progress)
print("up", file=sys.stderr, flush=True)
sys.exit(main(["pack", src, dst, "--workers", "1"]))
"""


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("when", ["before", "during"])
def test_permission_lost(kind, when):
    root = Path(tempfile.mkdtemp(prefix="fastdata-test-"))  # pytest's own folders are closed to other users
    try:
        root.chmod(0o755)
        tree = fill(root / "src", 8)
        out = root / "out"
        out.mkdir()
        if os.getuid() == 0:
            os.chown(out, 65534, 65534)
        out.chmod(0o555 if when == "before" else 0o755)
        line = [sys.executable, "-c", _OTHER_USER, str(tree), str(out / NAMES[kind]), when]
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 1, done.stderr
        _, said = done.stderr.split("up\n")
        assert said.startswith("fastdata: cannot write"), said
        assert "Permission denied" in said
        assert said.count("\n") == 1
        out.chmod(0o755)
        with pytest.raises((IncompletePackError, StoreNotFoundError)):
            open_store(out / NAMES[kind])
        assert stat.S_IMODE(out.stat().st_mode) == 0o755
    finally:
        shutil.rmtree(root)


def test_sources_that_vanish_or_change_while_they_are_packed(tree, tmp_path):
    files = sorted(tree.rglob("*.png"))

    def progress(state):
        if state.done == 4:
            files[10].unlink()
            files[12].write_bytes(files[12].read_bytes()[:200])
            shutil.copy(files[0], files[14])

    for name in NAMES.values():
        shutil.rmtree(tree)
        fill(tree, 24)
        report = pack(tree, tmp_path / "out" / name, workers=1, max_errors=0.2, progress=progress)
        assert report.samples == 22
        assert {Path(s.path) for s in report.skipped} == {files[10], files[12]}
        assert "not there" in report.skipped[0].reason
        assert verify(tmp_path / "out" / name).ok
    shutil.rmtree(tree)
    with pytest.raises((StoreNotFoundError, StoreFormatError)):
        pack(tree, tmp_path / "out.lmdb")


_BAD_FILES = """
import ctypes, os, resource, signal, time
import fastdata.converters.work as work
real = work.load_pixels
def load(data, policy):
    word = bytes(data)[-4:]
    if word == b"KILL":  # as the kernel does where memory ends
        os.kill(os.getpid(), signal.SIGKILL)
    if word == b"ABRT":
        os.abort()
    if word == b"SEGV":
        ctypes.string_at(0)
    if word == b"HANG":
        time.sleep(1e6)
    if word == b"MANY":
        most = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, most[1]))
        try:
            bytearray(8 << 30)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, most)
    return real(data, policy)
work.load_pixels = load
"""


def test_files_that_kill_or_hang_their_decoder_cost_themselves(tree, tmp_path):  # C044 C109's kind
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(_BAD_FILES)  # in every worker, whoever starts it
    bad = {"ant/007": b"KILL", "ant/009": b"ABRT", "bee/008": b"SEGV", "bee/010": b"MANY"}
    bad["bee/022"] = b"HANG"  # the last one: nor does the tail of a pack hang
    for name, word in bad.items():
        with (tree / f"{name}.png").open("ab") as file:
            file.write(word)
    before = {path: path.read_bytes() for path in tree.rglob("*.png")}
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    dst = tmp_path / "out" / "out.lmdb"
    line = [sys.executable, "-m", "fastdata.cli.main", "pack", str(tree), str(dst), "--workers", "2"]
    line += ["--worker-timeout", "5"]
    some = [*line, "--limit", "4"]
    done = subprocess.run(some, capture_output=True, text=True, check=False, timeout=100, env=env)
    assert done.returncode == 1
    assert "1 of 4 images cannot be packed" in done.stderr
    assert [p.name for p in dst.parent.iterdir()] == ["out.lmdb.report.jsonl"]
    done = subprocess.run(
        [*line, "--max-errors", "30%"], capture_output=True, text=True, check=False, timeout=110, env=env
    )
    assert done.returncode == 0, done.stderr
    for name, signal_name in (("007", "SIGKILL"), ("009", "SIGABRT"), ("008", "SIGSEGV")):
        text = (
            f"{name}.png: WorkerDiedError: a worker process ended in the middle of its work (killed by {signal_name})"
        )
        assert text in done.stdout
    assert "010.png: MemoryError: not enough memory for this picture; fewer workers" in done.stdout
    assert "022.png: WorkerDiedError" in done.stdout
    assert "no answer for 5 s" in done.stdout
    assert is_whole(dst, 19)
    assert {path: path.read_bytes() for path in tree.rglob("*.png")} == before


def test_overwriting_a_set_leaves_no_shard_beside_the_new_one(tree, tmp_path):
    dst = tmp_path / "out-{000000..}.tar"
    pack(tree, dst, workers=1, limit=9, shards=3)
    stray, other = tmp_path / "out-000007.tar", tmp_path / "out-20260101.tar"
    for path in (stray, other):  # what a stopped run left, and a name that is none of the set's
        path.write_bytes((tmp_path / "out-000000.tar").read_bytes())
    assert not verify(dst).ok
    pack(tree, dst, workers=1, limit=9, overwrite=True)
    assert verify(dst).ok
    assert other.exists()
    assert not stray.exists()
