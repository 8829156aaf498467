"""Groups have their exact shares, and are gone through without replacement."""

from __future__ import annotations

import numpy as np
import pytest

from fastdata.sampling.strata import Strata, shares


def _groups(order, sizes, seed=1, epoch=0):
    samples = order.indices(seed, epoch, np.arange(len(order)))
    return samples, np.searchsorted(np.cumsum(sizes), samples, "right")


@pytest.mark.parametrize(
    ("sizes", "counts"),
    [
        ([10, 1000, 3], [500, 500, 500]),
        ([7, 9, 5], [7, 7, 7]),
        ([5], [12]),
        ([50, 60, 70], [1, 997, 2]),
        ([20, 30], [0, 40]),
        ([3] * 1000, shares(12_345, 1000)),
    ],
)
def test_every_group_has_its_share_of_any_beginning_and_its_samples_come_equally_often(sizes, counts):
    sizes, counts = np.array(sizes), np.array(counts)
    samples, groups = _groups(Strata(sizes, counts), sizes)
    assert np.bincount(groups, minlength=len(sizes)).tolist() == counts.tolist()
    times = np.bincount(samples, minlength=sizes.sum())
    starts = np.cumsum(sizes) - sizes
    for start, size, count in zip(starts, sizes, counts, strict=True):
        # how many passes begin, and how many are whole
        assert set(times[start : start + size]) <= {count // size, -(-count // size)}
    for length in (len(samples) // 3, len(samples) // 2):
        block = -(-4 * counts.sum() // counts[counts > 0].min())
        off = np.abs(np.bincount(groups[:length], minlength=len(sizes)) - counts / counts.sum() * length)
        assert off.max() <= 1 + min(block, length) / 2


def test_small_blocks_keep_classes_level():
    _, groups = _groups(Strata(np.array([90, 10]), np.array([500, 500])), [90, 10])
    level = np.cumsum(np.where(groups == 0, 1, -1))
    assert np.abs(level).max() <= 5
    assert 0.3 < np.mean(groups[1:] == groups[:-1]) < 0.6  # by chance, not in turns


def test_places_in_a_block_and_samples_in_a_pass_are_uniform():
    # Three groups of 2, 3 and 4 samples; the first position and the second give each pair by its chance.
    sizes, counts = np.array([2, 3, 4]), np.array([8, 8, 8])
    order, epochs = Strata(sizes, counts), 2700
    first = np.array([order.indices(5, epoch, np.array([0]))[0] for epoch in range(epochs)])
    expected = np.repeat(epochs / 3 / sizes, sizes)
    found = np.bincount(first, minlength=9)
    assert ((found - expected) ** 2 / expected).sum() < 8 + 4 * 4


def test_passes_differ_and_epochs_differ():
    order = Strata(np.array([40]), np.array([120]))
    passes = order.indices(1, 0, np.arange(120)).reshape(3, 40)
    # the boundaries of passes are inside a block: each sample comes three times all the same
    assert np.bincount(passes.ravel()).tolist() == [3] * 40
    assert order.indices(1, 1, np.arange(120)).tolist() != passes.ravel().tolist()


def test_with_fewer_places_than_groups_another_few_come_in_each_epoch():
    order = Strata(np.full(100, 5), shares(10, 100), exchanged=True)
    seen = set()
    for epoch in range(40):
        groups = order.indices(1, epoch, np.arange(10)) // 5
        assert len(set(groups.tolist())) == 10
        seen |= set(groups.tolist())
    assert len(seen) > 90


def test_any_positions_can_be_asked_for():
    order = Strata(np.array([1000, 30, 7]), np.array([2000, 3000, 17]))
    whole = order.indices(3, 2, np.arange(5017))
    some = np.random.default_rng(0).permutation(5017)[:333]
    assert order.indices(3, 2, some).tolist() == whole[some].tolist()


def test_billions_of_places_cost_no_list():
    order = Strata(np.array([3_000_000_000, 1_000_000]), np.array([6_000_000_000, 2_000_000_000]))
    at = np.arange(7_999_998_400, 8_000_000_000)
    samples = order.indices(1, 0, at)
    assert np.bincount((samples >= 3_000_000_000).astype(int)).tolist() == [1200, 400]
    assert 0 <= samples.min() <= samples.max() < 3_001_000_000
