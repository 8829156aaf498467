"""Schedules are torch's, as functions of the step."""

from __future__ import annotations

import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fastdata.errors import OptionError
from fastdata.train import Schedule


def _torch_rates(total, make):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.7)
    scheduler = make(optimizer)
    rates = []
    for step in range(total):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if step < total - 1:
            scheduler.step()
    return rates


def _rates(schedule):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.7)
    rates = []
    for step in range(schedule.total):
        schedule.apply(optimizer, step)
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


@pytest.mark.parametrize("total", [1, 2, 3, 4, 10, 40, 101])
def test_onecycle_is_torchs(total):
    wanted = _torch_rates(
        total, lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.7, total_steps=total, cycle_momentum=False)
    )
    assert _rates(Schedule("onecycle", total)) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("total", [1, 2, 10, 101])
def test_cosine_is_torchs(total):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = _torch_rates(total, lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=total))
    assert _rates(Schedule("cosine", total)) == pytest.approx(wanted, abs=1e-12)


@given(kind=st.sampled_from(["onecycle", "cosine", "constant"]), total=st.integers(1, 300), data=st.data())
def test_rates_stay_within_bounds_and_keep_the_last_one_past_the_end(kind, total, data):
    schedule = Schedule(kind, total, data.draw(st.integers(0, total)))
    factors = [schedule.factor(step) for step in range(total)]
    assert all(0 <= factor <= 1 for factor in factors)
    assert schedule.factor(total) == schedule.factor(10 * total) == factors[-1]


def test_warmup_rises_straight_to_the_peak():
    assert [Schedule("constant", 9, 3).factor(step) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert Schedule("cosine", 9, 3).factor(3) == 1.0


def test_groups_keep_their_own_peaks():
    weights = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    optimizer = torch.optim.SGD([{"params": weights[:1], "lr": 1.0}, {"params": weights[1:], "lr": 0.1}])
    schedule = Schedule("cosine", 4)
    for step in (0, 2, 2):
        schedule.apply(optimizer, step)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.5, 0.05])


@pytest.mark.parametrize("wrong", [("linear", 5, 0), ("cosine", 0, 0), ("cosine", 5, 6), ("cosine", 5, -1)])
def test_schedules_without_meaning_are_refused(wrong):
    with pytest.raises(OptionError):
        Schedule(*wrong)
