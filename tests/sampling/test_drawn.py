"""Draws by weight have the distribution they promise, and any position is the same whoever asks for it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fastdata.sampling.drawn import DrawnByClass, DrawnByWeight, SortedByWeight

WEIGHTS = np.array([5.0, 0.0, 1.0, 2.5, 0.0, 1e-3, 4.0])


def _chi(counts, expected):
    """Chi-square over its degrees of freedom, as a number of standard deviations from 1."""
    used = expected > 0
    free = np.count_nonzero(used) - 1
    assert not counts[~used].any()
    return (((counts - expected)[used] ** 2 / expected[used]).sum() - free) / np.sqrt(2 * free)


def test_with_replacement_each_sample_comes_by_its_weight():
    n = 200_000
    drawn = DrawnByWeight(WEIGHTS, n).indices(3, 1, np.arange(n))
    assert _chi(np.bincount(drawn, minlength=7), WEIGHTS / WEIGHTS.sum() * n) < 4
    pairs = np.bincount(drawn[:-1] * 7 + drawn[1:], minlength=49)  # draws know nothing of each other
    share = WEIGHTS / WEIGHTS.sum()
    expected = np.outer(share, share).ravel() * (n - 1)
    kept = expected > 5
    assert _chi(pairs[kept], expected[kept]) < 4


def test_with_replacement_a_class_is_drawn_then_a_sample_of_it():
    sizes = np.array([1, 30, 2])
    members = np.arange(100, 133)
    drawn = DrawnByClass(members, sizes, 90_000).indices(3, 0, np.arange(90_000)) - 100
    expected = np.repeat(30_000 / sizes, sizes)
    assert _chi(np.bincount(drawn, minlength=33), expected) < 4


def test_without_replacement_the_orders_are_those_of_drawing_one_after_the_other():
    weights, counts = np.array([4.0, 2.0, 1.0, 0.0]), {}
    epochs = 5000
    order = SortedByWeight(weights, 3)
    for epoch in range(epochs):
        found = tuple(order.indices(1, epoch, np.arange(3)).tolist())
        counts[found] = counts.get(found, 0) + 1
    found, expected = [], []
    for permutation in itertools.permutations(range(3)):
        left, chance = 7.0, 1.0
        for sample in permutation:
            chance *= weights[sample] / left
            left -= weights[sample]
        found.append(counts.get(permutation, 0))
        expected.append(chance * epochs)
    assert _chi(np.array(found), np.array(expected)) < 4
    assert set(counts) <= set(itertools.permutations(range(3)))


@pytest.mark.parametrize("count", [1, 3, 5])
def test_without_replacement_fewer_are_the_first_of_all(count):
    every = SortedByWeight(WEIGHTS, 5).indices(2, 4, np.arange(5))
    assert sorted(every) == [0, 2, 3, 5, 6]
    assert SortedByWeight(WEIGHTS, count).indices(2, 4, np.arange(count)).tolist() == every[:count].tolist()


def test_any_positions_can_be_asked_for_in_any_order():
    rng = np.random.default_rng(0)
    for order in (
        DrawnByWeight(rng.random(1000), 5000),
        SortedByWeight(rng.random(5000), 5000),
        DrawnByClass(np.arange(1000), np.full(10, 100), 5000),
    ):
        whole = order.indices(7, 2, np.arange(5000))
        some = rng.permutation(5000)[:100]
        assert order.indices(7, 3, some).tolist() != whole[some].tolist()
        assert order.indices(8, 2, some).tolist() != whole[some].tolist()
        assert order.indices(7, 2, some).tolist() == whole[some].tolist()
        assert len(order) == 5000


def test_weights_of_any_scale_do():
    for scale in (1e-300, 1e300):
        weights = np.array([scale, scale / 2, 0])
        with np.errstate(all="raise"):
            assert np.bincount(DrawnByWeight(weights, 3000).indices(1, 0, np.arange(3000)), minlength=3)[0] > 1800
            assert sorted(SortedByWeight(weights, 2).indices(1, 0, np.arange(2))) == [0, 1]
