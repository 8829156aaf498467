"""Sampling values are checked when they are made, and say what is wrong."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from fastdata import Balanced, Buckets, Mixture, Weighted, Windowed
from fastdata.errors import OptionError


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Weighted([1.0, -1.0]), "number 1 is -1"),
        (lambda: Weighted([1.0, float("nan")]), "number 1 is nan"),
        (lambda: Weighted([float("inf"), 1.0]), "number 0 is inf"),
        (lambda: Weighted([0.0, 0.0]), "sum is 0"),
        (lambda: Weighted([1e308, 1e308]), "sum is inf"),
        (lambda: Weighted([]), "one at least"),
        (lambda: Weighted([[1.0], [2.0]]), "flat"),
        (lambda: Weighted(["a"]), "sequence of numbers"),
        (lambda: Weighted([1, 0, 2], replacement=False, num_samples=3), "only 2 samples"),
        (lambda: Weighted([1], num_samples=0), "num_samples=0"),
        (lambda: Balanced(num_samples=2.5), "num_samples=2.5"),
        (lambda: Balanced(num_samples=True), "num_samples=True"),
        (Windowed, "one of the two"),
        (lambda: Windowed(samples=4, megabytes=1), "one of the two"),
        (lambda: Windowed(samples=0), "samples=0"),
        (lambda: Windowed(samples=9, runs=0), "runs=0"),
        (lambda: Windowed(megabytes=-1), "megabytes=-1"),
        (lambda: Windowed(megabytes=float("nan")), "megabytes=nan"),
        (lambda: Buckets([]), "sizes="),
        (lambda: Buckets([(8, 8), (8, 8)]), "different"),
        (lambda: Buckets([(0, 8)]), "sizes="),
        (lambda: Buckets([8]), "sizes="),
        (lambda: Buckets([(8, 8)], of=[0, 1]), "each 0 to 0"),
        (lambda: Buckets([(8, 8)], of=[0.5]), "each 0 to 0"),
        (lambda: Mixture([1, 0]), "above 0"),
        (lambda: Mixture([1, 2], until="never"), "'first' or 'last'"),
        (lambda: Mixture([1, 2], num_samples=0), "num_samples=0"),
    ],
)
def test_wrong_values_are_named(make, why):
    with pytest.raises(OptionError, match=why):
        make()


def test_values_are_frozen_copies_that_travel():
    given = np.array([1.0, 2.0])
    weighted = Weighted(given)
    given[0] = 99
    assert weighted.weights.tolist() == [1.0, 2.0]
    assert not weighted.weights.flags.writeable
    assert Weighted(torch.tensor([1, 2])).weights.tolist() == [1.0, 2.0]
    assert Mixture(torch.tensor([1, 2])).weights == (1.0, 2.0)
    for value in (weighted, Balanced(), Windowed(samples=3), Buckets([(8, 8)], of=np.zeros(3, int)), Mixture([1, 2])):
        assert repr(pickle.loads(pickle.dumps(value))) == repr(value)
        with pytest.raises((AttributeError, TypeError)):
            value.replacement = True


def test_the_text_of_weights_tells_one_set_of_them_from_another():
    assert repr(Weighted([1, 2])) == repr(Weighted([1.0, 2.0])) != repr(Weighted([2, 1]))
    assert repr(Buckets([(8, 8), (4, 4)], of=[0, 1])) != repr(Buckets([(8, 8), (4, 4)], of=[1, 1]))
