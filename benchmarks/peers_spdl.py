"""SPDL: its pipeline of threads, FFmpeg's filters for the crop, the scaling (bilinear) and the flip of each picture.

It needs FFmpeg's libraries, version 4 to 9 (Debian 12 has 5):

    apt-get install -y libavdevice59
    pip install spdl-core spdl-io
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peers_settings import random_box

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peers_settings import Settings


def open(folder: Path, settings: Settings) -> Any:  # noqa: A001, ANN401  the contract's name
    """Return a pipeline's images; raise ImportError where FFmpeg's libraries are missing."""
    import spdl.io

    try:
        spdl.io.demux_config()
    except RuntimeError as error:
        msg = f"spdl needs FFmpeg's libraries: {str(error)[:200]}"
        raise ImportError(msg) from error
    return _Images(sorted(str(path) for path in folder.rglob("*.jpg")), settings)


class _Images:
    def __init__(self, paths: list[str], settings: Settings) -> None:
        self._paths, self._settings, self._draw = paths, settings, random.Random(0)  # noqa: S311  crops

    def __iter__(self) -> Iterator[Any]:
        import spdl.pipeline

        paths = self._draw.sample(self._paths, len(self._paths))
        builder = spdl.pipeline.PipelineBuilder().add_source(paths)
        # Frames of one batch come from several threads and must keep no order.
        builder = builder.pipe(self._frames, concurrency=self._settings.workers, output_order="completion")
        builder = builder.aggregate(self._settings.batch_size, drop_last=True).pipe(_batch).add_sink(3)
        pipeline = builder.build(num_threads=self._settings.workers)
        with pipeline.auto_stop():
            yield from pipeline

    def _frames(self, path: str) -> Any:  # noqa: ANN401
        import spdl.io

        packets = spdl.io.demux_image(Path(path).read_bytes())
        codec = packets.codec
        left, top, width, height = random_box(codec.width, codec.height, self._draw)
        size = self._settings.size
        flip = ",hflip" if self._draw.random() < 0.5 else ""  # noqa: PLR2004  every second one
        steps = f"crop={width}:{height}:{left}:{top}:exact=1,scale={size}:{size}:flags=bilinear{flip},format=rgb24"
        return spdl.io.decode_packets(packets, filter_desc=steps)


def _batch(frames: list[Any]) -> Any:  # noqa: ANN401
    import spdl.io

    return spdl.io.to_torch(spdl.io.convert_frames(frames)).permute(0, 3, 1, 2)
