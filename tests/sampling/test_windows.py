"""Windows: every sample once, read nearly in sequence, mixed inside."""

from __future__ import annotations

import numpy as np
import pytest

from fastdata.sampling.windows import Windows, runs_of_bytes, runs_of_samples


@pytest.mark.parametrize("runs", [1, 3, 8])
@pytest.mark.parametrize(("n", "window"), [(1000, 100), (1003, 97), (5, 100), (1, 1), (64, 1)])
def test_every_sample_comes_once_and_any_position_by_itself(n, window, runs):
    order = Windows(runs_of_samples(n, window, runs), runs)
    whole = order.indices(1, 2, np.arange(n))
    assert sorted(whole.tolist()) == list(range(n))
    some = np.random.default_rng(0).permutation(n)[:40]
    assert order.indices(1, 2, some).tolist() == whole[some].tolist()
    assert order.indices(1, 3, np.arange(n)).tolist() != whole.tolist() or n < 6 or window == 1


def test_one_run_goes_through_the_pack_and_no_sample_leaves_its_window():
    whole = Windows(runs_of_samples(1000, 100, 1), 1).indices(1, 0, np.arange(1000))
    assert (whole // 100).tolist() == (np.arange(1000) // 100).tolist()
    assert (np.diff(whole) == 1).mean() < 0.1


def test_a_window_has_few_contiguous_stretches_each_elsewhere():
    whole = Windows(runs_of_samples(10_000, 800, 8), 8).indices(1, 0, np.arange(10_000))
    for window in whole[:9600].reshape(12, 800):
        stretches = np.split(np.sort(window), np.flatnonzero(np.diff(np.sort(window)) > 1) + 1)
        assert len(stretches) <= 8
        assert all(len(stretch) % 100 == 0 for stretch in stretches)
        assert np.ptp(window) > 2000
        assert abs(np.corrcoef(np.arange(800), window)[0, 1]) < 0.2


@pytest.mark.parametrize("runs", [1, 4])
@pytest.mark.parametrize(("chunk", "world"), [(40, 1), (7, 3), (500, 1)])
def test_windows_are_asked_for_one_ahead_once_and_in_the_order_of_the_pack(runs, chunk, world):
    order = Windows(runs_of_samples(1003, 100, runs), runs)
    for begin in (0, 333 * world % 1003):
        asked, since = [], None
        for start in range(begin, 1003, chunk * world):
            at = np.arange(start, min(start + chunk * world, 1003), world)
            fresh = since is None
            asked += order.ahead(1, 2, begin if fresh else since, int(at[-1]), fresh=fresh).tolist()
            due = order.indices(1, 2, np.arange(begin, int(at[-1]) + 1))
            assert set(due.tolist()) <= set(asked)
            assert len(asked) <= int(at[-1]) - begin + 1 + 300
            since = int(at[-1])
        assert len(set(asked)) == len(asked)
    if runs == 1:
        assert asked == sorted(asked)


def test_windows_of_bytes_hold_that_many():
    sizes = np.random.default_rng(0).integers(1000, 100_000, 5000)
    bounds = runs_of_bytes(sizes, 8e6, 8)
    held = np.add.reduceat(sizes, bounds[:-1])
    assert bounds[0] == 0
    assert bounds[-1] == 5000
    assert held.max() <= 1e6 + 100_000
    assert held[:-1].min() >= 1e6 - 100_000
    assert runs_of_bytes(np.full(10, 5_000_000), 1e6, 4).tolist() == list(range(11))  # one sample at least
    assert runs_of_bytes(np.full(10, 5), 1e6, 4).tolist() == [0, 10]
