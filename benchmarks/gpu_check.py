"""Check the CUDA prefetcher on this machine in one call of at most four minutes, and print one JSON object.

    python benchmarks/gpu_check.py            # everything; without CUDA: {"cuda": false}, exit code 0
    python benchmarks/gpu_check.py --device cpu --steps 20 --batch 8   # the same code on the CPU, to try it out

Three parts: the tests marked ``cuda``; FastLoader's batches on the device against the same batches on the CPU, by
checksum, with stalls on the side stream and pressure on the allocator; and what a training step takes with the loader,
over what it takes with its batch on the device already. The exit code is 1 when a test or a checksum fails.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torchvision import transforms

from fastdata.converters import pack
from fastdata.loader import FastLoader
from fastdata.prefetch import CudaPrefetcher
from fastdata.sample import draw_samples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TEST_SECONDS = 110
SLEEP = 300_000  # clock cycles, some 0.2 ms
PICTURES = 256
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
WARM_UP = 10  # steps: cudnn chooses, the allocator fills


@dataclass(frozen=True, slots=True)
class Setup:
    """Where to measure, and how much: steps of the checksums, steps and batch size of the overlap."""

    device: str
    pictures: str
    steps: int
    timed_steps: int
    batch: int


def main() -> int:
    """Run the parts, print the JSON, return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=2000, help="steps compared by checksum (2000)")
    parser.add_argument("--timed-steps", type=int, default=100, help="training steps measured, each way (100)")
    parser.add_argument("--batch", type=int, default=256, help="batch size of the training step (256)")
    parser.add_argument("--out", type=Path, help="write the JSON here, too")
    args = parser.parse_args()
    result: dict[str, Any]
    if args.device != "cpu" and not torch.cuda.is_available():
        result = {"cuda": False, "why": "torch finds no CUDA device; nothing was checked", "torch": torch.__version__}
    else:
        result = _check(args)
    text = json.dumps(result, indent=1)
    print(text)
    if args.out:
        args.out.write_text(text + "\n")
    return 0 if result.get("ok", True) else 1


def _check(args: argparse.Namespace) -> dict[str, Any]:
    started = time.perf_counter()
    on_cuda = args.device != "cpu"
    result: dict[str, Any] = {"cuda": on_cuda, "machine": _machine(on_cuda=on_cuda)}
    with tempfile.TemporaryDirectory() as folder:
        draw_samples(Path(folder, "images"), count=PICTURES, size=(340, 280))
        pack(Path(folder, "images"), Path(folder, "pictures.lmdb"), resize=256)
        setup = Setup(args.device, str(Path(folder, "pictures.lmdb")), args.steps, args.timed_steps, args.batch)
        parts: dict[str, Callable[[Setup], dict[str, Any]]] = {"checksums": checksums, "overlap": overlap}
        if on_cuda:
            parts = {"tests": run_tests, **parts}
        for name, part in parts.items():
            begun = time.perf_counter()
            result[name] = part(setup) | {"seconds": round(time.perf_counter() - begun, 2)}
    result["seconds"] = round(time.perf_counter() - started, 2)
    result["ok"] = all(result[name].get("ok", True) for name in parts)
    return result


def _machine(*, on_cuda: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {"python": platform.python_version(), "torch": torch.__version__}
    if on_cuda:
        found = torch.cuda.get_device_properties(0)
        facts |= {"gpu": found.name, "gpus": torch.cuda.device_count(), "cuda": torch.version.cuda}
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        facts |= {"cpu": models[0] if models else "", "cores": len(models)}
    return facts


def run_tests(_: Setup) -> dict[str, Any]:
    """Run pytest -m cuda beside this process."""
    command = [sys.executable, "-m", "pytest", "-m", "cuda", "-q", "tests"]
    root = Path(__file__).resolve().parents[1]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=TEST_SECONDS, check=False)
    except subprocess.TimeoutExpired as late:
        return {"ok": False, "why": f"not done after {TEST_SECONDS} s", "tail": str(late.stdout)[-2000:]}
    lines = done.stdout.strip().splitlines()
    result = {"ok": done.returncode == 0, "summary": lines[-1] if lines else ""}
    return result if result["ok"] else result | {"tail": (done.stdout + done.stderr)[-4000:]}


def _synchronize(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def _loader(setup: Setup, batch: int, device: str, transform: Callable[[Any], Any]) -> FastLoader:
    return FastLoader(
        setup.pictures, batch_size=batch, shuffle=True, drop_last=True, transform=transform, device=device, seed=0
    )


def _endless(loader: FastLoader) -> Iterator[Any]:
    while True:
        yield from loader


def _sum(images: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return (images.to(torch.int64) * weights).sum() + labels.sum()  # integers: the same in every order


def checksums(setup: Setup) -> dict[str, Any]:
    """Compare each batch on the device with the CPU's, while streams stall and memory is short-lived."""
    size, batch, rng = 64, 16, random.Random(0)  # noqa: S311  a schedule
    transform = transforms.Compose([transforms.RandomResizedCrop(size), transforms.PILToTensor()])
    on_cuda = setup.device != "cpu"
    weights = torch.arange(1, batch * 3 * size * size + 1).reshape(batch, 3, size, size)
    here, there = weights, weights.to(setup.device)
    sums = torch.zeros(setup.steps, dtype=torch.int64, device=setup.device)
    kept: list[torch.Tensor] = []

    def stall(sample: Any) -> Any:  # noqa: ANN401  on the side stream: what is read here was copied before
        if on_cuda and rng.random() < 0.3:  # noqa: PLR2004
            torch.cuda._sleep(SLEEP)  # type: ignore[no-untyped-call]  # noqa: SLF001
        kept.append(torch.full((rng.randrange(1, 1 << 20),), 255, dtype=torch.uint8, device=setup.device))
        del kept[: rng.randrange(len(kept))]
        return [sample[0] + 0, sample[1]]

    _synchronize(setup.device)
    pinned = FastLoader(
        setup.pictures,
        batch_size=batch,
        shuffle=True,
        drop_last=True,
        transform=transform,
        pin_memory=on_cuda,
        seed=0,
    )
    source = (entry for _, entry in zip(range(setup.steps), _endless(pinned), strict=False))
    for step, (images, labels) in enumerate(CudaPrefetcher(source, setup.device, stall)):
        sums[step] = _sum(images, labels, there)
    _synchronize(setup.device)
    expected = zip(range(setup.steps), _endless(_loader(setup, batch, "cpu", transform)), strict=False)
    reference = torch.stack([_sum(images, labels, here) for _, (images, labels) in expected])
    equal = int((sums.cpu() == reference).sum())
    return {"ok": equal == setup.steps, "steps": setup.steps, "equal": equal}


def overlap(setup: Setup) -> dict[str, Any]:
    """Measure a training step with AMP: with the loader, with one batch on the device; and the loader alone."""
    transform = transforms.Compose(
        [
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )
    loader = _loader(setup, min(setup.batch, PICTURES), setup.device, transform)
    step = _step(setup.device)
    batches = _endless(loader)
    first = next(batches)
    for _ in range(WARM_UP if setup.device != "cpu" else 1):
        step(*next(batches)[:2])
    times: dict[str, list[float]] = {"loader": [], "resident": []}
    waited = 0.0
    for _ in range(2):  # interleaved: what drifts, drifts for both
        spent, wait = _time_steps(setup, step, batches)
        times["loader"].append(spent)
        waited += wait
        times["resident"].append(_time_steps(setup, step, _same(first))[0])
    begun = time.perf_counter()
    for _ in range(setup.timed_steps):
        next(batches)
    _synchronize(setup.device)
    alone = (time.perf_counter() - begun) / setup.timed_steps
    loader.close()
    with_loader, resident = (statistics.mean(times[name]) for name in ("loader", "resident"))
    return {
        "batch": len(first[0]),
        "step_ms_resident": round(resident * 1e3, 3),
        "step_ms_with_loader": round(with_loader * 1e3, 3),
        "ratio": round(with_loader / resident, 4),
        "loader_alone_ms": round(alone * 1e3, 3),
        "images_per_s": round(len(first[0]) / with_loader, 1),
        "share_waiting_in_next": round(waited / (2 * setup.timed_steps * with_loader), 4),
        "bound_by": "loader" if alone > resident else "step",
    }


def _same(batch: Any) -> Iterator[Any]:  # noqa: ANN401
    while True:
        yield batch


def _time_steps(setup: Setup, step: Callable[..., None], batches: Iterator[Any]) -> tuple[float, float]:
    """Return the seconds of one step, and the seconds that next() took in all of them."""
    _synchronize(setup.device)
    waited, begun = 0.0, time.perf_counter()
    for _ in range(setup.timed_steps):
        asked = time.perf_counter()
        images, labels = next(batches)[:2]
        waited += time.perf_counter() - asked
        step(images, labels)
    _synchronize(setup.device)
    return (time.perf_counter() - begun) / setup.timed_steps, waited


def _step(device: str) -> Callable[[torch.Tensor, torch.Tensor], None]:
    """Return a training step of a ResNet: 50 layers and fp16 on CUDA, 18 and bf16 on the CPU."""
    from torchvision import models

    on_cuda = device != "cpu"
    model = (models.resnet50() if on_cuda else models.resnet18()).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    scaler = torch.amp.GradScaler(device, enabled=on_cuda)
    torch.backends.cudnn.benchmark = True

    def step(images: torch.Tensor, labels: torch.Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.float16 if on_cuda else torch.bfloat16):
            output = model(images.contiguous(memory_format=torch.channels_last))
            loss = torch.nn.functional.cross_entropy(output, labels)
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        scaler.step(optimizer)
        scaler.update()

    return step


if __name__ == "__main__":
    sys.exit(main())
