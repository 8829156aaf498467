"""Which sample comes where: a permutation for every length, the same for every world size, uniform enough."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastdata.errors import OptionError
from fastdata.order import Order, permute, permute_each
from fastdata.philox import words


@given(length=st.integers(0, 3000), seed=st.integers(0, 2**64 - 1), epoch=st.integers(0, 1000))
def test_small_orders_are_permutations(length, seed, epoch):
    assert sorted(permute(length, seed, epoch, np.arange(length)).tolist()) == list(range(length))


@pytest.mark.parametrize("length", [65_537, 100_003, 262_144, 262_145])
def test_large_orders_are_permutations_without_a_list(length):
    order = permute(length, 7, 3, np.arange(length))
    assert (np.bincount(order, minlength=length) == 1).all()
    # any position by itself: nothing but the position is needed
    some = np.array([0, 5, length - 1, 77])
    assert permute(length, 7, 3, some).tolist() == order[some].tolist()


@given(
    length=st.integers(0, 200), world=st.integers(1, 9), batch=st.integers(1, 17),
    shuffle=st.booleans(), uneven=st.sampled_from(["pad", "drop", "exact"]),
)  # fmt: skip
def test_ranks_put_together_are_the_epoch_for_every_world_size(length, world, batch, shuffle, uneven):  # C068, C116
    one = Order(length, 5, 2, shuffle).indices(0, length)
    ranks = [Order(length, 5, 2, shuffle, rank, world, uneven) for rank in range(world)]
    assert len({len(order) for order in ranks}) == 1
    seen = {}
    for order in ranks:
        for start in range(0, len(order), batch):
            rows = order.positions(start, start + batch), order.indices(start, start + batch)
            valid = order.valid(start, start + batch)
            for position, index, good in zip(*rows, valid, strict=True):
                assert index == one[position % length]
                assert good == (position < length)
                seen[int(position)] = int(index)
    wanted = length // world * world if uneven == "drop" else length
    assert [seen[p] for p in range(wanted)] == one[:wanted].tolist()


def test_a_pure_function_of_seed_and_epoch():
    a, b = Order(1000, 1, 0), Order(1000, 1, 0)
    assert (a.indices(0, 1000) == b.indices(0, 1000)).all()
    others = [Order(1000, 2, 0), Order(1000, 1, 1)]
    assert all((a.indices(0, 1000) != other.indices(0, 1000)).mean() > 0.9 for other in others)


@pytest.mark.parametrize("length", [24, 70_000])
def test_every_sample_comes_at_every_place_equally_often(length):
    """Chi-square of the sample at a fixed position over many epochs, for the sorted and for the computed order."""
    draws, bins = 4000, 24
    for position in (0, length - 1):
        at = np.array([position])
        found = np.array([int(permute(length, 11, epoch, at)[0]) for epoch in range(draws)])
        counts = np.bincount(found * bins // length, minlength=bins)
        chi = ((counts - draws / bins) ** 2 / (draws / bins)).sum()
        assert chi < 60  # 23 degrees of freedom: the 99.998 % quantile


def test_neighbours_do_not_stay_together():  # C088
    order = permute(100_000, 3, 1, np.arange(100_000)).astype(float)
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.02
    assert abs(np.corrcoef(np.arange(100_000), order)[0, 1]) < 0.02


@pytest.mark.parametrize("wrong", [{"rank": 2, "world": 2}, {"length": -1}, {"uneven": "some"}])
def test_wrong_numbers_are_named(wrong):
    with pytest.raises(OptionError):
        Order(**{"length": 5, **wrong})


# ---------------------------------------------------------------- many permutations at once, and large ones


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_each_of_many_small_permutations_is_drawn_from_all(n):
    count = 100 * math.factorial(n)
    keys = words(1, n, np.arange(count), 2)
    keys = keys[:, 0] << np.uint64(32) | keys[:, 1]
    orders = np.stack([permute_each(np.full(count, n), keys, np.full(count, at)) for at in range(n)], axis=1)
    assert (np.sort(orders, axis=1) == np.arange(n)).all()
    found = np.unique(orders @ n ** np.arange(n), return_counts=True)[1]
    free = math.factorial(n) - 1
    assert len(found) == free + 1
    assert ((found - 100) ** 2 / 100).sum() < free + 4 * math.sqrt(2 * free)


@pytest.mark.parametrize("n", [17, 40, 65])
def test_pairs_of_positions_of_many_permutations_are_uniform(n):
    count = 20 * n * (n - 1)
    keys = words(2, n, np.arange(count), 2)
    keys = keys[:, 0] << np.uint64(32) | keys[:, 1]
    first, last = (permute_each(np.full(count, n), keys, np.full(count, at)) for at in (0, n - 1))
    found = np.unique(first * n + last, return_counts=True)[1]
    free = n * (n - 1) - 1
    assert ((found - 20) ** 2 / 20).sum() + 20 * (free + 1 - len(found)) < free + 4 * math.sqrt(2 * free)


def test_permutations_of_any_lengths_at_once_are_each_whole():
    lengths = np.array([1, 2, 16, 17, 100, 65_537])
    each = np.repeat(np.arange(6), lengths)
    at = np.concatenate([np.arange(n) for n in lengths])
    mixed = np.random.default_rng(0).permutation(len(at))
    keys = np.arange(6, dtype=np.uint64)
    found = permute_each(lengths[each[mixed]], keys[each[mixed]], at[mixed])
    for number, n in enumerate(lengths):
        assert sorted(found[each[mixed] == number]) == list(range(n))


@pytest.mark.parametrize("n", [70_000, 300_000])  # both are beyond what is sorted
@pytest.mark.parametrize("seed", [1, 2])
def test_a_large_permutation_looks_like_numpys(n, seed):
    """Blocks of positions over blocks of samples, neighbours' distances and their correlation, each in its spread."""
    for order in (permute(n, seed, 0, np.arange(n)), np.random.default_rng(seed).permutation(n)):
        cells = np.bincount(np.arange(n) * 50 // n * 50 + order * 50 // n, minlength=2500)
        free = 49 * 49
        assert abs(((cells - n / 2500) ** 2 / (n / 2500)).sum() - free) < 5 * math.sqrt(2 * free)
        distance = np.abs(np.diff(order))
        assert abs(distance.mean() / ((n + 1) / 3) - 1) < 5 * math.sqrt(0.5 / n)
        for lag in (1, 2, 16):
            assert abs(np.corrcoef(order[:-lag], order[lag:])[0, 1]) < 5 / math.sqrt(n)
        assert (distance == 1).sum() < 2 + 5 * math.sqrt(2)  # two pairs of neighbours stay, in the mean
