"""Writes packs as tar files that webdataset, DALI and ``tar`` read, with an index for random access beside them."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import zlib
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from fastdata.converters.atomic import Partial, partial_path, sync_folder, writing
from fastdata.converters.content import ContentHash
from fastdata.converters.tar_members import BLOCK, MemberPlan, Members, header_of, padded
from fastdata.converters.tar_old import dali_path, existing_files
from fastdata.errors import OptionError, PackError
from fastdata.stores.index import IndexBuilder
from fastdata.stores.sidecar import Shard, Sidecar, stamp_of, write_sidecar
from fastdata.stores.tar_names import ShardPattern, escape, shard_pattern
from fastdata.stores.tar_store import index_path_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastdata.converters.writers import WriterOptions
    from fastdata.types import Record

__all__ = ["TarWriter"]

_FORMAT_VERSION = 1
_SHARD_BYTES = 1_000_000_000  # where nobody says: webdataset's guides ask for 100 MB to some GB
_END = bytes(2 * BLOCK)
_BUFFER = 1 << 20


class TarWriter:
    """Writes ``out.tar``, or the set ``out-{000000..}.tar`` split by bytes or into a number of shards.

    A sample larger than the limit has a shard to itself. Each shard gets DALI's index (``.idx``); the set gets ours
    (``.fdindex``). While files get their names, ours stands there as ``.fdindex.partial``, and the set does not open;
    it gets its name last. Memory: the Index.
    """

    def __init__(self, dst: str | os.PathLike[str], options: WriterOptions) -> None:
        """Start under temporary names; raise OptionError, DestinationExistsError, PackError."""
        self._dst = os.fspath(dst)
        self._pattern = shard_pattern(self._dst)
        self._limits = _Limits(self._dst, self._pattern, options)
        self._overwrite = options.overwrite
        index_path = Path(index_path_of(self._dst))
        self._old = existing_files(self._dst, self._pattern, index_path, overwrite=options.overwrite)
        # An earlier run was stopped while files got their names: what is there is no whole set until this run is done.
        self._unsure = partial_path(index_path).exists()
        self._sidecar = Partial(index_path, overwrite=options.overwrite, keep=self._unsure)
        self._index, self._hash, self._members = IndexBuilder(), ContentHash(), Members()
        self._shards: list[_Shard] = []
        self._state = "writing"

    def write(self, record: Record) -> None:
        """Append one record; its members are never parted."""
        if self._state != "writing":
            msg = f"{self._dst}: this writer is finished; open another one"
            raise PackError(msg)
        members = [(m, header_of(record.key, m.ending, m.size)) for m in self._members.plan(record)]
        self._index.add(record.key, record.label, record.width, record.height)
        with writing(self._dst):
            shard = self._shard_for(sum(len(header) + padded(member.size) for member, header in members))
            for member, header in members:
                offset = shard.append(record.key, member, header)
                if member.field and not member.absent:
                    where = (len(self._shards) - 1, offset, len(member.data))
                    self._index.add_span(member.field, member.codec, where, zlib.crc32(member.data))
            shard.end_sample()
        self._hash.add(record)

    def finish(self, info: Mapping[str, Any]) -> None:
        """Close the last shard, write the indexes, sync, and give all files their names, the index last."""
        if self._state != "writing":
            return
        with writing(self._dst):
            if not self._shards:
                self._open_shard()
            self._shards[-1].close()
            self._write_sidecar(info)
            self._state = "renaming"
            for shard in self._shards:
                shard.commit()
            for path in self._old - {file for shard in self._shards for file in shard.files}:
                path.unlink(missing_ok=True)
            if self._old:  # before the set is whole: a power cut must not leave shards of the old one beside it
                sync_folder(self._sidecar.path.parent)
            self._sidecar.commit()
            self._state = "done"

    def abort(self) -> None:
        """Remove what was written; may be called twice and after finish.

        Where giving names failed half-way, the unfinished index stays: it is what says that the set is not whole.
        """
        for shard in self._shards:
            shard.abort()
        if self._state == "writing" and not self._unsure:
            self._sidecar.abort()
        self._state = "done"

    def _shard_for(self, size: int) -> _Shard:
        if not self._shards:
            return self._open_shard()
        shard = self._shards[-1]
        if self._pattern is None:
            return shard
        if self._limits.is_full(len(self._shards), len(self._index) - 1, shard.size + size + len(_END)):
            shard.close()
            return self._open_shard()
        return shard

    def _open_shard(self) -> _Shard:
        number = len(self._shards)
        if self._pattern and self._pattern.stop is not None and self._pattern.start + number > self._pattern.stop:
            msg = f"{self._dst}: all shards of the range are full; give a longer range, or {{000000..}}"
            raise OptionError(msg)
        path = self._pattern.name(number) if self._pattern else self._dst
        self._shards.append(_Shard(Path(path), overwrite=self._overwrite))
        return self._shards[-1]

    def _write_sidecar(self, info: Mapping[str, Any]) -> None:
        index = self._index.build()
        shards = [Shard(s.path.name, s.size, stamp_of(os.fspath(s.partial))) for s in self._shards]
        told = {
            **info,
            "format": "fastdata",
            "format_version": _FORMAT_VERSION,
            "samples": len(index),
            "fields": list(index.fields),
            "shards": len(shards),
            "content_hash": self._hash.hexdigest(),
            "seals": [[s.rest_sum, s.idx_sum] for s in self._shards],
        }
        write_sidecar(self._sidecar.path, Sidecar(told, shards, index.to_arrays()))
        # On the disk before the first shard has its name: a power cut between must not leave a set that looks foreign.
        with self._sidecar.path.open("rb+") as file:
            os.fsync(file.fileno())
        sync_folder(self._sidecar.path.parent)


class _Limits:
    """Says when a shard is full."""

    def __init__(self, dst: str, pattern: ShardPattern | None, options: WriterOptions) -> None:
        self._bytes, self._count, self._samples = options.shard_bytes, options.shard_count, options.samples
        if pattern is None:
            if self._bytes is not None or self._count is not None:
                name = re.sub(r"\.tar$", "", dst)
                msg = f"{dst}: a set of shards needs a name with a range; write {name}-{{000000..}}.tar"
                raise OptionError(msg)
            return
        if pattern.stop is not None and self._bytes is None and self._count is None:
            self._count = pattern.stop - pattern.start + 1
        if self._count is not None and self._samples is None:
            msg = f"{dst}: a number of shards needs the number of samples beforehand; give a size of shards instead"
            raise OptionError(msg)
        if self._count is None and self._bytes is None:
            self._bytes = _SHARD_BYTES

    def is_full(self, shards: int, written: int, size: int) -> bool:
        """Say whether a new shard begins, with ``shards`` begun, ``written`` samples, and ``size`` bytes to be."""
        if self._bytes is not None:
            return size > self._bytes
        # Shard k of c ends before sample (k + 1) * n / c: sizes differ by one at most.
        assert self._count is not None
        assert self._samples is not None
        return shards < self._count and written * self._count >= shards * self._samples


class _Shard:
    """One tar under its temporary name, and DALI's index of it."""

    def __init__(self, path: Path, *, overwrite: bool) -> None:
        self.path, self.size = path, 0
        self._tar = Partial(path, overwrite=overwrite)
        self._idx = Partial(dali_path(path), overwrite=overwrite)
        self._file: IO[bytes] | None = self._tar.path.open("xb", buffering=_BUFFER)
        # How many samples there are stands in the first line, so the lines wait here; beyond 4 MiB on the disk.
        self._lines = tempfile.SpooledTemporaryFile(max_size=4 << 20)  # noqa: SIM115  closed by close and abort
        self._samples, self._line = 0, list[str]()
        #: CRC-32 of what is no value of a record (headers, labels, padding), and of DALI's index.
        self.rest_sum = self.idx_sum = 0

    @property
    def partial(self) -> Path:
        """The tar's temporary path."""
        return self._tar.path

    @property
    def files(self) -> set[Path]:
        """The paths of the finished files."""
        return {self.path, self._idx.dst}

    def append(self, key: str, member: MemberPlan, header: bytes) -> int:
        """Write one member; return the offset of its value."""
        assert self._file is not None
        data = self.size + len(header)
        padding = bytes(padded(member.size) - member.size)
        is_value = member.field and not member.absent
        for piece in (header, member.before, member.data, padding):
            self._file.write(piece)
            if not (is_value and piece is member.data):
                self.rest_sum = zlib.crc32(piece, self.rest_sum)
        self.size = data + padded(member.size)
        # Names serve DALI's messages only, and its parser splits at white space.
        name = re.sub(r"\s", "_", f"{escape(key)}.{member.ending}")
        ending = re.sub(r"\s", "_", member.ending)
        self._line.append(f"{ending} {data} {member.size} {name}")
        return data + len(member.before)

    def end_sample(self) -> None:
        """Note the sample in DALI's index."""
        self._lines.write(" ".join(self._line).encode("utf-8", "surrogateescape") + b"\n")
        self._samples, self._line = self._samples + 1, []

    def close(self) -> None:
        """Write the end mark and DALI's index."""
        if self._file is None:
            return
        self._file.write(_END)
        self.rest_sum = zlib.crc32(_END, self.rest_sum)
        self._file.close()
        self._file = None
        self.size += len(_END)
        self._lines.seek(0)
        with self._idx.path.open("xb") as file:
            piece = f"v1.2 {self._samples}\n".encode()
            while piece:
                self.idx_sum = zlib.crc32(piece, self.idx_sum)
                file.write(piece)
                piece = self._lines.read(_BUFFER)
        self._lines.close()

    def commit(self) -> None:
        """Give both files their names."""
        self._tar.commit()
        self._idx.commit()

    def abort(self) -> None:
        """Remove both files if they have no names yet."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # on a full disk the last bytes cannot be written, but removed it can be
                self._file.close()
            self._file = None
        self._lines.close()
        self._tar.abort()
        self._idx.abort()
