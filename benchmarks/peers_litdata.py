"""LitData's StreamingDataset from local chunks of the JPEG files' bytes.

Variant "tensor" stores JPEG items, which LitData decodes to tensors itself, cropped by torchvision's tensor transforms;
variant "pil" stores bytes and decodes with Pillow.

    pip install litdata
"""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peers_settings import Images, torch_transform

if TYPE_CHECKING:
    from peers_settings import Settings


def prepare(folder: Path, settings: Settings) -> None:
    """Write the chunks."""
    import litdata

    paths = sorted(str(path) for path in folder.rglob("*.jpg"))
    classes = sorted({Path(path).parent.name for path in paths})
    chunks = str(settings.scratch / "chunks")
    write = partial(_sample, classes=classes, kind=settings.variant)
    litdata.optimize(write, paths, chunks, chunk_bytes="16MB", num_workers=1, verbose=False)


def open(folder: Path, settings: Settings) -> Any:  # noqa: A001, ANN401, ARG001  the contract's name and arguments
    """Return a StreamingDataLoader's images."""
    import litdata
    from torchvision.transforms import v2

    if settings.variant == "tensor":
        steps: Any = v2.Compose([v2.RandomResizedCrop(settings.size, antialias=True), v2.RandomHorizontalFlip()])
    else:
        steps = torch_transform(settings)
    data = litdata.StreamingDataset(
        str(settings.scratch / "chunks"), cache_dir=str(settings.scratch / "cache"), shuffle=True, drop_last=True,
        transform=partial(_pixels, steps=steps),
    )  # fmt: skip
    return Images(
        litdata.StreamingDataLoader(
            data,
            batch_size=settings.batch_size,
            num_workers=settings.workers,
            persistent_workers=True,
            prefetch_factor=4,
            drop_last=True,
        )
    )


def _sample(path: str, classes: list[str], kind: str) -> dict[str, Any]:
    from PIL import Image

    image: Any = Image.open(path) if kind == "tensor" else Path(path).read_bytes()
    return {"image": image, "label": classes.index(Path(path).parent.name)}


def _pixels(sample: dict[str, Any], *_: object, steps: Any) -> tuple[Any, int]:  # noqa: ANN401
    from PIL import Image

    image = sample["image"]
    if isinstance(image, (bytes, memoryview)):
        image = Image.open(io.BytesIO(image)).convert("RGB")
    return steps(image), sample["label"]
