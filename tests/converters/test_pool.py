from __future__ import annotations

import math
import operator
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from fastdata.converters import child as children
from fastdata.converters import pool as pools
from fastdata.converters.pool import WorkerDiedError, WorkerPool


@pytest.fixture(params=["fork", "spawn"], autouse=True)
def start(request, monkeypatch):
    """Both ways to start a child, whatever else this process has imported by now."""
    monkeypatch.setattr(pools, "fork_is_safe", lambda: request.param == "fork")
    return request.param


def test_answers_and_errors_come_back_and_workers_go():
    with WorkerPool(2) as pool:
        assert [f.result() for f in [pool.submit(math.factorial, n) for n in range(9)]][8] == 40320
        with pytest.raises(ZeroDivisionError):
            pool.submit(operator.truediv, 1, 0).result()
        with pytest.raises(Exception, match="pickle"):
            pool.submit(operator.call, lambda: 0).result()
        assert pool.submit(operator.pow, 2, 5).result() == 32  # it goes on after each
        pids = {child.pid for child in pool._children}
    assert all(not _alive(pid) for pid in pids)
    pool.shutdown()
    with pytest.raises(RuntimeError, match="shut down"):
        pool.submit(math.sqrt, 4)


def test_a_library_that_prints_does_not_disturb(capfd):
    with WorkerPool(1) as pool:
        pool.submit(os.system, "echo noise").result()
        assert pool.submit(os.getpid).result() != os.getpid()
    assert "noise" in capfd.readouterr().err


def test_a_worker_that_dies_fails_its_task_says_how_and_is_replaced():
    with WorkerPool(1) as pool:
        with pytest.raises(WorkerDiedError, match="SIGKILL"):
            pool.submit(signal.raise_signal, signal.SIGKILL).result()
        assert pool.submit(math.sqrt, 4).result() == 2
    assert not any(_alive(child.pid) for child in pool._children)


def test_where_all_workers_die_the_pool_does(monkeypatch):
    monkeypatch.setattr(pools, "_MOST_DEATHS", 1)
    with WorkerPool(1) as pool:
        for _ in range(2):
            with pytest.raises(WorkerDiedError, match="exit code 3"):
                pool.submit(os._exit, 3).result()
        with pytest.raises(WorkerDiedError):
            pool.submit(math.sqrt, 4).result()


def test_a_stuck_worker_is_stopped_and_replaced():  # C044
    with WorkerPool(1, timeout=4) as pool:
        with pytest.raises(WorkerDiedError, match=r"no answer for 4 s"):
            pool.submit(time.sleep, 600).result()
        assert pool.submit(math.sqrt, 4).result() == 2


def test_a_death_at_the_end_leaves_the_others_the_word_to_end(monkeypatch):
    monkeypatch.setattr(pools, "_MOST_DEATHS", 0)  # a pool that replaces nobody any more, as when it is closed
    pool = WorkerPool(2)
    tasks = [pool.submit(time.sleep, 1.5) for _ in range(2)]
    while not all(task.running() for task in tasks):
        time.sleep(0.01)
    pool.shutdown(wait=False)
    pool._children[0].kill()
    for thread in pool._threads:
        thread.join(30)
        assert not thread.is_alive()
    assert sorted(type(task.exception()).__name__ for task in tasks) == ["NoneType", "WorkerDiedError"]


def test_cancelled_work_ends_at_once():
    pool = WorkerPool(1)
    running, waiting = pool.submit(time.sleep, 60), pool.submit(time.sleep, 60)
    while not running.running():
        time.sleep(0.01)
    start = time.monotonic()
    pool.shutdown(cancel_futures=True)
    assert time.monotonic() - start < 10
    with pytest.raises(CancelledError):
        waiting.result()
    assert isinstance(running.exception(), WorkerDiedError)


def test_workers_end_with_their_parent_however_it_ends(start):
    code = (
        "import os, signal, math\n"
        "from fastdata.converters import pool as pools\n"
        "from fastdata.converters.pool import WorkerPool\n"
        f"pools.fork_is_safe = lambda: {start == 'fork'}\n"
        "pool = WorkerPool(2)\n"
        "[f.result() for f in [pool.submit(math.sqrt, 4)] * 2]\n"
        "print(*[c.pid for c in pool._children], flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2
    deadline = time.monotonic() + 20
    while any(map(_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(_alive, pids))


def test_a_script_without_a_main_guard_can_use_workers(tmp_path, start):
    script = tmp_path / "script.py"
    script.write_text(
        (
            "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
            * (start == "spawn")
        )
        + ""
        "from PIL import Image\n"
        "from pathlib import Path\n"
        "from fastdata.converters import pack\n"
        f"root = Path({str(tmp_path)!r})\n"
        "(root / 'in').mkdir()\n"
        "for i in range(6): Image.new('RGB', (9, 9), (i, 0, 0)).save(root / 'in' / f'{i}.png')\n"
        "print(pack(root / 'in', root / 'out.lmdb', workers=2).samples)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.returncode) == ("6\n", 0), done.stderr


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_process_with_threads_or_torch_is_never_forked(monkeypatch):
    import threading

    monkeypatch.setattr(children, "_THREADED", frozenset())
    assert threading.active_count() > 1 or children.fork_is_safe()
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    assert not children.fork_is_safe()
    done.set()
    thread.join()
    monkeypatch.setattr(children, "_THREADED", frozenset({"pytest"}))
    assert not children.fork_is_safe()


def test_an_interrupt_while_children_are_forked_stays_with_the_parent():
    code = (
        "import os, signal, math, threading, time\n"
        "from fastdata.converters.pool import WorkerPool\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)\n"
        "signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))\n"
        "count = 0\n"
        "signal.signal(signal.SIGINT, lambda *_: globals().__setitem__('count', count + 1))\n"
        "for _ in range(3):\n"
        "    with WorkerPool(2) as pool:\n"
        "        assert [f.result() for f in [pool.submit(math.sqrt, 4) for _ in range(8)]] == [2.0] * 8\n"
        "signal.setitimer(signal.ITIMER_REAL, 0)\n"
        "print('ok', count > 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.returncode) == ("ok True\n", 0), done.stderr
