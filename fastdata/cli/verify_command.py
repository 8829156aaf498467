"""``fastdata verify PACK``."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``verify`` understands."""
    parser.add_argument("pack", metavar="PACK", help="a pack")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON")


def run(args: argparse.Namespace) -> int:
    """Check every record against its checksum; 1 if any is not what was packed."""
    from fastdata.converters.inspecting import verify
    from fastdata.stores.opener import open_store

    with open_store(args.pack) as store:
        verdict = verify(store)
    if args.json:
        print(json.dumps(asdict(verdict), indent=2))
    else:
        for _, what in verdict.wrong:
            print(what, file=sys.stderr)
        unknown = verdict.samples - verdict.checked - len([key for key, _ in verdict.wrong if key])
        without = f", {unknown} without a checksum" if unknown > 0 else ""
        print(f"{args.pack}: {verdict.checked} of {verdict.samples} records are as packed{without}")
    return 1 if verdict.wrong else 0
