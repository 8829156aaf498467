"""timm's create_transform: what it makes of torchvision's steps and its own goes to the engine, by exact type."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data import create_transform
from timm.data.transforms import MaybePILToTensor, MaybeToTensor, RandomResizedCropAndInterpolation, ToNumpy
from torchvision.datasets import ImageFolder
from torchvision.transforms import Compose, Resize

from fastdata.loader import FastLoader
from fastdata.transforms import compile_transform, draw, plan_geometry

STD = torch.tensor([0.229, 0.224, 0.225]).view(-1, 1, 1)


@pytest.mark.parametrize(
    "options", [{}, {"interpolation": "bicubic", "crop_pct": 0.9}, {"crop_mode": "squash"}], ids=str
)
def test_evaluation_gives_timms_pixels(image_folder, options):
    data = ImageFolder(str(image_folder), create_transform(48, is_training=False, **options))
    engine = FastLoader(data, 7, engine=True)
    for (images, labels), (theirs, their_labels) in zip(engine, FastLoader(data, 7, engine=False), strict=True):
        levels = (images - theirs).abs() * STD * 255
        assert levels.max() < 1.01
        assert levels.mean() < 0.3
        assert torch.equal(labels, their_labels)


def test_the_training_pipelines_are_the_engines(packs):
    prefetched = create_transform(48, is_training=True, use_prefetcher=True, grayscale_prob=0.2, vflip=0.5)
    images, _ = next(iter(FastLoader(packs["lmdb"], 7, transform=prefetched, engine=True)))
    assert images.dtype == torch.uint8
    blurred = create_transform(48, is_training=True, gaussian_blur_prob=0.3, color_jitter_prob=0.5)
    images, _ = next(iter(FastLoader(packs["lmdb"], 7, transform=blurred, engine=True)))
    assert images.dtype == torch.float32
    assert images.shape == (7, 3, 48, 48)


def test_areas_have_timms_distribution(smirnov):
    width, height, count = 341, 256, 20_000
    step = RandomResizedCropAndInterpolation(48)
    plan = compile_transform(step)
    sizes = np.full(count, width, np.int32), np.full(count, height, np.int32)
    window = plan_geometry(plan, draw(plan, 11, 0, np.arange(count)), *sizes).window
    picture = Image.new("RGB", (width, height))
    random.seed(0)
    top, left, h, w = np.array([step.get_params(picture, step.scale, step.ratio) for _ in range(count)]).T
    our_w, our_h = window[:, 2] - window[:, 0], window[:, 3] - window[:, 1]
    pairs = [(our_w * our_h, w * h), (our_w / our_h, w / h), (window[:, 0], left), (window[:, 1], top)]
    assert all(smirnov(a, b) < 2.3 for a, b in pairs)


def test_maybe_is_maybe(compiled):
    plan = compiled([MaybePILToTensor(), MaybeToTensor()])
    assert plan.dtype == "uint8"  # timm leaves a tensor as it is
    assert compiled([MaybeToTensor(), MaybeToTensor()]).dtype == "float32"
    assert compiled(Compose([Resize(9), MaybePILToTensor()])).output_kind == "tensor"


class Mine(RandomResizedCropAndInterpolation):
    pass


@pytest.mark.parametrize(
    ("transform", "why"),
    [
        (create_transform(48, is_training=True, interpolation="random"), "interpolation differs from sample to sample"),
        (create_transform(48, is_training=True, auto_augment="rand-m9-tweights"), "RandAugment: choice_weights"),
        (create_transform(48, is_training=True, auto_augment="rand-t3a"), "operation 'GaussianBlur' is not known"),
        (create_transform(48, is_training=True, auto_augment="original"), "AutoAugment: not known"),
        (create_transform(48, is_training=True, re_prob=0.2, re_mode="rand"), "RandomErasing: mode 'rand'"),
        (create_transform(48, is_training=True, re_prob=0.2, re_count=3), "RandomErasing: more than one rectangle"),
        (create_transform(48, crop_mode="border"), "ResizeKeepRatio: not known"),
        ([Resize(9), ToNumpy()], "ToNumpy: not known to the engine: it gives arrays"),
        (Mine(9), "Mine: not known"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_only_timm_knows_is_refused(transform, why):
    assert why in compile_transform(transform).reason
