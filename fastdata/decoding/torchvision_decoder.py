"""torchvision's JPEG decoder, called as the operator it is: the public function warns of its deprecation (0.29)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
import torchvision.io  # noqa: F401  registers the operator

from fastdata.decoding.jpeg_adapter import AdaptedDecoder, is_sound_jpeg

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastdata.decoding.header_fields import Header

__all__ = ["make_decoder"]


_UNCHANGED = 0  # torchvision.io.ImageReadMode.UNCHANGED


def make_decoder() -> AdaptedDecoder:
    """Return a Decoder by torchvision; raise AttributeError where its image operators are not built."""
    operator = torch.ops.image.decode_jpeg

    def run(data: bytes | memoryview, header: Header) -> NDArray[np.uint8]:  # noqa: ARG001  one signature for all
        # A copy of the encoded bytes, since torch wants writable memory.
        planes = operator(torch.from_numpy(np.array(np.frombuffer(data, np.uint8))), _UNCHANGED, False)  # noqa: FBT003
        return np.ascontiguousarray(planes.permute(1, 2, 0).numpy())

    return AdaptedDecoder(run, is_sound_jpeg)
