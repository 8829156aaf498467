"""``fastdata bench decode`` and ``fastdata bench load``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastdata.errors import OptionError

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the two benchmarks as sub-commands."""
    kinds = parser.add_subparsers(dest="kind", required=True)
    decode = kinds.add_parser("decode", help="decode backends over the same bytes in memory")
    decode.add_argument("path", metavar="DIR|PACK")
    decode.add_argument("--limit", type=int, default=500, help="images at most (default 500)")
    decode.add_argument("--rounds", type=int, default=5, help="interleaved rounds, after a warm-up (default 5)")
    decode.add_argument("--threads", type=int, help="beside one thread: this many (default: all cores)")
    decode.add_argument("--backend", action="append", metavar="NAME", help="only these (may be given often)")
    load = kinds.add_parser("load", help="FastLoader beside ImageFolder + DataLoader and webdataset")
    load.add_argument("path", metavar="PACK")
    load.add_argument("--batch-size", type=int, default=64)
    load.add_argument("--size", type=int, default=224, help="RandomResizedCrop to this many pixels (default 224)")
    load.add_argument("--rounds", type=int, default=5)
    load.add_argument("--epochs", type=int, default=2, help="epochs of each loader in a round (default 2)")
    load.add_argument("--workers", type=int, help="threads or processes of each loader (default: all cores)")
    load.add_argument("--no-peers", action="store_true", help="FastLoader alone")
    for kind in (decode, load):
        kind.add_argument("--json", action="store_true", help="print the report as JSON")
        kind.add_argument("--output", type=Path, metavar="FILE", help="write the report as JSON to FILE, too")
        kind.add_argument("--plot", type=Path, metavar="PNG", help="draw the rates (needs matplotlib)")


def run(args: argparse.Namespace) -> int:
    """Measure, print, and write what was asked for."""
    _check(args)
    if args.kind == "decode":
        from fastdata.bench.decode_bench import bench_decode

        report = bench_decode(
            args.path, limit=args.limit, rounds=args.rounds, threads=args.threads, backends=args.backend
        )
    else:
        from fastdata.bench.load_bench import bench_load

        report = bench_load(
            args.path, batch_size=args.batch_size, size=args.size, rounds=args.rounds, epochs=args.epochs,
            workers=args.workers, peers=not args.no_peers,
        )  # fmt: skip
    if args.output:
        args.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if args.plot:
        from fastdata.bench.plots import plot_rates

        plot_rates(report, args.plot, "backend" if args.kind == "decode" else "loader")
    print(json.dumps(report, indent=1) if args.json else _text(report))
    return 0


def _check(args: argparse.Namespace) -> None:
    for name in ("limit", "rounds", "threads", "batch_size", "size", "epochs", "workers"):
        value = getattr(args, name, None)
        if value is not None and value < 1:
            msg = f"--{name.replace('_', '-')} must be 1 or more, not {value}"
            raise OptionError(msg)


def _text(report: dict[str, Any]) -> str:
    machine = report["machine"]
    title, head, rows = (_decode_table if report["what"] == "decode" else _load_table)(report)
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return "\n".join(
        [
            f"{machine['processor']}, {machine['cores']} cores, Python {machine['python']}",
            title,
            *("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (head, *rows)),
            *_stages(report),
        ]
    )


def _stages(report: dict[str, Any]) -> list[str]:
    """Return a line that says what binds, where it was measured."""
    if "stages" not in report:
        return []
    times = report["stages"]["microseconds"]
    parts = ", ".join(f"{name} {value:.1f} us ({value / sum(times.values()):.0%})" for name, value in times.items())
    return [f"an image in one thread: {parts}; {report['stages']['binds']} binds"]


def _decode_table(report: dict[str, Any]) -> tuple[str, list[str], list[list[str]]]:
    title = (
        f"{report['images']} images of {report['megapixels_each']:.2f} MP, {report['kilobytes_each']:.0f} kB, "
        f"{report['rounds']} interleaved rounds, medians"
    )
    head = ["backend", "threads", "images/s", "MB/s", "MP/s", "x Pillow", "max diff", "mean diff", "refused"]
    rows = [
        [
            f"{row['backend']} {row['version']}",
            f"{row['threads']}",
            f"{row['images_per_second']:.0f}",
            f"{row['megabytes_per_second']:.1f}",
            f"{row['megapixels_per_second']:.1f}",
            f"{row['ratio_to_pillow']:.2f}",
            f"{row['largest_difference']}",
            f"{row['mean_difference']:.3f}",
            f"{len(row['refused'])}",
        ]
        for row in report["rows"]
    ]
    return title, head, rows


def _load_table(report: dict[str, Any]) -> tuple[str, list[str], list[list[str]]]:
    setting, pack = report["setting"], report["pack"]
    title = (
        f"{pack['samples']} images ({pack['kind']}), RandomResizedCrop({setting['size']}) + flip, uint8 batches of "
        f"{setting['batch_size']}, {setting['workers']} workers, {setting['rounds']} interleaved rounds, medians"
    )
    rows = [
        [
            row["loader"],
            f"{row['images_per_second']:.0f}",
            f"{row['ratio_to_torchvision']:.2f}" if row["ratio_to_torchvision"] else "",
            f"{row['spread']:.2f}",
        ]
        for row in report["rows"]
    ]
    return title, ["loader", "images/s", "x torchvision", "spread"], rows
