"""The quality of a shuffle is 1 for a true one, near 0 for none, and between them in order."""

from __future__ import annotations

import numpy as np
import pytest

from fastdata.order import permute
from fastdata.sampling.shuffle_quality import quality_of
from fastdata.sampling.windows import Windows, runs_of_samples

N = 40_000
LABELS = np.arange(N) // 40  # sorted by class, 1000 of them


def _quality(samples, labels=LABELS, size=16):
    return quality_of(np.split(samples, range(size, len(samples), size)), labels)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_true_shuffle_is_one(seed):  # C088
    for samples in (permute(N, seed, 0, np.arange(N)), np.random.default_rng(seed).permutation(N)):
        quality = _quality(samples)
        assert quality.neighbours == pytest.approx(1, abs=0.02)
        assert quality.classes == pytest.approx(1, abs=0.01)
        assert quality.sequence > 0.97
        assert (quality.batches, quality.samples) == (N // 16, N)


def test_no_shuffle_is_near_zero():
    quality = _quality(np.arange(N))
    assert quality.neighbours < 0.001
    assert quality.classes < 0.1
    assert quality.sequence < 0.001
    assert "classes 0.0" in str(quality)


def test_larger_windows_and_more_runs_mix_better():
    found = {
        (runs, window): _quality(Windows(runs_of_samples(N, window, runs), runs).indices(1, 0, np.arange(N)))
        for runs in (1, 8)
        for window in (400, 4000)
    }
    assert found[1, 400].classes < found[1, 4000].classes < 0.97
    assert found[1, 400].neighbours < found[1, 4000].neighbours < 0.2
    assert found[1, 400].neighbours < found[8, 400].neighbours
    assert found[1, 4000].sequence < 0.1 < found[8, 4000].sequence


def test_sets_without_classes_and_batches_of_any_size():
    assert _quality(np.arange(10), None).classes is None
    assert _quality(np.arange(10), np.zeros((N, 2))).classes is None
    assert _quality(np.arange(10), np.zeros(N)).classes is None
    assert "no classes" in str(_quality(np.arange(10), None))
    quality = quality_of([np.array([3]), np.array([4])], LABELS)  # no sample has a mate
    assert quality.neighbours == quality.classes == 1
    assert quality_of([np.array([7, 7, 7])], LABELS).neighbours == 1  # all alike, however they are dealt
