"""batch_op: a user's function of a whole batch of pixels, allowed in the engine's threads."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdata.transforms.pixel_road import checked

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["BatchOp", "batch_op"]


class BatchOp:
    """A function of a uint8 batch (n, H, W, C), for a Compose: made by ``batch_op``.

    Called with one picture (a PIL image, a uint8 tensor (C, H, W), or an array (H, W, C)) it runs the function on a
    batch of one and returns the same kind: that is what DataLoader's own workers do. Picklable where the function is.
    """

    def __init__(self, function: Callable[[NDArray[np.uint8]], NDArray[np.uint8] | None]) -> None:
        """Keep the function."""
        self.function = function
        functools.update_wrapper(self, function, updated=())

    def __call__(self, picture: Any) -> Any:  # noqa: ANN401  what comes in goes out
        """Return one picture as the function makes it; raise OptionError where it gives no batch back."""
        if isinstance(picture, np.ndarray):
            return self._one(picture)
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(picture, torch.Tensor):
            pixels = self._one(np.array(picture.permute(1, 2, 0).numpy()))
            return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
        from PIL import Image  # noqa: PLC0415  not for those who only mark a function

        pixels = np.array(picture)
        grey = pixels.ndim == 2  # noqa: PLR2004  (H, W)
        done = self._one(pixels[:, :, None] if grey else pixels)
        return Image.fromarray(np.ascontiguousarray(done[:, :, 0] if grey else done))

    def _one(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        done: NDArray[np.uint8] = checked(self.function, np.ascontiguousarray(pixels)[None])[0]
        return done

    def __repr__(self) -> str:
        """Name the function."""
        return f"batch_op({getattr(self.function, '__qualname__', repr(self.function))})"

    def __reduce__(self) -> tuple[Any, ...] | str:
        """Pickle by name where the decorated name is this object, else by the function."""
        name, module = getattr(self, "__qualname__", ""), sys.modules.get(getattr(self, "__module__", ""))
        return name if name and getattr(module, name, None) is self else (BatchOp, (self.function,))


def batch_op(function: Callable[[NDArray[np.uint8]], NDArray[np.uint8] | None]) -> BatchOp:
    """Mark ``function`` as one that the engine may run in its threads, on a whole batch; use it in a Compose.

    It gets uint8 (n, H, W, C), contiguous, its own to change, and returns a batch of the same shape and dtype, or None
    if it changed that in place. It stands behind the geometry and before ToTensor scales to floats. It may run in
    several threads at once, so it should be quick or release the interpreter (numpy on large arrays, numba with nogil),
    and draw no random numbers from a generator that threads share: those are not repeatable.
    """
    return BatchOp(function)
