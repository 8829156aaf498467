"""Pixel steps through the whole engine: values against torchvision's functions, order, memory, repeatability."""

from __future__ import annotations

import itertools
import pickle
import threading
from functools import partial

import numpy as np
import pytest
import torch
from torchvision import transforms as v1
from torchvision.transforms import functional as F
from torchvision.transforms import v2

from fastdata.device_ops import Normalizer
from fastdata.errors import OptionError
from fastdata.loader import FastLoader
from fastdata.transforms import compile_transform, draw, pixel_road
from fastdata.transforms.batch_op import batch_op

SEED = 11
IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
GEOMETRY = [v1.RandomResizedCrop((48, 40)), v1.RandomHorizontalFlip()]
JITTER = v1.ColorJitter(0.4, 0.4, 0.4, 0.1)
GREY = [v1.Grayscale()]
SIMCLR = [v1.RandomApply([JITTER], 0.8), v1.RandomGrayscale(0.2), v1.RandomApply([v1.GaussianBlur(5)])]


def load(packs, steps, **options):
    options = {"batch_size": 8, "shuffle": True, "num_workers": 2, "seed": SEED, **options}
    loader = FastLoader(packs["lmdb"], transform=v1.Compose(steps), **options)
    assert loader.explain().startswith("threaded engine"), loader.explain()
    return torch.cat([images for images, _ in loader])


def pictures_and_draws(packs, steps):
    """Return what the geometry alone gives, as PIL images, and each sample's draws for the pixel steps."""
    bare = compile_transform(GEOMETRY)
    plan = compile_transform([*GEOMETRY, *steps])
    images = load(packs, [*GEOMETRY, v1.PILToTensor()])
    draws = draw(plan, SEED, 0, np.arange(len(images)))
    assert (draws[:, : bare.draws] == draw(bare, SEED, 0, np.arange(len(images)))).all()
    return [F.to_pil_image(image) for image in images], draws[:, bare.draws :]


def jittered(picture, u):
    factors = [low + part * (high - low) for part, (low, high) in zip(u[1:5], RANGES, strict=True)]
    for number in list(itertools.permutations(range(4)))[int(u[0] * 24)]:
        picture = getattr(F, f"adjust_{NAMES[number]}")(picture, factors[number])
    return picture


NAMES = ("brightness", "contrast", "saturation", "hue")
RANGES = [getattr(JITTER, name) for name in NAMES]


def test_the_self_supervised_pipeline_has_torchvisions_values(packs):
    pictures, draws = pictures_and_draws(packs, SIMCLR)
    found = load(packs, [*GEOMETRY, *SIMCLR, v1.PILToTensor()])
    assert found.dtype == torch.uint8
    kinds = set()
    for picture, u, image in zip(pictures, draws, found, strict=True):
        expected = jittered(picture, u[1:6]) if u[0] < 0.8 else picture
        expected = F.rgb_to_grayscale(expected, 3) if u[6] < 0.2 else expected
        expected = F.gaussian_blur(expected, [5, 5], [0.1 + u[8] * 1.9] * 2) if u[7] < 0.5 else expected
        kinds.add((u[0] < 0.8, u[6] < 0.2, u[7] < 0.5))
        difference = (image.int() - F.pil_to_tensor(expected).int()).abs()
        assert difference.max() <= 2
        assert difference.float().mean() < 0.02
    assert len(kinds) >= 4


def test_the_same_on_tensors(packs):
    """v2's recommended order: a tensor first; its colours have the rounding of torchvision's tensor functions."""
    start = [v2.ToImage(), v2.RandomResizedCrop((48, 40)), v2.RandomHorizontalFlip()]
    steps = [v2.ColorJitter(0.4, 0.4, 0.4, 0.1), v2.RandomGrayscale(0.3), v2.GaussianBlur(3), v2.RandomSolarize(90)]
    found = load(packs, [*start, *steps, v2.ToDtype(torch.float32, scale=True)])
    before = load(packs, start)
    plan = compile_transform([*start, *steps])
    draws = draw(plan, SEED, 0, np.arange(21))[:, 5:]
    for picture, u, image in zip(before, draws, found, strict=True):
        expected = jittered(picture, u)
        expected = F.rgb_to_grayscale(expected, 3) if u[5] < 0.3 else expected
        expected = F.gaussian_blur(expected, [3, 3], [0.1 + u[6] * 1.9] * 2)
        expected = F.solarize(expected, 90) if u[7] < 0.5 else expected
        difference = (image * 255 - expected).abs()
        # Where a level more or less is at the threshold, the solarised one is far away.
        assert difference.quantile(0.995) <= 2.001
        assert difference.mean() < 0.5


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_floats_are_the_levels_of_the_uint8(packs, memory_format):
    pixels = load(packs, [*GEOMETRY, *SIMCLR, v1.PILToTensor()])
    floats = load(packs, [*GEOMETRY, *SIMCLR, v1.ToTensor(), v1.Normalize(*IMAGENET)], memory_format=memory_format)
    assert floats.is_contiguous(memory_format=memory_format)
    assert torch.equal(floats, F.normalize(pixels / 255, *IMAGENET))
    assert torch.equal(pixels, load(packs, [*GEOMETRY, *SIMCLR, v1.PILToTensor()], memory_format=memory_format))


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("steps", [[], SIMCLR, GREY], ids=["none", "simclr", "grey"])
@pytest.mark.parametrize("backend", ["native", "pillow"])
def test_floats_of_16_bits(packs, memory_format, dtype, steps, backend):
    """The dtype last: torch's rounding of the float32 batch. The dtype first: torchvision's arithmetic in it."""
    options = {"memory_format": memory_format, "decoder": backend}
    statistics = IMAGENET if steps is not GREY else ([0.45], [0.22])
    last = [*GEOMETRY, *steps, v1.ToTensor(), v1.Normalize(*statistics)]
    found = load(packs, [*last, v2.ToDtype(dtype)], **options)
    assert found.dtype == dtype
    assert found.is_contiguous(memory_format=memory_format)
    assert torch.equal(found, load(packs, last, **options).to(dtype))
    pixels = load(packs, [*GEOMETRY, *steps, v1.PILToTensor()], **options)
    first = [v2.ToDtype(dtype, scale=True), v2.Normalize(*statistics)]
    assert torch.equal(load(packs, [*GEOMETRY, *steps, v2.ToImage(), *first], **options), v2.Compose(first)(pixels))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_what_a_device_makes_of_the_uint8_is_the_same_within_rounding(packs, dtype):
    """There the arithmetic is float32, rounded once; torchvision's rounds after each step."""
    first = [*GEOMETRY, v2.ToImage(), v2.ToDtype(dtype, scale=True), v2.Normalize(*IMAGENET)]
    plan = compile_transform(first)
    normalizer = Normalizer.of_levels(plan.mean, plan.std, plan.divisor, plan.dtype)
    found = normalizer(load(packs, [*GEOMETRY, v1.PILToTensor()]))
    assert found.dtype == dtype
    close = {torch.bfloat16: 0.03, torch.float16: 0.004}[dtype]  # some roundings of numbers up to 2.6
    assert torch.allclose(found.float(), load(packs, first).float(), rtol=0, atol=close)
    once = load(packs, [*GEOMETRY, v1.ToTensor(), v1.Normalize(*IMAGENET), v2.ToDtype(dtype)])
    assert torch.allclose(found.float(), once.float(), rtol=2**-7, atol=1e-5)


@pytest.mark.parametrize("value", [0.3, (0.1, 0.5, 3.0), "random"])
def test_erasing_bfloat16(packs, value):
    steps = [*GEOMETRY, v2.ToImage(), v2.ToDtype(torch.bfloat16, scale=True), v2.RandomErasing(1.0, value=value)]
    before, found = load(packs, steps[:-1]), load(packs, steps)
    changed = (found != before).all(dim=1)
    assert changed.any(dim=(1, 2)).all()
    erased = found.permute(0, 2, 3, 1)[changed].float()
    if value == "random":
        assert abs(erased.mean()) < 6 / erased.numel() ** 0.5
        assert abs(erased.std() - 1) < 6 / erased.numel() ** 0.5
    else:
        assert (erased == torch.tensor(value).to(torch.bfloat16).float()).all()
        normalize = v2.Normalize(*IMAGENET)
        assert torch.equal(load(packs, [*steps, normalize]), normalize(found))


@pytest.mark.parametrize("end", [[v1.PILToTensor()], [v1.ToTensor(), v1.Normalize(0.5, 0.25), v1.RandomErasing(1.0)]])
def test_bit_equal_for_any_number_of_workers_and_batch_size(packs, end):
    steps = [*GEOMETRY, *SIMCLR, *end]
    expected = load(packs, steps, num_workers=0)
    for options in ({"num_workers": 1}, {"num_workers": 7}, {"batch_size": 3}, {"batch_size": 21, "num_workers": 7}):
        assert torch.equal(load(packs, steps, **options), expected)


def test_threads_share_a_batch_and_hand_on_what_one_raises():
    together, parts = threading.Barrier(4, timeout=30), []

    def work(part):
        together.wait()  # four of them at once, or it breaks
        parts.append(part)

    pixel_road._share(work, 33, 4)
    assert sorted(number for part in parts for number in part) == list(range(33))
    pixel_road._share(parts.append, 15, 4)
    assert parts[-1] == range(15)

    def fail(part, at):
        if at in part:
            msg = f"at {at}"
            raise OverflowError(msg)

    for at in (0, 15, 32):
        with pytest.raises(OverflowError, match=f"at {at}"):
            pixel_road._share(partial(fail, at=at), 33, 4)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fastdata-pixels")]


def test_one_channel(packs):
    for memory_format in (torch.contiguous_format, torch.channels_last):
        found = load(packs, [*GEOMETRY, v1.Grayscale(), v1.PILToTensor()], memory_format=memory_format)
        pictures, _ = pictures_and_draws(packs, [v1.Grayscale()])
        assert torch.equal(found, torch.stack([F.pil_to_tensor(F.rgb_to_grayscale(p)) for p in pictures]))
        steps = [*GEOMETRY, v1.Grayscale(), JITTER, v1.ToTensor(), v1.Normalize(0.4, 0.2), v1.RandomErasing()]
        assert load(packs, steps, memory_format=memory_format).shape == (21, 1, 48, 40)
    three = load(packs, [*GEOMETRY, v1.Grayscale(), v1.RandomInvert(1.0), v1.Grayscale(3), v1.PILToTensor()])
    assert torch.equal(three, 255 - found.expand(-1, 3, -1, -1))


def test_steps_keep_their_order(packs):
    start = load(packs, [*GEOMETRY, v1.PILToTensor()])
    invert, solarize = v1.RandomInvert(1.0), v1.RandomSolarize(100, 1.0)
    for pair in ([invert, solarize], [solarize, invert]):
        found = load(packs, [*GEOMETRY, *pair, v1.PILToTensor()])
        assert torch.equal(found, pair[1](pair[0](start)))


def test_a_flip_behind_pixel_steps(packs):
    flips = [v1.RandomHorizontalFlip(1.0), v1.RandomVerticalFlip(1.0)]
    plain = [v1.Resize((48, 40)), v1.Grayscale(3)]
    expected = load(packs, [*plain, v1.PILToTensor()]).flip(-1, -2)
    assert torch.equal(load(packs, [*plain, *flips, v1.PILToTensor()]), expected)
    assert torch.equal(load(packs, [*plain, v1.ToTensor(), *flips]), expected / 255)
    erased = load(packs, [*plain, v1.ToTensor(), v1.RandomErasing(1.0, value=7), flips[0], v1.Normalize(0.5, 0.5)])
    straight = load(packs, [*plain, v1.ToTensor(), v1.RandomErasing(1.0, value=7), v1.Normalize(0.5, 0.5)])
    assert torch.equal(erased, straight.flip(-1))
    assert (straight == 13).any(dim=(1, 2, 3)).all()


@pytest.mark.parametrize("library", [v1, v2])
@pytest.mark.parametrize("value", [0.25, (0.1, 0.5, 3.0), "random"])
def test_erasing_floats(packs, library, value):
    step = library.RandomErasing(0.5, value=value)
    before = load(packs, [*GEOMETRY, v1.ToTensor()])
    found = load(packs, [*GEOMETRY, v1.ToTensor(), step])
    changed = (found != before).all(dim=1)
    assert 5 <= changed.any(dim=(1, 2)).sum() <= 16
    assert torch.equal(found[~changed[:, None].expand_as(found)], before[~changed[:, None].expand_as(found)])
    for image, where in zip(found, changed, strict=True):
        rows, columns = where.any(1).nonzero()[:, 0], where.any(0).nonzero()[:, 0]
        if not len(rows):
            continue
        inside = image[:, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        assert inside[0].numel() == where.sum()  # a whole rectangle
        if value == "random":
            assert abs(inside.mean()) < 6 / inside.numel() ** 0.5
            assert abs(inside.std() - 1) < 6 / inside.numel() ** 0.5
        else:
            assert torch.equal(inside, torch.tensor(value).expand(3)[:, None, None].expand_as(inside))


def test_erasing_before_normalize_is_normalised(packs):
    steps = [*GEOMETRY, v1.ToTensor(), v1.RandomErasing(1.0, value="random")]
    first = load(packs, steps)
    found = load(packs, [*steps, v1.Normalize(*IMAGENET)])
    assert torch.allclose(found, F.normalize(first, *IMAGENET), atol=1e-5)
    steps[-1] = v1.RandomErasing(1.0, value=(0.1, 0.2, 0.3))
    assert torch.equal(load(packs, [*steps, v1.Normalize(*IMAGENET)]), F.normalize(load(packs, steps), *IMAGENET))


@pytest.mark.parametrize("start", [[], [v2.PILToTensor()]])
def test_erasing_uint8(packs, start):
    before = load(packs, [*GEOMETRY, v1.PILToTensor()])
    found = load(packs, [*GEOMETRY, *start, v2.RandomErasing(1.0, value=(7, 8.9, 250)), v2.PILToTensor()])
    changed = (found != before).any(dim=1)
    assert changed.any(dim=(1, 2)).all()
    assert set(map(tuple, found.permute(0, 2, 3, 1)[changed].tolist())) == {(7, 8, 250)}
    noise = load(packs, [*GEOMETRY, *start, v2.RandomErasing(1.0, value="random"), v2.PILToTensor()])
    assert set(noise[changed[:, None].expand_as(noise)].tolist()) <= {0, 1, 2, 3, 4, 5, 251, 252, 253, 254, 255}


def test_what_did_not_decode_is_skipped(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    for at in range(6):
        F.to_pil_image(torch.full((3, 20, 20), at * 40, dtype=torch.uint8)).save(tmp_path / "ab"[at % 2] / f"{at}.png")
    whole = (tmp_path / "a" / "2.png").read_bytes()
    (tmp_path / "a" / "2.png").write_bytes(whole[: len(whole) - 30])
    seen = []

    @batch_op
    def look(batch):
        seen.append(batch.copy())

    loader = FastLoader(
        tmp_path, 3, transform=v1.Compose([v1.RandomInvert(1.0), look, v1.ToTensor()]), on_error="skip", seed=0
    )
    found = torch.cat([images for images, _ in loader])
    assert len(found) == 5
    assert sorted(found[:, 0, 0, 0].mul(255).round().int().tolist()) == sorted(255 - 40 * at for at in (0, 1, 3, 4, 5))
    assert sorted(len(batch) for batch in seen) == [3, 3]


# ---------------------------------------------------------------- functions of a whole batch


@batch_op
def swap(batch):
    """Red and blue change places."""
    return batch[..., ::-1]


def test_batch_op_sees_whole_batches_between_geometry_and_levels(packs):
    shapes = []

    @batch_op
    def watch(batch):
        assert batch.flags.c_contiguous
        assert batch.flags.writeable
        assert batch.dtype == np.uint8
        shapes.append(batch.shape)
        batch[:, 0] = 9

    before = load(packs, [*GEOMETRY, v1.PILToTensor()])
    for memory_format in (torch.contiguous_format, torch.channels_last):
        found = load(packs, [*GEOMETRY, v1.RandomInvert(1.0), swap, watch, v1.ToTensor()], memory_format=memory_format)
        expected = (255 - before).flip(1)
        expected[:, :, 0] = 9
        assert torch.equal(found, expected / 255)
        assert sorted(shapes) == [(5, 48, 40, 3), (8, 48, 40, 3), (8, 48, 40, 3)]
        shapes.clear()
        load(packs, [*GEOMETRY, v1.Grayscale(), watch, v1.PILToTensor()], memory_format=memory_format)
        assert sorted(shapes) == [(5, 48, 40, 1), (8, 48, 40, 1), (8, 48, 40, 1)]
        shapes.clear()


def test_batch_op_on_the_loaders_own_road(packs):
    steps = v1.Compose([v1.Resize((48, 40)), swap, v1.PILToTensor()])
    engine, plain = (FastLoader(packs["lmdb"], 8, transform=steps, engine=engine) for engine in (None, False))
    for (ours, _), (theirs, _) in zip(engine, plain, strict=True):
        assert (ours.int() - theirs.int()).abs().max() <= 1
    assert pickle.loads(pickle.dumps(swap)) is swap
    assert pickle.loads(pickle.dumps(batch_op(np.copy))).function is np.copy
    tensor = torch.arange(24, dtype=torch.uint8).reshape(3, 2, 4)
    assert torch.equal(swap(tensor), tensor.flip(0))
    array = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    assert (swap(array) == array[..., ::-1]).all()
    grey = F.to_pil_image(tensor[:1])
    assert swap(grey).mode == "L"


@pytest.mark.parametrize(
    ("function", "got"),
    [
        (lambda batch: batch[:1, :1], r"uint8 \(\d, 1, 40, 3\)"),
        (lambda batch: batch / 255, "float64"),
        (lambda batch: batch.tolist(), "got a list"),
    ],
)
def test_a_function_that_gives_something_else_is_an_error(packs, function, got):
    with pytest.raises(OptionError, match=got):
        load(packs, [*GEOMETRY, batch_op(function), v1.PILToTensor()])


def test_its_name_is_told(packs):
    loader = FastLoader(packs["lmdb"], transform=v1.Compose([*GEOMETRY, swap]))
    assert "batch_op(swap)" in loader.explain()
    assert swap.__doc__ == "Red and blue change places."
