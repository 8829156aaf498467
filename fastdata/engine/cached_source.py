"""A Source whose records stay in memory after their first use: encoded as they are, or as the pixels of the picture."""

from __future__ import annotations

import os
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdata.decoding.header import probe
from fastdata.engine.shared_arena import HEAD_WORDS
from fastdata.errors import DecodeError
from fastdata.types import CODEC_IDS, Encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from fastdata.engine.shared_arena import SharedArena
    from fastdata.engine.source import Source

    WholeDecoder = Callable[[memoryview, int], NDArray[np.uint8] | None]

__all__ = ["CachedSource", "Hits"]

_RAW = CODEC_IDS["raw"]
_HEAD = 8 * HEAD_WORDS
# Words of a record's head. The number is written there, too: a record that does not know its own number is not used.
_LENGTH, _CODEC, _WIDTH, _HEIGHT, _STAMP0, _STAMP1, _NUMBER = range(7)


@dataclass(slots=True)
class Hits:
    """How many records of this process came from the cache, and how many did not; safe for many threads."""

    # Each thread counts for itself, so that none is lost: a lock might be held at a fork.
    _by_thread: dict[int, list[int]] = field(default_factory=dict)

    @property
    def hits(self) -> int:
        """Those that came from the cache."""
        return sum(hits for hits, _ in self._by_thread.copy().values())

    @property
    def misses(self) -> int:
        """Those that did not."""
        return sum(misses for _, misses in self._by_thread.copy().values())

    def count(self, hits: int, misses: int) -> None:
        """Add to both."""
        mine = self._by_thread.setdefault(threading.get_ident(), [0, 0])
        mine[0] += hits
        mine[1] += misses


class CachedSource:
    """Gives what ``source`` gives, from memory where it was given before; safe for many threads and processes.

    With ``decode_whole`` (one encoded picture and its codec in, uint8 HWC or None out) pictures are kept as raw records
    that need no decoding; where it gives None or raises a DecodeError, the encoded record is kept, and whoever decodes
    it says what is wrong with it, each time anew. With ``stamped`` a record is used only as long as its key is the one
    it was stored with: an ImageFolder's rows may change. Bytes that change on disk are not seen.
    """

    def __init__(
        self,
        source: Source,
        arena: SharedArena,
        *,
        decode_whole: WholeDecoder | None = None,
        threads: int = 0,
        stamped: bool = False,
        hits: Hits | None = None,
    ) -> None:
        """Borrow the source and the arena (when it is gone, the source is read); start nothing.

        threads: how many decode the records that are new, 0 for the caller's.
        """
        self._source, self._decode_whole = source, decode_whole
        # Weak: the keys of a batch that somebody keeps refer to their source, and must not hold gigabytes with it.
        self._arena = weakref.ref(arena)
        self._threads, self._stamped, self._hits = threads, stamped, hits or Hits()
        self._executor: tuple[int, ThreadPoolExecutor] | None = None

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._source)

    def labels(self, indices: NDArray[np.int64]) -> NDArray[Any] | None:
        """Return the source's labels."""
        return self._source.labels(indices)

    def key(self, index: int) -> str:
        """Return the key of a sample."""
        return self._source.key(index)

    def check(self, index: int) -> None:
        """Check the source's own bytes."""
        self._source.check(index)

    def fetch(self, indices: NDArray[np.int64]) -> Encoded:
        """Return the records: those at hand from the shared memory, without a copy, the others from the source."""
        arena = self._arena()
        if arena is None:
            return self._source.fetch(indices)
        stamps = self._stamps(indices)
        places = arena.find(indices)
        at = np.flatnonzero(places)
        heads = arena.heads(places[at])
        good = heads[:, _NUMBER] == indices[at]
        if self._stamped:
            good &= (heads[:, _STAMP0 : _STAMP1 + 1] == stamps[at]).all(axis=1)
        if not good.all():
            at, heads = at[good], heads[good]
        self._hits.count(len(at), len(indices) - len(at))
        if len(at) == len(indices):
            return _kept(arena, places + _HEAD, heads)
        missing = np.ones(len(indices), bool)
        missing[at] = False
        new = self._new(arena, indices[missing], stamps[missing])
        return _merged(len(indices), (at, _kept(arena, places[at] + _HEAD, heads)), (np.flatnonzero(missing), new))

    def _new(self, arena: SharedArena, indices: NDArray[np.int64], stamps: NDArray[np.int64]) -> Encoded:
        """Fetch from the source, decode where asked to, store, and return what was stored."""
        encoded = self._source.fetch(indices)
        if arena.full:
            return encoded
        encoded = _sized(encoded)
        if self._decode_whole is not None:
            encoded = self._decoded(encoded)
        heads = np.zeros((len(encoded), HEAD_WORDS), np.int64)
        heads[:, _LENGTH], heads[:, _CODEC] = encoded.length, encoded.codec
        heads[:, _WIDTH], heads[:, _HEIGHT] = encoded.width, encoded.height
        heads[:, _STAMP0 : _STAMP1 + 1], heads[:, _NUMBER] = stamps, indices
        views = [encoded.views[i] for i in range(len(encoded))]
        arena.put(indices.tolist(), heads, [(view,) for view in views])
        return encoded

    def _decoded(self, encoded: Encoded) -> Encoded:
        rows = [row for row, codec in enumerate(encoded.codec.tolist()) if codec != _RAW and encoded.width[row] > 0]
        views = [encoded.views[row] for row in rows]
        pixels = self._map(self._whole, views, encoded.codec[rows].tolist())
        # A picture of another size than its index says would be cropped elsewhere: its decoder shall say so.
        sizes = zip(encoded.height[rows].tolist(), encoded.width[rows].tolist(), strict=True)
        done = {
            row: picture
            for row, picture, size in zip(rows, pixels, sizes, strict=True)
            if picture is not None and picture.shape[:2] == size
        }
        if not done:
            return encoded
        at = np.fromiter(done, np.int64, len(done))
        address, length, codec = encoded.address.copy(), encoded.length.copy(), encoded.codec.copy()
        address[at] = [picture.__array_interface__["data"][0] for picture in done.values()]
        length[at] = [picture.nbytes for picture in done.values()]
        codec[at] = _RAW
        all_views = [done[row].reshape(-1).data if row in done else encoded.views[row] for row in range(len(encoded))]
        return replace(encoded, address=address, length=length, codec=codec, views=all_views, keep=(encoded.keep, done))

    def _whole(self, view: memoryview, codec: int) -> NDArray[np.uint8] | None:
        assert self._decode_whole is not None
        try:
            return self._decode_whole(view, codec)
        except DecodeError:
            return None

    def _map(self, function: WholeDecoder, *columns: Sequence[Any]) -> list[NDArray[np.uint8] | None]:
        if self._threads < 1:
            return list(map(function, *columns))
        process = os.getpid()
        executor = self._executor
        if executor is None or executor[0] != process:  # two feeders may both come here: one pool too many dies unused
            executor = process, ThreadPoolExecutor(self._threads, "fastdata-cache")
            self._executor = executor
        return list(executor[1].map(function, *columns))

    def _stamps(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        if not self._stamped:
            return np.zeros((len(indices), 2), np.int64)
        keys = (self._source.key(index).encode("utf-8", "surrogateescape") for index in indices.tolist())
        return np.frombuffer(b"".join(blake2b(key, digest_size=16).digest() for key in keys), np.int64).reshape(-1, 2)


def _kept(arena: SharedArena, starts: NDArray[np.int64], heads: NDArray[np.int64]) -> Encoded:
    length = heads[:, _LENGTH].copy()
    return Encoded(
        starts.astype(np.uint64) + np.uint64(arena.address),
        length,
        heads[:, _CODEC].astype(np.uint8),
        heads[:, _WIDTH].astype(np.int32),
        heads[:, _HEIGHT].astype(np.int32),
        _ArenaViews(arena.data, starts, length),  # type: ignore[arg-type]  # what is used of a Sequence
        arena.data,
    )


class _ArenaViews:
    """The views of records in an arena, each made when it is asked for."""

    __slots__ = ("_data", "_length", "_start")

    def __init__(self, data: NDArray[np.uint8], start: NDArray[np.int64], length: NDArray[np.int64]) -> None:
        self._data, self._start, self._length = data, start, length

    def __len__(self) -> int:
        return len(self._start)

    def __getitem__(self, i: int) -> memoryview:
        start = int(self._start[i])
        return self._data.data[start : start + int(self._length[i])]


class _MergedViews:
    """The views of a batch that comes from two places."""

    __slots__ = ("_where",)

    def __init__(self, where: list[tuple[Sequence[memoryview], int]]) -> None:
        self._where = where

    def __len__(self) -> int:
        return len(self._where)

    def __getitem__(self, i: int) -> memoryview:
        views, row = self._where[i]
        return views[row]


def _merged(n: int, *parts: tuple[NDArray[np.int64], Encoded]) -> Encoded:
    """Return one batch of ``n`` of parts (rows, records)."""
    address, length, codec = np.zeros(n, np.uint64), np.zeros(n, np.int64), np.zeros(n, np.uint8)
    width, height = np.zeros(n, np.int32), np.zeros(n, np.int32)
    where: list[Any] = [None] * n
    for rows, part in parts:
        address[rows], length[rows], codec[rows] = part.address, part.length, part.codec
        width[rows], height[rows] = part.width, part.height
        for at, row in enumerate(rows.tolist()):
            where[row] = (part.views, at)
    keep = tuple(part.keep for _, part in parts)
    return Encoded(address, length, codec, width, height, _MergedViews(where), keep)  # type: ignore[arg-type]


def _sized(encoded: Encoded) -> Encoded:
    """Return the batch with the sizes and codecs that its headers tell, where the source does not know them.

    A record without a readable header keeps its zeros: who decodes it says what is wrong.
    """
    unknown = np.flatnonzero((encoded.width == 0) | (encoded.height == 0))
    if not len(unknown):
        return encoded
    width, height, codec = encoded.width.copy(), encoded.height.copy(), encoded.codec.copy()
    for row in unknown.tolist():
        try:
            header = probe(encoded.views[row])
        except DecodeError:
            continue
        width[row], height[row] = header.width, header.height
        if not codec[row]:
            codec[row] = CODEC_IDS[header.codec]
    return replace(encoded, width=width, height=height, codec=codec)
