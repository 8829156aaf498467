"""The pool of threads: many callers, forks, memory, an end that may come twice."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from fastdata.decoding.native_decoder import NativeBatchDecoder
from fastdata.errors import OptionError


@pytest.fixture(scope="module")
def work(kit):
    """A batch of 24 crops and what it must give."""
    blobs = [kit.jpeg_of(kit.noisy_photo(120, 90, seed), "420") for seed in range(24)]
    boxes = [(seed, seed, 100 + seed % 20, 70 + seed % 20) for seed in range(24)]
    encoded, geometry = kit.pack(blobs, [(120, 90)] * 24), kit.crops(boxes, (48, 40))
    return encoded, geometry, np.stack([kit.by_pillow(blob, geometry, row) for row, blob in enumerate(blobs)])


def tasks():
    return {task.name for task in Path("/proc/self/task").iterdir()}


def gone(threads):
    """Whether these end; a thread that was joined may stay in /proc for a moment."""
    until = time.monotonic() + 20
    while threads & tasks() and time.monotonic() < until:
        time.sleep(0.01)
    return not threads & tasks()


def run(decoder, work):
    encoded, geometry, expected = work
    out = np.zeros_like(expected)
    assert decoder.decode_batch(encoded, geometry, out) == {}
    return np.array_equal(out, expected)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_any_number_of_threads_gives_the_same_bytes(work, threads):
    with NativeBatchDecoder(threads) as decoder:
        assert run(decoder, work)


def test_many_callers_at_once(work):
    with NativeBatchDecoder(3) as decoder:
        results = []
        callers = [
            threading.Thread(target=lambda: results.extend(run(decoder, work) for _ in range(8))) for _ in range(6)
        ]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        assert results == [True] * 48


def test_the_interpreter_is_free_meanwhile(work):
    with NativeBatchDecoder(1) as decoder:
        run(decoder, work)
        counted, most, stop = 0, 0, threading.Event()

        def call():
            nonlocal most
            for _ in range(500):
                before = counted
                run(decoder, work)
                most = max(most, counted - before)
                if most >= 20:  # a batch that kept the interpreter would let it count once, between two lines
                    break
            stop.set()

        caller = threading.Thread(target=call)
        caller.start()
        while not stop.is_set():
            counted += 1
            time.sleep(0)
        caller.join()
    assert most >= 20


def test_close_ends_the_threads_and_may_come_twice(work):
    before = tasks()
    decoder = NativeBatchDecoder(5)
    assert tasks() <= before  # none before the first batch
    run(decoder, work)
    threads = tasks() - before
    assert len(threads) == 5
    decoder.close()
    decoder.close()
    assert gone(threads)
    with pytest.raises(OptionError):
        run(decoder, work)


def test_a_pool_that_is_dropped_ends_its_threads(work):
    before = tasks()
    decoder = NativeBatchDecoder(3)
    run(decoder, work)
    threads = tasks() - before
    assert len(threads) == 3
    del decoder
    assert gone(threads)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_fork_in_the_middle_of_batches(work):
    """Children of a process whose pool is busy decode with the same object; parent and child both end."""
    with NativeBatchDecoder(2) as decoder:
        stop = threading.Event()
        fine = []

        def keep_busy():
            while not stop.is_set():
                fine.append(run(decoder, work))

        busy = [threading.Thread(target=keep_busy) for _ in range(2)]
        for thread in busy:
            thread.start()
        children = []
        for _ in range(6):
            time.sleep(0.01)
            child = os.fork()
            if child == 0:
                signal.alarm(30)  # a child that hangs is killed, and its status says so
                code = 1
                try:
                    code = 0 if run(decoder, work) and run(decoder, work) else 2
                    decoder.close()
                finally:
                    os._exit(code)
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        stop.set()
        for thread in busy:
            thread.join()
        assert codes == [0] * 6
        assert fine
        assert all(fine)
        assert run(decoder, work)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_that_never_decodes_ends_cleanly(work):
    decoder = NativeBatchDecoder(2)
    run(decoder, work)
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        del decoder
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert run(decoder, work)
    decoder.close()


def test_memory_stays_flat(work):
    with NativeBatchDecoder(2) as decoder:
        for _ in range(30):
            run(decoder, work)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(300):
            run(decoder, work)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 3000, f"{grown} kB more after 7200 images"


def test_threads_must_not_be_negative():
    with pytest.raises(OptionError, match="threads"):
        NativeBatchDecoder(-1)


def test_without_threads_the_callers_does_the_work(kit):
    blobs = [kit.jpeg_of(kit.noisy_photo(90, 70, seed=number), "420") for number in range(4)]
    encoded = kit.pack([*blobs, blobs[0][:300]], [(90, 70)] * 5)
    where = kit.crops([(3, 5, 80, 60)] * 5, (30, 20))
    outs, failures, before = [], [], tasks()
    for threads in (0, 2):
        out = np.zeros((5, 20, 30, 3), np.uint8)
        with NativeBatchDecoder(threads) as decoder:
            failures.append([(position, status) for position, status, _ in decoder.attempt(encoded, where, out)])
            if not threads:
                assert tasks() <= before
        outs.append(out[:4])
    assert np.array_equal(*outs)
    assert failures[0] == failures[1]
    assert failures[0][0][0] == 4


def test_callers_without_threads_take_turns(kit):
    blobs = [kit.jpeg_of(kit.noisy_photo(90, 70, seed=number), "420") for number in range(8)]
    encoded, where = kit.pack(blobs, [(90, 70)] * 8), kit.crops([(3, 5, 80, 60)] * 8, (30, 20))
    with NativeBatchDecoder(0) as decoder, ThreadPoolExecutor(4) as callers:
        outs = [np.zeros((8, 20, 30, 3), np.uint8) for _ in range(16)]
        assert all(failed == [] for failed in callers.map(lambda out: decoder.attempt(encoded, where, out), outs))
    assert all(np.array_equal(out, outs[0]) for out in outs)
    assert outs[0].any()
