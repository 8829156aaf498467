"""The one door to decoding: ``decode`` an image, list the ``decoders``, make a Decoder or BatchDecoder by name."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from fastdata.errors import BackendMissingError, OptionError
from fastdata.registry import Row, load, row_of
from fastdata.types import TORCHVISION_PIXELS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fastdata.types import BatchDecoder, Decoder, Mode

__all__ = [
    "BACKENDS",
    "CAPABILITIES",
    "DecoderInfo",
    "backend_in_use",
    "batch_decoder",
    "decode",
    "decoder",
    "decoders",
]

_TURBO = "apt-get install libturbojpeg0 && pip install "
#: Name to ``make_decoder``. The order is that of ``decoders()``.
BACKENDS: dict[str, Row] = {
    "pillow": Row("fastdata.decoding.pillow_decoder:make_decoder", "pip install pillow"),
    "simplejpeg": Row("fastdata.decoding.simplejpeg_decoder:make_decoder", "pip install simplejpeg"),
    "opencv": Row("fastdata.decoding.opencv_decoder:make_decoder", "pip install opencv-python-headless"),
    "pyturbojpeg": Row("fastdata.decoding.pyturbojpeg_decoder:make_decoder", _TURBO + "'PyTurboJPEG>=1.8,<2'"),
    "jpeg4py": Row("fastdata.decoding.jpeg4py_decoder:make_decoder", _TURBO + "jpeg4py"),
    "torchvision": Row("fastdata.decoding.torchvision_decoder:make_decoder", "pip install torchvision"),
    "torchcodec": Row("fastdata.decoding.torchcodec_decoder:make_decoder", "pip install 'torchcodec>=0.17'"),
    "native": Row(
        "fastdata.decoding.native_decoder:make_decoder",
        # Without these options pip keeps the pure package that is installed, or the pure wheel in its cache.
        "apt-get install g++ libjpeg-dev && "
        "FASTDATA_NATIVE=1 pip install --force-reinstall --no-deps --no-cache-dir fastdata-loader",
    ),
}
#: Name to the module it needs and the distribution that has it.
_LIBRARIES: dict[str, tuple[str, str]] = {
    "pillow": ("PIL", "pillow"),
    "simplejpeg": ("simplejpeg", "simplejpeg"),
    "opencv": ("cv2", "opencv-python-headless"),
    "pyturbojpeg": ("turbojpeg", "PyTurboJPEG"),
    "jpeg4py": ("jpeg4py", "jpeg4py"),
    "torchvision": ("torchvision", "torchvision"),
    "torchcodec": ("torchcodec", "torchcodec"),
    "native": ("fastdata._native", "fastdata-loader"),
}
#: Which files a backend's library decodes itself; all others take the reference road (Pillow) in the same call.
CAPABILITIES: dict[str, tuple[str, ...]] = {
    "pillow": ("jpeg", "png", "webp", "bmp", "gif", "tiff", "avif", "jp2"),
    "simplejpeg": ("jpeg",),
    "opencv": ("jpeg",),
    "pyturbojpeg": ("jpeg",),
    "jpeg4py": ("jpeg",),
    "torchvision": ("jpeg",),
    "torchcodec": ("jpeg",),
    "native": ("jpeg", "raw"),
}
#: What ``auto`` tries, best first; for batches the compiled core comes before them.
_AUTO = ("simplejpeg", "opencv", "pillow")
#: Native is a batch decoder of its own.
_NATIVE_BATCH = Row("fastdata.decoding.native_decoder:NativeBatchDecoder")


@dataclass(frozen=True, slots=True)
class DecoderInfo:
    """One backend as it stands on this machine.

    version: of the library, "" where it is not installed. library: what it is a binding of. install: the one line that
    installs it. reason: why it cannot be used, "" where it can.
    """

    name: str
    installed: bool
    version: str
    library: str
    install: str
    reason: str = ""


def decode(
    data: bytes | memoryview,
    backend: str = "auto",
    mode: Mode = "RGB",
    *,
    max_pixels: int | None = TORCHVISION_PIXELS.max_pixels,
) -> NDArray[np.uint8]:
    """Return the picture as uint8 HWC, C-contiguous, in memory of its own; raise a DecodeError.

    mode "RGB" gives 3 channels, "L" 1, "native" those stored (indices of a palette). The pixels are those of Pillow's
    ``convert``: EXIF orientation not applied, alpha dropped. A backend named never falls back to another one
    (BackendMissingError); "auto" takes the first that is there. A picture of more than ``max_pixels`` (None: no limit)
    is refused before any of it is decoded.
    """
    try:
        # Items of other buffers are no Python ints: a numpy array's would overflow in the arithmetic of headers.
        view = data if isinstance(data, bytes) else memoryview(data).cast("B")
    except TypeError as error:
        msg = f"decode takes the bytes of an image file, not {type(data).__name__}; for a path: Path(path).read_bytes()"
        raise OptionError(msg) from error
    return decoder(backend, max_pixels=max_pixels)(view, mode)


def decoder(name: str = "auto", *, max_pixels: int | None = TORCHVISION_PIXELS.max_pixels) -> Decoder:
    """Return the Decoder called ``name``; raise OptionError or BackendMissingError."""
    if name == "auto":
        return _first(_AUTO, max_pixels)
    row = row_of({"auto": Row(""), **BACKENDS}, name, "decoder")
    try:
        made = load(row)()
        made.max_pixels = max_pixels
    except Exception as error:
        msg = f"decoder {name!r} is not usable here ({_reason(error)}); install it: {row.install}"
        raise BackendMissingError(msg) from error
    return cast("Decoder", made)


def batch_decoder(
    name: str = "auto",
    threads: int = 1,
    *,
    max_pixels: int | None = TORCHVISION_PIXELS.max_pixels,
    fast: bool = False,
) -> BatchDecoder:
    """Return a BatchDecoder of ``threads`` threads; raise OptionError or BackendMissingError.

    fast: gives up exactness for speed (scaled IDCT, plain chroma upsampling); the compiled core's alone.
    """
    found = backend_in_use(name)
    if fast and found != "native":
        msg = (
            f"fidelity 'fast' is the compiled core's, and the decoder here is {found!r}: take 'exact', or "
            f"decoder='auto' with the core ({BACKENDS['native'].install})"
        )
        raise OptionError(msg)
    if found == "native":
        try:
            return cast("BatchDecoder", load(_NATIVE_BATCH)(threads, max_pixels=max_pixels, fast=fast))
        except ImportError as error:
            msg = f"the compiled core is not usable ({_reason(error)}); install it: {BACKENDS['native'].install}"
            raise BackendMissingError(msg) from error
    from fastdata.decoding.threaded_batch import ThreadedBatchDecoder  # noqa: PLC0415  brings Pillow

    return ThreadedBatchDecoder(decoder(found, max_pixels=max_pixels), threads)


def backend_in_use(name: str = "auto") -> str:
    """Return the backend that ``batch_decoder(name)`` takes: "auto" is the compiled core where it was built.

    A core that was built and does not load raises ImportError: the slower way is not taken in silence.
    """
    if name != "auto":
        row_of(BACKENDS, name, "decoder")
        return name
    from fastdata.decoding.native_decoder import available  # noqa: PLC0415  brings Pillow

    if available():
        return "native"
    for other in _AUTO[:-1]:
        try:
            decoder(other)
        except BackendMissingError:
            continue
        return other
    return _AUTO[-1]


def decoders() -> tuple[DecoderInfo, ...]:
    """Return every backend, installed or not, with its version or the line that installs it; never raises."""
    return tuple(_info(name, row) for name, row in BACKENDS.items())


def _first(names: tuple[str, ...], max_pixels: int | None) -> Decoder:
    for name in names[:-1]:
        try:
            return decoder(name, max_pixels=max_pixels)
        except BackendMissingError:
            continue
    return decoder(names[-1], max_pixels=max_pixels)


def _info(name: str, row: Row) -> DecoderInfo:
    _, distribution = _LIBRARIES[name]
    try:
        load(row)()
    except Exception as error:  # noqa: BLE001  a broken installation must not break the list
        return DecoderInfo(name, installed=False, version="", library=distribution, install=row.install,
                           reason=_reason(error))  # fmt: skip
    return DecoderInfo(name, installed=True, version=_version(name), library=distribution, install=row.install)


def _version(name: str) -> str:
    module, distribution = _LIBRARIES[name]
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return str(getattr(importlib.import_module(module), "__version__", ""))


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
