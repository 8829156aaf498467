"""fastdata: pack a folder of images once, then feed PyTorch from the pack.

Names are imported when they are first used, so that ``import fastdata`` costs neither torch nor cv2 nor h5py.
"""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fastdata.dataset import PackedDataset as PackedDataset
    from fastdata.dataset import StreamDataset as StreamDataset
    from fastdata.decoding.facade import decode as decode
    from fastdata.decoding.facade import decoders as decoders
    from fastdata.engine.cached_dataset import cached as cached
    from fastdata.loader import FastLoader as FastLoader
    from fastdata.prefetch import CudaPrefetcher as CudaPrefetcher
    from fastdata.sampling.values import Balanced as Balanced
    from fastdata.sampling.values import Buckets as Buckets
    from fastdata.sampling.values import Mixture as Mixture
    from fastdata.sampling.values import Weighted as Weighted
    from fastdata.sampling.values import Windowed as Windowed
    from fastdata.stores.opener import open_store as open_store
    from fastdata.stores.store import Store as Store
    from fastdata.transforms.batch_op import batch_op as batch_op

_WHERE = {
    "Balanced": "fastdata.sampling.values",
    "Buckets": "fastdata.sampling.values",
    "Mixture": "fastdata.sampling.values",
    "Weighted": "fastdata.sampling.values",
    "Windowed": "fastdata.sampling.values",
    "CudaPrefetcher": "fastdata.prefetch",
    "FastLoader": "fastdata.loader",
    "PackedDataset": "fastdata.dataset",
    "StreamDataset": "fastdata.dataset",
    "cached": "fastdata.engine.cached_dataset",
    "batch_op": "fastdata.transforms.batch_op",
    "decode": "fastdata.decoding.facade",
    "decoders": "fastdata.decoding.facade",
    "Store": "fastdata.stores.store",
    "open_store": "fastdata.stores.opener",
}

__all__ = [
    "Balanced",
    "Buckets",
    "CudaPrefetcher",
    "FastLoader",
    "Mixture",
    "PackedDataset",
    "Store",
    "StreamDataset",
    "Weighted",
    "Windowed",
    "__version__",
    "batch_op",
    "cached",
    "decode",
    "decoders",
    "open_store",
]


def __getattr__(name: str) -> object:
    import importlib  # noqa: PLC0415  the module's own namespace stays clean

    try:
        module = _WHERE[name]
    except KeyError:
        msg = f"module 'fastdata' has no attribute {name!r}"
        raise AttributeError(msg) from None
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
