"""``fastdata pack SRC... DST``."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastdata.converters.appending import AppendReport
    from fastdata.converters.report import PackReport

__all__ = ["add_arguments", "run"]

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``pack`` understands."""
    parser.description = (
        "Pack folders of images (a class per folder, or flat), CSV/TSV/JSONL manifests or other packs into one pack. "
        "The ending of DST says the format: .lmdb, .h5, .hdf5 or .tar. Nothing is written into SRC."
    )
    parser.add_argument("src", nargs="*", metavar="SRC", help="folder, manifest or pack; several are joined")
    parser.add_argument("dst", metavar="DST", help="out.lmdb, out.h5, out.tar or 'out-{000000..}.tar'")
    parser.add_argument("--manifest", metavar="FILE", help="pack what this CSV, TSV or JSONL lists, relative to SRC")
    parser.add_argument("--label-column", metavar="NAME", help="the manifest's column that is the label, not 'label'")
    _add_pixels(parser)
    _add_choice(parser)
    _add_running(parser)


def _add_pixels(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("pictures")
    group.add_argument("--resize", type=_size, metavar="N", help="pixels, or WIDTHxHEIGHT for exact, crop and pad")
    group.add_argument("--resize-mode", choices=("shorter", "longer", "exact", "crop", "pad"), help="default: shorter")
    group.add_argument("--upscale", action="store_true", default=None, help="enlarge smaller pictures, too")
    group.add_argument(
        "--filter", choices=("bicubic", "bilinear", "lanczos", "box", "hamming"), help="default: bicubic"
    )
    group.add_argument(
        "--fidelity", choices=("exact", "fast"),
        help="fast: decode JPEGs smaller first, never below twice the target; default: exact (Pillow's pixels)",
    )  # fmt: skip
    group.add_argument(
        "--codec", choices=("keep", "jpeg", "png", "webp", "bmp", "raw"),
        help="default: keep (bytes as they are where nothing changes, else JPEG)",
    )  # fmt: skip
    group.add_argument("--quality", type=int, metavar="1..100", help="of JPEG and WebP; default: 90")
    group.add_argument("--subsampling", choices=("4:2:0", "4:2:2", "4:4:4"), help="of JPEG's colours; default: 4:2:0")
    group.add_argument(
        "--restart-rows", type=int, metavar="N",
        help="a restart marker after N rows of a JPEG's blocks: for crops much smaller than their photographs",
    )  # fmt: skip
    group.add_argument(
        "--restart-blocks", type=_blocks, metavar="N|auto",
        help="the same after about N blocks, so that columns can be passed over, too; auto: about 8",
    )  # fmt: skip
    group.add_argument("--mode", choices=("RGB", "L"), help="colours or grey; default: RGB")
    group.add_argument(
        "--background", type=_colour, metavar="COLOUR", help="#rrggbb or r,g,b under alpha; default: white"
    )
    group.add_argument("--orientation", choices=("apply", "keep"), help="EXIF orientation; default: apply")
    group.add_argument(
        "--accept-truncated", action="store_true", default=None,
        help="take JPEGs that end too early, the missing part grey; the report names them",
    )  # fmt: skip
    group.add_argument("--max-pixels", type=_count, metavar="N", help="skip larger pictures; default: 178M; 'none'")


def _add_choice(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("which, and in what order")
    group.add_argument("--shuffle", action="store_true", default=None, help="store the samples in a shuffled order")
    group.add_argument("--seed", type=int, metavar="S", help="of the shuffled order; default: 0")
    group.add_argument("--limit", type=int, metavar="N", help="only N samples, for a try")
    group.add_argument("--on-error", choices=("skip", "raise"), help="what a broken file does; default: skip")
    group.add_argument("--on-duplicate", choices=("raise", "skip"), help="equal members of a tar; default: raise")
    group.add_argument("--max-errors", type=_share, metavar="SHARE", help="fail above this share; default: 5%%")


def _add_running(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("running")
    group.add_argument("--workers", type=int, metavar="N", help="processes; default: all usable cores")
    group.add_argument(
        "--worker-timeout", type=_seconds, metavar="S", help="stop a worker stuck for S seconds; default: 600; 'none'"
    )
    group.add_argument(
        "--resume", action="store_true", default=None,
        help="keep finished work in DST.resume until the pack is whole, and go on with what a run before kept there",
    )  # fmt: skip
    group.add_argument("--append", action="store_true", help="add SRC to the pack that lies at DST, by its options")
    group.add_argument("--field", metavar="NAME", help="with --append: SRC's files become this field of equal keys")
    group.add_argument("--overwrite", action="store_true", default=None, help="replace what lies at DST")
    group.add_argument("--subdir", action="store_true", default=None, help="LMDB as a folder with data.mdb")
    group.add_argument("--shard-size", type=_bytes, metavar="BYTES", help="split a tar set by size: 500M, 1G")
    group.add_argument("--shards", type=int, metavar="N", help="split a tar set into N files")
    group.add_argument("--json", action="store_true", help="print the summary as JSON")
    group.add_argument("--quiet", action="store_true", help="no progress")


def run(args: argparse.Namespace) -> int:
    """Pack, show progress on stderr, print the summary on stdout."""
    from fastdata.cli.pack_progress import progress_bar
    from fastdata.cli.stopping import stoppable
    from fastdata.converters.packing import pack

    names = (
        "resize", "resize_mode", "upscale", "filter", "fidelity", "codec", "quality", "subsampling", "restart_rows",
        "restart_blocks", "mode", "background", "accept_truncated",
        "orientation", "shuffle", "seed", "limit", "on_error", "on_duplicate", "max_errors", "workers", "resume",
        "overwrite", "subdir", "shard_size", "shards",
    )  # fmt: skip
    options = {name: value for name in names if (value := getattr(args, name)) is not None}
    if args.max_pixels is not None:
        options["max_pixels"] = args.max_pixels or None
    if args.worker_timeout is not None:
        options["worker_timeout"] = args.worker_timeout or None
    if args.append or args.field is not None:
        return _append(args, options)
    sources = {"manifest": args.manifest, "label_column": args.label_column}
    with stoppable(args.dst, resume=args.resume), progress_bar(quiet=args.quiet) as progress:
        report = pack(args.src, args.dst, **sources, progress=progress, **options)
    _print(report, as_json=args.json)
    return 0


def _append(args: argparse.Namespace, options: dict[str, Any]) -> int:
    from fastdata.cli.stopping import stoppable
    from fastdata.converters.appending import append
    from fastdata.errors import OptionError

    if not args.append:
        msg = "--field needs --append: it adds a field to the samples of the pack that lies at DST"
        raise OptionError(msg)
    if args.overwrite or args.resume:
        other = "--overwrite, which would replace the pack" if args.overwrite else "--resume, which has no work to keep"
        msg = f"--append adds to the pack that lies at DST, so it does not go with {other}: give one of them"
        raise OptionError(msg)
    with stoppable(args.dst, resume=False):
        sources = {"manifest": args.manifest, "label_column": args.label_column}
        report = append(args.dst, args.src, field=args.field, **sources, **options)
    _print(report, as_json=args.json)
    return 0


def _print(report: PackReport | AppendReport, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(report.to_dict(), indent=2))
        return
    encoding = sys.stdout.encoding or "utf-8"
    for line in report.lines():  # names of files may hold what the terminal cannot show
        print(line.encode(encoding, "backslashreplace").decode(encoding))


def _blocks(text: str) -> int | str:
    try:
        return "auto" if text == "auto" else int(text)
    except ValueError as error:
        msg = f"{text!r}: expected a whole number, or auto"
        raise argparse.ArgumentTypeError(msg) from error


def _size(text: str) -> int | tuple[int, int]:
    width, cross, height = text.lower().partition("x")
    try:
        return (int(width), int(height)) if cross else int(text)
    except ValueError as error:
        msg = f"{text!r}: expected pixels, as 256, or WIDTHxHEIGHT, as 320x240"
        raise argparse.ArgumentTypeError(msg) from error


def _colour(text: str) -> tuple[int, ...]:
    from PIL import ImageColor

    try:
        if "," in text:
            return tuple(int(value) for value in text.split(","))
        return ImageColor.getrgb(text)[:3]
    except ValueError as error:
        msg = f"{text!r}: expected #rrggbb, a name, or r,g,b"
        raise argparse.ArgumentTypeError(msg) from error


def _bytes(text: str) -> int:
    number = text.strip().lower().removesuffix("b")
    digits = number.rstrip("kmgti")
    try:
        return int(float(digits) * _UNITS[number[len(digits) :]])
    except (KeyError, ValueError) as error:
        msg = f"{text!r}: expected bytes, as 500M, 1G or 1GiB"
        raise argparse.ArgumentTypeError(msg) from error


def _count(text: str) -> int:
    """Return a number of pixels; 0 stands for no limit."""
    return 0 if text.lower() == "none" else _bytes(text)


def _seconds(text: str) -> float:
    """Return seconds; 0 stands for no limit."""
    try:
        return 0.0 if text.lower() == "none" else float(text)
    except ValueError as error:
        msg = f"{text!r}: expected seconds, or none"
        raise argparse.ArgumentTypeError(msg) from error


def _share(text: str) -> float:
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError as error:
        msg = f"{text!r}: expected a share, as 0.05 or 5%"
        raise argparse.ArgumentTypeError(msg) from error
