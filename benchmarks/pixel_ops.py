"""Microseconds that pixel steps take for one picture, beside torchvision on PIL images: processor time of one thread.

    python benchmarks/pixel_ops.py [--side 224] [--json FILE]

Ours: the whole batch function without decoding, uint8 to uint8, that is, draws as in the engine and steps in place.
Theirs: the transform on a PIL image, without the conversions from and to tensors, torch with one thread.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torchvision import transforms as v1

from fastdata.transforms import compile_transform, draw
from fastdata.transforms.pixel_road import fill
from fastdata.transforms.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Callable

_COUNT = 16
_SECONDS = 0.4


def steps() -> dict[str, Any]:
    """Return what is measured, by name."""
    jitter = v1.ColorJitter(0.4, 0.4, 0.4, 0.1)
    return {
        "Grayscale(3)": v1.Grayscale(3),
        "RandomInvert(1)": v1.RandomInvert(1.0),
        "ColorJitter brightness": v1.ColorJitter(0.4),
        "ColorJitter contrast": v1.ColorJitter(contrast=0.4),
        "ColorJitter saturation": v1.ColorJitter(saturation=0.4),
        "ColorJitter hue": v1.ColorJitter(hue=0.1),
        "ColorJitter(0.4, 0.4, 0.4)": v1.ColorJitter(0.4, 0.4, 0.4),
        "ColorJitter(0.4, 0.4, 0.4, 0.1)": jitter,
        "GaussianBlur(9)": v1.GaussianBlur(9),
        "GaussianBlur(23)": v1.GaussianBlur(23),
        "RandomAutocontrast(1)": v1.RandomAutocontrast(1.0),
        "RandomEqualize(1)": v1.RandomEqualize(1.0),
        "RandomAdjustSharpness(1.5, 1)": v1.RandomAdjustSharpness(1.5, 1.0),
        "SimCLR": [v1.RandomApply([jitter], 0.8), v1.RandomGrayscale(0.2), v1.RandomApply([v1.GaussianBlur(23)], 0.5)],
        "TrivialAugmentWide": v1.TrivialAugmentWide(),
        "RandAugment": v1.RandAugment(),
        "AutoAugment": v1.AutoAugment(),
    }


def pictures(side: int) -> np.ndarray[Any, Any]:
    """Return _COUNT smooth pictures with edges and a little noise, uint8 (n, side, side, 3)."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:side, :side] / side
    made = [
        np.stack([np.sin(x * rng.uniform(3, 30) + y * rng.uniform(3, 30)) * 90 + 128 for _ in range(3)], axis=2)
        + ((x * 9).astype(int) % 2)[:, :, None] * 20
        + rng.normal(0, 6, (side, side, 3))
        for _ in range(_COUNT)
    ]
    return np.clip(made, 0, 255).astype(np.uint8)


def microseconds(run: Callable[[int], None]) -> float:
    """Return the processor time of ``run`` for one picture: the best of rounds over _COUNT pictures each."""
    run(0)
    best, end, number = float("inf"), time.thread_time() + _SECONDS, 1
    while time.thread_time() < end or number < 4:  # noqa: PLR2004  three rounds at least
        start = time.thread_time()
        run(number)
        best = min(best, time.thread_time() - start)
        number += 1
    return best / _COUNT * 1e6


def main() -> None:
    """Measure, print a table, and write the JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    random.seed(0)
    images = pictures(options.side)
    planar = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    as_pil = [Image.fromarray(image) for image in images]
    rows = []
    for name, step in steps().items():
        plan = compile_transform([v1.Resize((options.side, options.side)), step])  # some steps ask for the size
        assert isinstance(plan, Plan)
        theirs_all = v1.Compose(step if isinstance(step, list) else [step])
        memory = np.empty_like(planar)
        out = memory.transpose(0, 2, 3, 1)

        def ours(epoch: int, plan: Plan = plan, out: Any = out) -> None:  # noqa: ANN401
            def decode(to: Any) -> dict[int, Any]:  # noqa: ANN401
                to[...] = out_of
                return {}

            out_of = planar.transpose(0, 2, 3, 1)
            fill(plan, draw(plan, 0, epoch, np.arange(_COUNT)), out, None, decode)

        def theirs(_epoch: int, transform: Callable[[Any], Any] = theirs_all) -> None:
            for image in as_pil:
                transform(image)

        here, there = microseconds(ours), microseconds(theirs)
        rows.append({"step": name, "fastdata_us": here, "torchvision_us": there, "ratio": here / there})
        print(f"{name:34s} {here:9.0f} us {there:9.0f} us   {here / there:5.2f} of torchvision's", flush=True)
    result = {
        "what": f"one picture of {options.side} x {options.side}, one thread",
        "machine": platform.processor() or platform.machine(),
        "versions": {name: version(name) for name in ("numpy", "pillow", "torch", "torchvision")},
        "rows": rows,
    }
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
