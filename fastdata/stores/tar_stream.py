"""A tar read once from front to back, from anything with ``read``: a pipe, a socket, a decompressor."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, BinaryIO

from fastdata.errors import StoreFormatError
from fastdata.stores.json_values import parse_json
from fastdata.stores.tar_groups import LABEL_FIELDS, OnDuplicate, Sample, group, npy_shape
from fastdata.stores.tar_headers import StreamSource, members
from fastdata.stores.tar_names import field_codec
from fastdata.stores.tar_scan import store_field
from fastdata.types import Field, Record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

__all__ = ["stream_tar"]


def stream_tar(fileobj: BinaryIO, on_duplicate: OnDuplicate = "raise", where: str = "") -> Iterator[Record]:
    """Yield the samples of a tar that is read in sequence and never sought; memory is one sample, however long it is.

    ``where`` names the stream in errors. The grouping rules are those of ``read_tars``, but for one: keys are not
    remembered, so only neighbours can be found to be duplicates. Samples without an image are passed over.
    Raises DuplicateKeyError (unless "skip": the first counts), StoreFormatError, TruncatedStoreError.
    """
    source = StreamSource(fileobj, where or str(getattr(fileobj, "name", "<stream>")))
    for sample in group(members(source), source, Counter(), on_duplicate, whole=True):
        image = sample.image
        if image is not None:
            yield _record(sample, image, source.where)


def _record(sample: Sample, image: str, where: str) -> Record:
    label = sample.label()
    data, codec, width, height = memoryview(sample.parts[image].data), field_codec(image), 0, 0
    if image.lower() == "npy" and (shape := npy_shape(sample.parts[image].data)):
        codec, data, height, width = "raw", data[shape[0] :], shape[1], shape[2]
    fields = [Field("image", codec, data)]
    extras: dict[str, Any] = {}
    for name, part in sample.parts.items():
        if name == "json":
            extras = _extras(part.data, sample.key, where)
        elif name != image and (label is None or name not in LABEL_FIELDS):
            fields.append(Field(store_field(name), field_codec(name), part.data))
    fields[1:] = sorted(fields[1:], key=lambda f: f.name)  # as in a Store's record
    return Record(sample.key, tuple(fields), label, width, height, extras)


def _extras(data: bytes, key: str, where: str) -> dict[str, Any]:
    if not data:
        return {}
    try:
        value = parse_json(data)
    except ValueError as error:
        msg = f"{where}: the JSON of sample {key!r} is damaged: {error}"
        raise StoreFormatError(msg) from error
    return value if isinstance(value, dict) else {"extras": value}
