"""What compiles, to which plan, and why the rest does not."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torchvision import transforms as v1
from torchvision import tv_tensors
from torchvision.transforms import v2

from fastdata.transforms import Plan, Unsupported, batch_op, compile_transform
from fastdata.transforms.half_floats import bfloat16_bits, rounded, stored
from fastdata.transforms.plan import CenterCrop, HorizontalFlip, Pad, RandomCrop, RandomResizedCrop, Resize

IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
TO_FLOAT = {
    "v1": lambda: [v1.ToTensor(), v1.Normalize(*IMAGENET)],
    "v1 only ToTensor": lambda: [v1.ToTensor()],
    "v1 convert": lambda: [v1.PILToTensor(), v1.ConvertImageDtype(torch.float32), v1.Normalize(*IMAGENET)],
    "v1 one value": lambda: [v1.ToTensor(), v1.Normalize(0.5, 0.25)],
    "v1 tuples, twice": lambda: [v1.ToTensor(), v1.Normalize((0.5,), (0.5,)), v1.Normalize(*IMAGENET)],
    "v1 tensors": lambda: [v1.ToTensor(), v1.Normalize(torch.tensor(IMAGENET[0]), torch.tensor(IMAGENET[1]))],
    "v2": lambda: [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(*IMAGENET)],
    "v2 not scaled": lambda: [v2.PILToTensor(), v2.ToDtype(torch.float32), v2.Normalize([123.7], [58.4])],
    "v2 convert": lambda: [v2.PILToTensor(), v2.ConvertImageDtype(torch.float32), v2.Normalize(*IMAGENET)],
    "v2 twice": lambda: [
        v2.ToImage(),
        v2.ToDtype(torch.uint8, scale=True),
        v2.ToDtype(torch.float32, scale=True),
        v2.ToDtype(torch.float32),
        v2.Identity(),
        v2.ToPureTensor(),
    ],
    "mixed": lambda: [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v1.Normalize(*IMAGENET)],
}  # fmt: skip


@pytest.mark.parametrize("name", TO_FLOAT)
def test_levels_are_torchvisions_to_the_bit(name, compiled):
    steps = TO_FLOAT[name]()
    grey = np.arange(256, dtype=np.uint8)
    every_level = Image.fromarray(np.stack([grey] * 3, axis=1)[None])
    expected = v2.Compose(steps)(every_level).numpy()[:, 0]
    plan = compiled(steps)
    assert plan.dtype == "float32"
    assert plan.levels is not None
    assert plan.levels.dtype == np.float32
    assert not plan.levels.flags.writeable
    assert (plan.levels == expected).all()
    mean, std = np.array(plan.mean)[:, None], np.array(plan.std)[:, None]
    assert np.allclose((grey / plan.divisor - mean) / std, expected, atol=1e-5)


TO_HALF = {
    "v2": lambda dtype: [v2.ToImage(), v2.ToDtype(dtype, scale=True), v2.Normalize(*IMAGENET)],
    "v2 not scaled": lambda dtype: [v2.PILToTensor(), v2.ToDtype(dtype), v2.Normalize([123.7], [58.4])],
    "v2 convert, twice": lambda dtype: [
        v2.PILToTensor(), v2.ConvertImageDtype(dtype), v2.Normalize([0.4], [0.3]), v2.Normalize(*IMAGENET)
    ],
    "v1 convert": lambda dtype: [v1.PILToTensor(), v1.ConvertImageDtype(dtype), v1.Normalize(*IMAGENET)],
    "last": lambda dtype: [v1.ToTensor(), v1.Normalize(*IMAGENET), v2.ToDtype(dtype, scale=True)],
    "between": lambda dtype: [v1.ToTensor(), v1.ConvertImageDtype(dtype), v1.Normalize(*IMAGENET)],
    "too large": lambda dtype: [v2.ToImage(), v2.ToDtype(dtype), v2.Normalize([3e4], [1e-4])],
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", TO_HALF)
def test_levels_of_16_bits_are_torchvisions_to_the_bit(name, dtype, compiled):
    """torch rounds after each operation of a float of 16 bits: the cast, the subtraction, the division."""
    steps = TO_HALF[name](dtype)
    grey = np.arange(256, dtype=np.uint8)
    every_level = Image.fromarray(np.stack([grey] * 3, axis=1)[None])
    expected = v2.Compose(steps)(every_level)[:, 0]
    plan = compiled(steps)
    assert plan.dtype == str(dtype).removeprefix("torch.")
    assert not plan.levels.flags.writeable
    found = torch.from_numpy(plan.levels.copy())
    assert expected.dtype == dtype
    assert torch.equal(found.view(dtype).view(torch.int16), expected.view(torch.int16))
    mean, std = np.array(plan.mean)[:, None], np.array(plan.std)[:, None]
    formula = torch.from_numpy((grey / plan.divisor - mean) / std).to(dtype).float()
    assert torch.allclose(formula, expected.float(), rtol=2**-6, atol=0.03)


def test_rounding_is_torchs():
    """Any floats, every tie of bfloat16, infinities and NaN."""
    rng = np.random.default_rng(3)
    bits = np.concatenate([rng.integers(0, 2**32, 50_000, np.uint32), np.arange(2**16, dtype=np.uint32) << 16 | 0x8000])
    values = bits.view(np.float32)
    some = ~np.isnan(values)  # which NaN torch makes depends on the processor
    expected = torch.from_numpy(values).to(torch.bfloat16).view(torch.uint16).numpy()
    assert (bfloat16_bits(values)[some] == expected[some]).all()
    assert np.isnan((bfloat16_bits(values[~some]).astype(np.uint32) << 16).view(np.float32)).all()
    numbers = values[some]
    for dtype in ("bfloat16", "float16"):
        expected = torch.from_numpy(numbers).to(getattr(torch, dtype))
        assert (rounded(numbers, dtype) == expected.float().numpy()).all()
        assert stored(numbers, dtype).tobytes() == expected.view(torch.int16).numpy().tobytes()


def test_the_usual_training_pipeline(compiled):
    transform = v1.Compose(
        [v1.RandomResizedCrop(224), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize(*IMAGENET)]
    )
    plan = compiled(transform)
    assert plan.steps == (RandomResizedCrop(224, 224, (0.08, 1.0), (3 / 4, 4 / 3)), HorizontalFlip(0.5))
    assert plan.draws == 5
    assert plan.output_size == (224, 224)
    assert plan.mean == tuple(IMAGENET[0])
    assert plan.std == tuple(IMAGENET[1])
    assert plan.output_kind == "tensor"
    assert len(plan.description) == 4
    assert plan.description[2] == "ToTensor()"
    assert plan.channels == 3


@pytest.mark.parametrize("wrap", [v1.Compose, v2.Compose, list, tuple, lambda steps: nn.Sequential(*steps)])
def test_containers(wrap, compiled):
    plan = compiled(wrap([v2.Resize((20, 30)), v2.CenterCrop(10), v2.PILToTensor()]))
    assert plan.steps == (Resize(exact=(30, 20)), CenterCrop(10, 10))
    assert plan.dtype == "uint8"
    assert plan.levels is None
    nested = compiled(v1.Compose([wrap([v2.Resize((20, 30))]), v2.CenterCrop(10), v2.PILToTensor()]))
    assert nested == plan


def test_nothing_means_the_picture_as_it_is(compiled):
    for transform in (None, [], nn.Identity()):
        plan = compiled(transform)
        assert plan.steps == ()
        assert plan.dtype == "uint8"
        assert plan.output_size is None
        assert plan.output_kind == "pil"


@pytest.mark.parametrize(
    ("transform", "steps", "size"),
    [
        (v1.Resize(9), (Resize(shorter=9),), None),
        (v2.Resize([9]), (Resize(shorter=9),), None),
        (v1.Resize(9, max_size=12), (Resize(shorter=9, longest=12),), None),
        (v2.Resize(None, max_size=12), (Resize(longest=12),), None),
        (v1.RandomCrop((5, 6), padding=2), (Pad(2, 2, 2, 2), RandomCrop(6, 5)), (6, 5)),
        (v1.RandomCrop(5, padding=(1, 2)), (Pad(1, 2, 1, 2), RandomCrop(5, 5)), (5, 5)),
        (v2.RandomCrop(5, padding=(1, 2, 3, 4)), (Pad(1, 2, 3, 4), RandomCrop(5, 5)), (5, 5)),
        (v2.RandomCrop(5, pad_if_needed=True), (RandomCrop(5, 5, if_needed=True),), (5, 5)),
        (v2.Pad((1, 2)), (Pad(1, 2, 1, 2),), None),
        ([v1.CenterCrop((4, 6)), v1.Pad(1)], (CenterCrop(6, 4), Pad(1, 1, 1, 1)), (8, 6)),
    ],
)
def test_geometry(transform, steps, size, compiled):
    plan = compiled(transform)
    assert plan.steps == steps
    assert plan.output_size == size


class Mine(v1.Resize):
    pass


def hooked():
    step = v1.Resize(9)
    step.register_forward_hook(lambda *_: None)
    return step


def hooked_container():
    steps = v2.Compose([v2.Resize(9)])
    steps.register_forward_pre_hook(lambda *_: None)
    return steps


def patched(name):
    step = v2.RandomCrop(9)
    setattr(step, name, lambda *_: None)
    return step


def changed(step, **attributes):
    for name, value in attributes.items():
        setattr(step, name, value)
    return step


REFUSED = [
    (
        v1.Compose([v1.Resize(9), v1.ToTensor(), v1.LinearTransformation(torch.eye(3), torch.ones(3))]),
        "step 3, LinearTransformation: not known",
    ),
    (v1.Lambda(lambda x: x), "step 1, Lambda: not known"),
    (lambda x: x, "step 1, function: not known"),
    (v1.RandomChoice([v1.Resize(9)]), "RandomChoice: Resize inside it"),
    (v1.RandomApply([v1.Resize(9)]), "RandomApply: Resize inside it"),
    (Mine(9), "step 1, Mine: not known"),
    (v1.Resize, "step 1, type: not known"),
    (hooked(), "Resize: it has hooks"),
    (hooked_container(), "Compose: it has hooks"),
    (changed(v1.Compose([]), transforms=iter([v1.Resize(9)])), "are a list_iterator, not a list"),
    (patched("forward"), "its forward was replaced"),
    (patched("make_params"), "its make_params was replaced"),
    (patched("transform"), "its transform was replaced"),
    (changed(v1.Resize(9), size="9"), "size '9'"),
    (changed(v1.Resize(9), size=0), "size 0"),
    (changed(v1.Resize(9), size=True), "size True"),
    (changed(v1.Resize(9), size=(9, 9), max_size=12), "max_size together"),
    (changed(v1.Resize(9), max_size=9), "max_size 9 is not above"),
    (changed(v1.CenterCrop(9), size=(9, 9, 9)), "neither a side"),
    (changed(v1.RandomHorizontalFlip(), p=torch.tensor(0.5)), "p tensor(0.5000)"),
    (changed(v2.RandomResizedCrop(9), ratio=(0.1, 1.0)), "ratio was changed"),
    (changed(v1.RandomResizedCrop(9), scale=(0.9, 0.1)), "scale (0.9, 0.1)"),
    (changed(v1.RandomResizedCrop(9), scale=None), "scale None"),
    (changed(v1.RandomResizedCrop(9), ratio=(0.0, 1.0)), "reaches 0"),
    (changed(v1.Resize(9), interpolation="cubic"), "interpolation 'cubic'"),
    (changed(v1.Pad(9), padding_mode="mirror"), "padding_mode 'mirror'"),
    (v1.RandomCrop(9, padding=-1), "padding -1"),
    (v2.RandomCrop(9, padding=1, fill={tv_tensors.Image: 1}), "differs by type"),
    (v1.RandomCrop(9, padding=1, fill=256), "no colour"),
    (v1.RandomCrop(9, padding=1, fill=(1, 2)), "no colour"),
    ([v1.Pad(1, fill=3), v1.CenterCrop(900)], "a second fill colour"),
    ([v1.Resize(9), v1.RandomResizedCrop(9)], "step 2, RandomResizedCrop: a second resampling"),
    ([v1.Resize(9), v1.CenterCrop(9), v1.Pad(1)], "it may pad what an earlier step has cropped"),
    ([v1.CenterCrop(9), v1.Pad(1), v1.Resize(5)], "cropped, then padded"),
    ([v1.RandomHorizontalFlip(), v1.Resize(9, v1.InterpolationMode.NEAREST)], "after a flip"),
    ([v1.ToTensor(), v1.Resize(9)], "step 2, Resize: resampling of float pixels"),
    ([v2.ToImage(), v2.Resize(9, antialias=False)], "antialias=False on a tensor"),
    ([v2.ToImage(), v2.Resize(9, "bicubic")], "bicubic, antialias=True on a tensor"),
    ([v1.PILToTensor(), v1.Pad(1, fill=(1, 2, 3))], "fill colour on a tensor"),
    ([v1.ToTensor(), v1.Pad(1, fill=1)], "padding of float pixels"),
    ([v1.ToTensor(), v1.Normalize(*IMAGENET), v1.Pad(1)], "padding of float pixels"),
    ([v1.ToTensor(), v1.ToTensor()], "a tensor already"),
    ([v1.Normalize(*IMAGENET), v1.ToTensor()], "no float tensor yet"),
    ([v1.PILToTensor(), v1.Normalize(*IMAGENET)], "no float tensor yet"),
    ([v1.ToTensor(), v1.Normalize([0.5, 0.5], [1, 1])], "neither one value nor three"),
    ([v1.ToTensor(), v1.Normalize([0.5], [0.0])], "has a zero"),
    ([v1.ToTensor(), v1.ConvertImageDtype(torch.uint8)], "back to uint8"),
    ([v2.ToImage(), v2.ToDtype(torch.float64)], "float64"),
    ([v2.ToImage(), v2.ToDtype(torch.bfloat16), v2.ToDtype(torch.float32)], "float32 behind bfloat16"),
    ([v2.ToImage(), v2.ToDtype(torch.float16), v2.Normalize([0.5], [1e-9])], "a zero in float16"),
    ([v2.ToImage(), v2.ToDtype({tv_tensors.Image: torch.float32, "others": None})], "a dtype for each type"),
    (v2.ToDtype(torch.float32), "no tensor yet"),
]

JITTER = v1.ColorJitter(0.4, 0.4, 0.4, 0.1)
REFUSED += [
    ([v1.ToTensor(), JITTER], "step 2, ColorJitter: a step of uint8 pixels on float pixels"),
    ([v2.ToImage(), v2.RandomAdjustSharpness(2)], "sharpness of a tensor"),
    ([JITTER, v1.Resize(9)], "step 2, Resize: a change of size behind a step of pixels"),
    ([v1.RandomGrayscale(), v1.CenterCrop(9)], "a change of size behind a step of pixels"),
    ([v1.ToTensor(), v1.RandomErasing(), v1.Pad(1)], "a change of size behind a step of pixels"),
    (changed(v1.Grayscale(), num_output_channels=2), "num_output_channels 2"),
    (changed(v1.RandomPosterize(4), bits=0), "bits 0"),
    (changed(v1.RandomPosterize(4), bits=9), "bits 9"),
    ([v1.PILToTensor(), v1.RandomSolarize(300)], "threshold 300.0 on a tensor"),
    (changed(v1.RandomSolarize(4), threshold="4"), "threshold '4'"),
    (changed(v1.RandomAdjustSharpness(4), sharpness_factor=-1), "sharpness_factor -1.0"),
    (changed(v1.ColorJitter(), brightness=(0.5, 0.1)), "brightness (0.5, 0.1)"),
    (changed(v1.ColorJitter(), hue=(0.1, 0.6)), "hue (0.1, 0.6)"),
    (changed(v1.ColorJitter(), hue=0.1), "hue 0.1"),
    (changed(v1.GaussianBlur(3), kernel_size=(3, 4)), "kernel_size (3, 4)"),
    (changed(v1.GaussianBlur(3), sigma=(0.0, 1.0)), "sigma (0.0, 1.0) reaches 0"),
    (v1.RandomErasing(), "RandomErasing: the picture is no tensor yet"),
    ([v1.ToTensor(), v1.RandomErasing(value=(1, 2))], "neither one number nor three"),
    ([v1.PILToTensor(), v1.RandomErasing(value=256)], "for uint8 pixels"),
    ([v1.Grayscale(), v1.ToTensor(), v1.RandomErasing(value=(1, 2, 3))], "for 1 channels"),
    ([v1.Grayscale(), v1.ToTensor(), v1.Normalize(*IMAGENET)], "three values for one channel"),
    (changed(v2.RandomErasing(), ratio=(0.1, 1.0)), "ratio was changed"),
    ([v1.ToTensor(), changed(v1.RandomErasing(), ratio=(0.0, 1.0))], "reaches 0"),
    (v1.RandomApply([v1.Grayscale()]), "RandomApply: Grayscale inside it"),
    (v1.RandomApply([v1.Lambda(abs)]), "not known"),
    (v1.RandomApply([batch_op(abs)]), "BatchOp inside it"),
    (
        [v1.PILToTensor(), v1.RandomApply([v1.RandomAdjustSharpness(2)])],
        "RandomApply: RandomAdjustSharpness inside it: sharpness of a tensor",
    ),
    ([v1.ToTensor(), batch_op(abs)], "a step of uint8 pixels on float pixels"),
]


@pytest.mark.parametrize(("transform", "reason"), REFUSED, ids=[reason for _, reason in REFUSED])
def test_refused_with_a_reason(transform, reason):
    found = compile_transform(transform)
    assert isinstance(found, Unsupported), found
    assert reason in found.reason


def test_a_patched_class_or_a_global_hook_is_refused(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(v1.Resize, "forward", lambda _self, picture: picture)
        assert "its forward was replaced" in compile_transform(v1.Resize(9)).reason
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert "hooks are set for all modules" in compile_transform(v1.Resize(9)).reason
    finally:
        handle.remove()
    assert isinstance(compile_transform(v1.Resize(9)), Plan)


def test_another_default_dtype_is_refused():
    torch.set_default_dtype(torch.float64)
    try:
        assert "default dtype" in compile_transform(v1.ToTensor()).reason
    finally:
        torch.set_default_dtype(torch.float32)


def test_parameters_are_read_anew(compiled):
    transform = v1.Compose([v1.Resize(9), v1.CenterCrop(5)])
    before = compiled(transform)
    transform.transforms[0].size = 11
    assert compiled(transform) != before


def test_flips_and_crops_of_a_tensor_are_those_of_the_picture(compiled, make_picture, render):
    transform = v1.Compose(
        [v1.Resize(30), v1.ToTensor(), v1.RandomHorizontalFlip(1.0), v1.CenterCrop(24), v1.Normalize(*IMAGENET)]
    )
    plan = compiled(transform)
    picture = make_picture(50, 40)
    levels = np.stack([plan.levels[c][render(plan, picture)[:, :, c]] for c in range(3)])
    assert (levels == transform(picture).numpy()).all()


def test_padding_after_totensor_is_black(compiled, make_picture, render):
    transform = v1.Compose([v1.ToTensor(), v1.Pad(3), v1.Normalize(*IMAGENET)])
    plan = compiled(transform)
    picture = make_picture(20, 10)
    levels = np.stack([plan.levels[c][render(plan, picture)[:, :, c]] for c in range(3)])
    assert (levels == transform(picture).numpy()).all()


def test_works_without_torch_and_torchvision():
    code = (
        "import sys; sys.modules['torchvision'] = sys.modules['torch'] = None\n"
        "from fastdata.transforms import compile_transform\n"
        "assert compile_transform(None).dtype == 'uint8'\n"
        "assert 'not known' in compile_transform(print).reason\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
