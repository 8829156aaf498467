"""`fastdata sample DIR`: draw a set of labelled pictures to try everything with."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.description = "Draw labelled sample pictures, photograph-like in size and weight, one folder a class."
    parser.add_argument("folder", metavar="DIR", help="where the class folders go; must be empty or not there yet")
    parser.add_argument("--count", type=int, default=300, help="pictures in all (default %(default)s)")
    parser.add_argument("--classes", type=int, default=4, help="classes, 2 to 8 (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="the same seed draws the same pictures (default 0)")
    parser.add_argument(
        "--size", type=_size, default=(500, 375), metavar="WxH", help="a middling picture's size (default 500x375)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the pictures of an earlier sample")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")


def run(args: argparse.Namespace) -> int:
    """Draw the set and say what was drawn; 0 when done."""
    from fastdata.sample import draw_samples

    report = draw_samples(
        args.folder,
        count=args.count,
        classes=args.classes,
        seed=args.seed,
        size=args.size,
        overwrite=args.overwrite,
    )
    if args.json:
        json.dump(asdict(report), sys.stdout)
        print()
    else:
        print(
            f"{report.pictures} pictures in {len(report.classes)} classes ({', '.join(report.classes)}), "
            f"{report.bytes / 1e6:.1f} MB: {report.folder}"
        )
    return 0


def _size(text: str) -> tuple[int, int]:
    width, cross, height = text.lower().partition("x")
    if not (cross and width.isdecimal() and height.isdecimal()):
        msg = f"{text!r} is no size; write WIDTHxHEIGHT in pixels, as 500x375"
        raise argparse.ArgumentTypeError(msg)
    return int(width), int(height)
