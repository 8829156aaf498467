"""Resize and RandomResizedCrop with everything they accept: torchvision's pixels within a level, or a reason."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
import torch
from torchvision import transforms as v1
from torchvision.transforms import v2

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
        if on_tensor and isinstance(fill, tuple | list) and module == "v1":
            continue
        step = MODULES[module].Pad(padding, 0 if fill is None else fill, padding_mode)
        transform = MODULES[module].Compose([*start(MODULES[module], on_tensor), step])
        plan = compile_transform(transform)
        if not isinstance(plan, Plan):
            assert padding_mode != "constant" or on_tensor, plan
            assert f"padding_mode {padding_mode!r}" in plan.reason or "a fill colour on a tensor" in plan.reason
            continue
        assert padding_mode == "constant"
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
        plan = compile_transform(MODULES[module].RandomCrop(9, padding, pad_if_needed=if_needed, padding_mode=mode))
        if if_needed or (padding is not None and np.any(padding)):
            assert f"padding_mode '{mode}' is not known" in plan.reason
        else:
            assert isinstance(plan, Plan)  # nothing is padded


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
