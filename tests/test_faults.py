"""FaultLog: nothing is skipped in silence, and not without end."""

from __future__ import annotations

import pickle
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastdata.errors import DecodeError, OptionError, SampleError, TruncatedImageError
from fastdata.faults import Fault, FaultLog


def test_raise_names_key_and_index_and_keeps_the_cause():
    log, cause = FaultLog("raise"), TruncatedImageError("cut short")
    with pytest.raises(SampleError, match=r"'a/b\.jpg' \(index 7\).*TruncatedImageError: cut short") as caught:
        log.add("a/b.jpg", 7, cause)
    assert caught.value.__cause__ is cause
    assert log.faults == (Fault("a/b.jpg", 7, "TruncatedImageError: cut short"),)


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_skipped_samples_are_counted_and_named(on_error):
    log = FaultLog(on_error)
    assert log.summary() == "no sample failed"
    for index in range(5):
        log.add(f"k{index}", index, TruncatedImageError("x: y") if index else DecodeError("z"))
    assert len(log) == 5
    assert list(log.counts.items()) == [("TruncatedImageError", 4), ("DecodeError", 1)]
    done = {"skip": "skipped", "replace": "replaced"}[on_error]
    assert log.summary() == (
        f"5 samples {done} (4 TruncatedImageError, 1 DecodeError): 'k0' (index 0), 'k1' (index 1), 'k2' (index 2), ..."
    )
    assert "\n" not in log.summary()


def test_one_fault_is_one_sample():
    log = FaultLog("skip", budget=1)
    for _ in range(3):  # three epochs
        log.add("a", 3, DecodeError("x"))
    assert log.summary() == "1 sample skipped (1 DecodeError): 'a' (index 3)"


@given(st.integers(0, 40), st.integers(0, 60))
def test_a_count_allows_that_many_and_no_more(budget, failing):
    log, raised = FaultLog("skip", budget=budget), 0
    for index in range(failing):
        try:
            log.add(str(index), index, DecodeError("x"))
        except SampleError as error:
            raised += 1
            assert f"index {index}" in str(error)  # noqa: PT017  which ones raise is what is tested
    assert raised == max(0, failing - budget)
    assert len(log) == failing


@pytest.mark.parametrize(("share", "total", "most"), [(0.05, 100, 5), (0.5, 3, 1), (0.01, 10, 0), (0.999, 1000, 999)])
def test_a_share_is_of_the_total(share, total, most):
    log = FaultLog("skip", budget=share, total=total)
    for index in range(most):
        log.add(str(index), index, DecodeError("x"))
    with pytest.raises(SampleError, match=f"{most + 1} samples failed, more than the {most} that are allowed"):
        log.add("last", most, DecodeError("x"))


@pytest.mark.parametrize("budget", [-1, 1.5, float("nan"), -0.1])
def test_a_wrong_budget_is_refused(budget):
    with pytest.raises(OptionError, match="budget="):
        FaultLog("skip", budget=budget, total=10)


def test_a_share_of_nothing_known_and_an_unknown_way_are_refused():
    with pytest.raises(OptionError, match="of how many samples"):
        FaultLog("skip", budget=0.1)
    with pytest.raises(OptionError, match="'raise', 'skip', 'replace'"):
        FaultLog("ignore")


def test_many_threads_lose_nothing_and_only_what_is_over_the_budget_raises():
    log, raised = FaultLog("skip", budget=600), []

    def work(first):
        for index in range(first, first + 250):
            try:
                log.add(str(index), index, DecodeError("x"))
            except SampleError:
                raised.append(index)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(0, 1000, 250)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(log) == 1000
    assert len(raised) == 400
    assert {fault.index for fault in log.faults} == set(range(1000))


def test_a_log_can_be_pickled_and_goes_on():
    log = FaultLog("skip", budget=2)
    log.add("a", 1, DecodeError("x"))
    again = pickle.loads(pickle.dumps(log))
    again.add("b", 2, DecodeError("x"))
    assert (len(log), len(again)) == (1, 2)
    with pytest.raises(SampleError):
        again.add("c", 3, DecodeError("x"))
