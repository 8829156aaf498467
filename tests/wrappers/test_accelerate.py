"""Hugging Face accelerate in one process: prepare() keeps a FastLoader, and it does what a prepared loader does."""

from __future__ import annotations

import pytest
import torch
from accelerate import Accelerator, skip_first_batches
from accelerate.state import AcceleratorState, GradientState, PartialState
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

from fastdata.loader import FastLoader

TRAIN = T.Compose([T.RandomResizedCrop(16), T.RandomHorizontalFlip(), T.ToTensor()])


@pytest.fixture
def accelerator():
    yield Accelerator(cpu=True, gradient_accumulation_steps=4)
    for state in (AcceleratorState, PartialState, GradientState):
        state._reset_state()


@pytest.fixture(params=["path", "folder"])
def make(request, packs, image_folder):
    def loader(workers=2):
        if request.param == "path":
            return FastLoader(packs["lmdb"], 4, shuffle=True, num_workers=workers, transform=TRAIN, seed=3)
        return FastLoader(ImageFolder(str(image_folder), TRAIN), 4, shuffle=True, num_workers=workers, seed=3)

    return loader


def _batches(loader):
    return [(images.clone(), labels.tolist()) for images, labels in loader]


def _equal(ours, theirs):
    return len(ours) == len(theirs) and all(
        torch.equal(a, b) and labels == more for (a, labels), (b, more) in zip(ours, theirs, strict=True)
    )


def test_prepare_keeps_the_loader_and_its_engine(accelerator, make):
    loader, model = make(), torch.nn.Linear(2, 2)
    _, prepared = accelerator.prepare(model, loader)
    assert prepared is loader
    assert accelerator.prepare_data_loader(loader) is loader
    assert "threaded engine" in prepared.explain()
    assert _equal(_batches(prepared), _batches(make()))


@pytest.mark.parametrize("workers", [0, 2])
def test_gradients_are_accumulated_as_over_a_plain_loader(accelerator, make, image_folder, workers):
    def steps(loader):
        told = []
        for _ in range(2):
            for _, labels in loader:
                with accelerator.accumulate(model):
                    told.append((accelerator.sync_gradients, accelerator.gradient_state.end_of_dataloader))
                    assert accelerator.gather_for_metrics(labels).tolist() == labels.tolist()
            assert not accelerator.gradient_state.in_dataloader
        return told

    data = ImageFolder(str(image_folder), TRAIN)
    model, ours, theirs = accelerator.prepare(torch.nn.Linear(2, 2), make(workers), DataLoader(data, 4))
    assert steps(ours) == steps(theirs)
    assert sum(synced for synced, _ in steps(ours)) == 4  # of 6 batches, 4 and a rest of 2, twice


def test_a_loop_left_early_leaves_nothing_under_way(accelerator, make):
    loader = accelerator.prepare(make())
    next(iter(loader))
    assert not accelerator.gradient_state.in_dataloader
    assert len(_batches(loader)) == 6


def test_save_state_holds_the_loaders_position(accelerator, make, tmp_path):
    loader = accelerator.prepare(make())
    batches = iter(loader)
    next(batches)
    next(batches)
    accelerator.save_state(tmp_path)
    rest = [(images.clone(), labels.tolist()) for images, labels in batches]
    fresh = make(workers=0)
    accelerator._dataloaders.clear()
    accelerator.prepare(fresh)
    accelerator.load_state(tmp_path)
    ended = []
    for images, labels in fresh:
        ended.append((images.clone(), labels.tolist()))
        assert accelerator.gradient_state.end_of_dataloader == (len(ended) == 4)
    assert _equal(ended, rest)


def test_a_rebuilt_loader_says_that_the_engine_is_gone(accelerator, packs):
    loader = accelerator.prepare(FastLoader(packs["lmdb"], 4, num_workers=0, transform=TRAIN))
    with pytest.warns(UserWarning, match="without its engine"):
        assert sum(len(labels) for _, labels in skip_first_batches(loader, 2)) == 13
    # Who takes the data set alone asks for nothing else, and what is the workers' anyway loses nothing.
    assert len(loader.dataset[0]) == 2
    unknown = FastLoader(packs["lmdb"], 4, num_workers=0, transform=T.Compose([TRAIN, T.Lambda(lambda image: image)]))
    assert len(_batches(unknown)) == 6
