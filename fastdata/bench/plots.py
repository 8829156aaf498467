"""Bar charts of a report's rates, by matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastdata.errors import BackendMissingError

if TYPE_CHECKING:
    import os

__all__ = ["plot_rates"]


def plot_rates(report: dict[str, Any], path: str | os.PathLike[str], label: str) -> None:
    """Draw a bar a row of ``report``, named by its column ``label`` and its threads; write it to ``path``."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415  optional, and slow to import
    except ImportError as error:
        msg = "plots need matplotlib: pip install 'fastdata-loader[all]'"
        raise BackendMissingError(msg) from error
    rows = sorted(report["rows"], key=lambda row: row["images_per_second"])
    figure = Figure(figsize=(8, 1 + 0.3 * len(rows)), layout="constrained")
    axes = figure.subplots()
    names = [f"{row[label]} ({row['threads']})" if "threads" in row else str(row[label]) for row in rows]
    bars = axes.barh(names, [row["images_per_second"] for row in rows], color="#3b6ea5")
    axes.bar_label(bars, fmt="%.0f", padding=3)
    axes.set_xlabel(f"images/s ({report['machine']['processor']}, {report['machine']['cores']} cores)")
    axes.margins(x=0.12)
    figure.savefig(path, dpi=120)
