"""TrivialAugmentWide, RandAugment and AutoAugment: torchvision's operations, magnitudes and chances."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms as v1
from torchvision.transforms import functional as F
from torchvision.transforms import v2
from torchvision.transforms.autoaugment import _apply_op

from fastdata.loader import FastLoader
from fastdata.transforms import Unsupported, compile_transform, draw
from fastdata.transforms.picture import Picture, Room
from fastdata.transforms.pixel_ops import apply
from fastdata.transforms.pixel_steps import OneOf, Sometimes

SIDE = (37, 52)  # height, width
LIBRARIES = [v1, v2]
STYLES = [
    {},
    {"interpolation": v1.InterpolationMode.BILINEAR, "fill": [200, 100, 7]},
    {"interpolation": v1.InterpolationMode.BICUBIC, "fill": 99},
]


def picture_of(make_picture):
    return make_picture(SIDE[1], SIDE[0], 4)


def ours(step, picture, u=()):
    planes = np.ascontiguousarray(np.asarray(picture).transpose(2, 0, 1))
    work = Picture(planes, Room(*planes.shape[1:]))
    apply(step, work, u)
    return work.settle().transpose(1, 2, 0)


def theirs(step, library, picture, name, magnitude):
    if library is v1:
        return _apply_op(picture, name, magnitude, interpolation=step.interpolation, fill=step.fill)
    return step._apply_image_or_video_transform(picture, name, magnitude, step.interpolation, step._fill)


def rungs(step, library, bins, size):
    """Return torchvision's operations: (name, magnitudes or None, signed)."""
    if library is v1:
        space = step._augmentation_space(*((bins,) if isinstance(step, v1.TrivialAugmentWide) else (bins, size)))
        return [(name, m.tolist() if m.ndim else None, signed) for name, (m, signed) in space.items()]
    found = [(name, make(bins, *size), signed) for name, (make, signed) in step._AUGMENTATION_SPACE.items()]
    return [(name, None if m is None else m.tolist(), signed) for name, m, signed in found]


def variants(step):
    return step.steps if isinstance(step, OneOf) else (step,)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("library", LIBRARIES)
def test_trivial_augment_is_one_of_torchvisions_operations(library, style, make_picture):
    step = library.TrivialAugmentWide(num_magnitude_bins=7, **style)
    picture = picture_of(make_picture)
    (choice,) = compile_transform(step).pixels
    assert isinstance(choice, OneOf)
    expected = rungs(step, library, 7, SIDE)
    assert len(choice.steps) == len(expected) == 14
    for rung, (name, magnitudes, signed) in zip(choice.steps, expected, strict=True):
        values = [0.0] if magnitudes is None else [s * m for m in magnitudes for s in ((1, -1) if signed else (1,))]
        assert len(variants(rung)) == len(values), name
        for variant, value in zip(variants(rung), values, strict=True):
            wanted = np.asarray(theirs(step, library, picture, name, value))
            assert (ours(variant, picture, [0.5]) == wanted).all(), (name, value)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("library", LIBRARIES)
def test_rand_augment_takes_one_magnitude_with_either_sign(library, style, make_picture):
    step = library.RandAugment(num_ops=3, magnitude=5, num_magnitude_bins=11, **style)
    picture = picture_of(make_picture)
    plan = compile_transform([v1.Resize(SIDE), step])
    assert plan.pixels == (plan.pixels[0],) * 3
    for rung, (name, magnitudes, signed) in zip(plan.pixels[0].steps, rungs(step, library, 11, SIDE), strict=True):
        values = [0.0] if magnitudes is None else [s * magnitudes[5] for s in ((1, -1) if signed else (1,))]
        for variant, value in zip(variants(rung), values, strict=True):
            wanted = np.asarray(theirs(step, library, picture, name, value))
            assert (ours(variant, picture, [0.5]) == wanted).all(), (name, value)


@pytest.mark.parametrize("policy", list(v1.AutoAugmentPolicy))
@pytest.mark.parametrize("library", LIBRARIES)
def test_auto_augment_has_torchvisions_policies(library, policy, make_picture):
    step = library.AutoAugment(policy)
    picture = picture_of(make_picture)
    (choice,) = compile_transform([v1.Resize(SIDE), step]).pixels
    space = {name: (magnitudes, signed) for name, magnitudes, signed in rungs(step, library, 10, SIDE)}
    policies = v1.AutoAugment(policy).policies
    assert len(choice.steps) == len(policies) == 25
    for chain, policy_ in zip(choice.steps, policies, strict=True):
        assert chain.p == 1.0
        for taken, (name, p, at) in zip(chain.steps, policy_, strict=True):
            assert isinstance(taken, Sometimes)
            assert taken.p == p
            magnitudes, signed = space[name]
            value = 0.0 if at is None else magnitudes[at]
            for variant, sign in zip(variants(taken.steps[0]), (1, -1) if signed else (1,), strict=True):
                wanted = np.asarray(theirs(step, library, picture, name, sign * value))
                assert (ours(variant, picture, [0.5]) == wanted).all(), (name, value)


@pytest.mark.parametrize("library", LIBRARIES)
def test_choices_are_equally_likely(library):
    """A picture tells what was done to it: counts of results agree with torchvision's own, within 5 deviations."""
    count = 4000
    picture = Image.fromarray(np.random.default_rng(0).integers(20, 200, (6, 5, 3)).astype(np.uint8))
    step = library.TrivialAugmentWide(num_magnitude_bins=3)
    plan = compile_transform(step)
    found = Counter(ours(plan.pixels[0], picture, row).tobytes() for row in draw(plan, 3, 0, np.arange(count)).tolist())
    torch.manual_seed(0)
    expected = Counter(np.asarray(step(picture)).tobytes() for _ in range(count))
    assert len(expected) > 30
    for key in found.keys() | expected.keys():
        assert abs(found[key] - expected[key]) <= 5 * (found[key] + expected[key]) ** 0.5 + 1


@pytest.mark.parametrize("step", [v1.TrivialAugmentWide(), v2.RandAugment(), v1.AutoAugment()])
def test_in_the_engine(packs, step):
    start = [v1.RandomResizedCrop(40), v1.RandomHorizontalFlip()]
    images = {}
    for workers, steps in itertools.product((0, 2), ([], [step])):
        transform = v1.Compose([*start, *steps, v1.PILToTensor()])
        loader = FastLoader(packs["lmdb"], 8, transform=transform, num_workers=workers, seed=5)
        assert loader.explain().startswith("threaded engine"), loader.explain()
        images[workers, len(steps)] = torch.cat([batch for batch, _ in loader])
    assert torch.equal(images[0, 1], images[2, 1])
    bare = compile_transform(start)
    plan = compile_transform([*start, step])
    draws = draw(plan, 5, 0, np.arange(21))[:, bare.draws :]
    for before, after, u in zip(images[0, 0], images[0, 1], draws.tolist(), strict=True):
        pixels = np.ascontiguousarray(before.numpy())
        work = Picture(pixels, Room(40, 40))
        for one in plan.pixels:
            apply(one, work, u)
            u = u[one.draws :]  # noqa: PLW2901  the next step's draws
        assert (work.settle() == after.numpy()).all()
    floats = FastLoader(packs["lmdb"], 8, transform=v1.Compose([*start, step, v1.ToTensor()]), num_workers=2, seed=5)
    assert torch.equal(torch.cat([batch for batch, _ in floats]), images[0, 1] / 255)


def changed(step, **attributes):
    for name, value in attributes.items():
        setattr(step, name, value)
    return step


@pytest.mark.parametrize(
    ("transform", "reason"),
    [
        (v1.RandAugment(), "the size of the pictures is not the same for all"),
        ([v1.Resize(9), v1.AutoAugment()], "the size of the pictures is not the same for all"),
        ([v2.ToImage(), v2.TrivialAugmentWide()], "on a tensor it has other pixels"),
        (v1.AugMix(), "AugMix: not known"),
        (v1.RandomApply([v1.RandAugment()]), "RandomApply: the size of the pictures is not the same for all"),
        (v1.TrivialAugmentWide(interpolation=v1.InterpolationMode.LANCZOS), "'lanczos' turns no pictures"),
        (v1.TrivialAugmentWide(fill=[0.5, 1, 2]), "fill 0.5"),
        (changed(v1.TrivialAugmentWide(), num_magnitude_bins=1), "num_magnitude_bins 1"),
        ([v1.Resize(SIDE), v1.RandAugment(magnitude=31)], "magnitude 31 is not below"),
        (changed(v1.TrivialAugmentWide(), _augmentation_space=lambda _: {}), "its _augmentation_space was replaced"),
    ],
)
def test_refused(transform, reason):
    found = compile_transform(transform)
    assert isinstance(found, Unsupported)
    assert reason in found.reason


def test_one_channel_is_filled_with_the_first_colour(make_picture):
    grey = F.rgb_to_grayscale(picture_of(make_picture))
    step = v1.TrivialAugmentWide(fill=70)
    plan = compile_transform([v1.Grayscale(), step])
    for rung, (name, magnitudes, _) in zip(plan.pixels[1].steps, rungs(step, v1, 31, SIDE), strict=True):
        value = magnitudes[-1] if magnitudes else 0.0
        work = Picture(np.repeat(np.asarray(grey)[None], 3, axis=0), Room(*SIDE), channels=1)
        last = variants(rung)[-2 if len(variants(rung)) == 62 else -1]
        apply(last, work, [0.5])
        assert (work.settle()[0] == np.asarray(theirs(step, v1, grey, name, value))).all(), name
