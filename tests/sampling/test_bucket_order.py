"""Buckets: one bucket a step on all ranks, every sample once, as many steps on each rank."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fastdata.sampling.bucket_order import BucketOrder, BucketSteps, nearest_size

BUCKET = np.random.default_rng(0).choice(4, 500, p=[0.6, 0.3, 0.1, 0.0]).astype(np.uint16)


def _steps(world, batch=24, uneven="exact", *, drop_last=False, **options):
    """(samples, positions, valid) of each rank at each step."""
    plan = BucketSteps(BUCKET, batch, world=world, uneven=uneven, drop_last=drop_last)
    order = BucketOrder(plan, 5, 1, **options)
    ranks = [replace(order, rank=rank) for rank in range(world)]
    assert [len(rank) for rank in ranks] == [sum(len(rank.batch(s)[0]) for s in range(rank.steps)) for rank in ranks]
    return [[rank.batch(step) for rank in ranks] for step in range(order.steps)]


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("uneven", ["pad", "drop", "exact"])
def test_a_step_is_of_one_bucket_on_all_ranks_and_they_have_as_many_samples(world, uneven):
    for step in _steps(world, uneven=uneven):
        assert len({len(samples) for samples, _, _ in step}) == 1
        assert len({BUCKET[sample] for samples, _, _ in step for sample in samples}) == 1


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_every_sample_comes_once_with_the_same_position_for_any_number_of_ranks(world):
    def placed(steps):
        rows = [[row for rank in step for row in zip(*rank, strict=True)] for step in steps]
        return [sorted((sample, position) for sample, position, valid in step if valid) for step in rows]

    mine = placed(_steps(world))
    assert mine == placed(_steps(1))
    assert sorted(sample for step in mine for sample, _ in step) == list(range(500))
    assert sorted(position for step in mine for _, position in step) == list(range(500))
    every = [p for step in _steps(world, uneven="pad") for _, positions, _ in step for p in positions]
    assert len(set(every)) == len(every)  # padding has draws of its own


def test_rests_are_padded_dropped_or_left_out():
    sizes = np.bincount(BUCKET, minlength=4)
    padded, dropped = _steps(3, uneven="pad"), _steps(3, uneven="drop")
    assert sum(len(s) for step in padded for s, _, _ in step) == sum(-(-size // 3) * 3 for size in sizes)
    assert sum(len(s) for step in dropped for s, _, _ in step) == sum(size // 3 * 3 for size in sizes)
    for world in (1, 3):
        assert {len(s) * world for step in _steps(world, drop_last=True) for s, _, _ in step} == {24}
    assert len(_steps(3, drop_last=True)) == sum(sizes // 24)


def test_steps_come_in_random_order_and_epochs_differ():
    of_step = [int(BUCKET[step[0][0][0]]) for step in _steps(1)]
    assert of_step != sorted(of_step)
    plan = BucketSteps(BUCKET, 24, world=1, uneven="pad", drop_last=False)
    epochs = [[BucketOrder(plan, 5, epoch).batch(s)[0].tolist() for s in range(len(plan))] for epoch in range(2)]
    assert sorted(map(sorted, epochs[0])) != sorted(map(sorted, epochs[1]))


def test_unshuffled_buckets_come_one_behind_the_other():
    samples = [s for step in _steps(1, shuffle=False) for s in step[0][0].tolist()]
    assert samples == np.argsort(BUCKET, kind="stable").tolist()


def test_the_nearest_aspect_then_the_nearest_area():
    sizes = ((224, 224), (192, 256), (256, 192), (448, 448))  # height, width
    pictures = [(400, 300), (300, 400), (500, 500), (240, 230), (1000, 100), (100, 1000)]  # width, height
    width, height = np.array(pictures).T
    assert nearest_size(width, height, sizes).tolist() == [1, 2, 3, 0, 1, 2]


def test_an_empty_set_has_no_steps():
    plan = BucketSteps(np.zeros(0, np.uint16), 8, world=2, uneven="pad", drop_last=False)
    assert len(plan) == len(BucketOrder(plan)) == 0
