"""What ``FastLoader(cache=...)`` keeps: one arena for one data set, and the words ``explain`` has for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastdata.decoding.facade import backend_in_use, decoder
from fastdata.decoding.header import probe
from fastdata.decoding.jpeg_adapter import is_usual_jpeg
from fastdata.engine.arena_meeting import meet
from fastdata.engine.cached_source import CachedSource, Hits
from fastdata.engine.memory import available_memory
from fastdata.engine.shared_arena import SharedArena, smallest_arena
from fastdata.engine.source import StoreSource
from fastdata.errors import OptionError
from fastdata.types import CODEC_IDS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    import numpy as np
    from numpy.typing import NDArray

    from fastdata.engine.source import Source
    from fastdata.types import Mode

__all__ = ["LoaderCache", "cache_size"]

_KINDS = ("decoded", "encoded")
_JPEG = CODEC_IDS["jpeg"]
_MEBI = 1 << 20


def cache_size(cache_bytes: int | None, samples: int) -> int:
    """Return the bytes a cache may take: those asked for, or half of what is available; raise OptionError."""
    smallest = smallest_arena(samples)
    if cache_bytes is None:
        return max(available_memory() // 2, smallest)
    if isinstance(cache_bytes, bool) or not isinstance(cache_bytes, int) or cache_bytes < smallest:
        msg = f"cache_bytes={cache_bytes!r}: bytes, at least {smallest} for {samples} samples (1 << 30 is a gibibyte)"
        raise OptionError(msg)
    return cache_bytes


class LoaderCache:
    """Wraps a loader's source, epoch after epoch, around the same shared memory; picklable, close may come twice.

    The memory is made with the first epoch and freed by close or with the last process that has it.
    """

    def __init__(
        self, kind: str, cache_bytes: int | None, samples: int, *, place: Callable[[], tuple[int, int]]
    ) -> None:
        """Check the numbers; take no memory yet. place: says (rank, world size); several ranks share the memory."""
        if kind not in _KINDS:
            msg = f"cache={kind!r}: expected 'decoded', 'encoded' or None"
            raise OptionError(msg)
        cache_size(cache_bytes, samples)
        self._kind, self._cache_bytes, self._place = kind, cache_bytes, place
        self._arena: SharedArena | None = None
        self._about: Hashable = None
        self._hits = Hits()

    @classmethod
    def asked(
        cls, kind: str | None, cache_bytes: int | None, samples: int, *, place: Callable[[], tuple[int, int]]
    ) -> LoaderCache | None:
        """Return the cache that a loader's arguments ask for, or None; raise OptionError."""
        if kind is not None:
            return cls(kind, cache_bytes, samples, place=place)
        if cache_bytes is not None:
            msg = "cache_bytes= goes with cache='decoded' or 'encoded'"
            raise OptionError(msg)
        return None

    def wrap(self, source: Source, dataset: Any, mode: Mode, decoder_name: str, threads: int) -> CachedSource:  # noqa: ANN401
        """Return ``source`` behind the cache; threads: those that may decode, 0 for none but the caller's."""
        decoded = self._kind == "decoded"
        backend = backend_in_use(decoder_name)
        about = (_identity(dataset, source), self._kind, self._cache_bytes, *((backend, mode) if decoded else ()))
        if self._arena is None or self._about != about:
            size = cache_size(self._cache_bytes, len(source))
            self._about = about
            shared = self._place()[1] > 1
            self._arena = meet(len(source), size, about) if shared else SharedArena.make(len(source), size)
        self._hits = Hits()
        return CachedSource(
            source,
            self._arena,
            decode_whole=_whole_decoder(backend, mode) if decoded else None,
            threads=threads,
            stamped=not isinstance(source, StoreSource),  # rows that the user may change
            hits=self._hits,
        )

    def explain(self) -> str:
        """Return what is in the cache, as one line."""
        what = "pixels of whole pictures" if self._kind == "decoded" else "encoded records"
        if self._arena is None:
            limit = "half of the available memory" if self._cache_bytes is None else f"{self._cache_bytes:,} bytes"
            return f"cache: {what}, kept after their first use in memory that processes share, up to {limit}"
        state = self._arena.state
        line = (
            f"cache: {what}, {state.records} of {state.slots} samples in {state.bytes / _MEBI:,.1f} MiB of "
            f"{state.limit / _MEBI:,.1f}; last epoch here: {self._hits.hits} from it, {self._hits.misses} not"
        )
        if state.full:
            line += "; full: it takes no more (nothing is evicted), the other samples are read and decoded every time"
        if state.large:
            line += f"; {state.large} samples too large for it"
        return line

    def close(self) -> None:
        """Let go of the memory; the next ``wrap`` begins anew."""
        self._arena = None


def _whole_decoder(backend: str, mode: Mode) -> Callable[[memoryview, int], NDArray[np.uint8] | None]:
    """Return what makes the very pixels of which the loader's batch decoder resamples a crop.

    The core decodes no further into a JPEG than a crop needs, and does not look at what lies behind; so where it is in
    use, JPEGs that are odd or damaged stay encoded. All else comes from the reference and is resampled by the core.
    """
    if backend != "native":
        whole = decoder(backend)
        return lambda view, _: whole(view, mode)
    from fastdata.decoding.native_decoder import decode_by_core  # noqa: PLC0415  brings Pillow

    reference = decoder("pillow")

    def by_core(view: memoryview, codec: int) -> NDArray[np.uint8] | None:
        if codec != _JPEG:
            return reference(view, mode)
        header = probe(view)
        return decode_by_core(view, header) if mode == "RGB" and is_usual_jpeg(view, header) else None

    return by_core


def _identity(dataset: Any, source: Source) -> Hashable:  # noqa: ANN401
    """Return a value that is equal for two data sets, here or in another rank, only if their samples are."""
    store = getattr(dataset, "store", None)
    n = len(source)
    ends = (source.key(0), source.key(n - 1)) if n else ()
    if store is None:
        return "rows", os.path.abspath(getattr(dataset, "root", "")), n, ends  # noqa: PTH100  a str, maybe relative
    one_file_each = len(store.parts) >= n
    return store.kind, os.path.abspath(store.path), n, ends, () if one_file_each else tuple(map(_version, store.parts))  # noqa: PTH100


def _version(part: str) -> Hashable:
    try:
        stat = Path(part).stat()
    except OSError:
        return part
    return part, stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns
