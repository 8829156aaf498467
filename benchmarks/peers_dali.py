"""DALI on the CPU: image_random_crop decodes the crop alone, resize antialiases, crop_mirror_normalize flips to CHW.

It runs without a GPU or its driver (device_id=None). Batches come by DALI's own iterator for torch.

    pip install nvidia-dali-cuda130
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from peers_settings import Settings


def open(folder: Path, settings: Settings) -> Any:  # noqa: A001, ANN401  the contract's name
    """Return a pipeline's images."""
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.base_iterator import LastBatchPolicy
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    @pipeline_def
    def pictures() -> Any:  # noqa: ANN401
        data, label = fn.readers.file(file_root=str(folder), random_shuffle=True, name="reader")
        part = fn.decoders.image_random_crop(data, device="cpu", output_type=types.RGB)
        part = fn.resize(part, size=(settings.size, settings.size), interp_type=types.INTERP_LINEAR, antialias=True)
        part = fn.crop_mirror_normalize(
            part,
            dtype=types.UINT8,
            output_layout="CHW",
            mirror=fn.random.coin_flip(),
            mean=[0.0, 0.0, 0.0],
            std=[1.0, 1.0, 1.0],
        )
        return part, label

    def start() -> Any:  # noqa: ANN401
        return DALIGenericIterator(
            pictures(batch_size=settings.batch_size, num_threads=settings.workers, device_id=None),
            ["image", "label"],
            reader_name="reader",
            auto_reset=True,
            last_batch_policy=LastBatchPolicy.DROP,
        )

    return _Images(start)


class _Images:
    def __init__(self, start: Callable[[], Any]) -> None:
        self._start = start
        self._loader: Any = None

    def __iter__(self) -> Iterator[Any]:
        if self._loader is None:
            self._loader = self._start()  # it makes batches from here on
        for outputs in self._loader:
            yield outputs[0]["image"]
