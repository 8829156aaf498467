"""``fastdata inspect PACK``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments", "run"]

_NAMED = 20  # classes that are listed; --json has all


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``inspect`` understands."""
    parser.add_argument("pack", metavar="PACK", help="a pack, a folder or a manifest")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def run(args: argparse.Namespace) -> int:
    """Print what a pack holds."""
    from fastdata.converters.inspecting import describe
    from fastdata.stores.opener import open_store

    with open_store(args.pack) as store:
        facts = describe(store)
    if args.json:
        print(json.dumps(facts, indent=2))
    else:
        _print_table(facts)
    return 0


def _print_table(facts: dict[str, Any]) -> None:
    counts = facts.pop("class_counts", None)
    classes = facts.pop("classes")
    for name, value in facts.items():
        if value is not None and value != {}:
            print(f"{name:15} {_text(value)}")
    print(f"{'classes':15} {len(classes)}")
    for number, name in enumerate(classes[:_NAMED]):
        count = f"{counts[name]:>8} samples" if counts else ""
        print(f"  {number:>5} {name.encode(errors='backslashreplace').decode():30} {count}")
    if len(classes) > _NAMED:
        print(f"  ... and {len(classes) - _NAMED} more (--json lists all)")


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_text(v)}" for k, v in value.items() if v is not None)
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return f"{value:.4f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
