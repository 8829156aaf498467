"""A further field (masks, captions) of the samples that a pack has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fastdata.converters.report import Skipped
from fastdata.decoding.header import sniff
from fastdata.decoding.pixels import load_pixels
from fastdata.errors import NothingPackedError, OptionError, PackError, TooManySkippedError
from fastdata.types import Field, Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fastdata.converters.options import PackOptions
    from fastdata.stores.store import Store

__all__ = ["OF_THE_FILE", "Column"]

#: What the old pack says of its own file.
OF_THE_FILE = frozenset({"format", "format_version", "samples", "fields", "shards", "sealed", "seals", "columns"})


class Column:
    """Gives old samples the files of equal keys, as they are, and judges what came of it.

    ``added`` counts the samples that got the field, ``without`` those that did not; ``skipped`` names the files that
    fit no sample or do not decode.
    """

    def __init__(self, old: Store, field: str, stores: tuple[Store, ...], options: PackOptions) -> None:
        """Find the files by their keys; raise OptionError where the pack cannot have the field."""
        if field in old.fields:
            msg = f"{old.path} has a field {field!r} already; choose another name"
            raise OptionError(msg)
        if field in {"extras", "label", ""} or "/" in field:
            msg = f"a field cannot be called {field!r}; choose another name"
            raise OptionError(msg)
        self.classes, self.added, self.without, self._broken = old.classes, 0, 0, 0
        self.skipped: list[Skipped] = []
        self._places = {store.key(i): (store, i) for store in stores for i in range(len(store))}
        self._path, self._field, self._options = old.path, field, options

    def first(self, record: Record) -> Record:
        """Return an old sample with the field, where there is one for it.

        Raises OptionError for a picture of another size than the sample's, PackError for a broken one where on_error
        is "raise".
        """
        place = self._places.pop(record.key, None)
        value = None if place is None else self._value(record.key, *place)
        if value is None:
            self.without += 1
            return record
        more, size = value
        if 0 not in {record.width, record.height} and size != (record.width, record.height):
            msg = (
                f"{self._path}: key {record.key!r}: its {self._field} has {size[0]} x {size[1]} pixels, the picture "
                f"{record.width} x {record.height}; a field is stored as it is, so give it the picture's size "
                "(nothing was added)"
            )
            raise OptionError(msg)
        self.added += 1
        return replace(record, fields=(*record.fields, more))

    def rest(self) -> Iterator[Record]:
        """Yield nothing, and name what fits no sample."""
        for key, (store, i) in self._places.items():
            self.skipped.append(Skipped(_path_of(store, i), key, "the pack has no sample with this key"))
        return iter(())

    def judge(self) -> None:
        """Raise where nothing fits, or too much is broken."""
        if not self.added:
            first = f"; the first: {self.skipped[0].path}: {self.skipped[0].reason}" if self._broken else ""
            msg = f"{self._path}: none of the {len(self.skipped)} files fits a sample's key; nothing was added{first}"
            raise NothingPackedError(msg)
        total = self.added + self._broken
        if self._broken > self._options.max_errors * total:
            first = f"{self.skipped[0].path}: {self.skipped[0].reason}"
            msg = f"{self._broken} of {total} files cannot be packed, more than max_errors; the first: {first}"
            raise TooManySkippedError(msg)

    def info(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Return the info of the new pack."""
        return {name: value for name, value in info.items() if name not in OF_THE_FILE}

    def _value(self, key: str, store: Store, i: int) -> tuple[Field, tuple[int, int]] | None:
        """Return a file as it is, and the (width, height) of its picture; None, and named, where it does not decode."""
        try:
            data, codec = bytes(store.read(i)), store.codec(i)
            store.check(i)
            if codec == "raw":
                size = int(store.index.width[i]), int(store.index.height[i])
            else:
                height, width, _ = load_pixels(data, self._options.policy).array.shape
                size = width, height
        except Exception as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split()) or 'no reason given'}"
            path = _path_of(store, i)
            if self._options.on_error == "raise":
                msg = f"{path} (key {key!r}) cannot be packed: {reason}; on_error='skip' passes it"
                raise PackError(msg) from error
            self.skipped.append(Skipped(path, key, reason))
            self._broken += 1
            return None
        return Field(self._field, sniff(data) if codec == "unknown" else codec, data), size


def _path_of(store: Store, i: int) -> str:
    return store.parts[int(store.index.fields["image"].part[i])]
