"""timm's RandAugment and RandomErasing in the engine: its pixels given the draws, its chances without."""

from __future__ import annotations

import math
import random
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data import auto_augment, create_transform
from timm.data.auto_augment import AugmentOp, rand_augment_transform
from timm.data.random_erasing import RandomErasing
from torchvision.transforms import Resize, ToTensor

from fastdata.loader import FastLoader
from fastdata.transforms import Unsupported, draw
from fastdata.transforms.erasing import erased_area
from fastdata.transforms.pixel_steps import OneOf
from fastdata.transforms.timm_levels import NAMES

CONFIGS = ["rand-m9-mstd0.5-inc1", "rand-m9-mstd0.5", "rand-m15-n3-p0.8-mmax20-mstd101"]
HPARAMS = {"translate_const": 117, "img_mean": (124, 116, 104)}


def operations(names, magnitude, **hparams):
    ops = [AugmentOp(name, prob=0.5, magnitude=magnitude, hparams=HPARAMS | hparams) for name in names]
    return auto_augment.RandAugment(ops, 1)


def pixels_of(operation, picture):
    if operation.level_fn is not None and operation.aug_fn is auto_augment.posterize:
        (bits,) = operation.level_fn(operation.magnitude, operation.hparams)
        if bits < 1:  # Pillow 13 refuses what timm asks of it; before that it gave black, and so does the engine
            return np.zeros((picture.height, picture.width, 3), np.uint8)
    return np.asarray(operation(picture))


@pytest.mark.parametrize("interpolation", [Image.Resampling.BILINEAR, Image.Resampling.BICUBIC])
@pytest.mark.parametrize("name", sorted(NAMES))
def test_each_operation_gives_timms_pixels(name, interpolation, make_picture, compiled, changed_by, monkeypatch):
    picture = make_picture(52, 37, 4)
    for magnitude in (0, 1, 3.7, 9, 10, 14):
        step = operations([name], magnitude, magnitude_max=20, interpolation=interpolation)
        (choice,) = compiled(step).pixels
        for coin in (0.25, 0.75):
            # The first draw of an operation of timm's says whether it is taken, and the second gives its sign.
            drawn = iter([0.0, coin])
            monkeypatch.setattr(auto_augment.random, "random", lambda drawn=drawn: next(drawn))
            wanted = pixels_of(step.ops[0], picture)
            found = changed_by([choice], picture, [0.0, 0.0, 0.5, 0.5, 1 - coin, 0.5])
            assert (found == wanted).all(), (name, magnitude, coin)


@pytest.mark.parametrize("config", CONFIGS)
def test_operations_and_chances_are_timms(config, compiled):
    step = rand_augment_transform(config, {"img_mean": (124, 116, 104)})
    (choice, *_) = plan = compiled(step).pixels
    assert plan == (choice,) * step.num_layers
    assert isinstance(choice, OneOf)
    assert [taken.name for taken in choice.steps] == [op.name for op in step.ops]
    assert {op.prob for op in step.ops} == {taken.p for taken in choice.steps}


@pytest.mark.parametrize("spread", [0.5, 4.0, math.inf])
def test_magnitudes_have_timms_distribution(spread, compiled, changed_by, smirnov):
    picture = Image.fromarray(np.full((2, 3, 3), 90, np.uint8))
    step = operations(["Brightness"], 4, magnitude_std=spread)
    plan = compiled(step)
    levels = [int(changed_by(plan.pixels, picture, row)[0, 0, 0]) for row in draw(plan, 3, 0, np.arange(4000)).tolist()]
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002  timm draws from it
    theirs = [step(picture).getpixel((0, 0))[0] for _ in range(4000)]
    assert abs(levels.count(90) - theirs.count(90)) < 5 * 4000**0.5
    assert smirnov(np.array(levels), np.array(theirs)) < 2.3
    assert len(Counter(levels)) > 20


def test_the_sign_and_the_resampling_are_drawn(compiled, changed_by, make_picture):
    picture = make_picture(16, 12, 4)
    plan = compiled(operations(["Rotate"], 9))
    found = Counter(
        changed_by(plan.pixels, picture, row).tobytes() for row in draw(plan, 3, 0, np.arange(800)).tolist()
    )
    assert len(found) == 5  # as it is, and two ways by two resamplings
    assert all(abs(count - 100) < 50 for _, count in found.most_common()[1:])


@pytest.mark.parametrize(
    "change",
    [
        lambda op: setattr(op, "aug_fn", lambda image, *_, **__: image),
        lambda op: setattr(op, "level_fn", lambda *_: (0,)),
        lambda op: setattr(op, "__call__", lambda image: image),
    ],
)
def test_a_changed_operation_is_refused(change):
    from fastdata.transforms import compile_transform

    step = rand_augment_transform("rand-m9", {})
    change(step.ops[3])
    assert isinstance(compile_transform(step), Unsupported)


@pytest.mark.parametrize("mode", ["const", "pixel"])
def test_erasing_has_timms_areas_and_values(mode, compiled, smirnov):
    step = RandomErasing(1.0, min_area=0.05, max_area=0.4, min_aspect=0.4, mode=mode, device="cpu")
    plan = compiled([Resize((40, 60)), ToTensor(), step])
    (taken,) = plan.finish
    assert taken.p == 1.0
    assert taken.steps[0].value == ((0.0,) * 3 if mode == "const" else None)
    count = 4000
    rows = np.random.default_rng(0).random((count, taken.steps[0].draws)).tolist()
    ours = np.array([erased_area(taken.steps[0], row, 40, 60) for row in rows])
    random.seed(0)
    torch.manual_seed(0)
    theirs = []
    for _ in range(count):
        erased = (step(torch.full((1, 40, 60), 7.0))[0] != 7).numpy()
        rows_, columns = np.flatnonzero(erased.any(1)), np.flatnonzero(erased.any(0))
        theirs.append([rows_[0], columns[0], len(rows_), len(columns)])
    for ours_, theirs_ in zip(ours.T, np.array(theirs).T, strict=True):
        assert smirnov(ours_, theirs_) < 2.3


def test_the_recipe_of_timm_runs_in_the_engine(packs):
    options = {"auto_augment": "rand-m9-mstd0.5-inc1", "re_prob": 0.25, "re_mode": "pixel"}
    transform = create_transform(48, is_training=True, interpolation="bicubic", **options)
    batches = [
        [images.clone() for images, _ in FastLoader(packs["lmdb"], 7, transform=transform, seed=2, num_workers=workers)]
        for workers in (0, 2)
    ]
    assert all(torch.equal(one, other) for one, other in zip(*batches, strict=True))
    assert batches[0][0].shape == (7, 3, 48, 48)
    assert "threaded engine" in FastLoader(packs["lmdb"], 7, transform=transform, engine=True).explain()
