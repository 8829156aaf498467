"""`fastdata train PACK`: train a classifier from a pack, with AMP, and print images/s, loss and time spent waiting."""

from __future__ import annotations

import os
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from fastdata.errors import BackendMissingError, OptionError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    import torch

    from fastdata.loader import FastLoader
    from fastdata.stores.store import Store
    from fastdata.train import Progress, Scores, TrainOptions

__all__ = ["add_arguments", "run"]

# RandomResizedCrop keeps at least this share of the picture: short runs learn faster than with torchvision's 0.08
# (FFCV's ResNet recipes use 0.25 to 0.35).
_MIN_CROP = 0.35

# Fewer images than this make few steps an epoch at 256 a batch: the defaults are those of the small model then.
_LARGE_SET = 5000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.description = "Train a classifier from a pack; without --epochs or --steps, one epoch."
    parser.add_argument("pack", metavar="PACK", help="what to train on: a pack or an image folder")
    parser.add_argument("--val", metavar="PACK", help="what to evaluate on after each epoch")
    parser.add_argument(
        "--model", help="small, or a model of torchvision (default: small; resnet50 for 5000 images and more on CUDA)"
    )
    parser.add_argument("--epochs", type=int, default=1, help="epochs (default %(default)s)")
    parser.add_argument("--steps", type=int, help="optimizer steps in all, instead of epochs")
    parser.add_argument(
        "--batch-size", type=int, help="images in a batch (default: 32; 256 where the default is resnet50)"
    )
    parser.add_argument("--size", type=int, help="side of the crops in pixels (default: 128, or 224 likewise)")
    parser.add_argument("--lr", type=float, help="peak rate (default: in proportion to the images of an update)")
    parser.add_argument("--schedule", choices=["onecycle", "cosine", "constant"], default="onecycle")
    parser.add_argument("--warmup", type=int, default=0, help="steps of rising rate for cosine and constant")
    parser.add_argument("--weight-decay", type=float, default=5e-5)
    parser.add_argument("--label-smoothing", type=float, default=0.0)
    parser.add_argument("--accumulate", type=int, default=1, help="batches for one update (default 1)")
    parser.add_argument("--clip", type=float, help="largest norm of the gradients")
    parser.add_argument("--amp", choices=["auto", "fp16", "bf16", "off"], default="auto", help="precision")
    parser.add_argument(
        "--workers", type=int, help="decoding threads (default: all usable cores; a quarter on the CPU)"
    )
    parser.add_argument("--device", help="cuda, cuda:1, cpu (default: cuda where there is one)")
    parser.add_argument("--seed", type=int, default=0, help="same seed, same order, crops and first weights")
    parser.add_argument(
        "--report-every", type=int, metavar="STEPS", help="steps between two lines (default 10, or 4 lines)"
    )
    parser.add_argument("--checkpoint", metavar="FILE", help="save the state here after each epoch and at the end")
    parser.add_argument("--resume", action="store_true", help="go on from --checkpoint")


def run(args: argparse.Namespace) -> int:
    """Train, and print as it goes; 0 when done."""
    import torch

    from fastdata.stores.opener import open_store
    from fastdata.train import Trainer, build_model, load_checkpoint

    _check(args)
    device = _device(args.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    store = open_store(args.pack)
    classes = _class_count(store)
    _fill_in(args, device, len(store))
    torch.manual_seed(args.seed)
    val = None
    if args.val:
        val_store = open_store(args.val)
        _check_same_classes(store, val_store)
        val = _loader(args, val_store, device, train=False)
    with closing(_loader(args, store, device, train=True)) as batches:
        model = build_model(args.model, classes)
        trainer = Trainer(model, _options(args), device=device, batches_per_epoch=len(batches))
        if args.resume:
            trainer.load_state_dict(load_checkpoint(args.checkpoint))
        print(
            f"{len(store)} images, {classes} classes; {args.model} at {args.size} px, batch {args.batch_size}, "
            f"{trainer.steps} steps on {device}, amp {trainer.amp.precision}"
        )
        printer = _Printer()
        with _threads(args.workers, device):
            trainer.fit(batches, val=val and _WithValid(val), report=printer, checkpoint=args.checkpoint)
        printer.sum_up()
    return 0


def _check(args: argparse.Namespace) -> None:
    for name in ("epochs", "steps", "batch_size", "size", "accumulate", "report_every"):
        value = getattr(args, name)
        if value is not None and value < 1:
            msg = f"--{name.replace('_', '-')} must be 1 or more, not {value}"
            raise OptionError(msg)
    if args.resume and not args.checkpoint:
        msg = "--resume needs --checkpoint FILE: the state to go on from"
        raise OptionError(msg)


def _device(name: str) -> torch.device:
    import torch

    try:
        device = torch.device(name)
    except RuntimeError as error:
        msg = f"--device {name!r} is none that torch knows: cpu, cuda, cuda:1, mps, ..."
        raise OptionError(msg) from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        msg = f"--device {name}: torch finds {torch.cuda.device_count()} CUDA devices here"
        raise OptionError(msg)
    return device


def _fill_in(args: argparse.Namespace, device: torch.device, images: int) -> None:
    """Set what was not asked for: what a GPU is fed with, or what a CPU, or a small set, learns in seconds."""
    from fastdata.engine.cores import usable_cores

    large = device.type == "cuda" and images >= _LARGE_SET
    defaults = ("resnet50", 256, 224) if large else ("small", 32, 128)
    for name, value in zip(("model", "batch_size", "size"), defaults, strict=True):
        if getattr(args, name) is None:
            setattr(args, name, value)
    if args.report_every is None:  # a short run has four lines, too: a loss that falls takes two
        args.report_every = max(1, min(10, (args.steps or 40) // 4))
    if args.workers is None and device.type == "cpu":
        args.workers = max(1, usable_cores() // 4)  # the model needs the others
    if args.lr is None:
        # Linear in the images of an update: Goyal et al., arXiv:1706.02677. FFCV's ResNet-50 recipe has 0.5 for 256;
        # the small model, 0.1 for 32, up to 2.
        images = args.batch_size * args.accumulate
        args.lr = min(2.0, images / 320) if args.model == "small" else images / 512


@contextmanager
def _threads(workers: int | None, device: torch.device) -> Iterator[None]:
    """On the CPU, leave torch the cores that do not decode, unless OMP_NUM_THREADS says how many it is to have.

    OpenMP threads spin while they wait for each other: with one more of them than cores are free, a step of the small
    model took 3 to 15 times as long.
    """
    import torch

    from fastdata.engine.cores import usable_cores

    before = torch.get_num_threads()
    if device.type == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, min(before, usable_cores() - (workers or 0))))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _options(args: argparse.Namespace) -> TrainOptions:
    from fastdata.train import TrainOptions

    return TrainOptions(
        epochs=args.epochs,
        steps=args.steps,
        lr=args.lr,
        weight_decay=args.weight_decay,
        schedule=args.schedule,
        warmup=args.warmup,
        accumulate=args.accumulate,
        clip=args.clip,
        label_smoothing=args.label_smoothing,
        amp=args.amp,
        report_every=args.report_every,
    )


def _loader(args: argparse.Namespace, store: Store, device: torch.device, *, train: bool) -> FastLoader[Any]:
    import torch

    from fastdata.loader import FastLoader

    return FastLoader(
        store,
        batch_size=min(args.batch_size, len(store)) or 1,
        shuffle=train,
        drop_last=train,
        num_workers=args.workers,
        transform=_transform(args.size, store, train=train),
        device=device,
        seed=args.seed,
        memory_format=torch.channels_last,
    )


def _transform(size: int, store: Store, *, train: bool) -> Any:  # noqa: ANN401  torchvision is optional
    try:
        import torch
        from torchvision.transforms import v2
    except ImportError as error:
        msg = "fastdata train takes its transforms from torchvision: pip install 'fastdata-loader[train]'"
        raise BackendMissingError(msg) from error
    # ImageNet's where the pack does not say, as for a folder
    mean, std = store.info.get("mean") or (0.485, 0.456, 0.406), store.info.get("std") or (0.229, 0.224, 0.225)
    if train:
        geometry = [v2.RandomResizedCrop(size, scale=(_MIN_CROP, 1.0), antialias=True), v2.RandomHorizontalFlip()]
    else:
        geometry = [v2.Resize(round(size * 256 / 224), antialias=True), v2.CenterCrop(size)]
    return v2.Compose(
        [*geometry, v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(list(mean), list(std))]
    )


def _class_count(store: Store) -> int:
    labels = store.index.label
    if labels is None or labels.ndim != 1 or labels.dtype.kind not in "iu":
        msg = f"{store.path} has no class numbers to train on: its labels must be one int each"
        raise OptionError(msg)
    if len(store) and int(labels.min()) < 0:
        msg = f"{store.path} has labels below 0 (the smallest is {int(labels.min())}): class numbers start at 0"
        raise OptionError(msg)
    return max(len(store.classes), int(labels.max()) + 1 if len(store) else 0)


def _check_same_classes(train: Store, val: Store) -> None:
    if train.classes != val.classes:
        only = sorted(set(train.classes) ^ set(val.classes))
        msg = f"{train.path} and {val.path} number their classes differently; not in both: {', '.join(only[:8]) or '-'}"
        raise OptionError(msg)
    if _class_count(val) > _class_count(train):
        msg = f"{val.path} has class numbers that {train.path} does not have"
        raise OptionError(msg)


class _WithValid:
    """A loader's batches with the mask of entries that are samples and do not only fill a batch up."""

    def __init__(self, loader: FastLoader[Any]) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[tuple[torch.Tensor, ...]]:
        import torch

        with closing(self._loader):  # its threads are not needed while training goes on
            for images, labels in self._loader:
                last = self._loader.last
                yield (images, labels) if last is None else (images, labels, torch.as_tensor(last.valid))


class _Printer:
    """Prints reports as they come, and sums them up."""

    def __init__(self) -> None:
        self._reports: list[Progress] = []

    def __call__(self, event: Progress | Scores) -> None:
        from fastdata.train import Scores

        if isinstance(event, Scores):
            print(f"  val: accuracy {event.top1:6.1%}, loss {event.loss:.3f} over {event.samples} images", flush=True)
            return
        self._reports.append(event)
        skipped = f", {event.skipped} updates skipped" if event.skipped else ""
        print(
            f"step {event.step:5d}/{event.steps}  epoch {event.epoch:3d}  loss {event.loss:.3f}  lr {event.lr:.4f}  "
            f"{event.images_per_second:7.0f} images/s  waiting {event.waiting:4.0%}{skipped}",
            flush=True,
        )

    def sum_up(self) -> None:
        """Print the whole run in a line."""
        if not self._reports:
            print("nothing left to train: the checkpoint is at the last step")
            return
        images, seconds = sum(r.images for r in self._reports), sum(r.seconds for r in self._reports)
        waited = sum(r.waiting * r.seconds for r in self._reports)
        first, last = self._reports[0].loss, self._reports[-1].loss
        print(
            f"{images} images in {seconds:.1f} s: {images / seconds:.0f} images/s, {waited / seconds:.0%} of the time "
            f"waiting for data; loss {first:.3f} -> {last:.3f}"
        )
