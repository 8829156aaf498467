"""Resize and RandomResizedCrop with everything they accept: torchvision's pixels within a level, or a reason."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
import torch
from torchvision import transforms as v1
from torchvision.transforms import v2

from fastdata.errors import OptionError
from fastdata.loader import FastLoader
from fastdata.transforms import Plan, compile_transform, draw, plan_geometry

MODULES = {"v1": v1, "v2": v2}
MODES = list(v1.InterpolationMode)
ANTIALIAS = [True, False, None]
SIZES = {
    "int": {"size": 40},
    "list of one": {"size": [40]},
    "max_size": {"size": 40, "max_size": 50},
    "height, width": {"size": (37, 52)},
    "up": {"size": (240, 300)},
    "none": {"size": None, "max_size": 50},
}
PICTURES = [(200, 130), (90, 121), (64, 64)]
# Which tensors Pillow's resampling is right for. The others have pixels of their own: nearest rounds another way, no
# antialias leaves pixels out, bicubic and lanczos pass over the picture in another order, box and hamming do not exist.
SERVED_ON_TENSORS = {("bilinear", True)}


def start(module, on_tensor):
    return ([module.PILToTensor() if module is v1 else module.ToImage()]) if on_tensor else []


def pixels(result):
    return np.asarray(result) if not isinstance(result, torch.Tensor) else result.permute(1, 2, 0).numpy()


@pytest.mark.parametrize("on_tensor", [False, True], ids=["picture", "tensor"])
@pytest.mark.parametrize("antialias", ANTIALIAS)
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize("module", MODULES)
def test_resize(module, mode, antialias, on_tensor, make_picture, render):
    served = not on_tensor or (mode.value, antialias) in SERVED_ON_TENSORS
    for name, size in SIZES.items():
        if name == "none" and module == "v1":
            continue
        step = MODULES[module].Resize(**size, interpolation=mode, antialias=antialias)
        transform = MODULES[module].Compose([*start(MODULES[module], on_tensor), step])
        plan = compile_transform(transform)
        assert isinstance(plan, Plan) is served, (name, plan)
        if not served:
            assert "step 2, Resize: " in plan.reason
            assert "on a tensor has other pixels than Pillow's" in plan.reason
            continue
        for width, height in PICTURES:
            picture = make_picture(width, height)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # v1 tells of antialias on PIL images
                expected = pixels(transform(picture)).astype(int)
            found = render(plan, picture)
            assert found.shape == expected.shape, (name, width, height)
            assert np.abs(found - expected).max() <= 1, (name, width, height)


@pytest.mark.parametrize("on_tensor", [False, True], ids=["picture", "tensor"])
@pytest.mark.parametrize("antialias", ANTIALIAS)
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize("module", MODULES)
def test_random_resized_crop(module, mode, antialias, on_tensor, make_picture, render):
    served = not on_tensor or (mode.value, antialias) in SERVED_ON_TENSORS
    for size in (40, [40], (37, 52)):
        step = MODULES[module].RandomResizedCrop(size, interpolation=mode, antialias=antialias)
        plan = compile_transform([*start(MODULES[module], on_tensor), step])
        assert isinstance(plan, Plan) is served, plan
        if not served:
            assert "RandomResizedCrop: " in plan.reason
            continue
        picture = make_picture(200, 130)
        given = v1.functional.pil_to_tensor(picture) if on_tensor else picture
        draws = draw(plan, 1, 0, np.arange(4))
        geometry = plan_geometry(plan, draws, np.full(4, 200, np.int32), np.full(4, 130, np.int32))
        for row in range(4):
            left, top, right, bottom = (int(edge) for edge in geometry.window[row])
            area = top, left, bottom - top, right - left
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected = MODULES[module].functional.resized_crop(
                    given, *area, list(step.size), mode, antialias=antialias
                )
            found = render(plan, picture, draws[row], only_box=True)
            assert np.abs(found - pixels(expected).astype(int)).max() <= 1


@pytest.mark.parametrize("module", MODULES)
def test_numbers_and_names_of_interpolations(module, compiled):
    for mode, number in [("nearest", 0), ("lanczos", 1), ("bilinear", 2), ("bicubic", 3), ("box", 4), ("hamming", 5)]:
        plans = [compiled(MODULES[module].Resize(40, way)) for way in (number, v1.InterpolationMode(mode))]
        assert plans[0].interpolation == plans[1].interpolation == mode


PADDING = [0, 3, [3], [3, 5], [3, 5, 2, 7]]
FILLS = [0, 7, (9, 8, 7), [4, 5, 6], None]


@pytest.mark.parametrize("on_tensor", [False, True], ids=["picture", "tensor"])
@pytest.mark.parametrize("padding_mode", ["constant", "edge", "reflect", "symmetric"])
@pytest.mark.parametrize("module", MODULES)
def test_pad(module, padding_mode, on_tensor, make_picture, render):
    for padding, fill in itertools.product(PADDING, FILLS):
        if module == "v1" and (fill is None or isinstance(fill, list)):
            continue
        if on_tensor and isinstance(fill, tuple | list) and (module == "v1" or padding_mode != "constant"):
            continue  # torchvision's own error
        step = MODULES[module].Pad(padding, 0 if fill is None else fill, padding_mode)
        transform = MODULES[module].Compose([*start(MODULES[module], on_tensor), step])
        plan = compile_transform(transform)
        if not isinstance(plan, Plan):
            assert "a fill colour on a tensor" in plan.reason
            continue
        picture = make_picture(30, 20)
        assert (render(plan, picture) == pixels(transform(picture))).all(), (padding, fill)


@pytest.mark.parametrize("on_tensor", [False, True], ids=["picture", "tensor"])
@pytest.mark.parametrize("if_needed", [False, True])
@pytest.mark.parametrize("padding", [None, *PADDING])
@pytest.mark.parametrize("module", MODULES)
def test_random_crop(module, padding, if_needed, on_tensor, make_picture, render):
    """A crop as large as what is there by then has one place only."""
    for fill, size in itertools.product([0, 7], PICTURES):
        sides = padding if isinstance(padding, list) else [padding or 0]
        left, top, right, bottom = (sides * (4 // len(sides)))[:4]
        width, height = size[0] + left + right, size[1] + top + bottom
        step = MODULES[module].RandomCrop((height, width), padding, pad_if_needed=if_needed, fill=fill)
        transform = MODULES[module].Compose([*start(MODULES[module], on_tensor), step])
        plan = compile_transform(transform)
        assert isinstance(plan, Plan), plan
        picture = make_picture(*size)
        assert (render(plan, picture) == pixels(transform(picture))).all(), (fill, size)
    for mode in ("edge", "reflect", "symmetric"):
        crop = MODULES[module].RandomCrop(29, padding, pad_if_needed=if_needed, padding_mode=mode)
        plan = compile_transform(crop)
        if if_needed:
            assert f"pad_if_needed with padding_mode '{mode}'" in plan.reason
        else:
            assert isinstance(plan, Plan)


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric"])
@pytest.mark.parametrize("module", MODULES)
def test_a_crop_of_what_was_padded_by_its_own_pixels(module, mode, make_picture, render):
    """Every place of the crop, mirrored or not, of pictures that are larger and smaller than it."""
    transform = [
        MODULES[module].RandomCrop((20, 24), [3, 5, 7, 2], padding_mode=mode),
        MODULES[module].RandomHorizontalFlip(),
        MODULES[module].RandomVerticalFlip(),
    ]
    plan = compile_transform(transform)
    assert isinstance(plan, Plan), plan
    for size in [(30, 25), (15, 14), (24, 20)]:
        picture = make_picture(*size)
        padded = np.asarray(MODULES[module].functional.pad(picture, [3, 5, 7, 2], padding_mode=mode))
        for row in draw(plan, 2, 0, np.arange(40)):
            left, top = int(row[0] * (size[0] + 10 - 24 + 1)), int(row[1] * (size[1] + 7 - 20 + 1))
            expected = padded[top : top + 20, left : left + 24]
            expected = expected[:, ::-1] if row[2] < 0.5 else expected
            expected = expected[::-1] if row[3] < 0.5 else expected
            assert (render(plan, picture, row) == expected).all(), (size, row)


def test_the_usual_crop_of_small_pictures_in_batches(packs):
    places = [v1.Resize((32, 32)), v1.RandomCrop(32, 4, padding_mode="reflect"), v1.RandomHorizontalFlip()]
    floats = [v1.ToTensor(), v1.Normalize([0.5] * 3, [0.5] * 3)]
    for more in ([v1.PILToTensor()], [v1.ColorJitter(0.2), v1.PILToTensor()], floats):
        transform = v1.Compose([*places, *more])
        one = FastLoader(packs["lmdb"], 7, transform=transform, seed=1, num_workers=0, engine=True)
        other = FastLoader(packs["tar"], 7, transform=transform, seed=1, num_workers=2, engine=True)
        for (a, _), (b, _) in zip(one, other, strict=True):
            assert torch.equal(a, b)
            assert a.amin() < a.amax()
    # The same places, with the fill colour: what is inside is equal, what was black is not.
    plain = v1.Compose([v1.Resize((32, 32)), v1.RandomCrop(32, 4), v1.RandomHorizontalFlip(), v1.PILToTensor()])
    reflected = v1.Compose([*places, v1.PILToTensor()])
    black, full = (next(iter(FastLoader(packs["lmdb"], 21, transform=one, seed=1)))[0] for one in (plain, reflected))
    inside = (black != 0).any(dim=1, keepdim=True).expand_as(black)
    assert torch.equal(black[inside], full[inside])
    assert (full[~inside] > 0).float().mean() > 0.9


@pytest.mark.parametrize(
    ("transform", "why"),
    [
        ([v1.Pad(5, padding_mode="edge"), v1.CenterCrop(10)], "may hold less of the picture"),
        ([v1.Pad(5, padding_mode="edge"), v1.Resize(40)], "a change of size behind a padding"),
        ([v1.Pad(5, padding_mode="edge"), v1.Pad(1)], "a change of size behind a padding"),
        ([v1.Pad(5), v1.Pad(1, padding_mode="edge")], "behind another padding"),
        ([v1.Pad(5, padding_mode="edge"), v1.CenterCrop(400)], "a second padding"),
    ],
)
def test_paddings_that_cannot_be_made_after_decoding_are_refused(transform, why):
    assert why in compile_transform(transform).reason


def test_a_picture_that_is_too_small_for_its_padding_is_named(packs):
    loader = FastLoader(
        packs["lmdb"], 4, transform=[v1.Resize((3, 3)), v1.Pad(5, padding_mode="reflect")], num_workers=0
    )
    with pytest.raises(OptionError, match="a picture of 3 pixels cannot be padded by 5"):
        next(iter(loader))


@pytest.mark.parametrize("size", [9, [9], (20, 31), (70, 31), (70, 90)])
@pytest.mark.parametrize("on_tensor", [False, True], ids=["picture", "tensor"])
@pytest.mark.parametrize("module", MODULES)
def test_center_crop(module, on_tensor, size, make_picture, render):
    transform = MODULES[module].Compose([*start(MODULES[module], on_tensor), MODULES[module].CenterCrop(size)])
    plan = compile_transform(transform)
    for picture in (make_picture(40, 50), make_picture(41, 33), make_picture(90, 70)):
        assert (render(plan, picture) == pixels(transform(picture))).all()


@pytest.mark.parametrize("step", [v1.FiveCrop(9), v1.TenCrop(9), v2.FiveCrop(9), v2.TenCrop(9)], ids=repr)
def test_several_crops_of_a_picture_are_refused(step):
    assert "not known to the engine" in compile_transform(step).reason
