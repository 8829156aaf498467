"""torchcodec's JPEG decoder (0.17 and newer; its image decoders need no FFmpeg)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torchcodec.decoders

from fastdata.decoding.jpeg_adapter import AdaptedDecoder, is_sound_jpeg

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastdata.decoding.header_fields import Header

__all__ = ["make_decoder"]

_library: Any = torchcodec.decoders  # its names come by a star, which a type checker does not follow


def make_decoder() -> AdaptedDecoder:
    """Return a Decoder by torchcodec."""
    return AdaptedDecoder(_decode, _takes)


def _takes(data: bytes | memoryview, header: Header) -> bool:
    # torchcodec turns pictures as EXIF says, and has no switch for it.
    return header.orientation == 1 and is_sound_jpeg(data, header)


def _decode(data: bytes | memoryview, header: Header) -> NDArray[np.uint8]:  # noqa: ARG001  one signature for all
    # A copy of the encoded bytes, since torch wants writable memory.
    planes = _library.decode_jpeg(torch.from_numpy(np.array(np.frombuffer(data, np.uint8))), mode="UNCHANGED")
    return np.ascontiguousarray(planes.permute(1, 2, 0).numpy())
