"""A step of mixed precision does what a float32 step does, or says that it did nothing."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from fastdata.errors import OptionError
from fastdata.train import Amp, Schedule, Stepper, choose_precision


def _model(device):
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)).to(device)


def _batch(device, n=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(n, 12, generator=generator)
    return images.to(device), torch.randint(0, 4, (n,), generator=generator).to(device)


def _stepper(model, amp, **options):
    fused = options.pop("fused", None)
    schedule = options.pop("schedule", None) or Schedule("constant", 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.pop("lr", 0.5), momentum=0.9, fused=fused)
    return Stepper(model, optimizer, amp=amp, schedule=schedule, **options)


def _weights(model):
    return torch.cat([parameter.detach().float().cpu().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_a_step_with_inf_gradients_is_skipped_and_says_so(device, fused, bad):  # C133
    model = _model(device)
    amp = Amp("fp16", device)
    stepper = _stepper(model, amp, fused=fused, schedule=Schedule("cosine", 10))
    hook = model[0].weight.register_hook(lambda gradient: gradient * bad)
    before = _weights(model)
    result = stepper(*_batch(device))
    rate = stepper.optimizer.param_groups[0]["lr"]
    assert result.status == "skipped"
    assert (stepper.updates, stepper.skipped) == (0, 1)
    assert torch.equal(_weights(model), before)
    assert amp.scale == 32768
    hook.remove()
    assert stepper(*_batch(device)).status == "updated"
    assert stepper.optimizer.param_groups[0]["lr"] == rate == 0.5  # the first rate of the schedule, not the second
    assert (stepper.updates, stepper.skipped) == (1, 1)
    assert not torch.equal(_weights(model), before)
    stepper(*_batch(device))
    assert stepper.optimizer.param_groups[0]["lr"] < rate


def _update(device, precision, steps=1, scaler=None, **options):
    """Return the sum of the updates of ``steps`` steps."""
    model = _model(device)
    before = _weights(model)
    amp = Amp(precision, device, **(scaler or {}))
    stepper = _stepper(model, amp, **options)
    results = [stepper(*_batch(device, seed=k)) for k in range(steps)]
    assert [result.status for result in results] == ["updated"] * steps
    return _weights(model) - before, results, amp


@pytest.mark.parametrize("clip", [0.05, 1.0, 100.0])
def test_gradients_are_unscaled_before_they_are_clipped(device, clip):  # C134
    exact, (exact_result,), _ = _update(device, "off", clip=clip)
    half, (result,), amp = _update(device, "fp16", clip=clip)
    assert amp.scale == 65536
    assert torch.allclose(half, exact, rtol=0.02, atol=2e-3 * float(exact.abs().max()))
    assert float(result.grad_norm) == pytest.approx(float(exact_result.grad_norm), rel=0.02)
    if clip < 0.1:
        assert float(exact.norm()) == pytest.approx(0.5 * clip, rel=1e-3)  # the limit was at work


@pytest.mark.parametrize("clip", [None, 0.3])
def test_gradients_are_divided_by_the_scale_that_backward_used(device, clip):  # C136
    exact, _, _ = _update(device, "off", steps=5, clip=clip)
    # from a scale small enough that five doublings do not overflow
    half, _, amp = _update(device, "fp16", steps=5, scaler={"init_scale": 256.0, "growth_interval": 1}, clip=clip)
    assert amp.scale == 256 * 2**5
    assert torch.allclose(half, exact, rtol=0.05, atol=5e-3 * float(exact.abs().max()))


def test_bf16_has_no_scaler_and_skips_nothing(device):  # C137
    exact, _, _ = _update(device, "off", steps=5, clip=0.3)
    half, results, amp = _update(device, "bf16", steps=5, clip=0.3)
    assert amp.scale == 1.0
    assert [result.status for result in results] == ["updated"] * 5
    assert torch.allclose(half, exact, rtol=0.1, atol=0.05 * float(exact.abs().max()))


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    spare=st.integers(0, 2),
    clip=st.sampled_from([None, 0.1]),
)
@settings(max_examples=30, deadline=None)
def test_accumulated_batches_of_any_sizes_equal_one_batch_of_all_samples(sizes, spare, clip):
    cpu = torch.device("cpu")
    batches = [_batch(cpu, n, seed=k) for k, n in enumerate(sizes)]
    whole, parts = _model(cpu), _model(cpu)
    _stepper(whole, Amp("off", cpu), clip=clip)(*(torch.cat(rows) for rows in zip(*batches, strict=True)))
    stepper = _stepper(parts, Amp("off", cpu), clip=clip, accumulate=len(sizes) + spare)
    results = [stepper(*batch) for batch in batches]
    if spare:
        assert {result.status for result in results} == {"accumulated"}
        assert stepper.flush().status == "updated"
    assert results[0].status == ("updated" if len(sizes) + spare == 1 else "accumulated")
    assert stepper.flush() is None
    assert stepper.updates == 1
    assert torch.allclose(_weights(parts), _weights(whole), atol=1e-6)


def test_accumulation_under_fp16_equals_one_batch_too(device):
    images, labels = _batch(device, 24)
    whole, parts = _model(device), _model(device)
    before = _weights(whole)
    _stepper(whole, Amp("off", device), clip=0.2)(images, labels)
    stepper = _stepper(parts, Amp("fp16", device), clip=0.2, accumulate=4)
    for start in (0, 8, 16):
        stepper(images[start : start + 8], labels[start : start + 8])
    assert stepper.flush().status == "updated"
    exact = _weights(whole) - before
    assert torch.allclose(_weights(parts) - before, exact, rtol=0.02, atol=3e-3 * float(exact.abs().max()))


def test_an_update_leaves_no_gradient_behind_for_the_next(device):
    model, reference = _model(device), _model(device)
    stepper = _stepper(model, Amp("off", device))
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.5, momentum=0.9)
    for k in range(3):
        images, labels = _batch(device, seed=k)
        result = stepper(images, labels)
        optimizer.zero_grad()
        loss = functional.cross_entropy(reference(images), labels)
        loss.backward()
        optimizer.step()
        assert not result.loss.requires_grad
        assert float(result.loss) == pytest.approx(float(loss.detach()))
        assert result.grad_norm is None
    assert torch.allclose(_weights(model), _weights(reference), atol=1e-6)


def test_the_state_of_the_scaler_travels_and_fits_its_precision_only():
    cpu = torch.device("cpu")
    used = Amp("fp16", cpu)
    stepper = _stepper(_model(cpu), used)
    stepper.model[0].weight.register_hook(lambda gradient: gradient * math.inf)
    stepper(*_batch(cpu))
    fresh = Amp("fp16", cpu)
    fresh.load_state_dict(copy.deepcopy(used.state_dict()))
    assert fresh.scale == used.scale == 32768
    with pytest.raises(OptionError, match="made with amp fp16, this run has bf16"):
        Amp("bf16", cpu).load_state_dict(used.state_dict())


def test_auto_depends_on_the_hardware_only():
    cpu = torch.device("cpu")
    assert choose_precision("auto", cpu) == choose_precision("auto", cpu)
    assert choose_precision("auto", cpu) in ("bf16", "off")
    assert [choose_precision(name, cpu) for name in ("off", "bf16", "fp16")] == ["off", "bf16", "fp16"]
    with pytest.raises(OptionError, match="auto, off, bf16, fp16"):
        choose_precision("fp8", cpu)


@pytest.mark.parametrize("wrong", [{"accumulate": 0}, {"clip": 0.0}, {"clip": -1.0}])
def test_steps_without_meaning_are_refused(wrong):
    cpu = torch.device("cpu")
    with pytest.raises(OptionError, match="accumulate must be 1 or more"):
        _stepper(_model(cpu), Amp("off", cpu), **wrong)
