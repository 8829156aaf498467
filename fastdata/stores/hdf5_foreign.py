"""HDF5 files that others wrote: one array of pictures, and labels if they lie beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fastdata.errors import StoreFormatError
from fastdata.stores.hdf5_layout import read_small
from fastdata.stores.hdf5_places import encoded_places, pixel_places
from fastdata.stores.index import Index, KeyColumn, SpanColumn
from fastdata.stores.store import Contents
from fastdata.types import CODEC_IDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastdata.stores.mapping import FileBytes

__all__ = ["read_foreign"]

_LABELS = ("labels", "label", "targets", "target", "y")
_UNDERSTOOD = (
    "understood are packs of fastdata, and files with exactly one dataset of pictures in the root: uint8 of shape "
    "(N, H, W, 3), (N, H, W, 1) or (N, H, W), contiguous or in unfiltered chunks of whole pictures, or encoded images, "
    "vlen uint8 (N,), contiguous; labels, label, targets, target or y (N numbers) may lie beside it"
)


def read_foreign(file: Any, data: FileBytes) -> Contents:  # noqa: ANN401  h5py has no types
    """Return a foreign file's pictures, raw or encoded; keys are their numbers. Raises StoreFormatError."""
    import h5py  # noqa: PLC0415

    where, size = data.path, data.size
    # Links are not followed, so a file cannot make us open another one.
    datasets = [
        name
        for name in file
        if isinstance(file.get(name, getlink=True), h5py.HardLink) and isinstance(file[name], h5py.Dataset)
    ]
    pixels = [name for name in datasets if _is_pixels(file[name])]
    values = [name for name in datasets if h5py.check_vlen_dtype(file[name].dtype) == np.uint8 and file[name].ndim == 1]
    if len(pixels) + len(values) != 1:
        found = ", ".join(f"{name} {file[name].dtype} {file[name].shape}" for name in datasets[:10]) or "no dataset"
        msg = f"{where}: no layout that is understood (in its root: {found}); {_UNDERSTOOD}"
        raise StoreFormatError(msg)
    if pixels:
        places, codec, (height, width) = pixel_places(file, pixels[0], where, size), "raw", file[pixels[0]].shape[1:3]
    else:
        places, codec, height, width = encoded_places(file, values[0], data), "unknown", 0, 0
    n = len(places.offset)
    image = SpanColumn(np.zeros(n, np.int32), *places, np.full(n, CODEC_IDS[codec], np.uint8), np.zeros(n, np.uint32))
    index = Index(
        _number_keys(n),
        _labels(file, datasets, where, n, size),
        np.full(n, width, np.int32),
        np.full(n, height, np.int32),
        {"image": image},
    )
    index.check(where)
    return Contents(where, "hdf5", [where], index, {})


def _is_pixels(dataset: Any) -> bool:  # noqa: ANN401
    shape = dataset.shape
    return (
        dataset.dtype == np.uint8
        and shape is not None
        and (len(shape) == 3 or (len(shape) == 4 and shape[3] in {1, 3}))  # noqa: PLR2004  N, H, W and C
        and max(shape) < 2**31
    )


def _labels(file: Any, datasets: list[str], where: str, n: int, size: int) -> NDArray[Any] | None:  # noqa: ANN401
    for name in _LABELS:
        if name not in datasets:
            continue
        dataset = file[name]
        if dataset.dtype.kind not in "iuf" or dataset.shape is None or dataset.shape[:1] != (n,):
            continue
        array = read_small(file, name, where, size)
        if array.ndim == 2 and array.shape[1] > 1:  # noqa: PLR2004
            return array.astype(np.float32)
        return array.reshape(n).astype(np.float64 if array.dtype.kind == "f" else np.int64)
    return None


def _number_keys(n: int) -> KeyColumn:
    width = max(8, len(str(n)))
    # Fixed width: one array of digits, and a NUL behind each key.
    blob = np.zeros((n, width + 1), np.uint8)
    numbers = np.arange(n, dtype=np.int64)
    for place in range(width):
        blob[:, width - 1 - place] = ord("0") + numbers // 10**place % 10
    return KeyColumn(blob.reshape(-1), np.arange(n + 1, dtype=np.int64) * (width + 1))
