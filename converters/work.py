"""The unit of work of packing: a few rows in, their records out; runs in any process, on any executor."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from PIL import Image

from fastdata.converters.content import DigestedRecord
from fastdata.converters.encoding import encode
from fastdata.converters.quick_resize import Drafted, QuickResizer
from fastdata.converters.report import Skipped
from fastdata.converters.resizing import place, resample
from fastdata.converters.restarts import with_restarts
from fastdata.converters.statistics import ChannelSums, channel_sums
from fastdata.decoding.header import Header, probe
from fastdata.decoding.pixels import load_pixels
from fastdata.errors import ChecksumError, StoreFormatError
from fastdata.stores.file_reader import read_whole
from fastdata.stores.reader import PreadReader
from fastdata.types import Field

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fastdata.converters.options import PackOptions
    from fastdata.converters.sources import Row, Value

__all__ = ["Packed", "pack_rows"]


class Packed(NamedTuple):  # for the same reason as Row
    """One packed sample, and what the parent must know of it without looking at its bytes.

    bytes_in: of the image in the source. differs: why its pixels are not those of torchvision's ImageFolder. smaller:
    it stayed below the size asked for. kept: it was not encoded anew: its bytes are the source's, but
    for restart markers. unmarked: why it could not get those it was to get; "" for none. drafted: who decoded it
    smaller than it is. truncated: which file it was and what is missing, where that was accepted.
    """

    record: DigestedRecord
    bytes_in: int
    sums: ChannelSums
    differs: tuple[str, ...] = ()
    smaller: bool = False
    kept: bool = False
    unmarked: str = ""
    drafted: Drafted = ""
    truncated: Skipped | None = None


def pack_rows(rows: Sequence[Row], options: PackOptions) -> list[Packed | Skipped]:
    """Return what each row became, in order; a row that cannot be packed becomes a Skipped with its reason."""
    with QuickResizer(options) as quick:
        return [_attempt(row, options, quick) for row in rows]


def _attempt(row: Row, options: PackOptions, quick: QuickResizer) -> Packed | Skipped:
    try:
        return _pack(row, options, quick)
    # Decoders raise what they like over broken files (struct.error, SyntaxError, IndexError, ...): one rule for all.
    except MemoryError:
        reason = "MemoryError: not enough memory for this picture; fewer workers (--workers) leave more to each"
        return Skipped(row.values[0].path if row.values else "", row.key, reason)
    except Exception as error:  # noqa: BLE001
        text = " ".join(str(error).split()) or "no reason given"
        path = row.values[0].path if row.values else ""
        return Skipped(path, row.key, f"{type(error).__name__}: {text}")


def _pack(row: Row, options: PackOptions, quick: QuickResizer) -> Packed:
    image, *others = row.values
    data = _read(image)
    drawn = _drawn(data, image, row, options, quick)
    header, pixels = drawn.header, drawn.pixels
    unmarked = ""
    if pixels is None:
        codec, (stored, unmarked) = header.codec, with_restarts(data, header, options)
    else:
        codec = "jpeg" if options.codec == "keep" else options.codec
        stored = encode(pixels, codec, options)
    fields = Field("image", codec, stored), *(Field(v.name, v.codec, _read(v)) for v in others)
    return Packed(
        DigestedRecord.of(row.key, fields, row.label, drawn.size, row.extras),
        len(data),
        drawn.sums,
        _differences(header, options),
        smaller=_is_below(drawn.size, options),
        kept=pixels is None,
        unmarked=unmarked,
        drafted=drawn.drafted,
        truncated=Skipped(image.path, row.key, f"accepted, the rest is grey: {drawn.cut}") if drawn.cut else None,
    )


class _Drawn(NamedTuple):
    """A picture as it goes into the pack, uint8 HWC: None where the source's bytes are it. size is (width, height)."""

    header: Header
    size: tuple[int, int]
    sums: ChannelSums
    pixels: NDArray[np.uint8] | None
    drafted: Drafted = ""
    cut: str = ""

    @classmethod
    def of(cls, header: Header, pixels: NDArray[np.uint8], drafted: Drafted = "") -> _Drawn:
        """Return it for pixels that will be encoded."""
        return cls(header, (pixels.shape[1], pixels.shape[0]), channel_sums(pixels), pixels, drafted)


def _drawn(data: bytes, image: Value, row: Row, options: PackOptions, quick: QuickResizer) -> _Drawn:
    if image.codec != "raw" and options.resize is not None:
        header = probe(data)
        upright = _upright_size(header, options)
        placement = place(*upright, options)
        if placement.size != upright:
            quickly = quick.resized(data, header, placement.size)
            if quickly is not None:
                return _Drawn.of(header, resample(quickly.pixels, placement, options), quickly.drafted)
    header, pixels, needs_encode, cut = _load(data, image, row, options)
    height, width, _ = pixels.shape
    placement = place(width, height, options)
    if options.codec == "keep" and not needs_encode and not placement.changes(width, height):
        return _Drawn(header, (width, height), channel_sums(pixels), None)
    return _Drawn.of(header, resample(pixels, placement, options))._replace(cut=cut)


def _upright_size(header: Header, options: PackOptions) -> tuple[int, int]:
    turned = options.orientation == "apply" and header.orientation in {5, 6, 7, 8}
    return (header.height, header.width) if turned else (header.width, header.height)


def _read(value: Value) -> bytes:
    if value.offset == value.length == 0:
        return read_whole(value.path)
    reader = PreadReader([value.path])
    try:
        data = bytes(reader.view(0, value.offset, value.length))
    finally:
        reader.close()
    if value.checksum and zlib.crc32(data) != value.checksum:
        msg = f"{value.path}: the bytes of {value.name!r} were changed after they were packed (CRC-32)"
        raise ChecksumError(msg)
    return data


def _load(data: bytes, image: Value, row: Row, options: PackOptions) -> tuple[Header, NDArray[np.uint8], bool, str]:
    """Return what the file says, its picture in the pack's mode (uint8 HWC), if its bytes show less, what is cut."""
    if image.codec != "raw":
        pixels = load_pixels(data, options.policy)
        return pixels.header, pixels.array, pixels.needs_encode, pixels.cut
    width, height = row.width, row.height
    channels = len(data) // max(1, width * height)
    if channels not in {1, 3} or len(data) != width * height * channels:
        msg = f"{len(data)} bytes of raw pixels are no picture of {width} x {height} with 1 or 3 channels"
        raise StoreFormatError(msg)
    picture = Image.frombytes("RGB" if channels == 3 else "L", (width, height), data)  # noqa: PLR2004  R, G, B
    array = np.asarray(picture.convert(options.mode)).reshape(height, width, len(options.mode))
    return Header("raw", width, height, channels=channels), array, picture.mode != options.mode, ""


def _differences(header: Header, options: PackOptions) -> tuple[str, ...]:
    causes = []
    if header.orientation != 1 and options.orientation == "apply":
        causes.append("turned as EXIF says")
    if header.alpha:
        causes.append("laid on the background (alpha)")
    if header.bits > 8:  # noqa: PLR2004  bits
        causes.append("scaled from 16 bit")
    return tuple(causes)


def _is_below(size: tuple[int, int], options: PackOptions) -> bool:
    box = options.box
    if box is None or options.upscale or options.resize_mode == "pad":
        return False
    if options.resize_mode == "shorter":
        return min(size) < box[0]
    if options.resize_mode == "longer":
        return max(size) < box[0]
    return size != box
