"""timm's training pieces over a FastLoader: PrefetchLoader, as create_loader puts it around a loader, and Mixup."""

from __future__ import annotations

import numpy as np
import torch
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD, Mixup
from timm.data.loader import PrefetchLoader
from torchvision import transforms as T

from fastdata.loader import FastLoader

TRAIN = T.Compose([T.RandomResizedCrop(16), T.RandomHorizontalFlip()])  # uint8: timm normalises on the device


def test_prefetch_loader_gives_every_batch_normalised(packs):
    mean, std = (torch.tensor(v).view(3, 1, 1) * 255 for v in (IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD))
    plain = FastLoader(packs["lmdb"], 4, shuffle=True, transform=TRAIN, seed=3, num_workers=2)
    loader = FastLoader(packs["lmdb"], 4, shuffle=True, transform=TRAIN, seed=3, num_workers=2)
    prefetching = PrefetchLoader(loader, device=torch.device("cpu"))
    assert len(prefetching) == 6
    assert prefetching.sampler is loader.sampler
    assert not prefetching.mixup_enabled
    for _ in range(2):
        pairs = list(zip(prefetching, plain, strict=True))
        assert len(pairs) == 6
        for (ours, labels), (images, wanted) in pairs:
            assert images.dtype == torch.uint8
            assert torch.allclose(ours, (images - mean) / std, atol=1e-6)
            assert torch.equal(labels, wanted)


def test_prefetch_loader_erases_in_a_batch_of_its_own(packs):
    loader = FastLoader(packs["lmdb"], 4, transform=T.Compose([TRAIN, T.ToTensor()]), seed=3, num_workers=2)
    erased = list(PrefetchLoader(loader, device=torch.device("cpu"), re_prob=1.0, re_mode="pixel"))
    loader.set_epoch(0)
    for (images, _), (plain, _) in zip(erased, loader, strict=True):
        assert images.shape == plain.shape
        assert not torch.equal(images, plain)
        assert 0 <= plain.min() <= plain.max() <= 1  # what timm writes into a batch is in no later one


def test_mixup_works_on_batches(packs):
    loader = FastLoader(packs["lmdb"], 4, transform=T.Compose([TRAIN, T.ToTensor()]), seed=3, drop_last=True)
    mixup = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=3)
    np.random.seed(0)  # noqa: NPY002  timm's generator
    for images, labels in loader:
        before = images.clone()
        mixed, targets = mixup(images, labels)
        assert targets.shape == (4, 3)
        assert torch.allclose(targets.sum(1), torch.ones(4), atol=1e-5)
        assert not torch.equal(mixed, before)
