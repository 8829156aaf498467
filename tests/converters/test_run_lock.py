"""Two runs on one destination: the second fails at once, the first is not disturbed, and nothing stays behind."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fastdata.cli.main import main
from fastdata.converters import append, pack, verify
from fastdata.converters.run_lock import RunLock, lock_path
from fastdata.errors import PackError
from fastdata.stores.opener import open_store

_FIRST = """
import sys
from fastdata.converters import append, pack
src, more, dst, how = sys.argv[1:]
def wait(state):
    if state.done == 4:
        print("up", flush=True)
        sys.stdin.readline()
pack(src, dst, workers=1, overwrite=how == "overwrite", limit=5, progress=wait)
"""


@pytest.fixture
def first(tree, tmp_path):
    """Start a run that waits in the middle of its work."""
    children = []

    def start(dst, how):
        line = [sys.executable, "-c", _FIRST, str(tree), str(tmp_path / "more"), str(dst), how]
        child = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        children.append(child)
        assert child.stdout.readline() == "up\n"
        return child

    yield start
    for child in children:
        child.kill()
        child.communicate()


@pytest.mark.parametrize("name", ["out.lmdb", "out.h5", "out.tar", "out-{000000..}.tar"])
def test_the_second_run_fails_at_once_and_the_first_goes_on(tree, maker, tmp_path, capsys, first, name):
    dst = tmp_path / "out" / name
    maker.root = tmp_path / "more"
    more = maker.put("bee/9.png").parent.parent
    for how in ("new", "overwrite"):
        if how == "overwrite":
            pack(tree, dst, workers=1, overwrite=True)
            whole = sorted(p.name for p in dst.parent.iterdir())
        child = first(dst, how)
        for src, words in ((tree, []), (tree, ["--overwrite"]), (more, ["--append"])):
            if how == "new" and words == ["--append"]:
                continue
            assert main(["pack", str(src), str(dst), "--workers", "1", *words]) == 1
            assert (
                capsys.readouterr().err == f"fastdata: {dst}: another run is packing there; wait for it, or stop it\n"
            )
        child.communicate("\n")
        assert child.returncode == 0
        assert verify(dst).ok
        with open_store(dst) as store:
            assert len(store) == 5
        assert not [p for p in dst.parent.iterdir() if "partial" in p.name]
    assert sorted(p.name for p in dst.parent.iterdir()) == whole
    child = first(dst, "overwrite")
    child.kill()  # what a dead run held is free
    child.wait()
    assert {p.name.rpartition(".")[2] for p in dst.parent.iterdir() if p.name not in whole} == {"partial"}
    assert append(dst, more, workers=1).before == 5
    assert sorted(p.name for p in dst.parent.iterdir()) == whole


def test_a_lock_in_one_process(tmp_path):
    lock = RunLock(tmp_path / "new" / "a.lmdb")
    with pytest.raises(PackError, match=r"a\.lmdb: another run is packing there"):
        RunLock(tmp_path / "new" / "a.lmdb")
    RunLock(tmp_path / "new" / "b.lmdb").release()
    lock.release()
    lock.release()
    del lock
    RunLock(tmp_path / "new" / "a.lmdb")  # nobody keeps it, so it ends at once
    assert list((tmp_path / "new").iterdir()) == []
    assert lock_path("x/s-{000..}.tar") == lock_path("x/s-{000000..}.tar")
