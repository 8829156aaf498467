"""``fastdata unpack PACK DIR``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``unpack`` understands."""
    parser.add_argument("pack", metavar="PACK", help="a pack")
    parser.add_argument("dir", metavar="DIR", help="the folder to write to; made if need be")
    parser.add_argument("--overwrite", action="store_true", help="replace files that are there already")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N samples")


def run(args: argparse.Namespace) -> int:
    """Write the files of a pack into a folder."""
    from fastdata.converters.unpacking import unpack

    report = unpack(args.pack, args.dir, overwrite=args.overwrite, limit=args.limit)
    extra = " and metadata.jsonl" if report.metadata else ""
    print(f"unpacked {report.samples} samples into {report.dst}: {report.files} files{extra}")
    if report.no_folder:
        named = ", ".join(report.no_folder[:3]) + (", ..." if len(report.no_folder) > 3 else "")  # noqa: PLR2004
        count = len(report.no_folder)
        text = f"{count} classes have no samples here and no folder, so the folders number others: {named}"
        print(text.encode(errors="backslashreplace").decode())
    return 0
