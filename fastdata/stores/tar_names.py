"""Names of tar members: webdataset's split into key and field, our escapes for dots, and brace patterns of sets."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fastdata.errors import OptionError, StoreFormatError

__all__ = [
    "MARK",
    "MOST_SHARDS",
    "ShardPattern",
    "escape",
    "field_codec",
    "image_rank",
    "shard_pattern",
    "split_name",
    "unescape",
]

#: What our writer puts into the header's user name: only such members have their escapes undone.
MARK = b"fastdata"

_CODEC_OF_ENDING = {
    "jpg": "jpeg", "jpeg": "jpeg", "jpe": "jpeg", "jfif": "jpeg", "png": "png", "webp": "webp", "bmp": "bmp",
    "dib": "bmp", "gif": "gif", "tif": "tiff", "tiff": "tiff", "avif": "avif", "heic": "heic", "heif": "heic",
    "jxl": "jxl", "jp2": "jp2", "j2k": "jp2", "json": "json", "jsn": "json", "txt": "text", "text": "text",
    "transcript": "text", "cls": "text",
}  # fmt: skip
_NO_IMAGE = {"json", "text", "bytes"}
_IMAGE_ORDER = {
    ending: rank for rank, ending in enumerate(e for e, codec in _CODEC_OF_ENDING.items() if codec not in _NO_IMAGE)
}
_BRACES = re.compile(r"\{(\d+)\.\.(\d*)\}")
#: A typing error must not fill the memory with names.
MOST_SHARDS = 1_000_000


def split_name(name: str, where: str) -> tuple[str, str] | None:
    """Return (key, field) of a member: its name, cut at the first dot of its last component; the field keeps its case.

    None where webdataset takes no sample from it: no dot, a hidden file, ``__name__``. A leading "./" is dropped.
    Raises StoreFormatError, naming the member, where it points out of the folder it would be unpacked to.
    """
    given = name
    while name.startswith("./"):
        name = name[2:].lstrip("/")
    if "\0" in name or name.startswith("/") or ".." in name.split("/"):
        msg = f"{where}: member {given!r} points outside of the archive's folder; such archives are not read"
        raise StoreFormatError(msg)
    folder, slash, base = name.rpartition("/")
    stem, dot, field = base.partition(".")
    if not stem or not dot or not field or re.match(r"__[^/]*__($|/)", name):
        return None
    return folder + slash + stem, field


def field_codec(field: str) -> str:
    """Return the codec (a name of CODECS) that a field's last component stands for, "bytes" for unknown ones."""
    return _CODEC_OF_ENDING.get(field.rpartition(".")[2].lower(), "bytes")


def image_rank(field: str) -> tuple[int, int] | None:
    """Return how well a field serves as the sample's image (less is better), None where it is no image.

    Plain endings go before compound ones (``jpg`` before ``seg.png``), then webdataset's usual order.
    """
    *front, ending = field.lower().split(".")
    if ending == "npy" and not front:
        return 1, len(_IMAGE_ORDER)
    rank = _IMAGE_ORDER.get(ending)
    return None if rank is None else (len(front), rank)


def escape(key: str) -> str:
    """Return ``key`` with the dots of its last component escaped, so that it is not cut there; and percents."""
    folder, slash, base = key.replace("%", "%25").rpartition("/")
    return folder + slash + base.replace(".", "%2E")


def unescape(key: str) -> str:
    """Undo ``escape``."""
    return key.replace("%2E", ".").replace("%25", "%")


@dataclass(frozen=True, slots=True)
class ShardPattern:
    """Shard names: ``prefix`` + number, zero-padded to ``width`` digits, + ``suffix``; stop is None when open-ended."""

    prefix: str
    suffix: str
    width: int
    start: int
    stop: int | None

    def name(self, number: int) -> str:
        """Return the path of shard ``number``, counted from 0."""
        return f"{self.prefix}{self.start + number:0{self.width}d}{self.suffix}"

    def names(self) -> list[str]:
        """Return all paths of a closed pattern."""
        if self.stop is None:
            msg = "an open-ended pattern names no last shard"
            raise OptionError(msg)
        return [self.name(number) for number in range(self.stop - self.start + 1)]

    @property
    def index_path(self) -> str:
        """The path of the set's index: its name without the number, ``.set.fdindex`` behind it."""
        folder, slash, prefix = self.prefix.rpartition("/")
        stem = prefix.rstrip("-_. ") + self.suffix.removesuffix(".tar")
        return f"{folder}{slash}{stem or 'shards'}.set.fdindex"


def shard_pattern(path: str) -> ShardPattern | None:
    """Return the pattern of ``out-{000000..000127}.tar`` or ``out-{000000..}.tar``; None for a plain path."""
    match = _BRACES.search(path)
    if match is None:
        return None
    first, last = match[1], match[2]
    start, stop = int(first), int(last) if last else None
    if _BRACES.search(path, match.end()) or (stop is not None and not 0 <= stop - start < MOST_SHARDS):
        msg = (
            f"{path}: expected one range like {{000000..000127}} or {{000000..}}, the second number not the smaller one"
        )
        raise OptionError(msg)
    return ShardPattern(path[: match.start()], path[match.end() :], len(first), start, stop)
