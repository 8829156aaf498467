"""Pixel steps equal torchvision's functions, given the factors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import functional as F
from torchvision.transforms.v2 import functional as F2

from fastdata.errors import OptionError
from fastdata.transforms.picture import Picture, Room
from fastdata.transforms.pixel_ops import apply
from fastdata.transforms.pixel_steps import (
    AutoContrast,
    Blur,
    Equalize,
    Grey,
    Invert,
    Jitter,
    Mirror,
    Posterize,
    Sharpness,
    Solarize,
    Sometimes,
)


def every_colour():
    """Every 5th level of each channel: 52 ** 3 colours, 140,608 pixels."""
    levels = np.arange(0, 256, 5, dtype=np.uint8)
    cube = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(52, -1, 3)
    return Image.fromarray(cube)


@pytest.fixture(scope="module")
def pictures(make_picture):
    noise = np.random.default_rng(5).integers(0, 256, (33, 41, 3)).astype(np.uint8)
    dark = (noise // 5 + 3).astype(np.uint8)
    flat = np.full((9, 11, 3), 77, np.uint8)
    return [make_picture(61, 47), make_picture(64, 64, 3), *map(Image.fromarray, (noise, dark, flat)), every_colour()]


def ours(steps, picture, draws=()):
    """Return uint8 (H, W, C)."""
    planes = np.ascontiguousarray(np.asarray(picture).transpose(2, 0, 1))
    work = Picture(planes, Room(*planes.shape[1:]))
    at = 0
    for step in steps:
        apply(step, work, draws[at : at + step.draws])
        at += step.draws
    return work.settle().transpose(1, 2, 0)


def largest(a, b):
    b = np.asarray(b)
    b = b[:, :, None] if b.ndim == 2 else b
    assert a.shape == b.shape
    return np.abs(a.astype(int) - b.astype(int)).max()


EXACT = {
    "grey 1": (Grey(1), lambda p: F.rgb_to_grayscale(p, 1)),
    "grey 3": (Grey(3), lambda p: F.rgb_to_grayscale(p, 3)),
    "grey as it is": (Grey(None), lambda p: F2.rgb_to_grayscale(p, 3)),
    "invert": (Invert(), F.invert),
    **{f"posterize {bits}": (Posterize(bits), lambda p, b=bits: F.posterize(p, b)) for bits in range(1, 9)},
    **{f"solarize {t}": (Solarize(t), lambda p, t=t: F.solarize(p, t)) for t in (0, 0.5, 100, 127.3, 255, 256)},
    "autocontrast": (AutoContrast(), F.autocontrast),
    "equalize": (Equalize(), F.equalize),
    **{f"sharpness {f}": (Sharpness(f), lambda p, f=f: F.adjust_sharpness(p, f)) for f in (0, 0.3, 1, 1.7, 5)},
    "mirror x": (Mirror(0, 1.0), F.hflip),
    "mirror y": (Mirror(1, 1.0), F.vflip),
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_equal_to_pillows_to_the_bit(name, pictures):
    step, theirs = EXACT[name]
    for picture in pictures:
        assert largest(ours([step], picture, [0.5] * step.draws), theirs(picture)) == 0


def _factor(value):
    return value, value


@pytest.mark.parametrize("factor", [0.0, 0.2, 0.6, 0.999, 1.0, 1.3, 1.4, 2.0, 7.5])
@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation"])
def test_adjustments_equal_pillows_to_the_bit(name, factor, pictures):
    for picture in pictures:
        step = Jitter(**{name: _factor(factor)})
        theirs = getattr(F, f"adjust_{name}")(picture, factor)
        assert largest(ours([step], picture, [0.3] * 5), theirs) == 0


@pytest.mark.parametrize("factor", [-0.5, -0.3, -0.1, -0.004, 0.0, 0.003, 0.05, 0.1, 0.25, 0.5])
def test_hue_is_pillows_within_a_level(factor, pictures):
    for picture in pictures:
        found = ours([Jitter(hue=_factor(factor))], picture, [0.3] * 5)
        theirs = F.adjust_hue(picture, factor)
        assert largest(found, theirs) <= 1
        assert (found != np.asarray(theirs)).mean() < 1e-3


@pytest.mark.parametrize("order", range(24))
def test_the_four_in_any_order(order, pictures):
    factors = {"brightness": 1.2, "contrast": 0.7, "saturation": 1.6, "hue": 0.07}
    step = Jitter(**{name: _factor(value) for name, value in factors.items()})
    for picture in pictures[:3]:
        found = ours([step], picture, [(order + 0.5) / 24, 0.1, 0.2, 0.3, 0.4])
        theirs = picture
        for number in list(itertools.permutations(range(4)))[order]:
            name, value = list(factors.items())[number]
            theirs = getattr(F, f"adjust_{name}")(theirs, value)
        assert largest(found, theirs) <= 2  # a level of hue, that contrast and saturation may double


@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation"])
@pytest.mark.parametrize("factor", [0.0, 0.2, 0.6, 1.3, 2.0])
@pytest.mark.parametrize("functional", [F, F2])
def test_adjustments_of_tensors(functional, name, factor, pictures):
    for picture in pictures:
        tensor = F.pil_to_tensor(picture)
        theirs = getattr(functional, f"adjust_{name}")(tensor, factor).permute(1, 2, 0).numpy()
        found = ours([Jitter(**{name: _factor(factor)}, tensor=True)], picture, [0.3] * 5)
        # A mean of floats, summed in another order; fused multiply-adds.
        assert largest(found, theirs) <= 1
        assert (found != theirs).mean() < 0.03


@pytest.mark.parametrize("factor", [-0.5, -0.1, 0.0, 0.03, 0.25, 0.5])
@pytest.mark.parametrize("functional", [F, F2])
def test_hue_of_tensors(functional, factor, pictures):
    for picture in pictures:
        theirs = functional.adjust_hue(F.pil_to_tensor(picture), factor).permute(1, 2, 0).numpy()
        found = ours([Jitter(hue=_factor(factor), tensor=True)], picture, [0.3] * 5)
        assert largest(found, theirs) <= 1
        assert (found != theirs).mean() < 0.002


def test_other_steps_of_tensors(pictures):
    cases = [
        (Grey(3, tensor=True), lambda t: F.rgb_to_grayscale(t, 3)),
        (Invert(), F.invert),
        (Posterize(3), lambda t: F.posterize(t, 3)),
        (Solarize(99), lambda t: F.solarize(t, 99)),
        (AutoContrast(), F.autocontrast),
        (Equalize(), F.equalize),
    ]
    for (step, theirs), picture in itertools.product(cases, pictures):
        expected = theirs(F.pil_to_tensor(picture)).permute(1, 2, 0).numpy()
        found = ours([step], picture)
        assert largest(found, expected) <= isinstance(step, AutoContrast), step


@pytest.mark.parametrize("kernel", [(3, 3), (5, 9), (9, 1), (1, 7), (1, 1), (23, 23)])
@pytest.mark.parametrize("sigma", [0.1, 0.7, 2.0])
@pytest.mark.parametrize("functional", [F, F2])
def test_blur(functional, kernel, sigma, pictures):
    torch.set_num_threads(1)
    for picture in pictures[:3]:
        theirs = functional.gaussian_blur(picture, list(kernel), [sigma, sigma])
        if functional is F2 and sigma != 0.7:
            # v2 samples the same Gaussian; both are normalised, so they agree.
            assert largest(np.asarray(theirs), F.gaussian_blur(picture, list(kernel), [sigma, sigma])) <= 1
        found = ours([Blur(kernel, (sigma, sigma))], picture, [0.4])
        assert largest(found, theirs) <= 1
        assert (found != np.asarray(theirs)).mean() < 0.001


def test_a_kernel_wider_than_the_picture_is_an_error():
    with pytest.raises(OptionError, match="reaches over a picture of 4 x 9"):
        ours([Blur((9, 9), (1.0, 1.0))], Image.new("RGB", (4, 9)), [0.0])


def test_one_channel_takes_every_step(pictures):
    for picture in pictures:
        grey = F.rgb_to_grayscale(picture, 1)
        for name, (step, theirs) in EXACT.items():
            if "grey" not in name:
                assert largest(ours([Grey(1), step], picture, [0.5] * step.draws), theirs(grey)) == 0, name
        jitter = Jitter(_factor(1.3), _factor(0.6), _factor(2.0), _factor(0.2))
        found = ours([Grey(1), jitter], picture, [0.0] * 5)
        assert largest(found, F.adjust_contrast(F.adjust_brightness(grey, 1.3), 0.6)) == 0
        assert largest(ours([Grey(1), Invert(), Grey(3)], picture), F.rgb_to_grayscale(F.invert(grey), 3)) == 0


def test_tables_that_wait_are_those_applied_at_once(pictures):
    """Maps behind each other, with one table for all channels or one for each, in both orders."""
    maps = [Invert(), Jitter(brightness=_factor(0.6)), Equalize(), Posterize(4), AutoContrast(), Solarize(60)]
    for pair in itertools.permutations(maps, 2):
        step_by_step = Image.fromarray(ours([pair[0]], pictures[0], [0.1] * 5))
        expected = ours([pair[1]], step_by_step, [0.1] * 5)
        found = ours(pair, pictures[0], [0.1] * 10)
        assert (found == expected).all(), pair


def test_sometimes_means_all_of_its_steps_or_none(pictures):
    step = Sometimes(0.4, (Invert(), Mirror(0, 0.5)))
    assert step.draws == 2
    picture = np.asarray(pictures[0])
    assert (ours([step], picture, [0.4, 0.0]) == picture).all()
    assert (ours([step], picture, [0.39, 0.0]) == 255 - picture[:, ::-1]).all()
    assert (ours([step], picture, [0.39, 0.5]) == 255 - picture).all()
