"""``fastdata verify PACK``."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``verify`` understands."""
    parser.add_argument("pack", metavar="PACK", help="a pack")
    parser.add_argument("--decode", action="store_true", default=True, help="decode every picture, too (the default)")
    parser.add_argument("--no-decode", action="store_false", dest="decode", help="compare checksums only")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def run(args: argparse.Namespace) -> int:
    """Check every byte of a pack; 1 if anything is not what was packed."""
    from fastdata.converters.verifying import verify

    report = verify(args.pack, decode=args.decode)
    if args.json:
        print(json.dumps(report.to_dict(), indent=2))
    else:
        for line in report.lines():
            print(line.encode(errors="backslashreplace").decode(), file=sys.stdout if report.ok else sys.stderr)
    return 0 if report.ok else 1
