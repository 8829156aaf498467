"""A bucket's size goes into the transform: only sized steps change, in torchvision's v1 and v2."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, Subset
from torchvision import transforms as T
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from fastdata.engine.bucket_sizes import BucketDataset, resized, with_size
from fastdata.errors import OptionError
from fastdata.transforms.compile import compile_transform

PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (300, 400, 3), dtype=np.uint8))


@pytest.mark.parametrize("home", [T, v2], ids=["v1", "v2"])
@pytest.mark.parametrize(
    "make",
    [
        lambda home: home.RandomResizedCrop(224),
        lambda home: home.Resize((224, 224)),
        lambda home: home.Compose([home.Resize(256), home.CenterCrop(224)]),
        lambda home: home.Compose([home.RandomHorizontalFlip(), home.Compose([home.RandomCrop(224, padding=4)])]),
        lambda home: [home.RandomResizedCrop((112, 112)), home.RandomVerticalFlip()],
        lambda home: torch.nn.Sequential(home.RandomResizedCrop(224), home.RandomHorizontalFlip()),
    ],
)
def test_the_result_has_the_buckets_size_and_the_transform_is_as_it_was(home, make):
    transform = make(home)
    before = compile_transform(transform)
    plan = compile_transform(resized(transform, (192, 256)))
    assert plan.output_size == (256, 192)
    assert compile_transform(transform) == before
    if not isinstance(transform, list):
        assert resized(transform, (192, 256))(PICTURE).size == (256, 192)


def test_other_steps_keep_their_place_and_an_eighth_stays_an_eighth():
    made = resized(T.Compose([T.Resize(256), T.Lambda(lambda x: x), T.CenterCrop(224), T.ToTensor()]), (112, 448))
    assert [type(step).__name__ for step in made.transforms] == ["Resize", "Lambda", "CenterCrop", "ToTensor"]
    assert tuple(made.transforms[0].size) == (128, 512)
    assert tuple(made.transforms[2].size) == (112, 448)


@pytest.mark.parametrize("home", [T, v2], ids=["v1", "v2"])
def test_a_bucket_distorts_no_more_than_the_transform(home):
    made = resized(home.RandomResizedCrop(224, scale=(1, 1), ratio=(1, 1)), (150, 300))
    assert made.ratio == (2, 2)
    # the whole picture's largest area of that aspect, in the middle: a cover without distortion
    wanted = PICTURE.crop((0, 50, 400, 250)).resize((300, 150), Image.Resampling.BILINEAR)
    assert np.abs(np.asarray(made(PICTURE), int) - np.asarray(wanted, int)).max() <= 1


@pytest.mark.parametrize(
    ("transform", "why"),
    [
        (None, "no step whose size"),
        (T.ToTensor(), "no step whose size"),
        (T.Lambda(lambda x: x), "no step whose size"),
        (T.Resize(224, max_size=300), "max_size"),
    ],
)
def test_what_has_no_size_to_give_is_named(transform, why):
    with pytest.raises(OptionError, match=why):
        resized(transform, (8, 8))


def test_a_data_set_in_two_sizes_shares_its_samples(image_folder):
    data = ImageFolder(str(image_folder), T.Compose([T.Resize((8, 8)), T.PILToTensor()]))
    wrapped = ConcatDataset([Subset(data, [3, 2]), data])
    both = BucketDataset(wrapped, ((8, 12), (16, 4)), np.arange(23, dtype=np.uint16) % 2)
    assert [tuple(both[i][0].shape) for i in (0, 1, 22)] == [(3, 8, 12), (3, 16, 4), (3, 8, 12)]
    assert [both[i][1] for i in range(23)] == [wrapped[i][1] for i in range(23)]
    assert with_size(wrapped, (8, 12)).datasets[1].samples is data.samples
    assert len(both) == 23
