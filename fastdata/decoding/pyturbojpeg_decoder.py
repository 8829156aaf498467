"""PyTurboJPEG 1.x: the system's libturbojpeg by ctypes."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn, cast

import turbojpeg

from fastdata.decoding.jpeg_adapter import AdaptedDecoder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fastdata.decoding.header_fields import Header

__all__ = ["make_decoder"]


def make_decoder() -> AdaptedDecoder:
    """Return a Decoder by PyTurboJPEG; raise RuntimeError or OSError where the system has no libturbojpeg."""
    library = _library()

    def run(data: bytes | memoryview, header: Header) -> NDArray[np.uint8]:
        colours = turbojpeg.TJPF_GRAY if header.channels == 1 else turbojpeg.TJPF_RGB
        return cast("NDArray[np.uint8]", library.decode(data, pixel_format=colours))

    return AdaptedDecoder(run)


@cache  # finding the library starts ldconfig, and a compiler where there is one
def _library() -> Any:  # noqa: ANN401  PyTurboJPEG has no types
    library = turbojpeg.TurboJPEG()
    # PyTurboJPEG shows libjpeg's warnings as Python warnings and hands out the picture; here a warning is a refusal,
    # which the reference judges.
    library._TurboJPEG__report_error = _refuse  # noqa: SLF001  there is no public switch
    return library


def _refuse(*_: object) -> NoReturn:
    msg = "libturbojpeg refuses or warns"
    raise OSError(msg)
