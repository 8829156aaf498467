"""``fastdata repair PACK OUT``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``repair`` understands."""
    parser.add_argument("pack", metavar="PACK", help="a damaged pack; nothing is written to it")
    parser.add_argument("out", metavar="OUT", help="the new pack; its ending says the format")
    parser.add_argument("--overwrite", action="store_true", help="replace what lies at OUT")
    parser.add_argument("--no-decode", action="store_true", help="go by checksums only")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def run(args: argparse.Namespace) -> int:
    """Save what is good, and name what is not; 1 if anything was lost."""
    from fastdata.converters.repairing import repair

    report = repair(args.pack, args.out, overwrite=args.overwrite, decode=not args.no_decode)
    if args.json:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        for line in report.lines():
            print(line.encode(errors="backslashreplace").decode())
    return 0 if report.whole else 1
