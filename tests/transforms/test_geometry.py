"""Geometry: sizes, boxes, and promises that hold for every draw."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torchvision import transforms as v1

from fastdata.errors import OptionError
from fastdata.transforms import compile_transform, draw, plan_geometry


def geometry_of(transform, widths, heights, seed=0):
    plan = compile_transform(transform)
    widths, heights = np.asarray(widths, np.int32), np.asarray(heights, np.int32)
    return plan_geometry(plan, draw(plan, seed, 0, np.arange(len(widths))), widths, heights)


def test_c019_every_size_gives_exactly_224():
    # C019: a scaled side that lands on a fraction must not give 223.
    rng = np.random.default_rng(0)
    widths, heights = rng.integers(1, 5000, 2000), rng.integers(1, 5000, 2000)
    geometry = geometry_of(v1.Compose([v1.Resize(224), v1.CenterCrop(224)]), widths, heights)
    assert (geometry.rect[:, 2:] == 224).all()
    assert (geometry.rect[:, :2] >= 0).all()
    assert (geometry.rect[:, :2] + 224 <= geometry.size).all()
    for row in range(0, 2000, 20):
        height, width = v1.functional._compute_resized_output_size((heights[row], widths[row]), [224])
        assert geometry.size[row].tolist() == [width, height]


@pytest.mark.parametrize("resize", [v1.Resize(256), v1.Resize(20, max_size=24), v1.Resize((7, 9))])
def test_c020_no_side_falls_to_zero(resize):
    # C020: 1x1, 1x2000, 2000x1, 3x900
    geometry = geometry_of(resize, [1, 1, 2000, 3], [1, 2000, 1, 900])
    assert (geometry.size >= 1).all()
    assert (geometry.rect[:, 2:] == geometry.size).all()
    random = geometry_of([v1.RandomResizedCrop(8), v1.RandomHorizontalFlip()], [1, 1, 2000, 3], [1, 2000, 1, 900])
    assert (random.window[:, 2:] - random.window[:, :2] >= 1).all()


PIPELINES = st.sampled_from(
    [
        [v1.RandomResizedCrop(32)],
        [v1.RandomResizedCrop((16, 40), scale=(0.01, 2.0), ratio=(0.1, 9.0)), v1.RandomVerticalFlip()],
        [v1.RandomResizedCrop(64, scale=(1.0, 1.0), ratio=(3.0, 3.0)), v1.CenterCrop(32)],
        [v1.RandomHorizontalFlip(), v1.RandomCrop(32, pad_if_needed=True), v1.RandomVerticalFlip()],
        [v1.RandomCrop(32, padding=40, pad_if_needed=True)],
        [v1.Resize(40), v1.RandomHorizontalFlip(), v1.RandomCrop(32)],
        [v1.CenterCrop(300), v1.RandomResizedCrop(32, interpolation=v1.InterpolationMode.BICUBIC)],
    ]
)


@settings(max_examples=150, deadline=None)
@given(PIPELINES, st.integers(1, 3000), st.integers(1, 3000), st.integers(0, 2**64 - 1))
def test_boxes_lie_in_the_picture_and_outputs_have_their_size(steps, width, height, seed):
    plan = compile_transform(steps)
    geometry = geometry_of(steps, [width] * 8, [height] * 8, seed)
    assert (geometry.rect[:, 2:] == plan.output_size).all()
    assert (geometry.box[:, :2] >= 0).all()
    assert (geometry.box[:, 2:] > geometry.box[:, :2]).all()
    assert (geometry.box[:, 2:] <= [width, height]).all()
    assert (geometry.window == np.round(geometry.window)).all()
    for array in (geometry.box, geometry.window, geometry.size, geometry.rect, geometry.hflip, geometry.vflip):
        assert array.flags.c_contiguous
        assert array.flags.owndata
    assert geometry.box.dtype == geometry.size.dtype == geometry.rect.dtype == np.int32
    assert geometry.window.dtype == np.float64


def test_rows_do_not_depend_on_the_batch_they_are_in():
    plan = compile_transform([v1.RandomResizedCrop(64), v1.RandomHorizontalFlip()])
    rng = np.random.default_rng(3)
    widths, heights = rng.integers(20, 700, (2, 100)).astype(np.int32)
    draws = draw(plan, 5, 2, np.arange(100))
    whole = plan_geometry(plan, draws, widths, heights)
    for row in range(100):
        alone = plan_geometry(plan, draws[row : row + 1], widths[row : row + 1], heights[row : row + 1])
        for name in ("box", "window", "size", "rect", "hflip", "vflip"):
            assert (getattr(alone, name)[0] == getattr(whole, name)[row]).all()


def test_an_empty_batch_is_an_empty_geometry():
    for steps in ([v1.RandomResizedCrop(8)], [v1.Resize(8), v1.CenterCrop(6)], [v1.RandomCrop(8, padding=2)], None):
        assert len(geometry_of(steps, [], [])) == 0


def test_a_crop_larger_than_the_picture_is_an_error_that_says_where():
    with pytest.raises(OptionError, match=r"\(40, 30\) is larger than the picture \(20, 50\) at position 1"):
        geometry_of(v1.RandomCrop((40, 30)), [50, 50], [60, 20])


def test_a_draw_is_a_function_of_seed_epoch_and_position():
    plan = compile_transform([v1.RandomResizedCrop(8), v1.RandomHorizontalFlip()])
    positions = np.array([7, 1_000_000_007, 3])
    draws = draw(plan, 1, 2, positions)
    assert draws.shape == (3, 5)
    assert (draw(plan, 1, 2, positions[::-1])[::-1] == draws).all()
    for other in (draw(plan, 2, 2, positions), draw(plan, 1, 3, positions), draw(plan, 1, 2, positions + 1)):
        assert not (other == draws).any()
    assert draw(compile_transform(v1.Resize(9)), 1, 2, positions).shape == (3, 0)


def test_the_crops_of_a_seed_stay_what_they_are():
    # Promised from run to run and release to release: a change here changes what a seed means.
    geometry = geometry_of([v1.RandomResizedCrop(8), v1.RandomHorizontalFlip()], [500] * 3, [375] * 3, seed=42)
    assert geometry.window.astype(int).tolist() == [[3, 8, 390, 311], [272, 159, 461, 322], [15, 7, 428, 361]]
    assert geometry.hflip.tolist() == [False, True, False]
