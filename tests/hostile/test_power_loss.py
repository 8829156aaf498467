"""Power cuts: real system calls of real runs are recorded; whatever part of them reached the disk, no pack is wrong."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fastdata.converters import pack, verify
from fastdata.errors import DestinationExistsError, IncompletePackError, StoreNotFoundError
from fastdata.stores.opener import open_store

HERE = Path(__file__).parent
NAMES = {
    "lmdb": "new/out.lmdb", "folder": "new/out.lmdb", "hdf5": "new/out.h5", "tar": "new/out.tar",
    "tars": "new/deep/out-{000000..}.tar",
}  # fmt: skip
HOW = {"folder": {"subdir": True}, "tars": {"shard_size": 9000}}
SCENES = """
import ctypes, json, sys
from fastdata.converters import append, pack
from fastdata.stores.opener import open_store
one, two, more, dst, how, scenes = sys.argv[1:]
how, mark, hashes = json.loads(how), ctypes.CDLL(None).record_mark, []
for scene in scenes.split():
    mark(scene.encode())
    if scene == "append":
        append(dst, more, workers=1)
    elif scene == "resume":
        pack(one, dst, workers=1, limit=9, resume=True, **how)
    else:
        source, limit = {"fresh": (one, 9), "overwrite": (two, 9), "shorter": (one, 4)}[scene]
        pack(source, dst, workers=1, limit=limit, overwrite=scene != "fresh", **how)
    with open_store(dst) as store:
        hashes.append(store.info["content_hash"])
mark(b"end")
print(json.dumps(hashes))
"""


@pytest.fixture(scope="module")
def power():
    spec = importlib.util.spec_from_file_location("power", HERE / "power.py")
    module = sys.modules["power"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fill(folder: Path, count: int, *, seed: int, first: int = 0) -> Path:
    """Pictures of one size in bytes, so that parts of two packs fit each other as well as can be."""
    rng = np.random.default_rng(seed)
    for number in range(first, first + count):
        path = folder / ("ant" if number % 2 else "bee") / f"{number:03}.bmp"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (20, 30, 3), np.uint8)).save(path)
    return folder


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    root = tmp_path_factory.mktemp("sources")
    return [fill(root / "one", 9, seed=1), fill(root / "two", 9, seed=2), fill(root / "more", 2, seed=3, first=90)]


def record(power, recorder, sources, tmp_path, kind, scenes):
    """Run the scenes; return the disk and the content hash behind each."""
    root, log = (tmp_path / "recorded").resolve(), tmp_path / "calls"
    root.mkdir()
    words = [*map(str, sources), str(root / NAMES[kind]), json.dumps(HOW.get(kind, {})), scenes]
    env = {**os.environ, "LD_PRELOAD": str(recorder), "RECORD_UNDER": str(root), "RECORD_TO": str(log)}
    done = subprocess.run(
        [sys.executable, "-c", SCENES, *words], capture_output=True, text=True, check=False, env=env, timeout=100
    )
    assert done.returncode == 0, done.stderr
    disk = power.Disk(power.read_record(log, root))
    whole = disk.after(len(disk.calls), lambda *_: "kept").files
    assert whole == {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}
    return disk, json.loads(done.stdout)


def fates(seed, count):
    """What becomes of changes that were not synced: the plain cases, and ``count`` of all kinds at once."""
    yield lambda *_: "kept"
    yield lambda *_: "lost"
    yield lambda _, of_folder: "kept" if of_folder else "lost"
    yield lambda change, _: "zeros" if change.write else "kept"
    for number in range(count):
        pick = random.Random(f"{seed} {number}")
        share = pick.choice([0.2, 0.5, 0.8])

        def fate(change, _, pick=pick, share=share):
            if pick.random() < share:
                return "lost"
            if change.write is None or pick.random() < 0.6:
                return "kept"
            first = -change.write[0] % 512
            return pick.choice(["zeros", f"torn:{first + 512 * pick.randrange(1 + len(change.write[1]) // 512)}"])

        yield fate


def cuts(disk, most):
    """After how many calls the power goes: around all that is no write, and some writes."""
    points = set(disk.boundaries())
    others = [n for n in range(len(disk.calls) + 1) if n not in points]
    return sorted(points | set(random.Random(0).sample(others, min(most, len(others)))))


def key_of(tree):
    """What tells one state from another: unfinished files by their names alone, as nobody reads them."""
    whole = {name: hashlib.sha256(data).digest() for name, data in tree.files.items() if ".partial" not in name}
    return (*sorted(whole.items()), *sorted(set(tree.files) - whole.keys()), *sorted(tree.folders))


def outcome(tree, folder, kind):
    """The content hash of the pack that is there, or "" where there is none and that is said."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    tree.make(folder)
    try:
        with open_store(folder / NAMES[kind]) as store:
            found = store.info["content_hash"]
    except (IncompletePackError, StoreNotFoundError):
        return ""
    report = verify(folder / NAMES[kind])
    assert report.ok, report.problems
    return found


def works_again(source, dst, how):
    """The next run goes through, whatever was left; one that is stopped makes no whole set of half a one."""

    def stop(state):
        if state.done == 2:
            raise KeyboardInterrupt

    def there():
        try:
            return verify(dst).ok and open_store(dst).info["content_hash"]
        except StoreNotFoundError:
            return False

    before = there()
    with pytest.raises(KeyboardInterrupt):
        pack(source, dst, workers=1, overwrite=True, progress=stop, **how)
    assert there() == before
    pack(source, dst, workers=1, limit=3, overwrite=True, **how)
    assert verify(dst).samples == 3


def check(power_cut, sources, tmp_path, kind, *, seeds):
    disk, hashes = power_cut
    starts = [n for name, n in disk.marks.items() if name != "end"]
    known, seen = {}, Counter()
    for cut in cuts(disk, 60):
        scene = max(n for n, start in enumerate(starts) if start <= cut or n == 0)
        before, after = ["", *hashes][scene : scene + 2]
        may = {before, after} | ({""} if kind in {"tar", "tars"} else set())
        if cut in {n + 1 for n in starts}:
            may = {before}  # the call before has returned: what it has written is safe
        for fate in fates(cut, seeds):
            tree = disk.after(cut, fate)
            key = key_of(tree)
            if key not in known:
                known[key] = outcome(tree, tmp_path / "cut", kind)
                if len(known) % 5 == 1:
                    works_again(sources[0], tmp_path / "cut" / NAMES[kind], HOW.get(kind, {}))
            assert known[key] in may, (cut, disk.calls[max(0, cut - 3) : cut + 2], sorted(tree.files))
            seen[known[key]] += 1
    assert set(seen) == {"", *hashes}
    for fate in fates("end", 20):
        assert outcome(disk.after(len(disk.calls), fate), tmp_path / "cut", kind) == hashes[-1]


@pytest.mark.parametrize("kind", NAMES)
def test_a_power_cut_at_any_moment_leaves_the_old_pack_or_the_new_one(power, recorder, sources, tmp_path, kind):
    power_cut = record(power, recorder, sources, tmp_path, kind, "fresh overwrite append shorter")
    check(power_cut, sources, tmp_path, kind, seeds=6)


@pytest.mark.parametrize("kind", ["lmdb", "tars"])
def test_what_resume_keeps_survives_a_power_cut_or_is_packed_again(power, recorder, sources, tmp_path, kind):
    disk, (wanted,) = record(power, recorder, sources, tmp_path, kind, "resume")
    dst = tmp_path / "cut" / NAMES[kind]
    taken, known = set(), set()
    spool = f"{NAMES[kind]}.resume/samples"
    for cut in cuts(disk, 40):
        for fate in fates(cut, 3):
            tree = disk.after(cut, fate)
            state = hashlib.sha256(tree.files.get(spool, b"")).digest(), spool in tree.files, *key_of(tree)
            if state in known:
                continue
            known.add(state)
            shutil.rmtree(tmp_path / "cut", ignore_errors=True)
            tree.make(tmp_path / "cut")
            try:
                report = pack(sources[0], dst, workers=1, limit=9, resume=True, **HOW.get(kind, {}))
            except DestinationExistsError:  # it was whole already
                assert verify(dst).ok
                assert open_store(dst).info["content_hash"] == wanted
            else:
                assert report.content_hash == wanted
                taken.add(report.resumed)
                assert not (tmp_path / "cut" / spool).exists()
    assert {0, 9} <= taken
    assert len(taken) > 4
