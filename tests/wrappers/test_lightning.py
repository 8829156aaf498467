"""Lightning's Trainer over a FastLoader: it rebuilds loaders, replaces samplers, and saves a loader's state."""

from __future__ import annotations

import inspect
from collections import Counter

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from torch.utils.data.distributed import DistributedSampler
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

from fastdata import Buckets
from fastdata.loader import FastLoader

TRAIN = T.Compose([T.RandomResizedCrop(16), T.RandomHorizontalFlip(), T.ToTensor()])
# Lightning's: torch 2.10 deprecates what its tree functions call.
pytestmark = pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.* is deprecated:FutureWarning")


class Net(pl.LightningModule):
    """Notes which samples of which pixels each step was given."""

    def __init__(self, save_at=None, path=None):
        super().__init__()
        self.layer = torch.nn.Linear(3 * 16 * 16, 3)
        self.seen, self.steps, self.save_at, self.path = [], 0, save_at, path

    def training_step(self, batch, _):
        images, labels = batch
        self.seen.append((self.trainer.train_dataloader.last.indices.tolist(), images.clone()))
        return torch.nn.functional.cross_entropy(self.layer(images.flatten(1)), labels)

    def on_train_batch_end(self, *_):
        self.steps += 1
        if self.steps == self.save_at:
            self.trainer.save_checkpoint(self.path)

    def predict_step(self, batch, _):
        return batch

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


def _trainer(**kwargs):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return pl.Trainer(accelerator="cpu", enable_checkpointing=False, **quiet, **kwargs)


def _loader(kind, packs, image_folder, workers=2, **kwargs):
    if kind == "path":
        return FastLoader(packs["lmdb"], 4, transform=TRAIN, num_workers=workers, **{"seed": 3, **kwargs})
    return FastLoader(ImageFolder(str(image_folder), TRAIN), 4, num_workers=workers, **kwargs)  # as a user has it


@pytest.mark.parametrize("kind", ["path", "folder"])
def test_fit_sees_each_sample_once_an_epoch(kind, packs, image_folder):
    loader, net = _loader(kind, packs, image_folder, shuffle=True), Net()
    assert "threaded engine" in loader.explain()
    _trainer(max_epochs=2).fit(net, loader)
    epochs = [[i for indices, _ in net.seen[at : at + 6] for i in indices] for at in (0, 6)]
    assert len(net.seen) == 12
    assert Counter(epochs[0]) == Counter(epochs[1]) == Counter(range(21))
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize("kind", ["path", "folder"])
def test_a_loader_rebuilt_for_predictions_keeps_the_engine_and_the_pixels(kind, packs, image_folder, monkeypatch):
    monkeypatch.setattr(ImageFolder, "__getitem__", None)  # nobody reads it but the engine
    wanted = [image for images, _ in _loader(kind, packs, image_folder, seed=5) for image in images]
    loader = _loader(kind, packs, image_folder, seed=5)
    trainer = _trainer()
    got = [image for images, _ in trainer.predict(Net(), loader) for image in images]
    rebuilt = trainer.predict_dataloaders
    assert type(rebuilt) is FastLoader
    assert rebuilt is not loader
    assert "threaded engine" in rebuilt.explain()
    assert torch.equal(torch.stack(got), torch.stack(wanted))


def test_a_pack_without_a_transform_stays_pixels_in_a_loader_rebuilt(packs):
    ((images, _), *_) = _trainer().predict(Net(), FastLoader(packs["lmdb"], 1, num_workers=0))
    assert images.dtype == torch.uint8
    assert images.shape == (1, 3, 70, 90)


def test_every_argument_is_an_attribute(packs):
    # What Lightning builds a loader again from: vars() and the names of the arguments.
    names = set(inspect.signature(FastLoader.__init__).parameters) - {"self", "shuffle", "multiprocessing_context"}
    loader = FastLoader(packs["lmdb"], transform=TRAIN, cache="encoded", cache_bytes=1 << 22, device="cpu")
    assert names <= set(vars(loader))
    assert loader.cache == "encoded"
    assert loader.cache_bytes == 1 << 22


def test_lightning_leaves_the_loaders_own_sampler_alone(packs, image_folder):
    assert isinstance(FastLoader(packs["lmdb"], shuffle=True).sampler, DistributedSampler)
    assert isinstance(FastLoader(ImageFolder(str(image_folder), TRAIN), seed=1).sampler, DistributedSampler)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_checkpoint_in_mid_epoch_goes_on_with_exactly_the_rest(packs, image_folder, tmp_path, workers):
    net = Net(save_at=8, path=tmp_path / "at.ckpt")
    _trainer(max_epochs=3).fit(net, _loader("path", packs, image_folder, workers, shuffle=True))
    again = Net()
    _trainer(max_epochs=3).fit(
        again, _loader("path", packs, image_folder, shuffle=True), ckpt_path=tmp_path / "at.ckpt", weights_only=False
    )
    assert len(again.seen) == 10
    for (indices, images), (wanted, pixels) in zip(again.seen, net.seen[8:], strict=True):
        assert indices == wanted
        assert np.array_equal(images, pixels)


def test_buckets_stay_buckets_when_a_loader_is_rebuilt(packs):
    sizes = [(16, 16), (12, 20)]
    loader = FastLoader(packs["lmdb"], 4, transform=TRAIN, num_workers=1, sampling=Buckets(sizes, shuffle=False))
    wanted = [tuple(images.shape) for images, _ in loader]
    trainer = _trainer()
    assert [tuple(images.shape) for images, _ in trainer.predict(Net(), loader)] == wanted
    assert "threaded engine" in trainer.predict_dataloaders.explain()
    assert {shape[2:] for shape in wanted} == set(sizes)
