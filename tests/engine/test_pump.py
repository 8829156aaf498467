"""The pump: in order, ahead by so much and no more, exceptions in their place, clean when dropped."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from fastdata.engine.pump import Pump
from fastdata.errors import LoaderError


@pytest.fixture
def executor():
    with ThreadPoolExecutor(2) as pool:
        yield pool


@pytest.mark.parametrize("threaded", [True, False])
@pytest.mark.parametrize("ahead", [1, 3])
def test_results_come_in_order(executor, threaded, ahead):
    def run(job):
        time.sleep(0.002 if job % 2 else 0)
        return job * job

    pump = Pump(iter(range(20)), run, executor=executor if threaded else None, ahead=ahead)
    assert list(pump) == [n * n for n in range(20)]
    assert list(pump) == []


def test_no_more_jobs_are_drawn_than_asked_for(executor):
    drawn = []

    def jobs():
        for n in range(100):
            drawn.append((n, threading.current_thread()))
            yield n

    pump = Pump(jobs(), lambda n: n, executor=executor, ahead=3)
    assert next(pump) == 0
    assert len(drawn) == 4  # one handed out, three ahead
    assert {thread for _, thread in drawn} == {threading.current_thread()}
    pump.close()
    pump.close()
    assert list(pump) == []


@pytest.mark.parametrize("threaded", [True, False])
def test_an_exception_comes_in_its_place_and_the_rest_after_it(executor, threaded):  # C110
    def run(n):
        if n == 3:
            msg = "sample 3"
            raise KeyError(msg)
        return n

    pump = Pump(iter(range(6)), run, executor=executor if threaded else None, ahead=2)
    assert [next(pump) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError, match="sample 3"):
        next(pump)
    assert list(pump) == [4, 5]


def test_a_dropped_pump_starts_nothing_more(executor):
    started = []
    gate = threading.Event()

    def run(n):
        started.append(n)
        gate.wait(5)

    pump = Pump(iter(range(10)), run, executor=executor, ahead=6)
    time.sleep(0.05)
    del pump
    gate.set()
    time.sleep(0.05)
    assert started == [0, 1]  # two threads: the other four were cancelled


def test_a_result_that_does_not_come_is_dataloaders_error():
    free = threading.Event()

    def run(job):
        if job == 1:
            free.wait()
        if job == 2:
            raise TimeoutError("the job's own")  # noqa: EM101
        return job

    with ThreadPoolExecutor(2) as executor:
        pump = Pump(iter(range(4)), run, executor=executor, ahead=2, timeout=0.05)
        try:
            assert next(pump) == 0
            with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0\.05 seconds"):
                next(pump)
            with pytest.raises(TimeoutError, match="own"):
                next(pump)
            assert next(pump) == 3
        finally:
            free.set()


def test_an_executor_that_was_shut_down_is_a_loaders_error():
    gate = threading.Event()

    def run(job):
        gate.wait()
        return job

    for cancels in (True, False):
        gate.clear()
        executor = ThreadPoolExecutor(1)
        pump = Pump(iter(range(2 if cancels else 9)), run, executor=executor, ahead=2)
        executor.shutdown(wait=False, cancel_futures=cancels)
        gate.set()
        with pytest.raises(LoaderError, match="closed"):
            list(pump)
