"""RandomRotation, RandomAffine and RandomPerspective: torchvision's pixels given the draws, and its distribution."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torchvision import transforms as v1
from torchvision.transforms import functional as F
from torchvision.transforms import v2

from fastdata.transforms import compile_transform, draw
from fastdata.transforms.warp import affine_of, corners_of, degrees_of

COUNT = 20_000
LIMIT = 2.3  # as in test_distribution.py
NEAREST, BILINEAR, BICUBIC = (v1.InterpolationMode(name) for name in ("nearest", "bilinear", "bicubic"))


@pytest.mark.parametrize("module", [v1, v2])
@pytest.mark.parametrize(
    "options",
    [
        {"degrees": 30},
        {"degrees": (-10, 170), "interpolation": BILINEAR, "fill": 7},
        {"degrees": 5, "interpolation": BICUBIC, "fill": (1, 2, 3), "center": (3, 4)},
        {"degrees": (90, 90)},
    ],
)
def test_rotation(module, options, make_picture, compiled, changed_by):
    plan = compiled(module.RandomRotation(**options))
    (step,) = plan.pixels
    for number, size in enumerate([(61, 47), (32, 32), (1, 9)]):
        picture = make_picture(*size)
        u = draw(plan, number, 0, np.arange(1))[0].tolist()
        rest = {name: value for name, value in options.items() if name != "degrees"}
        expected = module.functional.rotate(picture, degrees_of(step, u), **rest)
        assert (changed_by([step], picture, u) == np.asarray(expected)).all()


@pytest.mark.parametrize("module", [v1, v2])
@pytest.mark.parametrize(
    "options",
    [
        {"degrees": 30},
        {"degrees": 0, "translate": (0.1, 0.3)},
        {"degrees": (5, 9), "translate": (0.2, 0.0), "scale": (0.5, 1.7), "shear": 12, "interpolation": BILINEAR},
        {"degrees": 9, "shear": (3, 8, -20, 4), "interpolation": BICUBIC, "fill": (4, 5, 6), "center": (0, 9)},
    ],
)
def test_affine(module, options, make_picture, compiled, changed_by):
    plan = compiled(module.RandomAffine(**options))
    (step,) = plan.pixels
    rest = {name: value for name, value in options.items() if name in {"interpolation", "fill", "center"}}
    for number, size in enumerate([(61, 47), (32, 32), (5, 9)]):
        picture = make_picture(*size)
        u = draw(plan, number, 0, np.arange(1))[0].tolist()
        degrees, moved, scale, shears = affine_of(step, u, size)
        expected = module.functional.affine(picture, degrees, list(moved), scale, list(shears), **rest)
        assert (changed_by([step], picture, u) == np.asarray(expected)).all()


@pytest.mark.parametrize("module", [v1, v2])
@pytest.mark.parametrize("options", [{}, {"interpolation": BICUBIC, "fill": 9}, {"interpolation": NEAREST}])
def test_perspective(module, options, make_picture, compiled, changed_by):
    plan = compiled(module.RandomPerspective(0.6, 1.0, **options))
    (step,) = plan.pixels[0].steps
    for number, size in enumerate([(61, 47), (32, 32), (200, 150)]):
        picture, (width, height) = make_picture(*size), size
        u = draw(plan, number, 0, np.arange(1))[0].tolist()[1:]
        starts = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
        ends = [list(corner) for corner in corners_of(step, u, size)]
        expected = np.asarray(F.perspective(picture, starts, ends, **{"interpolation": BILINEAR, **options}))
        assert (changed_by([step], picture, u) == expected).all()


def test_angles_shifts_scales_and_shears_have_torchvisions_distribution(compiled, smirnov):
    options = {"degrees": (-20, 60), "translate": (0.1, 0.4), "scale": (0.5, 1.7), "shear": (-5, 10, 2, 30)}
    step = v1.RandomAffine(**options)
    plan = compiled(step)
    found = [affine_of(plan.pixels[0], row, (50, 30)) for row in draw(plan, 1, 0, np.arange(COUNT)).tolist()]
    torch.manual_seed(0)
    ranges = step.degrees, step.translate, step.scale, step.shear
    theirs = [step.get_params(*ranges, (50, 30)) for _ in range(4000)]

    def columns(rows):
        return np.array([(angle, *moved, scale, *shears) for angle, moved, scale, shears in rows]).T

    for a, b in zip(columns(found), columns(theirs), strict=True):
        assert smirnov(a, b) < LIMIT


def test_corners_have_torchvisions_distribution(compiled, smirnov):
    plan = compiled(v1.RandomPerspective(0.5, 0.3))
    rows = draw(plan, 1, 0, np.arange(COUNT))
    assert abs((rows[:, 0] < plan.pixels[0].p).mean() - 0.3) < 4 * math.sqrt(0.21 / COUNT)
    step = plan.pixels[0].steps[0]
    found = np.array([corners_of(step, row[1:], (51, 30)) for row in rows.tolist()]).reshape(COUNT, 8)
    torch.manual_seed(0)
    theirs = np.array([v1.RandomPerspective.get_params(51, 30, 0.5)[1] for _ in range(3000)]).reshape(-1, 8)
    for a, b in zip(found.T, theirs.T, strict=True):
        assert smirnov(a, b) < LIMIT
        assert (a.min(), a.max()) == (b.min(), b.max())


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (v1.RandomRotation(9, expand=True), "expand=True"),
        (v1.RandomRotation(9, fill=(1, 2)), "no colour"),
        ([v1.PILToTensor(), v1.RandomRotation(9)], "on a tensor"),
        ([v1.ToTensor(), v1.RandomAffine(9)], "float pixels"),
        (v2.RandomPerspective(interpolation="lanczos"), "turns no pictures"),
    ],
    ids=str,
)
def test_refused(step, why):
    assert why in compile_transform(step).reason
