"""The compiled core as a Decoder and as a BatchDecoder: crops are decoded, resampled and stored in threads of its own.

The only importer of ``fastdata._native``. What the core does not take, and whatever it finds wrong with a file, is
decided by the reference road (Pillow) in the same call, so that no record is lost and no file is good with one backend
and bad with another.
"""

from __future__ import annotations

import importlib
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fastdata.decoding.jpeg_adapter import AdaptedDecoder
from fastdata.decoding.jpeg_markers import read_jpeg_header
from fastdata.decoding.pillow_decoder import make_decoder as make_reference
from fastdata.decoding.resample import resample_into
from fastdata.decoding.restart_markers import blocks_near, columns_of
from fastdata.errors import DecodeError, ImageTooLargeError, OptionError, TruncatedImageError, UnsupportedImageError
from fastdata.types import CODEC_IDS, TORCHVISION_PIXELS, Encoded

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray

    from fastdata.decoding.header_fields import Header
    from fastdata.types import BatchDecoder, Decoder, Geometry, Levels

__all__ = [
    "NativeBatchDecoder",
    "available",
    "channel_sums",
    "decode_by_core",
    "make_batch_decoder",
    "make_decoder",
    "transcode",
]

# Numbers of _cpp/image_job.hpp.
_OK, _UNSUPPORTED, _TRUNCATED, _TOO_LARGE, _MISMATCH, _NO_MEMORY = 0, 1, 3, 4, 5, 6
_ERRORS = {_UNSUPPORTED: UnsupportedImageError, _TRUNCATED: TruncatedImageError, _TOO_LARGE: ImageTooLargeError}
_FILTERS = {
    "nearest": 0,
    "nearest-exact": 0,
    "box": 1,
    "bilinear": 2,
    "hamming": 3,
    "bicubic": 4,
    "lanczos": 5,
}
_NAME = "fastdata._native"
_MOST_ROWS = 0xFFFF  # no JPEG has more lines


def available() -> bool:
    """Return whether the core was built; an ImportError of a core that is there and broken passes through."""
    return _found() is not None


def make_decoder() -> Decoder:
    """Return a Decoder; raise ModuleNotFoundError where the core was not built."""
    _core()
    return AdaptedDecoder(decode_by_core)


def decode_by_core(data: bytes | memoryview, header: Header) -> NDArray[np.uint8] | None:
    """Return a JPEG's pixels (H, W, stored channels), or None where the core leaves the file to the reference."""
    pixels = np.empty((header.height, header.width, header.channels), np.uint8)
    status, _ = _core().decode_whole(np.frombuffer(data, np.uint8), pixels)
    return pixels if status == _OK else None


def transcode(
    data: bytes | memoryview,
    *,
    restart_rows: int | None = None,
    restart_blocks: int | None = None,
    max_pixels: int | None = TORCHVISION_PIXELS.max_pixels,
) -> bytes:
    """Return the JPEG with a restart marker after so many rows of blocks (MCUs), or after about so many blocks.

    It decodes to the same pixels: coefficients are copied, not made again. The result is sequential (a progressive
    source becomes baseline), with Huffman tables of its own; EXIF, ICC and every other segment before the picture
    stays, what lies behind its end (further pictures, a film) does not. restart_blocks: the number nearest to it that
    divides the blocks of a row, so that a decoder can pass over columns. Raises OptionError unless one of the two is
    1 or more, a DecodeError for what is broken or would look otherwise, and ModuleNotFoundError without the core.
    """
    rows, blocks = restart_rows or 0, restart_blocks or 0
    if min(rows, blocks) < 0 or (rows > 0) == (blocks > 0):
        msg = f"restart_rows={restart_rows!r}, restart_blocks={restart_blocks!r}: one of them must be 1 or more"
        raise OptionError(msg)
    header = read_jpeg_header(data)
    if blocks:
        blocks = blocks_near(columns_of(header.width, header.block_width), blocks)
    status, message, made = _core().transcode(
        np.frombuffer(data, np.uint8), min(rows, _MOST_ROWS), blocks, max_pixels or 0
    )
    if status == _NO_MEMORY:
        raise MemoryError(message)
    if status != _OK:
        raise _ERRORS.get(status, DecodeError)(message)
    return bytes(made)


def channel_sums(pixels: NDArray[np.uint8], **how: str) -> tuple[list[int], list[int]] | None:
    """Return the sums of values and of squares, per channel, of uint8 (H, W, 1 or 3); None without the core.

    pixels: C-contiguous. how: ``kernels``, as NativeBatchDecoder has them.
    """
    core = _found()
    return None if core is None else core.channel_sums(pixels, **how)


def make_batch_decoder(threads: int) -> BatchDecoder:
    """Return a NativeBatchDecoder; raise ModuleNotFoundError where the core was not built."""
    return NativeBatchDecoder(threads)


class NativeBatchDecoder:
    """Decodes batches in ``threads`` threads of the core, which all calls share, first come first served.

    With 0 threads the caller's own does the work, one batch at a time.
    The threads start with the first batch (in a forked child, with its first one) and end with close(). ``kernels``
    names the instruction set ("generic", "avx2", "avx512"; "" takes the best one here): all give the same bits.
    ``fast`` gives up exactness for speed: plain chroma upsampling, and a ``margin`` of 1. With a margin, JPEGs are
    decoded 2, 4 or 8 times smaller (libjpeg's scaled IDCT) where that leaves margin times the pixels asked for on each
    side.
    """

    def __init__(
        self,
        threads: int,
        *,
        fast: bool = False,
        margin: int | None = None,
        kernels: str = "",
        max_pixels: int | None = TORCHVISION_PIXELS.max_pixels,
    ) -> None:
        """Make the pool; no thread starts yet."""
        if threads < 0:
            msg = f"threads must be 0 (the caller's own) or more, not {threads}"
            raise OptionError(msg)
        self._pool = _core().Pool(threads, kernels)
        if margin is not None and margin < 0:
            msg = f"margin must be 0 (never smaller) or more, not {margin}"
            raise OptionError(msg)
        self._plain = fast
        self._margin = int(fast) if margin is None else margin
        self._max_pixels = max_pixels or 0
        self._reference: BatchDecoder | None = None
        self._lock = threading.Lock()
        self._closed = False

    def decode_batch(
        self,
        encoded: Encoded,
        geometry: Geometry,
        out: NDArray[Any],
        *,
        levels: Levels | None = None,
    ) -> dict[int, DecodeError]:
        """Fill ``out`` (n, H, W, C), as types.BatchDecoder says; return the failures by position."""
        failures: dict[int, DecodeError] = {}
        others: list[int] = []
        for position, status, message in self.attempt(encoded, geometry, out, levels=levels):
            if status == _TOO_LARGE:
                failures[position] = ImageTooLargeError(message)
            elif status == _MISMATCH:
                failures[position] = DecodeError(message)
            else:
                others.append(position)
        if others:
            failures.update(self._by_reference(encoded, geometry, out, others, levels))
        return dict(sorted(failures.items()))

    def attempt(
        self,
        encoded: Encoded,
        geometry: Geometry,
        out: NDArray[Any],
        *,
        levels: Levels | None = None,
    ) -> list[tuple[int, int, str]]:
        """Do the same without the reference; return what the core left: position, status (above 0) and reason."""
        if self._closed:
            msg = "this decoder is closed"
            raise OptionError(msg)
        return self._run(encoded, geometry, out, levels) if len(encoded) else []

    def _run(
        self, encoded: Encoded, geometry: Geometry, out: NDArray[Any], levels: Levels | None
    ) -> list[tuple[int, int, str]]:
        made: list[tuple[int, int, str]] = self._pool.decode_batch(
            encoded.address, encoded.length, encoded.codec, encoded.width, encoded.height,
            geometry.box, geometry.window, geometry.size, geometry.rect, geometry.hflip, geometry.vflip,
            _colour(geometry.fill),
            (_FILTERS[geometry.interpolation], geometry.antialias, self._max_pixels, self._plain, self._margin),
            out, levels,
        )  # fmt: skip
        if self._closed:  # by another thread, meanwhile: a batch that came behind its close has started threads again
            self._pool.close()
        return made

    def close(self) -> None:
        """Stop the threads once the batches begun are done; may be called twice."""
        self._closed = True
        if self._reference is not None:
            self._reference.close()  # first: its threads give the core work
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _resample(
        self,
        pixels: NDArray[np.uint8],
        geometry: Geometry,
        row: int,
        out: NDArray[Any],
        *,
        levels: Levels | None = None,
    ) -> None:
        """Bring a picture that the reference decoded into its place: by the core, as a raw record of a cache or pack.

        So its pixels do not depend on which of these it comes from. Windows that leave the picture are not the core's.
        """
        pixels = np.ascontiguousarray(pixels)
        height, width, _ = pixels.shape
        record = Encoded(
            address=np.array([pixels.ctypes.data], np.uint64),
            length=np.array([pixels.nbytes], np.int64),
            codec=np.array([CODEC_IDS["raw"]], np.uint8),
            width=np.array([width], np.int32),
            height=np.array([height], np.int32),
            views=(),
            keep=pixels,
        )
        if self._run(record, _geometry_at(geometry, [row]), out[None], levels):
            resample_into(pixels, geometry, row, out, levels=levels)

    def _by_reference(
        self,
        encoded: Encoded,
        geometry: Geometry,
        out: NDArray[Any],
        positions: list[int],
        levels: Levels | None,
    ) -> dict[int, DecodeError]:
        with self._lock:
            if self._reference is None:
                from fastdata.decoding.threaded_batch import ThreadedBatchDecoder  # noqa: PLC0415  brings Pillow

                threads = max(self._pool.threads, 1)
                self._reference = ThreadedBatchDecoder(make_reference(), threads, resample=self._resample)
        if len(positions) == len(encoded):
            return self._reference.decode_batch(encoded, geometry, out, levels=levels)
        some = np.empty((len(positions), *out.shape[1:]), out.dtype)
        failures = self._reference.decode_batch(
            _encoded_at(encoded, positions), _geometry_at(geometry, positions), some, levels=levels
        )
        out[positions] = some
        return {positions[row]: error for row, error in failures.items()}


def _encoded_at(encoded: Encoded, rows: list[int]) -> Encoded:
    return Encoded(
        address=encoded.address[rows],
        length=encoded.length[rows],
        codec=encoded.codec[rows],
        width=encoded.width[rows],
        height=encoded.height[rows],
        views=[encoded.views[row] for row in rows],
        keep=encoded.keep,
    )


def _geometry_at(geometry: Geometry, rows: list[int]) -> Geometry:
    return replace(
        geometry,
        box=geometry.box[rows],
        window=geometry.window[rows],
        size=geometry.size[rows],
        rect=geometry.rect[rows],
        hflip=geometry.hflip[rows],
        vflip=geometry.vflip[rows],
    )


def _colour(fill: tuple[int, ...]) -> tuple[int, int, int]:
    return (fill[0], fill[1], fill[2]) if len(fill) > 2 else (fill[0], fill[0], fill[0])  # noqa: PLR2004  RGB


def _core() -> ModuleType:
    core = _found()
    if core is None:
        msg = "the compiled core was not built; it decodes only what a crop needs, in threads free of the GIL"
        raise ModuleNotFoundError(msg, name=_NAME)
    return core


def _found() -> ModuleType | None:
    try:
        return importlib.import_module(_NAME)
    except ModuleNotFoundError as error:
        if error.name == _NAME:
            return None
        raise
