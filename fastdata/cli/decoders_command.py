"""``fastdata decoders``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``decoders`` understands."""
    parser.add_argument("--json", action="store_true", help="print the table as JSON")


def run(args: argparse.Namespace) -> int:
    """Print which decoders are here, at which version, and what would install the others."""
    from fastdata.decoding.facade import decoders

    rows = decoders()
    if args.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return 0
    for row in rows:
        state = f"{row.version} ({row.library})" if row.installed else f"not installed: {row.install}"
        print(f"{row.name:12} {state}")
        if row.reason:
            print(f"{'':12} {row.reason}")
    return 0
