"""The values that travel between the floors of the house: records, spans, geometry, pixel policy.

Values are frozen; behaviour lives elsewhere. Arrays inside a value are borrowed: whoever made them owns them, and
nobody who receives one writes to it (``out`` arrays, which are passed as arguments, are the exception).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from fastdata.errors import DecodeError

    #: One value per channel and grey level, (C, 256): float32, float16, or uint16: the bits of bfloat16.
    Levels = NDArray[np.float32 | np.float16 | np.uint16]

__all__ = [
    "CODECS",
    "CODEC_IDS",
    "PACK_PIXELS",
    "TORCHVISION_PIXELS",
    "BatchDecoder",
    "Decoder",
    "Encoded",
    "Field",
    "FloatType",
    "Geometry",
    "Interpolation",
    "Label",
    "Mode",
    "PixelPolicy",
    "Record",
    "Spans",
    "Writer",
    "by_fields",
]

#: Codec names by their number in an Index. The numbers are part of the pack format: append only.
CODECS: tuple[str, ...] = (
    "unknown", "jpeg", "png", "webp", "bmp", "raw", "gif", "tiff", "avif", "heic", "jxl", "jp2", "json", "text",
    "bytes",
)  # fmt: skip
CODEC_IDS: dict[str, int] = {name: number for number, name in enumerate(CODECS)}

Mode = Literal["RGB", "L", "native"]
Interpolation = Literal["nearest", "nearest-exact", "bilinear", "bicubic", "box", "hamming", "lanczos"]
Edges = Literal["constant", "edge", "reflect", "symmetric"]
FloatType = Literal["float32", "bfloat16", "float16"]
#: int, float, a vector of either, or None where a sample has no label.
Label = int | float | tuple[float, ...] | None


def by_fields(value: Any) -> tuple[type, tuple[Any, ...]]:  # noqa: ANN401  any dataclass
    """Pickle a frozen dataclass as a call with its fields: a third of what its own way costs, in both directions.

    For values that go between processes by the thousand: they have it as their ``__reduce__``.
    """
    return type(value), tuple([getattr(value, name) for name in value.__match_args__])


@dataclass(frozen=True, slots=True)
class PixelPolicy:
    """How the pixels of a file become uint8 RGB (or grey).

    orientation: "apply" turns the picture as its EXIF tag says, "ignore" leaves it as stored.
    alpha: "composite" lays it on ``background``, "drop" forgets the alpha channel.
    sixteen: "scale" maps 0..65535 to 0..255 (v / 257, rounded), "clip" cuts at 255 as Pillow's convert does.
    truncated: "accept" takes a JPEG that ends too early, its missing part grey; "refuse" refuses it.
    max_pixels: width * height above which an image is refused (None: no limit).
    """

    mode: Mode = "RGB"
    orientation: Literal["apply", "ignore"] = "apply"
    alpha: Literal["composite", "drop"] = "composite"
    background: tuple[int, int, int] = (255, 255, 255)
    sixteen: Literal["scale", "clip"] = "scale"
    truncated: Literal["refuse", "accept"] = "refuse"
    max_pixels: int | None = 178_956_970  # Pillow's own default limit, PIL/Image.py MAX_IMAGE_PIXELS * 2


PACK_PIXELS = PixelPolicy()
TORCHVISION_PIXELS = PixelPolicy(orientation="ignore", alpha="drop", sixteen="clip")


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a record: its name ("image" for the first), its codec (a name of CODECS) and its bytes."""

    name: str
    codec: str
    data: bytes | memoryview

    __reduce__ = by_fields


@dataclass(frozen=True, slots=True)
class Record:
    """One sample on its way between a store and a writer; ``fields[0]`` is the image.

    width and height are the image's in pixels, 0 where nobody has looked yet. extras is JSON-able.
    """

    key: str
    fields: tuple[Field, ...]
    label: Label = None
    width: int = 0
    height: int = 0
    extras: Mapping[str, Any] = field(default_factory=dict)


class Spans(NamedTuple):
    """Where values lie: the file (part) and, in bytes, offset and length; three arrays of shape (n,)."""

    part: NDArray[np.int64]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Encoded:
    """The encoded bytes of n samples, in memory that ``keep`` holds.

    address: uint64 (n,), the address of each value's first byte; length: int64 (n,), bytes; codec: uint8 (n,), numbers
    of CODECS; width, height: int32 (n,), pixels, known (never 0) by the time a BatchDecoder sees them.
    The addresses are valid as long as ``keep`` (or this value) lives.
    """

    address: NDArray[np.uint64]
    length: NDArray[np.int64]
    codec: NDArray[np.uint8]
    width: NDArray[np.int32]
    height: NDArray[np.int32]
    views: Sequence[memoryview]
    keep: object

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.length)


@dataclass(frozen=True, slots=True)
class Geometry:
    """What each of n output images shows of its source; pure numbers, for a whole batch.

    The picture's ``window`` (float left, top, right, bottom in source pixels) is resampled to the virtual size
    ``size`` (int width, height); of that, the rectangle ``rect`` (int left, top, width, height in virtual pixels) is
    the output, then mirrored where ``hflip`` / ``vflip`` say so. A rect may leave the virtual picture, a window may
    leave the source: ``fill`` is there. Resize(256) + CenterCrop(224) is the whole picture as window, the resized size,
    and the crop as rect: equal to Pillow's resize and crop to the bit, while only the crop is computed.

    box: int32 (n, 4) left, top, right, bottom: the source pixels that rect depends on, filter support included,
    clipped to the picture; decoders need no others. window: float64 (n, 4). size: int32 (n, 2). rect: int32 (n, 4).
    hflip, vflip: bool (n,). fill: uint8 (channels,). The rects of a stacked batch have one width and height.
    """

    box: NDArray[np.int32]
    window: NDArray[np.float64]
    size: NDArray[np.int32]
    rect: NDArray[np.int32]
    hflip: NDArray[np.bool_]
    vflip: NDArray[np.bool_]
    fill: tuple[int, ...] = (0, 0, 0)
    interpolation: Interpolation = "bilinear"
    antialias: bool = True

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.rect)


class Decoder(Protocol):
    """Decodes one image, whole: the seam for a library that does not know batches."""

    def __call__(self, data: bytes | memoryview, mode: Mode = "RGB") -> NDArray[np.uint8]:
        """Return uint8 HWC, C-contiguous, memory of its own: 3 channels for RGB, 1 for L; raise DecodeError.

        EXIF orientation is not applied. Damaged data (a whole decode) raise; nothing is printed.
        """
        ...


class BatchDecoder(Protocol):
    """Decodes, crops, resamples and mirrors n images into one array: the one seam that the engine knows."""

    def decode_batch(
        self,
        encoded: Encoded,
        geometry: Geometry,
        out: NDArray[Any],
        *,
        levels: Levels | None = None,
    ) -> dict[int, DecodeError]:
        """Fill ``out`` (n, H, W, C), a view with any strides, with the n pictures that ``geometry`` describes.

        out is uint8; with ``levels`` ((C, 256): the value of each grey level of each channel) it is of their dtype.
        C is 3 (RGB) or 1 (grey). Returns the failures by position in the batch, empty when all went well; the rows of
        failed positions hold anything. Blocks until all are done; may be called from several threads at once.
        """
        ...

    def close(self) -> None:
        """Stop the threads; may be called twice."""
        ...


class Writer(Protocol):
    """Writes one part (file) of a pack under a temporary name; finish gives it its name."""

    def write(self, record: Record) -> None:
        """Append one record."""
        ...

    def finish(self, info: Mapping[str, Any]) -> None:
        """Write index and ``info`` (JSON-able), sync to disk and rename; the pack exists from here on."""
        ...

    def abort(self) -> None:
        """Remove what was written; may be called twice and after finish (then it does nothing)."""
        ...
