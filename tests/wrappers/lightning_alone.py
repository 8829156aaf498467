"""What test_two_ranks.py runs without torchrun: Lightning starts the other rank itself, after the loader was made."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytorch_lightning as pl
import torch
from torchvision import transforms as T

from fastdata.loader import FastLoader


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3 * 16 * 16, 3)
        self.seen = []

    def training_step(self, batch, _):
        images, labels = batch
        last = self.trainer.train_dataloader.last
        self.seen += last.indices[last.valid].tolist()
        return torch.nn.functional.cross_entropy(self.layer(images.flatten(1)), labels)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


def main():
    pack, out = sys.argv[1], Path(sys.argv[2])
    torch.set_num_threads(1)
    transform = T.Compose([T.Resize((16, 16)), T.ToTensor()])
    loader = FastLoader(pack, 4, shuffle=True, transform=transform, uneven="exact", num_workers=1)
    net = Net()
    trainer = pl.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, logger=False, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip
    trainer.fit(net, loader)
    (out / f"{trainer.global_rank}.json").write_text(json.dumps([len(loader), net.seen]))


if __name__ == "__main__":
    main()
