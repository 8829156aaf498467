"""Random steps have torchvision's distribution: Kolmogorov-Smirnov on 20,000 draws of each."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms as v1

from fastdata.transforms import compile_transform, draw, plan_geometry
from fastdata.transforms.erasing import erased_area
from fastdata.transforms.pixel_ops import adjustments

COUNT = 20_000
# Two samples of n and m: D > c * sqrt(1 / n + 1 / m) with probability 2 * exp(-2 * c**2), 5e-5 for c = 2.3 (Smirnov
# 1948). The seeds are fixed, so the outcome is, too.
LIMIT = 2.3


def ours(transform, width, height):
    plan = compile_transform(transform)
    draws = draw(plan, 11, 0, np.arange(COUNT))
    sizes = np.full(COUNT, width, np.int32), np.full(COUNT, height, np.int32)
    return plan_geometry(plan, draws, *sizes)


# Landscape, square, a panorama (ten tries may not do), tiny, and a scale range that often needs the central crop.
@pytest.mark.parametrize(
    ("width", "height", "scale", "ratio", "count"),
    [
        (341, 256, (0.08, 1.0), (3 / 4, 4 / 3), COUNT),
        (256, 256, (0.08, 1.0), (3 / 4, 4 / 3), COUNT),
        (900, 150, (0.08, 1.0), (3 / 4, 4 / 3), 8000),
        (5, 7, (0.08, 1.0), (3 / 4, 4 / 3), 4000),
        (300, 200, (0.9, 1.4), (0.5, 1.2), 4000),
    ],
)
def test_random_areas(width, height, scale, ratio, count, smirnov):
    picture = Image.new("RGB", (width, height))
    torch.manual_seed(0)
    step = v1.RandomResizedCrop(224, scale=scale, ratio=ratio)
    theirs = np.array([step.get_params(picture, scale, ratio) for _ in range(count)])
    top, left, h, w = theirs.T
    window = ours(step, width, height).window
    our_w, our_h = window[:, 2] - window[:, 0], window[:, 3] - window[:, 1]
    assert smirnov(our_w * our_h, w * h) < LIMIT
    assert smirnov(our_w / our_h, w / h) < LIMIT
    assert smirnov(our_w, w) < LIMIT
    assert smirnov(window[:, 0], left) < LIMIT
    assert smirnov(window[:, 1], top) < LIMIT
    # Where in its slack an area lies, and whether area and place hang together.
    loose, their_loose = our_w < width, w < width
    if loose.any():
        place, their_place = window[loose, 0] / (width - our_w[loose]), left[their_loose] / (width - w[their_loose])
        assert smirnov(place, their_place) < LIMIT
    assert smirnov(window[:, 0] + our_w / 2, left + w / 2) < LIMIT


def test_random_crops(smirnov):
    step = v1.RandomCrop((100, 130))
    picture = Image.new("RGB", (200, 180))
    torch.manual_seed(0)
    theirs = np.array([step.get_params(picture, (100, 130)) for _ in range(COUNT)])
    rect = ours(step, 200, 180).rect
    assert smirnov(rect[:, 0], theirs[:, 1]) < LIMIT
    assert smirnov(rect[:, 1], theirs[:, 0]) < LIMIT
    assert {rect[:, 0].min(), rect[:, 0].max()} == {0, 70}
    assert {rect[:, 1].min(), rect[:, 1].max()} == {0, 80}
    assert abs(np.corrcoef(rect[:, 0], rect[:, 1])[0, 1]) < 0.03


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
def test_flip_rates(p):
    geometry = ours([v1.RandomHorizontalFlip(p), v1.RandomVerticalFlip(p)], 10, 10)
    tolerance = 4 * math.sqrt(p * (1 - p) / COUNT)
    assert abs(geometry.hflip.mean() - p) <= tolerance
    assert abs(geometry.vflip.mean() - p) <= tolerance
    if 0 < p < 1:
        assert abs(np.corrcoef(geometry.hflip, geometry.vflip)[0, 1]) < 0.03


def test_two_flips_of_one_axis_cancel():
    geometry = ours([v1.RandomHorizontalFlip(1.0), v1.RandomHorizontalFlip(0.3)], 10, 10)
    assert abs(geometry.hflip.mean() - 0.7) < 0.02


# ---------------------------------------------------------------- pixels


def pixel_draws(transform):
    plan = compile_transform(transform)
    return plan, draw(plan, 11, 0, np.arange(COUNT)).tolist()


def test_jitter_factors_and_their_order(smirnov):
    jitter = v1.ColorJitter(0.4, (0.2, 0.9), 0.6, 0.1)
    plan, rows = pixel_draws(jitter)
    found = [adjustments(plan.pixels[0], row) for row in rows]
    torch.manual_seed(0)
    ranges = jitter.brightness, jitter.contrast, jitter.saturation, jitter.hue
    theirs = [jitter.get_params(*ranges) for _ in range(COUNT)]
    for number in range(4):
        ours_here = np.array([dict(each)[number] for each in found])
        assert smirnov(ours_here, np.array([each[1 + number] for each in theirs])) < LIMIT
        # The factor knows nothing of its place.
        place = np.array([[at for at, _ in each].index(number) for each in found])
        assert abs(np.corrcoef(ours_here, place)[0, 1]) < 0.03
    orders = Counter(tuple(at for at, _ in each) for each in found)
    assert len(orders) == 24
    assert max(abs(count - COUNT / 24) for count in orders.values()) < 5 * math.sqrt(COUNT / 24)


@pytest.mark.parametrize(
    ("scale", "ratio", "size"),
    [((0.02, 0.33), (0.3, 3.3), (224, 224)), ((0.5, 1.0), (0.2, 5.0), (40, 90)), ((0.1, 0.2), (1.0, 1.0), (9, 7))],
)
def test_erased_areas(scale, ratio, size, smirnov):
    plan, rows = pixel_draws([v1.ToTensor(), v1.RandomErasing(1.0, scale, ratio)])
    step = plan.finish[0].steps[0]
    found = np.array([erased_area(step, row[1:], *size) or (0, 0, *size) for row in rows[:8000]])
    picture = torch.empty(3, *size)
    torch.manual_seed(0)
    theirs = np.array([v1.RandomErasing.get_params(picture, scale, ratio, [0.0])[:4] for _ in range(8000)])
    for a, b in zip(found.T, theirs.T, strict=True):
        assert smirnov(a, b) < LIMIT
    assert smirnov(found[:, 2] * found[:, 3], theirs[:, 2] * theirs[:, 3]) < LIMIT
    assert smirnov(found[:, 2] / found[:, 3], theirs[:, 2] / theirs[:, 3]) < LIMIT


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 1.0])
def test_how_often_a_step_is_taken(p):
    steps = [v1.RandomGrayscale(p), v1.RandomInvert(p), v1.RandomApply([v1.GaussianBlur(3)], p)]
    plan, rows = pixel_draws(steps)
    taken = np.array([[row[at] < step.p for at, step in zip((0, 1, 2), plan.pixels, strict=True)] for row in rows])
    assert (np.abs(taken.mean(axis=0) - p) <= 4 * math.sqrt(p * (1 - p) / COUNT)).all()
    assert plan.draws == 4


def test_sigmas_of_blur(smirnov):
    blur = v1.GaussianBlur(5, (0.1, 2.0))
    plan, rows = pixel_draws(blur)
    (step,) = plan.pixels
    found = np.array([step.sigma[0] + row[0] * (step.sigma[1] - step.sigma[0]) for row in rows])
    torch.manual_seed(0)
    assert smirnov(found, np.array([blur.get_params(0.1, 2.0) for _ in range(COUNT)])) < LIMIT
