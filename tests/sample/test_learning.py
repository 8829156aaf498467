"""The set is a task: mean colour does not solve it, a small network does, in seconds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional

from fastdata.train import Trainer, TrainOptions, build_model, evaluate

CLASSES = ("checks", "columns", "dots", "rows")


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """OpenMP threads that wait for each other on a busy machine make such small steps ten times as slow."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def pictures(sample_set):
    """uint8 (n, 3, 108, 108), labels; every fourth is held out."""
    images, labels = [], []
    for label, name in enumerate(CLASSES):
        for file in sorted((sample_set / name).glob("*.jpg")):
            with Image.open(file) as image:
                images.append(np.asarray(image.resize((108, 108), Image.Resampling.BILINEAR)))
            labels.append(label)
    return torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2), torch.tensor(labels)


def _split(labels):
    held_out = torch.arange(len(labels)) % 4 == 0
    return ~held_out, held_out


def test_mean_colour_alone_does_not_tell_the_classes(pictures):
    images, labels = pictures
    train, held_out = _split(labels)
    colours = images.float().mean(dim=(2, 3)) / 255
    colours = (colours - colours.mean(0)) / colours.std(0)
    centres = torch.stack([colours[train & (labels == k)].mean(0) for k in range(len(CLASSES))])
    nearest = torch.cdist(colours, centres).argmin(1)
    features = torch.cat([colours, colours**2, colours[:, [0, 0, 1]] * colours[:, [1, 2, 2]]], 1)
    logits = _logistic(features[train], labels[train])(features)
    neighbours = labels[train][torch.cdist(colours, colours[train]).topk(5, largest=False).indices].mode(1).values
    for guesses in (nearest, logits.argmax(1), neighbours):
        assert float((guesses == labels)[held_out].float().mean()) < 0.6


def _logistic(features, labels):
    torch.manual_seed(0)
    model = torch.nn.Linear(features.shape[1], len(CLASSES))
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=200)

    def closure():
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(features), labels) + 1e-3 * model.weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return model.eval().requires_grad_(requires_grad=False)


class _Crops:
    """Batches of 32 with random crops and mirroring, normalised."""

    def __init__(self, images, labels):
        self.images, self.labels = images, labels
        self.generator = torch.Generator().manual_seed(0)

    def __len__(self):
        return len(self.labels) // 32

    def __iter__(self):
        order = torch.randperm(len(self.labels), generator=self.generator)
        for rows in order[: 32 * len(self)].split(32):
            x, y, flip = torch.randint(0, 13, (3,), generator=self.generator).tolist()
            crops = self.images[rows, :, y : y + 96, x : x + 96]
            yield _normal(crops.flip(3) if flip % 2 else crops), self.labels[rows]


def _normal(images):
    return (images.float() / 255 - 0.45) / 0.25


def test_a_small_network_learns_the_classes(pictures):
    images, labels = pictures
    train, held_out = _split(labels)
    torch.manual_seed(0)
    batches = _Crops(images[train], labels[train])
    losses = []
    options = TrainOptions(epochs=8, lr=0.1, report_every=10)
    trainer = Trainer(build_model("small", 4), options, device=torch.device("cpu"), batches_per_epoch=len(batches))
    trainer.fit(batches, report=lambda progress: losses.append(progress.loss))
    scores = evaluate(
        trainer.model,
        [(_normal(images[held_out, :, 6:102, 6:102]), labels[held_out])],
        amp=trainer.amp,
    )
    assert scores.samples == 75
    assert scores.top1 > 0.8
    assert losses[-1] < 0.5 * losses[0]
