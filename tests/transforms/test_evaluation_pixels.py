"""A plan's pixels are torchvision's: real torchvision on PIL images against geometry and the reference resampling."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import Subset
from torchvision import transforms as v1
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from fastdata.loader import FastLoader
from fastdata.transforms import Plan, compile_transform, draw, plan_geometry

MODES = v1.InterpolationMode
PIPELINES = {
    "resize crop": lambda: v1.Compose([v1.Resize(64), v1.CenterCrop(56)]),
    "resize crop, same side": lambda: v1.Compose([v1.Resize(56), v1.CenterCrop(56)]),
    "resize exact": lambda: v1.Resize((48, 72)),
    "resize max": lambda: v1.Resize(64, max_size=80),
    "resize longest": lambda: v2.Resize(None, max_size=70),
    "resize up": lambda: v2.Resize(300),
    "crop only": lambda: v1.CenterCrop((50, 61)),
    "crop larger": lambda: v1.CenterCrop((231, 180)),
    "pad": lambda: v2.Pad((1, 2, 3, 4), fill=(9, 8, 7)),
    "resize, crop larger": lambda: v2.Compose([v2.Resize(30), v2.CenterCrop(64)]),
    "crop, resize": lambda: v1.Compose([v1.CenterCrop((70, 80)), v1.Resize(31), v1.CenterCrop(27)]),
    "pad, resize": lambda: v1.Compose([v1.Pad(5, fill=200), v1.Resize(31), v1.CenterCrop((31, 20))]),
    "pad, crop, pad": lambda: v1.Compose([v1.Pad(5), v1.CenterCrop((70, 90)), v1.Pad(3), v1.CenterCrop(80)]),
    "bicubic": lambda: v1.Compose([v1.Resize(64, MODES.BICUBIC), v1.CenterCrop(56)]),
    "lanczos": lambda: v1.Compose([v1.Resize(64, MODES.LANCZOS), v1.CenterCrop((20, 60))]),
    "box": lambda: v1.Compose([v1.Resize(40, MODES.BOX), v1.CenterCrop(33)]),
    "hamming": lambda: v1.Compose([v1.Resize(40, MODES.HAMMING), v1.CenterCrop(33)]),
    "nearest": lambda: v1.Compose([v1.Resize(50, MODES.NEAREST), v1.CenterCrop(44), v1.RandomHorizontalFlip(1.0)]),
    "nearest exact": lambda: v2.Compose([v2.Resize(50, "nearest-exact"), v2.CenterCrop((3, 44))]),
    "by number": lambda: v2.Compose([v2.Resize(40, 3), v2.CenterCrop(33)]),
    "flips": lambda: v1.Compose([v1.RandomHorizontalFlip(1.0), v1.CenterCrop(41), v1.RandomVerticalFlip(1.0)]),
}  # fmt: skip
SIZES = [(100, 75), (75, 100), (64, 64), (56, 57), (333, 21), (21, 333), (201, 199), (257, 131), (56, 56)]


@pytest.mark.parametrize("name", PIPELINES)
def test_the_same_pixels_as_torchvision(name, compiled, make_picture, render):
    transform = PIPELINES[name]()
    plan = compiled(transform)
    for size in SIZES:
        picture = make_picture(*size)
        expected = np.asarray(transform(picture))
        result = render(plan, picture)
        assert result.shape == expected.shape, size
        assert (result == expected).all(), size
        assert (render(plan, picture, only_box=True) == result).all(), size


@pytest.mark.parametrize("flags", [True, False, None])
def test_antialias_flag_is_ignored_for_pictures(flags, compiled, make_picture, render):
    transform = v2.Resize(40, antialias=flags)
    picture = make_picture(301, 200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = np.asarray(transform(picture))
    assert (render(compiled(transform), picture) == expected).all()


@pytest.mark.parametrize("size", [(301, 200), (97, 250), (40, 40)])
@pytest.mark.parametrize("module", [v1, v2])
def test_resizing_a_uint8_tensor_is_resizing_the_picture(module, size, compiled, make_picture, render):
    first = module.PILToTensor() if module is v1 else module.ToImage()
    transform = module.Compose([first, module.Resize(64, antialias=True), module.CenterCrop(60)])
    picture = make_picture(*size)
    expected = transform(picture).permute(1, 2, 0).numpy().astype(int)
    assert np.abs(render(compiled(transform), picture) - expected).max() <= 1


RESIZES = st.one_of(
    st.builds(v1.Resize, st.integers(5, 60)),
    st.builds(v2.Resize, st.tuples(st.integers(5, 60), st.integers(5, 60))),
    st.builds(lambda side, more: v1.Resize(side, max_size=side + more), st.integers(5, 60), st.integers(1, 40)),
)
OTHERS = st.one_of(
    st.builds(v1.CenterCrop, st.tuples(st.integers(1, 60), st.integers(1, 60))),
    st.builds(v2.Pad, st.tuples(*[st.integers(0, 9)] * 4), fill=st.just(0)),
    st.builds(v1.RandomHorizontalFlip, st.just(1.0)),
    st.builds(v2.RandomVerticalFlip, st.just(1.0)),
)
SEQUENCES = st.builds(
    lambda before, resize, after: before + resize + after,
    st.lists(OTHERS, max_size=3),
    st.lists(RESIZES, max_size=1),
    st.lists(OTHERS, max_size=3),
)


@settings(max_examples=150, deadline=None)
@given(steps=SEQUENCES, width=st.integers(1, 70), height=st.integers(1, 70))
def test_any_sequence_that_compiles_is_torchvisions(make_picture, render, steps, width, height):
    plan = compile_transform(v1.Compose(steps))
    if not isinstance(plan, Plan):
        return
    picture = make_picture(width, height)
    try:
        expected = np.asarray(v1.Compose(steps)(picture)).astype(int)
    except ValueError:  # a side rounded to 0; ours is 1
        return
    result = render(plan, picture)
    assert result.shape == expected.shape
    assert np.abs(result - expected).max() <= 1
    assert (render(plan, picture, only_box=True) == result).all()
    if plan.output_size is not None:
        assert plan.output_size == (expected.shape[1], expected.shape[0])


@pytest.mark.parametrize("seed", range(5))
def test_a_random_area_is_cropped_then_resampled(seed, compiled, make_picture, render):
    transform = v1.Compose([v1.RandomResizedCrop(64), v1.RandomHorizontalFlip(1.0)])
    plan = compiled(transform)
    picture = make_picture(180, 140, seed)
    draws = draw(plan, seed, 0, np.arange(20))
    geometry = plan_geometry(plan, draws, np.full(20, 180, np.int32), np.full(20, 140, np.int32))
    for row in range(20):
        left, top, right, bottom = (int(edge) for edge in geometry.window[row])
        area = v1.functional.resized_crop(picture, top, left, bottom - top, right - left, [64, 64])
        expected = np.asarray(v1.functional.hflip(area))
        assert (render(plan, picture, draws[row], only_box=True) == expected).all()


@pytest.mark.parametrize("module", [v1, v2])
def test_a_padded_random_crop_shows_fill_where_torchvision_does(module, compiled, make_picture, render):
    transform = module.RandomCrop(
        (40, 36), padding=(1, 2, 3, 4) if module is v2 else [1, 2, 3, 4], pad_if_needed=True, fill=(7, 8, 9)
    )
    plan = compiled(transform)
    for size in [(32, 32), (50, 60), (10, 70), (36, 40), (32, 34)]:
        picture = make_picture(*size)
        padded = v1.functional.pad(picture, [1, 2, 3, 4], fill=(7, 8, 9))
        if padded.width < 36:
            padded = v1.functional.pad(padded, [36 - padded.width, 0], fill=(7, 8, 9))
        if padded.height < 40:
            padded = v1.functional.pad(padded, [0, 40 - padded.height], fill=(7, 8, 9))
        for u in [(0.0, 0.0), (0.999999, 0.999999), (0.3, 0.8)]:
            left, top = int(u[0] * (padded.width - 36 + 1)), int(u[1] * (padded.height - 40 + 1))
            expected = padded.crop((left, top, left + 36, top + 40))
            assert (render(plan, picture, np.array(u)) == np.asarray(expected)).all(), (size, u)
        torch.manual_seed(0)
        assert transform(picture).size == (36, 40)


# ---------------------------------------------------------------- from the file to the batch

PHOTO_PIPELINES = {
    "bilinear": lambda: v1.Compose([v1.Resize(256), v1.CenterCrop(224), v1.PILToTensor()]),
    "bicubic": lambda: v1.Compose([v1.Resize(256, MODES.BICUBIC), v1.CenterCrop(224), v1.PILToTensor()]),
    "tensor": lambda: v2.Compose([v2.ToImage(), v2.Resize(232, antialias=True), v2.CenterCrop(224), v2.ToPureTensor()]),
    "squashed": lambda: v1.Compose([v1.Resize((160, 200)), v1.PILToTensor()]),
}


# torch's resampling of uint8 tensors rounds its weights and passes in its own way: a few pixels are 2 levels away.
LEVELS = {"tensor": 2}


def levels_apart(folder, files, transform):
    """Return the largest and the mean difference of the engine's batches to torchvision's, in grey levels."""
    data = ImageFolder(str(folder), transform)
    wanted = {str(path) for path in files}
    rows = [row for row, (path, _) in enumerate(data.samples) if path in wanted]
    assert len(rows) == len(files)
    part = Subset(data, rows)
    largest, total, count = 0, 0, 0
    batches = FastLoader(part, 10, num_workers=2, engine=True), FastLoader(part, 10, num_workers=0, engine=False)
    for (images, labels), (theirs, their_labels) in zip(*batches, strict=True):
        gap = (images.int() - theirs.int()).abs()
        largest, total, count = max(largest, int(gap.max())), total + int(gap.sum()), count + gap.numel()
        assert torch.equal(labels, their_labels)
    return largest, total / count


def photographs(shared_data, every):
    """Return (folder of classes, files) of both kinds."""
    photos = shared_data / "photos"
    return [(photos / "classes", sorted((photos / "classes").glob("*/*.jpg"))[::every]),
            (photos, sorted((photos / "camera").glob("*.jpg")))]  # fmt: skip


@pytest.mark.shared_data
@pytest.mark.slow
@pytest.mark.parametrize("name", PHOTO_PIPELINES)
def test_photographs_are_torchvisions_within_a_level(shared_data, name):
    for folder, files in photographs(shared_data, every=100):
        largest, mean = levels_apart(folder, files, PHOTO_PIPELINES[name]())
        assert largest <= LEVELS.get(name, 1)
        assert mean < 0.3


@pytest.mark.shared_data
@pytest.mark.patient
@pytest.mark.parametrize("part", range(10))
@pytest.mark.parametrize("name", PHOTO_PIPELINES)
def test_every_photograph_is_torchvisions_within_a_level(shared_data, name, part):
    for folder, files in photographs(shared_data, every=1):
        largest, mean = levels_apart(folder, files[part::10], PHOTO_PIPELINES[name]())
        assert largest <= LEVELS.get(name, 1)
        assert mean < 0.3


def four_times_smaller(folder):
    """Return (path of pictures, of tensors) as the engine gives them, and torchvision's."""
    size = (60, 80)
    recipes = [
        v1.Compose([v1.Resize(size), v1.ToTensor()]),
        v2.Compose([v2.ToImage(), v2.Resize(size, antialias=True), v2.ToDtype(torch.float32, scale=True)]),
    ]
    found = []
    for engine in (True, False):
        for recipe in recipes:
            loader = FastLoader(ImageFolder(str(folder), recipe), 30, num_workers=0, engine=engine)
            found.append(next(iter(loader))[0])
    return found


def test_a_picture_and_a_tensor_shrink_to_the_same(tmp_path, make_picture):  # C145
    (tmp_path / "a").mkdir()
    for seed in range(4):
        make_picture(320, 240, seed).save(tmp_path / "a" / f"{seed}.png")
    picture, tensor, their_picture, their_tensor = four_times_smaller(tmp_path)
    assert (picture - tensor).abs().max() < 1e-6  # one divides by 255, the other multiplies
    for other in (their_picture, their_tensor):
        assert (picture - other).abs().mean() * 255 <= 0.3
        assert (picture - other).abs().max() * 255 <= 1.01
    # What happens without antialias: pixels are left out. The engine does not take that for the same.
    loud = v2.Compose([v2.ToImage(), v2.Resize((60, 80), antialias=False), v2.ToDtype(torch.float32, scale=True)])
    plain = next(iter(FastLoader(ImageFolder(str(tmp_path), loud), 30)))[0]
    assert (plain - picture).abs().mean() * 255 > 5
    assert "antialias=False on a tensor" in FastLoader(ImageFolder(str(tmp_path), loud)).explain()
