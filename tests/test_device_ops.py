"""Cast, normalise and mirror: equal to torchvision, for any number of channels, in both memory formats."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastdata.device_ops import Normalizer, flip_where
from fastdata.errors import OptionError

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


def pictures(*shape, seed=0):
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def torchvision_of(images, mean, std):
    from torchvision.transforms import Compose, Normalize, ToTensor

    steps = Compose([ToTensor(), Normalize(mean, std)])
    return torch.stack([steps(image.permute(1, 2, 0).contiguous().numpy()) for image in images])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("channels", [1, 3, 4, 7])  # C124
def test_equals_torchvision(channels, dtype, device):  # C130
    generator = torch.Generator().manual_seed(channels)
    mean = torch.rand(channels, generator=generator).tolist()
    std = (torch.rand(channels, generator=generator) + 0.2).tolist()
    images = pictures(5, channels, 13, 17)
    result = Normalizer(mean, std, dtype)(images.to(device))
    assert result.dtype == dtype
    assert result.device.type == device
    assert result.shape == images.shape
    difference = (result.cpu().double() - torchvision_of(images, mean, std).double()).abs()
    scale = max(1.0, difference.new_tensor([(1 - min(mean)) / min(std)]).item() / 4)  # half ulps grow with the values
    assert difference.max() <= TOLERANCE[dtype] * scale


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_cpu_and_cuda_agree_with_crop_and_flip(dtype):  # C130
    images, mask = pictures(8, 3, 40, 50), torch.arange(8) % 2 == 0
    steps = Normalizer(MEAN, STD, dtype)
    here = steps(flip_where(images[..., 3:35, 7:39], mask))
    there = steps(flip_where(images.cuda()[..., 3:35, 7:39], mask.cuda()))
    assert (here.double() - there.cpu().double()).abs().max() <= TOLERANCE[dtype]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_memory_format_is_kept(memory_format, channels, device):
    images = pictures(4, channels, 9, 11).to(device, memory_format=memory_format)
    mask = torch.tensor([True, False, True, False], device=device)
    for result in (Normalizer([0.5] * channels, [0.5] * channels, torch.float16)(images), flip_where(images, mask)):
        assert result.is_contiguous(memory_format=memory_format)
        assert result.stride() == images.stride()


@given(st.lists(st.booleans(), min_size=1, max_size=6), st.integers(1, 4), st.integers(1, 7))
@settings(max_examples=40, deadline=None)
def test_flip_where_mirrors_the_marked_and_no_other(marks, channels, width):
    images = pictures(len(marks), channels, 3, width)
    before = images.clone()
    result = flip_where(images, torch.tensor(marks))
    for image, out, marked in zip(before, result, marks, strict=True):
        assert torch.equal(out, image.flip(-1) if marked else image)
    assert torch.equal(images, before)
    assert result.untyped_storage().data_ptr() != images.untyped_storage().data_ptr()


@pytest.mark.parametrize("mask", [torch.ones(3), torch.ones(2, dtype=torch.bool), torch.ones(3, 1, dtype=torch.bool)])
def test_flip_where_refuses_another_mask(mask):
    with pytest.raises(OptionError, match="expected bool of shape \\(3,\\)"):
        flip_where(pictures(3, 1, 2, 2), mask)


def test_source_is_not_written_and_one_image_works():
    image = pictures(3, 8, 8)
    before = image.clone()
    result = Normalizer(MEAN, STD)(image)
    assert torch.equal(image, before)
    assert torch.allclose(result, torchvision_of(image[None], MEAN, STD)[0], atol=1e-5)


class Pair(NamedTuple):
    image: torch.Tensor
    mask: torch.Tensor


@dataclass(frozen=True)
class Sample:
    image: torch.Tensor
    name: str


def test_in_a_nested_batch_the_first_images_only():
    steps = Normalizer(MEAN, STD)
    images, mask, labels = pictures(2, 3, 4, 4), pictures(2, 1, 4, 4), torch.tensor([1, 2])
    expected = steps(images)
    pair = steps((Pair(images, mask), labels, "names"))
    assert type(pair) is tuple
    assert type(pair[0]) is Pair
    assert torch.equal(pair[0].image, expected)
    assert pair[0].mask is mask
    assert pair[1] is labels
    assert torch.equal(steps({"y": labels, "x": images})["x"], expected)
    assert torch.equal(steps(Sample(images, "a")).image, expected)


@pytest.mark.parametrize(
    "batch", [[torch.zeros(2, 3, 4, 4)], {"label": torch.zeros(4, dtype=torch.uint8)}, (), [None, "x"]], ids=repr
)
def test_a_batch_without_uint8_images_is_refused(batch):
    with pytest.raises(OptionError, match="no uint8 tensor of four dimensions"):
        Normalizer(MEAN, STD)(batch)


def test_floats_and_other_channel_counts_are_refused():
    with pytest.raises(OptionError, match=r"expected uint8 .* got torch.float32"):
        Normalizer(MEAN, STD)(torch.zeros(2, 3, 4, 4))
    with pytest.raises(OptionError, match=r"have 4 channels, mean and std have 3"):
        Normalizer(MEAN, STD)(pictures(2, 4, 4, 4))


@pytest.mark.parametrize(
    ("mean", "std", "dtype"),
    [
        ((), (), torch.float32),
        ((0.5,), (0.5, 0.5), torch.float32),
        ((0.5,), (0.0,), torch.float32),
        ((0.5,), (-1.0,), torch.float32),
        ((float("nan"),), (1.0,), torch.float32),
        ((0.5,), (0.5,), torch.uint8),
    ],
)
def test_wrong_constants_are_refused(mean, std, dtype):
    with pytest.raises(OptionError):
        Normalizer(mean, std, dtype)


def test_constants_are_made_once_and_stay_out_of_pickles_and_comparison():
    steps = Normalizer(list(MEAN), STD, torch.float16)
    steps(pictures(1, 3, 2, 2))
    first = steps._constants[torch.device("cpu")]
    steps(pictures(1, 3, 2, 2))
    assert steps._constants[torch.device("cpu")] is first
    again = pickle.loads(pickle.dumps(steps))
    assert again == steps
    assert not again._constants
    assert hash(again) == hash(Normalizer(MEAN, STD, torch.float16))
