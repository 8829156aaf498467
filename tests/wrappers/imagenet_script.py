"""A training script as anybody has it, of the shape of PyTorch's ImageNet example; nothing here knows fastdata.

test_imagenet_script.py runs it twice: as it is, and with one line changed, the import of DataLoader.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, transforms


class AverageMeter:
    """Computes and stores the average and current value."""

    def __init__(self, name):
        self.name, self.sum, self.count = name, 0.0, 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n

    def all_reduce(self):
        total = torch.tensor([self.sum, self.count], dtype=torch.float64)
        dist.all_reduce(total)
        self.sum, self.count = total.tolist()

    @property
    def avg(self):
        return self.sum / self.count


def network(classes):
    """A small network that learns in seconds."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2), nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, classes),
    )  # fmt: skip


def train(loader, model, criterion, optimizer, meters):
    model.train()
    end = time.perf_counter()
    order = []
    for images, target in loader:
        meters["data"].update(time.perf_counter() - end)
        loss = criterion(model(images), target)
        meters["loss"].update(loss.item(), images.size(0))
        order += target.tolist()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meters["time"].update(time.perf_counter() - end)
        end = time.perf_counter()
    return order


def validate(loader, model, criterion, *, distributed):
    losses, top1 = AverageMeter("Loss"), AverageMeter("Acc@1")
    model.eval()
    with torch.no_grad():
        for images, target in loader:
            output = model(images)
            losses.update(criterion(output, target).item(), images.size(0))
            top1.update((output.argmax(1) == target).float().mean().item(), images.size(0))
    if distributed:
        losses.all_reduce()
        top1.all_reduce()
    return losses.avg, top1.avg


def arguments():
    parser = argparse.ArgumentParser(description="Image classification, in the manner of ImageNet")
    parser.add_argument("data", type=Path)
    parser.add_argument("-j", "--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("-b", "--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--size", type=int, default=48)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-network", action="store_true", help="load only")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main():  # noqa: C901  as such scripts are
    args = arguments()
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    distributed = "WORLD_SIZE" in os.environ
    if distributed:
        dist.init_process_group("gloo")
        args.batch_size //= dist.get_world_size()

    normalize = transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
    train_dataset = datasets.ImageFolder(
        str(args.data / "train"),
        transforms.Compose(
            [
                transforms.RandomResizedCrop(args.size),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                normalize,
            ]
        ),
    )
    val_dataset = datasets.ImageFolder(
        str(args.data / "val"),
        transforms.Compose(
            [
                transforms.Resize(args.size * 8 // 7),
                transforms.CenterCrop(args.size),
                transforms.ToTensor(),
                normalize,
            ]
        ),
    )
    model = network(len(train_dataset.classes))
    train_sampler = val_sampler = None
    if distributed:
        model = DistributedDataParallel(model)
        train_sampler = DistributedSampler(train_dataset)
        val_sampler = DistributedSampler(val_dataset, shuffle=False, drop_last=True)
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.1)

    train_loader = DataLoader(
        train_dataset,
        batch_size=args.batch_size,
        shuffle=(train_sampler is None),
        num_workers=args.workers,
        pin_memory=torch.cuda.is_available(),
        sampler=train_sampler,
    )
    val_loader = DataLoader(
        val_dataset,
        batch_size=args.batch_size,
        shuffle=False,
        num_workers=args.workers,
        pin_memory=torch.cuda.is_available(),
        sampler=val_sampler,
    )

    found = {"epochs": [], "seconds": []}
    if not args.no_network:
        found["first"] = validate(val_loader, model, criterion, distributed=distributed)
    for epoch in range(args.epochs):
        if train_sampler is not None:
            train_sampler.set_epoch(epoch)
        meters = {name: AverageMeter(name) for name in ("loss", "data", "time")}
        start = time.perf_counter()
        if args.no_network:
            order = [label for _, target in train_loader for label in target.tolist()]
        else:
            order = train(train_loader, model, criterion, optimizer, meters)
        found["seconds"].append((time.perf_counter() - start) / len(order))
        if args.no_network:
            continue
        if distributed:
            meters["loss"].all_reduce()
        loss, acc = validate(val_loader, model, criterion, distributed=distributed)
        scheduler.step()
        found["epochs"].append({"loss": meters["loss"].avg, "val": loss, "acc": acc, "order": order})
        print(f"Epoch: [{epoch}] Loss {meters['loss'].avg:.3f} Data {meters['data'].avg:.4f} Acc@1 {acc:.3f}")  # noqa: T201
    if args.out:
        rank = dist.get_rank() if distributed else 0
        args.out.with_suffix(f".{rank}.json").write_text(json.dumps(found))
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
