"""What the iterators that lie over another one's batches have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

__all__ = ["Over"]


class Over:
    """An iterator over the batches of another; ``__next__`` is its own, and what it does not have is the other's."""

    def __init__(self, batches: Iterator[Any]) -> None:
        """Borrow the inner iterator, as ``_batches``."""
        self._batches = batches

    def __iter__(self) -> Self:
        """Return the iterator."""
        return self

    def __next__(self) -> Any:  # noqa: ANN401  a batch is of any type
        """Return the next batch."""
        return next(self._batches)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        """Return the inner iterator's attribute."""
        if name == "_batches":  # a copy that has no attributes yet
            raise AttributeError(name)
        return getattr(self._batches, name)
