"""Nothing hangs and nothing is left behind: interrupts, kills, forks, exhausted limits, a thousand epochs."""

from __future__ import annotations

import contextlib
import gc
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch.utils.data import Dataset
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

from fastdata.converters import pack
from fastdata.errors import SampleError
from fastdata.loader import FastLoader

SCRIPT = Path(__file__).with_name("lifetime_script.py")
SHM = "/dev/shm"  # noqa: S108  where names may be left
SMALL = T.Compose([T.Resize((8, 8)), T.PILToTensor()])


@pytest.fixture(scope="module")
def tiny(image_folder, tmp_path_factory):
    """The 21 pictures as pixels of 8x8: epochs cost next to nothing."""
    path = tmp_path_factory.mktemp("tiny") / "tiny.lmdb"
    pack(image_folder, path, workers=1, codec="raw", resize=8, resize_mode="exact")
    return path


def _command(*arguments):
    return [sys.executable, str(SCRIPT), *map(str, arguments)]


def _start(*arguments):
    """Start the script as the leader of a group of its own, as a shell does; return it and its children's ids."""
    process = subprocess.Popen(
        _command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    word, *children = process.stdout.readline().split()
    assert word == "ready"
    return process, _births(map(int, children))


def _births(pids):
    """When each process began: on a busy machine another one may have its number soon."""
    return {pid: _birth(pid) for pid in pids}


def _birth(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state[0] == "Z" else state[19]


def _soon(condition, seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def _wait_until_gone(births, seconds):
    return _soon(lambda: not any(birth and _birth(pid) == birth for pid, birth in births.items()), seconds)


# ---------------------------------------------------------------- signals


@pytest.mark.parametrize("way", ["engine", "workers"])
def test_an_interrupt_ends_everything_with_one_traceback(tiny, way):  # C112
    process, children = _start("interrupted", way, tiny)
    try:
        assert len(children) == (4 if way == "workers" else 0)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGINT
    assert errors.count("Traceback (most recent call last)") == 1
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert _wait_until_gone(children, 5)


def test_after_kill_9_a_job_starts_again_at_once(tiny):  # C113
    everybody = {}
    for _ in range(3):
        process, children = _start("killed", tiny)
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
        assert len(children) == 4
        everybody |= {process.pid: None, **children}
    assert _wait_until_gone(everybody, 30)  # workers look after their parent every 5 s
    marks = tuple(f"torch_{pid}_" for pid in everybody)
    assert not [name for name in os.listdir(SHM) if name.startswith(marks)]


def test_after_kill_9_workers_that_were_just_starting_end_too():  # C113
    process, children = _start("killed_at_the_start")
    process.kill()
    process.wait()
    process.stdout.close()
    process.stderr.close()
    try:
        assert len(children) == 2
        assert _wait_until_gone(children, 30)
    finally:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


class Slow(Dataset):
    def __len__(self):
        return 10_000

    def __getitem__(self, i):
        time.sleep(0.001)
        return torch.tensor(i)


@pytest.mark.parametrize("device", ["None", "cpu"])
def test_a_killed_worker_is_named_and_the_others_end(device):  # C109
    done = subprocess.run(_command("killed_worker", device), capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    victim, heard, alive, again = json.loads(done.stdout)
    assert re.search(rf"worker \(pid\(?s?\)? {victim}\).*(signal: Killed|exited unexp)", heard), heard
    assert (alive, again) == (0, [0, 1, 2, 3])


# ---------------------------------------------------------------- iterators


class Fails(Dataset):
    bad = 5

    def __len__(self):
        return 12

    def __getitem__(self, i):
        if i == self.bad:
            msg = f"sample {i} is odd"
            raise LookupError(msg)
        return torch.tensor(i)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("device", [None, "cpu"])
def test_iterating_again_after_an_exception(workers, persistent, device):  # C110
    loader = FastLoader(Fails(), 4, num_workers=workers, persistent_workers=persistent and workers > 0, device=device)
    for _ in range(2):
        iterator = iter(loader)
        assert next(iterator).tolist() == [0, 1, 2, 3]
        with pytest.raises(LookupError, match="sample 5 is odd"):
            next(iterator)
        if not device:
            assert next(iterator).tolist() == [8, 9, 10, 11]
        del iterator
    gc.collect()


def test_a_users_exception_comes_out_of_the_threads_as_it_is(image_folder):  # C110
    def collate(rows):
        if rows[0][1] == 1:
            msg = "class 1 is odd"
            raise LookupError(msg)
        return [label for _, label in rows]

    loader = FastLoader(ImageFolder(str(image_folder), SMALL), 7, num_workers=2, collate_fn=collate)
    assert "threaded engine" in loader.explain()
    for _ in range(2):
        iterator = iter(loader)
        assert next(iterator) == [0] * 7
        with pytest.raises(LookupError, match="class 1 is odd"):
            next(iterator)


def test_half_used_iterators_take_their_workers_with_them():
    loader = FastLoader(Slow(), 4, num_workers=2)
    before = set(multiprocessing.active_children())
    files = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        for _ in loader:
            break
        iterator = iter(loader)
        next(iterator)
        cycle = [iterator]
        cycle.append(cycle)
        del iterator, cycle
        gc.collect()
    assert _wait_until_gone(_births(child.pid for child in set(multiprocessing.active_children()) - before), 5)
    assert set(multiprocessing.active_children()) <= before
    assert _soon(lambda: len(os.listdir("/proc/self/fd")) <= files + 2, 30)  # the queues' own threads close them


@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_two_loaders_on_one_pack(packs, io):
    one = FastLoader(packs["lmdb"], 4, transform=SMALL, num_workers=2, io=io)
    two = FastLoader(packs["lmdb"], 4, transform=SMALL, num_workers=2, shuffle=True, io=io)
    first = iter(one)
    next(first)
    assert sorted(int(i) for _ in two for i in two.last.indices) == list(range(21))
    two.close()
    del two
    gc.collect()
    assert sum(len(labels) for _, labels in first) == 17


# ---------------------------------------------------------------- forks and limits


def _in_turn(tiny, half):
    """What several functions of the script find, one after another in one process: starting one takes seconds."""
    command = _command("in_turn", tiny, half)
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return dict(json.loads(line) for line in done.stdout.splitlines()[:-1])


@pytest.fixture(scope="module")
def alone(tiny):
    return _in_turn(tiny, 0)


@pytest.fixture(scope="module")
def crowded(tiny):
    return _in_turn(tiny, 1)


def test_a_fork_in_the_middle_of_an_epoch(alone):
    assert alone["forked"] == 20


def test_a_loader_with_workers_while_the_threads_of_another_run(crowded):  # C106
    assert crowded["validate_while_training"] == 4


@pytest.mark.slow
def test_a_loader_with_workers_200_times_while_the_threads_of_another_run(tiny):  # C106
    done = subprocess.run(_command("validate_while_training", tiny, 200), capture_output=True, timeout=110, check=True)
    assert json.loads(done.stdout) == "200"


def test_labels_of_5000_batches_with_1024_descriptors(crowded):  # C103
    assert crowded["few_descriptors"] == [5000, True]


def test_a_thousand_epochs_leave_nothing_behind(alone):
    for threads, files, kilobytes in alone["tiny_epochs"].values():
        assert (threads, files) == (0, 0)
        assert kilobytes < 4 << 10


def test_shared_memory_is_full(tiny):
    """The engine needs none; workers say so. A mount of its own where that is allowed, else a limit on files' sizes."""
    command = " ".join(_command("full_shm", tiny))
    for share in (["unshare", "-m"], ["unshare", "-rm"]):
        mounted = [*share, "sh", "-c", f"mount -t tmpfs -o size=1m none {SHM} && echo mounted && {command}"]
        done = subprocess.run(mounted, capture_output=True, text=True, timeout=110, check=False)
        if done.stdout.startswith("mounted\n"):
            break
    else:
        limited = ["bash", "-c", f"ulimit -f 1024 && {command}"]
        done = subprocess.run(limited, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    batches, error = json.loads(done.stdout.splitlines()[-1])
    assert batches == 21
    assert "shared memory" in error or "shm" in error


# ---------------------------------------------------------------- small sets and odd ones


@pytest.mark.parametrize("workers", [0, 2])
def test_more_in_a_batch_than_in_the_set_and_nothing_at_all(tiny, tmp_path, workers):
    ((images, labels),) = FastLoader(tiny, 1000, num_workers=workers)
    assert images.shape == (21, 3, 8, 8)
    assert len(labels) == 21
    with pytest.warns(UserWarning, match="no full batch"):
        assert list(FastLoader(tiny, 1000, num_workers=workers, drop_last=True)) == []
    empty = tmp_path / "empty"
    (empty / "a").mkdir(parents=True)
    data = ImageFolder(str(empty), SMALL, allow_empty=True)
    for more in ({}, {"engine": False}, {"seed": 1, "shuffle": True}):
        loader = FastLoader(data, 4, num_workers=workers, **more)
        assert (list(loader), len(loader)) == ([], 0)


@pytest.mark.parametrize("workers", [0, 1])
def test_samples_one_by_one(tiny, workers):
    loader = FastLoader(tiny, None, num_workers=workers)
    assert "batch_size=None" in loader.explain()
    samples = list(loader)
    assert len(samples) == len(loader) == 21
    assert all(image.size == (8, 8) for image, _ in samples)


def test_errors_of_samples_name_them_in_workers(image_folder, tmp_path):
    root = tmp_path / "images"
    shutil.copytree(image_folder, root)
    pack(root, tmp_path / "d.tar", workers=1)
    data = bytearray((tmp_path / "d.tar").read_bytes())
    at = data.index(b"\xff\xd8\xff")
    data[at + 2 : at + 400] = bytes(398)
    (tmp_path / "d.tar").write_bytes(data)
    with pytest.raises(SampleError, match="ant/ant0"):
        list(FastLoader(tmp_path / "d.tar", 4, transform=SMALL, num_workers=1, engine=False))
