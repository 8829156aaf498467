"""MixUp and CutMix as values: read from torchvision's objects, drawn with torchvision's distribution."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torchvision.transforms import v2

from fastdata.errors import OptionError
from fastdata.transforms.mix import MixKind, cut_box, draw_mixture, read_mix, symmetric_beta

COUNT = 20_000
LIMIT = 2.3  # as in test_distribution.py


@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.4, 0.5, 1.0, 2.0, 8.0])
def test_lambda_is_beta(alpha, smirnov):
    u = np.random.default_rng(3).random((COUNT, 3)).tolist()
    found = np.array([symmetric_beta(alpha, *row) for row in u])
    torch.manual_seed(0)
    both = torch.full((COUNT,), alpha, dtype=torch.float64)
    theirs = torch.distributions.Beta(both, both).sample().numpy()
    assert smirnov(found, theirs) < LIMIT


@pytest.mark.parametrize("u", [(0.0, 0.0, 0.0), (0.0, 0.25, 0.9), (1 - 2**-32, 0.5, 0.5), (0.5, 0.25, 0.0)])
@pytest.mark.parametrize("alpha", [1e-9, 0.1, 1.0, 1e9])
def test_lambda_is_a_share_whatever_is_drawn(alpha, u):
    assert 0.0 <= symmetric_beta(alpha, *u) <= 1.0


def test_a_batch_is_drawn_as_torchvision_draws_it(smirnov):
    mix = read_mix(v2.RandomChoice([v2.CutMix(alpha=0.7), v2.MixUp(alpha=0.3)], p=[1, 3]))
    count = 6000
    found = [draw_mixture(mix, (5, 2), batch, (60, 40)) for batch in range(count)]
    cut = [one for one in found if one.box is not None]
    assert abs(len(cut) / count - 0.25) < 4 * math.sqrt(0.25 * 0.75 / count)
    torch.manual_seed(0)
    theirs = v2.CutMix(alpha=0.7, num_classes=2)
    images = [torch.empty(2, 3, 40, 60)]
    params = [theirs.make_params(images) for _ in range(5000)]
    assert smirnov(np.array([one.weight for one in cut]), np.array([p["lam_adjusted"] for p in params])) < LIMIT
    for edge in range(4):
        assert smirnov(np.array([one.box[edge] for one in cut]), np.array([p["box"][edge] for p in params])) < LIMIT
    mixed = np.array([one.weight for one in found if one.box is None])
    both = torch.full((COUNT,), 0.3, dtype=torch.float64)
    assert smirnov(mixed, torch.distributions.Beta(both, both).sample().numpy()) < LIMIT


def test_draws_hang_on_seed_epoch_and_batch_alone():
    mix = read_mix(v2.MixUp())
    first = draw_mixture(mix, (5, 2), 7, (60, 40))
    assert draw_mixture(mix, (5, 2), 7, (60, 40)) == first
    others = [((6, 2), 7), ((5, 3), 7), ((5, 2), 8)]
    assert all(draw_mixture(mix, key, batch, (60, 40)) != first for key, batch in others)


@pytest.mark.parametrize("size", [(60, 40), (1, 1), (7, 300)])
def test_the_box_is_torchvisions_for_the_same_lambda_and_middle(size, monkeypatch):
    width, height = size
    theirs = v2.CutMix(num_classes=2)
    rng = np.random.default_rng(0)
    for weight in [0.0, 1.0, *rng.random(50).tolist()]:
        x, y = int(rng.integers(width)), int(rng.integers(height))
        middle = iter([torch.tensor([x]), torch.tensor([y])])
        with monkeypatch.context() as patch:
            patch.setattr(theirs._dist, "sample", lambda _, weight=weight: torch.tensor([weight], dtype=torch.float64))
            patch.setattr(torch, "randint", lambda *_, middle=middle, **__: next(middle))
            params = theirs.make_params([torch.empty(2, 3, height, width)])
        found = cut_box(weight, (x, y), size)
        assert found.box == params["box"]
        assert found.weight == params["lam_adjusted"]


def test_reading():
    assert read_mix(v2.MixUp(alpha=0.2, num_classes=10)).kinds == (MixKind(cut=False, alpha=0.2, share=1.0),)
    nested = read_mix(v2.RandomChoice([v2.CutMix(num_classes=4), v2.RandomChoice([v2.MixUp(), v2.MixUp(alpha=2.0)])]))
    assert nested.num_classes == 4
    assert [(kind.cut, kind.alpha, kind.share) for kind in nested.kinds] == [
        (True, 1.0, 0.5),
        (False, 1.0, 0.25),
        (False, 2.0, 0.25),
    ]
    assert nested.needs_floats
    assert not read_mix(v2.CutMix()).needs_floats


class Mine(v2.MixUp):
    pass


def hooked():
    step = v2.MixUp()
    step.register_forward_hook(lambda *_: None)
    return step


def patched():
    step = v2.CutMix()
    step.make_params = lambda _: {}
    return step


@pytest.mark.parametrize(
    ("mix", "why"),
    [
        ("mixup", "expected torchvision.transforms.v2's MixUp"),
        (v2.MixUp, "expected torchvision.transforms.v2's MixUp"),
        (Mine(), "expected torchvision.transforms.v2's MixUp"),
        (v2.RandomChoice([v2.MixUp(), v2.RandomErasing()]), "expected torchvision.transforms.v2's MixUp"),
        ([v2.MixUp()], "expected torchvision.transforms.v2's MixUp"),
        (nn.Identity(), "expected torchvision.transforms.v2's MixUp"),
        (hooked(), "MixUp: it has hooks"),
        (patched(), "CutMix: its make_params was replaced"),
        (v2.MixUp(labels_getter=lambda batch: batch[1]), "labels_getter of its own"),
        (v2.RandomChoice([v2.MixUp(num_classes=3), v2.CutMix(num_classes=4)]), r"different num_classes, \[3, 4\]"),
    ],
    ids=repr,
)
def test_what_is_not_torchvisions_is_refused(mix, why):
    with pytest.raises(OptionError, match=why):
        read_mix(mix)
