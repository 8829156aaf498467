"""Names of our HDF5 layout, and where a dataset's bytes lie: never through links, filters or other files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastdata.errors import StoreFormatError, TruncatedStoreError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "BLOCK_BYTES",
    "COLUMNS",
    "FIELD_COLUMNS",
    "MARK",
    "Span",
    "contiguous_span",
    "hard_link",
    "names_of",
    "read_small",
]

#: The attribute of the root that marks our packs; its value is the layout's version.
MARK = "fastdata_version"
#: A block is written when it has so many bytes; a larger value has a block alone.
BLOCK_BYTES = 64 << 20
#: Datasets of the root, and what the Index calls them.
COLUMNS = {
    "labels": "label",
    "width": "width",
    "height": "height",
    "keys/blob": "key_blob",
    "keys/offset": "key_offset",
}
#: Datasets of one field: of the image in the root, of the others under fields/NAME/.
FIELD_COLUMNS = ("part", "start", "length", "codec", "checksum")


class Span(NamedTuple):
    """Where a dataset lies in its file: dtype, shape, offset and length in bytes."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int
    nbytes: int


def hard_link(file: Any, path: str, where: str) -> Any:  # noqa: ANN401  h5py has no types
    """Return the object at ``path``; raise StoreFormatError where a link leads elsewhere, or nothing is there."""
    import h5py  # noqa: PLC0415

    here = file
    for name in path.split("/"):
        link = here.get(name, getlink=True) if isinstance(here, h5py.Group) else None
        if not isinstance(link, h5py.HardLink):
            what = "is not there" if link is None else "is a link to elsewhere, which is not followed"
            msg = f"{where}: {path} {what}; pack again"
            raise StoreFormatError(msg)
        here = here[name]
    return here


def names_of(file: Any, path: str, where: str) -> list[str]:  # noqa: ANN401
    """Return the names in a group, none where it is absent."""
    import h5py  # noqa: PLC0415

    if path not in file:
        return []
    group = hard_link(file, path, where)
    if not isinstance(group, h5py.Group):
        msg = f"{where}: {path} is no group; pack again"
        raise StoreFormatError(msg)
    return list(group)


def contiguous_span(file: Any, path: str, where: str, size: int) -> Span:  # noqa: ANN401
    """Return where the dataset at ``path`` lies in a file of ``size`` bytes.

    Raises StoreFormatError unless it is one run of plain bytes in this very file, TruncatedStoreError where that
    reaches beyond the end.
    """
    import h5py  # noqa: PLC0415

    dataset = hard_link(file, path, where)
    if not isinstance(dataset, h5py.Dataset) or dataset.dtype.kind not in "iufb" or dataset.shape is None:
        msg = f"{where}: {path} is no dataset of numbers"
        raise StoreFormatError(msg)
    shape, dtype = tuple(int(n) for n in dataset.shape), dataset.dtype
    nbytes = dtype.itemsize
    for n in shape:  # Python's integers do not wrap
        nbytes *= n
    if nbytes == 0:
        return Span(dtype, shape, 0, 0)
    plist = dataset.id.get_create_plist()
    offset = dataset.id.get_offset()
    if (
        plist.get_layout() != h5py.h5d.CONTIGUOUS
        or plist.get_external_count()
        or plist.get_nfilters()
        or offset is None
    ):
        msg = (
            f"{where}: {path} is not contiguous (chunked, compressed, virtual or external data are not read): pack it "
            "again, or write it with h5py's create_dataset(name, data=array)"
        )
        raise StoreFormatError(msg)
    if offset + nbytes > size:
        msg = f"{where}: {path} ends at byte {offset + nbytes}, the file has {size}: it was cut short; copy it again"
        raise TruncatedStoreError(msg)
    return Span(dtype, shape, int(offset), nbytes)


def read_small(file: Any, path: str, where: str, size: int) -> NDArray[Any]:  # noqa: ANN401
    """Return the numbers of a contiguous dataset as an array of its own."""
    span = contiguous_span(file, path, where, size)
    return np.asarray(file[path][()]) if span.nbytes else np.zeros(span.shape, span.dtype)
