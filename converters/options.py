"""What a pack is made with: one checked, frozen, picklable value that travels to every worker and into the pack."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, get_args, get_type_hints

from fastdata.errors import OptionError
from fastdata.types import PixelPolicy

__all__ = ["Codec", "Fidelity", "Filter", "PackOptions", "ResizeMode", "Subsampling"]

ResizeMode = Literal["shorter", "longer", "exact", "crop", "pad"]
Filter = Literal["bicubic", "bilinear", "lanczos", "box", "hamming"]
Codec = Literal["keep", "jpeg", "png", "webp", "bmp", "raw"]
Subsampling = Literal["4:2:0", "4:2:2", "4:4:4"]
Fidelity = Literal["exact", "fast"]

#: Fields that say how to run, not what the pack holds: they are not written into it, as packs must not depend on them.
_RUN = frozenset({"workers", "worker_timeout", "resume", "overwrite", "on_error", "on_duplicate", "max_errors"})
_MOST_WORKERS = 4096  # a slip of the keyboard, not a machine
_MOST_SECONDS = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class PackOptions:
    """How to pack; raises OptionError for values that cannot be meant.

    resize: pixels: of the shorter or longer side, or both sides of exact, crop and pad (there also (width, height)).
    resize_mode: "shorter" and "longer" keep the shape; "exact" stretches; "crop" covers and cuts the middle out;
    "pad" fits in and lays the picture on ``background``. Nothing is enlarged unless ``upscale``.
    filter: the antialiasing filter; bicubic is what Pillow's resize and thumbnail take.
    fidelity: "exact" gives the pixels of Pillow's whole decode and resize, within 1 grey level. "fast" decodes a JPEG
    2, 4 or 8 times smaller first (libjpeg's scaled IDCT) where that leaves at least twice the target on each side, as
    Pillow's thumbnail does: much quicker for camera photographs, the same as exact for JPEGs below four times the
    target and for other formats. The compiled core does it; where it was not built, or leaves a file (CMYK), Pillow's
    draft does, to the same pixels and more slowly. The report counts both, and what was decoded whole.
    codec: "keep" leaves the bytes of a picture that needs no change and writes JPEG otherwise; "raw" is uint8 HWC.
    quality: 1 to 100, of JPEG and WebP. subsampling: of JPEG's colours.
    restart_rows: rows of blocks (MCUs) from one restart marker of a JPEG to the next; or restart_blocks: blocks, the
    number nearest to it that divides a row ("auto": about 8). A loader passes over what lies outside a crop; worth it
    for small crops of large photographs. JPEGs that are kept get the markers without loss (with the compiled core).
    mode: "RGB", or "L" for grey. background: under transparent pixels and around padded pictures.
    orientation: "apply" turns as EXIF says and drops the tag; "keep" leaves pixels and tag as they are stored (for
    annotations made on raw pixels).
    accept_truncated: take JPEGs that end too early; what is missing is grey, and the report names them.
    max_pixels: width * height above which a picture is skipped (None: no limit; before and after resizing).
    shuffle, seed: store the samples in an order that is a function of seed and their number. limit: only so many.
    on_error: "skip" goes on and reports, "raise" stops at the first file that cannot be packed. max_errors: the share
    of skipped samples above which packing fails. on_duplicate: "skip" takes the first of equal members of a tar.
    workers: processes; None: all usable cores; 1: none but this one. worker_timeout: seconds after which a worker that
    has no answer is stopped; what it was at is tried once more, and then skipped. None: never.
    resume: keep finished work beside the destination, in ``DST.resume``, until the pack is whole, and take up what an
    earlier run with ``resume`` left there. overwrite: replace what lies at the destination.
    subdir: an LMDB folder instead of one file. shard_size (bytes) or shards (a number): split a set of tar files.
    """

    resize: int | tuple[int, int] | None = None
    resize_mode: ResizeMode = "shorter"
    upscale: bool = False
    filter: Filter = "bicubic"
    fidelity: Fidelity = "exact"
    codec: Codec = "keep"
    quality: int = 90
    subsampling: Subsampling = "4:2:0"
    restart_rows: int | None = None
    restart_blocks: int | Literal["auto"] | None = None
    mode: Literal["RGB", "L"] = "RGB"
    background: tuple[int, int, int] = (255, 255, 255)
    orientation: Literal["apply", "keep"] = "apply"
    accept_truncated: bool = False
    max_pixels: int | None = PixelPolicy().max_pixels
    shuffle: bool = False
    seed: int = 0
    limit: int | None = None
    on_error: Literal["skip", "raise"] = "skip"
    on_duplicate: Literal["raise", "skip"] = "raise"
    max_errors: float = 0.05
    workers: int | None = None
    worker_timeout: float | None = 600.0
    resume: bool = False
    overwrite: bool = False
    subdir: bool = False
    shard_size: int | None = None
    shards: int | None = None

    def __post_init__(self) -> None:
        """Check every value."""
        hints = get_type_hints(PackOptions)
        for name, hint in hints.items():
            choices = get_args(hint)
            if choices and all(isinstance(choice, str) for choice in choices):
                _check(getattr(self, name) in choices, name, getattr(self, name), f"one of {', '.join(choices)}")
        for name in ("upscale", "accept_truncated", "shuffle", "resume", "overwrite", "subdir"):
            _check(isinstance(getattr(self, name), bool), name, getattr(self, name), "True or False")
        self._check_sizes()
        if self.fidelity == "fast" and self.resize is None:
            msg = (
                "fidelity='fast' decodes JPEGs smaller where they are made smaller anyway: it needs resize (--resize N)"
            )
            raise OptionError(msg)
        _check(_whole(self.quality, 1, 100), "quality", self.quality, "a whole number from 1 to 100")
        good = len(self.background) == 3 and all(_whole(v, 0, 255) for v in self.background)  # noqa: PLR2004  R, G, B
        _check(good, "background", self.background, "three numbers from 0 to 255: red, green, blue")
        _check(_whole(self.seed, 0, 2**64 - 1), "seed", self.seed, "a whole number from 0 to 2**64 - 1")
        good = isinstance(self.max_errors, int | float) and 0 <= self.max_errors <= 1
        _check(good, "max_errors", self.max_errors, "a share from 0 to 1 (0.05 is 5 %)")
        self._check_restarts()
        for name in ("max_pixels", "limit", "shard_size", "shards"):
            value = getattr(self, name)
            _check(value is None or _whole(value, 1), name, value, "a whole number from 1 up")
        good = self.workers is None or _whole(self.workers, 1, _MOST_WORKERS)
        _check(good, "workers", self.workers, f"a whole number from 1 to {_MOST_WORKERS}")
        seconds = self.worker_timeout
        good = seconds is None or (isinstance(seconds, int | float) and 0 < seconds < _MOST_SECONDS)
        _check(good, "worker_timeout", seconds, "seconds above 0, or None for no limit")
        if self.shard_size is not None and self.shards is not None:
            msg = "give shard_size or shards, not both"
            raise OptionError(msg)

    @property
    def box(self) -> tuple[int, int] | None:
        """The target as (width, height); for shorter and longer both are the one number."""
        return (self.resize, self.resize) if isinstance(self.resize, int) else self.resize

    @property
    def restarts(self) -> bool:
        """Whether JPEGs get restart markers."""
        return self.restart_rows is not None or self.restart_blocks is not None

    @property
    def policy(self) -> PixelPolicy:
        """How files become pixels."""
        return PixelPolicy(
            mode=self.mode,
            orientation="apply" if self.orientation == "apply" else "ignore",
            background=self.background,
            truncated="accept" if self.accept_truncated else "refuse",
            max_pixels=self.max_pixels,
        )

    def facts(self) -> dict[str, Any]:
        """Return what the pack's pixels and order depend on, JSON-able, as it is written into the pack."""
        return {
            f.name: list(v) if isinstance(v := getattr(self, f.name), tuple) else v
            for f in fields(self)
            if f.name not in _RUN
        }

    def _check_restarts(self) -> None:
        rows, blocks = self.restart_rows, self.restart_blocks
        _check(rows is None or _whole(rows, 1), "restart_rows", rows, "rows of blocks: a whole number from 1 up")
        good = blocks is None or blocks == "auto" or _whole(blocks, 1)
        _check(good, "restart_blocks", blocks, "blocks: a whole number from 1 up, or 'auto'")
        if rows is not None and blocks is not None:
            msg = "give restart_rows or restart_blocks, not both"
            raise OptionError(msg)
        if self.restarts and self.codec not in {"keep", "jpeg"}:
            msg = f"restart markers are JPEG's, and codec is {self.codec!r}: expected keep or jpeg"
            raise OptionError(msg)

    def _check_sizes(self) -> None:
        size = self.resize
        if size is None:
            return
        if isinstance(size, tuple):
            _check(len(size) == 2 and all(_whole(v, 1) for v in size), "resize", size, "pixels, or (width, height)")  # noqa: PLR2004
            if self.resize_mode in {"shorter", "longer"}:
                msg = (
                    f"resize={size!r} with resize_mode {self.resize_mode!r}: one number there, or mode exact, crop, pad"
                )
                raise OptionError(msg)
        else:
            _check(_whole(size, 1), "resize", size, "pixels (1 or more), or (width, height)")


def _whole(value: object, least: int, most: int | None = None) -> bool:
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return value >= least and (most is None or value <= most)


def _check(good: bool, name: str, value: object, expected: str) -> None:  # noqa: FBT001  a condition, not a switch
    if not good:
        msg = f"{name}={value!r}: expected {expected}"
        raise OptionError(msg)
