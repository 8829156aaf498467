"""RandomChoice, RandomOrder, RandomApply and RandomPhotometricDistort: what they take, how often, in which order."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from torch import nn
from torchvision import transforms as v1
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

from fastdata.loader import FastLoader
from fastdata.transforms import Plan, compile_transform, draw
from fastdata.transforms.pixel_ops import adjustments, order_of

COUNT = 20_000
TIMES = 800


@pytest.fixture
def made(changed_by):
    """Count the pictures that the engine's steps make."""

    def count_them(transform, picture, count):
        plan = compile_transform(transform)
        assert isinstance(plan, Plan), plan
        rows = draw(plan, 0, 0, np.arange(count)).tolist()
        return Counter(changed_by(plan.pixels, picture, row).tobytes() for row in rows)

    return count_them


def torchvisions(transform, picture, count):
    torch.manual_seed(0)
    return Counter(np.asarray(transform(picture)).tobytes() for _ in range(count))


def same_shares(ours_here, theirs):
    """Both made the same pictures, as often: each share within 4.5 standard deviations."""
    assert ours_here.keys() == theirs.keys()
    n, m = sum(ours_here.values()), sum(theirs.values())
    for key, count in ours_here.items():
        p = (count + theirs[key]) / (n + m)
        assert abs(count / n - theirs[key] / m) < 4.5 * math.sqrt(p * (1 - p) * (1 / n + 1 / m))


CERTAIN = {
    "grey": lambda m: m.RandomGrayscale(1.0),
    "invert": lambda m: m.RandomInvert(1.0),
    "posterize": lambda m: m.RandomPosterize(3, 1.0),
    "flip": lambda m: m.RandomHorizontalFlip(1.0),
}


@pytest.mark.parametrize("module", [v1, v2])
@pytest.mark.parametrize("p", [None, [1, 1, 1, 1], [0.1, 0.6, 0.0, 0.3], [3, 1, 1, 1]])
def test_one_of_several(module, p, make_picture, made):
    steps = [make(module) for make in CERTAIN.values()]
    picture = make_picture(9, 7)
    same_shares(
        made(module.RandomChoice(steps, p), picture, TIMES), torchvisions(module.RandomChoice(steps, p), picture, TIMES)
    )


@pytest.mark.parametrize("module", [v1, v2])
def test_random_order(module, make_picture, made):
    steps = [CERTAIN["posterize"](module), module.RandomSolarize(100, 1.0), module.RandomAutocontrast(1.0)]
    picture = make_picture(9, 7)
    same_shares(
        made(module.RandomOrder(steps), picture, TIMES), torchvisions(module.RandomOrder(steps), picture, TIMES)
    )


@pytest.mark.parametrize("count", range(1, 6))
def test_orders_are_equally_likely(count):
    u = (np.arange(COUNT) + 0.5) / COUNT
    orders = Counter(tuple(order_of(count, one)) for one in u)
    assert len(orders) == math.factorial(count)
    assert max(orders.values()) - min(orders.values()) <= 1


def test_nested_in_each_other(make_picture, made):
    def recipe(m):
        chain = m.Compose([m.RandomInvert(1.0), m.RandomChoice([m.RandomPosterize(2, 1.0), CERTAIN["flip"](m)])])
        return m.RandomApply([m.RandomChoice([chain, m.RandomOrder([m.Grayscale(3), m.RandomSolarize(99, 1.0)])])], 0.7)

    picture = make_picture(9, 7)
    for module in (v1, v2):
        same_shares(made(recipe(module), picture, TIMES), torchvisions(recipe(module), picture, TIMES))


def test_three_augment(packs):
    """The recipe of "DeiT III": grey, solarize or blur, then colour jitter; on the engine."""
    choice = v2.RandomChoice([v2.Grayscale(3), v2.RandomSolarize(130, 1.0), v2.GaussianBlur(5, (0.1, 2.0))])
    transform = v2.Compose(
        [v2.RandomResizedCrop(32), v2.RandomHorizontalFlip(), choice, v2.ColorJitter(0.3, 0.3, 0.3), v2.ToImage()]
    )
    loader = FastLoader(packs["lmdb"], 7, transform=transform, seed=1, num_workers=2, engine=True)
    assert "RandomChoice" in loader.explain()
    first = [images.clone() for images, _ in loader]
    again = FastLoader(packs["tar"], 7, transform=transform, seed=1, num_workers=0, engine=True)
    assert all(torch.equal(a, b) for a, (b, _) in zip(first, again, strict=True))


def test_policies_within(make_picture, changed_by):
    picture = make_picture(24, 24)
    choice = v1.RandomChoice([v1.RandAugment(2, 9), v1.AutoAugment()])
    plan = compile_transform([v1.CenterCrop(24), choice])
    assert isinstance(plan, Plan), plan
    for row in draw(plan, 0, 0, np.arange(50)).tolist():
        assert changed_by(plan.pixels, picture, row).shape == (24, 24, 3)
    assert "its magnitudes depend on it" in compile_transform(choice).reason
    on_tensor = compile_transform([v1.PILToTensor(), v1.RandomChoice([v1.TrivialAugmentWide()])])
    assert "TrivialAugmentWide inside it: on a tensor" in on_tensor.reason


@pytest.mark.parametrize("module", [v1, v2])
def test_what_is_not_a_step_of_pixels_is_refused(module):
    for inner in (module.Resize(9), module.RandomErasing(), module.Grayscale(1), module.PILToTensor()):
        for outer in (module.RandomChoice([inner]), module.RandomOrder([inner]), module.RandomApply([inner])):
            assert f"{type(outer).__name__}: {type(inner).__name__} inside it" in compile_transform(outer).reason
    many = [module.RandomInvert()] * 11
    assert "more than 10 steps" in compile_transform(module.RandomOrder(many)).reason
    grey = compile_transform([module.Grayscale(1), module.RandomApply(nn.ModuleList([module.Grayscale(3)]))])
    assert "pictures of one channel" in grey.reason
    assert isinstance(compile_transform([module.Grayscale(3), module.RandomApply([module.Grayscale(3)])]), Plan)


# ---------------------------------------------------------------- RandomPhotometricDistort


def expected_of(plan, row, picture):
    """What torchvision's functions make of the picture with the draws of ``row``: brightness, contrast, ..., order."""
    brightness, either, permuted = plan.pixels
    at, done, said = 0, picture, []

    def jitter(sometimes, u):
        nonlocal done
        if u[0] < sometimes.p:
            ((which, factor),) = adjustments(sometimes.steps[0], u[1:])
            said.append((which, factor))
            names = ("brightness", "contrast", "saturation", "hue")
            done = getattr(F, f"adjust_{names[which]}")(done, factor)

    jitter(brightness, row[:6])
    at = brightness.draws
    chain = either.steps[int(row[at] * 2)]
    inner_at = at + 2
    for inner in chain.steps:
        jitter(inner, row[inner_at : inner_at + inner.draws])
        inner_at += inner.draws
    at += either.draws
    if row[at] < permuted.p:
        order = order_of(3, row[at + 1])
        said.append(("order", tuple(order)))
        done = F.permute_channels(done, order)
    return done, said


def test_photometric_distortion_is_torchvisions_given_its_draws(make_picture, changed_by):
    plan = compile_transform(v2.RandomPhotometricDistort())
    picture = make_picture(30, 20)
    seen = Counter()
    for row in draw(plan, 3, 0, np.arange(200)).tolist():
        expected, said = expected_of(plan, row, picture)
        seen.update([tuple(which for which, _ in said)])
        gap = np.abs(changed_by(plan.pixels, picture, row).astype(int) - np.asarray(expected).astype(int))
        assert gap.max() <= (1 if any(which == 3 for which, _ in said) else 0) * 3
    assert len(seen) > 20


def test_photometric_distortion_has_torchvisions_distribution():
    step = v2.RandomPhotometricDistort(p=0.4)
    plan = compile_transform(step)
    picture = v1.functional.to_pil_image(torch.zeros(3, 4, 4, dtype=torch.uint8))
    said = [
        dict(found)
        for _, found in (expected_of(plan, row, picture) for row in draw(plan, 3, 0, np.arange(1500)).tolist())
    ]
    torch.manual_seed(0)
    params = [step.make_params([picture]) for _ in range(1500)]
    names = ("brightness_factor", "contrast_factor", "saturation_factor", "hue_factor")
    for which, name in enumerate(names):
        found = np.array([one[which] for one in said if which in one])
        theirs = np.array([one[name] for one in params if one[name] is not None])
        assert abs(len(found) - len(theirs)) < 4.5 * math.sqrt(2 * 1500 * 0.24)
        both = np.sort(np.concatenate((found, theirs)))
        gap = np.abs(
            np.searchsorted(np.sort(found), both, "right") / len(found)
            - np.searchsorted(np.sort(theirs), both, "right") / len(theirs)
        ).max()
        assert gap / math.sqrt(1 / len(found) + 1 / len(theirs)) < 2.3
    orders = Counter(one.get("order") for one in said)
    theirs = Counter(
        None if one["channel_permutation"] is None else tuple(one["channel_permutation"].tolist()) for one in params
    )
    same_shares(orders, theirs)
    before = sum(list(one).index(1) < list(one).index(2) for one in said if {1, 2} <= one.keys())
    both = sum({1, 2} <= one.keys() for one in said)
    assert abs(before / both - 0.5) < 4.5 * math.sqrt(0.25 / both)


def test_channel_permutation(make_picture, made):
    picture = make_picture(9, 7)
    same_shares(
        made(v2.RandomChannelPermutation(), picture, TIMES), torchvisions(v2.RandomChannelPermutation(), picture, TIMES)
    )
