"""What packing did: a value for programs, lines for people, and a file that names what was left out."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastdata.converters.atomic import sync_folder, writing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["PackReport", "Skipped", "report_path", "write_report"]

_NAMED = 10  # skipped files that the summary names; the report file names all


@dataclass(frozen=True, slots=True)
class Skipped:
    """One sample that could not be packed: where it lies, its key, and why."""

    path: str
    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class PackReport:
    """What was packed, what was not, and how fast.

    bytes_in, bytes_out: of the image fields, as stored in source and pack. ignored: files of the source that are no
    images, by type. unlabelled: the columns of a manifest without labels. flat: folders that hold pictures and no class
    folders. without_index: tars of fastdata without their index, so without class names, and why. differs: pictures
    whose pixels are not those that torchvision's ImageFolder would give, by cause.
    smaller: pictures that stayed below the size asked for, since nothing is enlarged without upscale. seconds: wall.
    resumed: samples that an earlier run, with resume, had finished. fidelity: as it was asked for. drafted: JPEGs that
    were decoded smaller than they are, by who did it ("core", "pillow"). unmarked: JPEGs that were to get restart
    markers and could not; unmarked_first: key and reason of the first ten. truncated: files that end too early and were
    accepted, with what is missing.
    """

    dst: str
    samples: int
    classes: tuple[str, ...]
    bytes_in: int
    bytes_out: int
    skipped: tuple[Skipped, ...] = ()
    ignored: Mapping[str, int] = field(default_factory=dict)
    differs: Mapping[str, int] = field(default_factory=dict)
    smaller: int = 0
    kept: int = 0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    content_hash: str = ""
    workers: int = 1
    seconds: float = 0.0
    resumed: int = 0
    fidelity: str = "exact"
    drafted: Mapping[str, int] = field(default_factory=dict)
    unmarked: int = 0
    unmarked_first: tuple[str, ...] = ()
    truncated: tuple[Skipped, ...] = ()
    unlabelled: tuple[str, ...] = ()
    flat: int = 0
    without_index: tuple[str, ...] = ()

    @property
    def images_per_second(self) -> float:
        """Samples packed a second."""
        return self.samples / self.seconds if self.seconds > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-able values."""
        return {**asdict(self), "images_per_second": round(self.images_per_second, 2)}

    def lines(self) -> Iterator[str]:
        """Yield the summary, a line at a time."""
        classes = f" in {len(self.classes)} classes" if self.classes else ""
        sizes = f"{_amount(self.bytes_in)} -> {_amount(self.bytes_out)}"
        yield f"packed {self.samples} images{classes} into {self.dst}: {sizes}"
        yield (
            f"{self.seconds:.1f} s, {self.images_per_second:.0f} images/s with {self.workers} "
            f"worker{'s' if self.workers > 1 else ''}; {self.kept} kept as is, {self.samples - self.kept} encoded"
        )
        if self.resumed:
            yield f"{self.resumed} of them were finished by the run before (--resume)"
        if self.fidelity != "exact":
            yield f"fidelity {self.fidelity}: {self._drafted()}"
        if self.mean:
            mean, std = (", ".join(f"{v:.4f}" for v in values) for values in (self.mean, self.std))
            yield f"mean ({mean}), std ({std})"
        if self.differs:
            causes = ", ".join(f"{count} {cause}" for cause, count in sorted(self.differs.items()))
            yield f"pixels that differ from torchvision's ImageFolder: {causes}"
        if self.smaller:
            yield f"{self.smaller} images are smaller than asked for and were not enlarged (--upscale would)"
        if self.ignored:
            kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.ignored.items()))
            yield f"ignored {sum(self.ignored.values())} files that are no images: {kinds}"
        if self.unmarked:
            yield f"{self.unmarked} JPEGs could not get restart markers and are kept without:"
            yield from (f"  {one}" for one in self.unmarked_first)
            if self.unmarked > len(self.unmarked_first):
                yield f"  ... and {self.unmarked - len(self.unmarked_first)} more"
        yield from self._truncated_lines()
        yield from self._label_lines()
        yield from self._skipped_lines()

    def _label_lines(self) -> Iterator[str]:
        yield from (f"no class names: {text}" for text in self.without_index)
        if self.unlabelled:
            columns = ", ".join(self.unlabelled)
            yield f"no labels; further columns: {columns} (--label-column NAME says which of them is the label)"

        if self.flat:
            yield "no labels: pictures that lie in no class folder (SRC above their folders gives a class for each)"

    def _drafted(self) -> str:
        core, pillow = self.drafted.get("core", 0), self.drafted.get("pillow", 0)
        slower = f", {pillow} by Pillow (slower than the compiled core)" if pillow else ""
        whole = self.samples - core - pillow
        return (
            f"{core} decoded smaller by the compiled core{slower}, {whole} whole (no JPEG, or no room above the target)"
        )

    def _truncated_lines(self) -> Iterator[str]:
        if not self.truncated:
            return
        yield f"accepted {len(self.truncated)} JPEGs that end too early; what is missing is grey:"
        yield from (f"  {one.path}" for one in self.truncated[:_NAMED])
        if len(self.truncated) > _NAMED:
            yield f"  ... and {len(self.truncated) - _NAMED} more ({report_path(self.dst)} names all)"

    def _skipped_lines(self) -> Iterator[str]:
        if not self.skipped:
            return
        yield f"skipped {len(self.skipped)} that cannot be packed (all are named in {report_path(self.dst)}):"
        for one in self.skipped[:_NAMED]:
            yield f"  {one.path}: {one.reason}"
        if len(self.skipped) > _NAMED:
            yield f"  ... and {len(self.skipped) - _NAMED} more"


def report_path(dst: str) -> Path:
    """Return where the report on ``dst`` lies: its name with ``.report.jsonl`` behind it."""
    path = Path(dst)
    return path.with_name(path.name + ".report.jsonl")


def write_report(dst: str, skipped: tuple[Skipped, ...]) -> None:
    """Write one JSON line per skipped sample beside ``dst``, at once or not at all; none skipped: remove an old one."""
    path = report_path(dst)
    partial = path.with_name(path.name + ".partial")
    with writing(path):
        if not skipped:
            if path.exists():
                path.unlink()
                sync_folder(path.parent)
            return
        try:
            with partial.open("w", encoding="ascii") as file:  # JSON escapes what is not
                file.writelines(json.dumps(asdict(one)) + "\n" for one in skipped)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
            sync_folder(path.parent)
        finally:
            partial.unlink(missing_ok=True)


def _amount(size: int) -> str:
    value = float(size)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000:  # noqa: PLR2004  decimal units
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
