"""What each of the two processes of test_two_ranks.py runs under torchrun: each library over FastLoaders, gloo."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.utils.data import SequentialSampler
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

from fastdata.loader import FastLoader

TRAIN = T.Compose([T.RandomResizedCrop(16), T.PILToTensor()])
FLOAT = T.Compose([T.Resize((16, 16)), T.ToTensor()])
SHUFFLED = {"shuffle": True, "seed": 3, "uneven": "exact", "num_workers": 1}


def gathered(mine):
    everybody = [None] * dist.get_world_size()
    dist.all_gather_object(everybody, mine)
    return everybody


def checkpoint(pack, folder):
    """torch.distributed.checkpoint takes the loader as a Stateful, beside tensors."""
    loader = FastLoader(pack, 4, transform=TRAIN, **SHUFFLED)
    batches = iter(loader)
    next(batches)
    dcp.save({"loader": loader, "weights": torch.ones(2)}, checkpoint_id=folder)
    rest = [[loader.last.indices.tolist(), int(images.sum())] for images, _ in batches]
    fresh = FastLoader(pack, 4, transform=TRAIN, **SHUFFLED)
    dcp.load({"loader": fresh, "weights": torch.zeros(2)}, checkpoint_id=folder)
    return {"rest": rest, "resumed": [[fresh.last.indices.tolist(), int(images.sum())] for images, _ in fresh]}


def metrics(pack):
    """An evaluation over all ranks, 21 samples: right where the prediction is the label, wrong for class 1."""
    from torchmetrics.classification import MulticlassAccuracy

    accuracy = MulticlassAccuracy(3, average="micro")
    loader = FastLoader(pack, 4, transform=FLOAT, num_workers=1)
    for _, labels in loader:
        guess = torch.where(labels == 1, 0, labels)
        valid = torch.from_numpy(loader.last.valid)
        accuracy.update(guess[valid], labels[valid])
    correct = sum(int(value) for value in gathered(int(accuracy.tp.sum())))
    return {"accuracy": float(accuracy.compute()), "correct": correct}


def accelerated(pack, images):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    found = {}
    for name, loader in (
        ("path", FastLoader(pack, 4, transform=TRAIN, num_workers=1, seed=3, shuffle=True)),
        ("eval", FastLoader(pack, 4, transform=FLOAT, num_workers=1)),
        ("drop", FastLoader(pack, 4, transform=TRAIN, num_workers=1, uneven="drop")),
        ("folder", FastLoader(ImageFolder(images, FLOAT), 4)),
        ("folder, shuffled", FastLoader(ImageFolder(images, FLOAT), 4, shuffle=True)),
        ("folder, seed", FastLoader(ImageFolder(images, FLOAT), 4, shuffle=True, seed=3)),
    ):
        prepared = accelerator.prepare(loader)
        labels, ends = [], []
        for _, mine in prepared:
            labels += accelerator.gather_for_metrics(mine).tolist()
            ends.append(accelerator.gradient_state.end_of_dataloader)
        explained = prepared.explain()
        found[name] = {"kept": prepared is loader, "labels": sorted(labels), "ends": ends, "explained": explained}
    # A sampler that is not DistributedSampler's kind: accelerate shares out a plain DataLoader, and the loader says so.
    folder = ImageFolder(images, FLOAT)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        prepared = accelerator.prepare(FastLoader(folder, 4, sampler=SequentialSampler(folder)))
    labels = [label for _, mine in prepared for label in accelerator.gather_for_metrics(mine).tolist()]
    found["sampler"] = {
        "kept": isinstance(prepared, FastLoader),
        "labels": sorted(labels),
        "said": [str(w.message) for w in caught],
    }
    return found


def lightning(pack, images):
    import pytorch_lightning as pl

    class Net(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3 * 16 * 16, 3)
            self.seen = []

        def training_step(self, batch, _):
            images, labels = batch
            loader = self.trainer.train_dataloader
            self.seen.append([loader.last.indices.tolist(), loader.last.valid.tolist(), loader.explain()])
            return torch.nn.functional.cross_entropy(self.layer(images.float().flatten(1)), labels)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.01)

    found = {}
    for name, loader in (
        ("path", FastLoader(pack, 4, transform=TRAIN, **SHUFFLED)),
        ("folder", FastLoader(ImageFolder(images, FLOAT), 4, shuffle=True, num_workers=1)),
    ):
        net = Net()
        trainer = pl.Trainer(
            accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, logger=False, enable_progress_bar=False,
            enable_model_summary=False, enable_checkpointing=False,
        )  # fmt: skip
        trainer.fit(net, loader)
        found[name] = {"seen": net.seen, "sampler": type(trainer.train_dataloader.sampler).__name__}
    return found


def main():
    pack, images, out = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found = {
        "checkpoint": gathered(checkpoint(pack, out / "checkpoint")),
        "metrics": gathered(metrics(pack)),
        "accelerate": gathered(accelerated(pack, images)),
        "lightning": gathered(lightning(pack, images)),
    }
    if dist.get_rank() == 0:
        (out / "found.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
