"""`fastdata train` on real packs, through the loader."""

from __future__ import annotations

import re
import sys

import pytest
import torch

from fastdata.cli.main import main
from fastdata.sample import draw_samples
from fastdata.train import load_checkpoint

SMALL = ("--model", "small", "--size", "48", "--batch-size", "8", "--workers", "1", "--device", "cpu", "--amp", "off")


@pytest.fixture(scope="module")
def packs(tmp_path_factory):
    """Two packs of 4 classes: 48 pictures to train on and 20 others, and one of 3 classes."""
    root = tmp_path_factory.mktemp("packs")
    found = []
    for name, count, classes, seed in (("train", 48, 4, 0), ("val", 20, 4, 1), ("other", 9, 3, 2)):
        draw_samples(root / name, count=count, classes=classes, seed=seed, size=(120, 90))
        pack = root / f"{name}.lmdb"
        assert main(["pack", str(root / name), str(pack), "--resize", "64", "--workers", "1", "--quiet"]) == 0
        found.append(str(pack))
    return found


def _losses(text):
    return [float(number) for number in re.findall(r"step .*  loss ([\d.]+)", text)]


def test_prints_falling_loss_images_per_second_waiting_and_accuracy(packs, capsys):
    train, val, _ = packs
    assert main(["train", train, "--val", val, *SMALL, "--epochs", "8", "--report-every", "6"]) == 0
    text = capsys.readouterr().out
    losses = _losses(text)
    assert len(losses) == 8
    assert losses[-1] < losses[0]
    assert re.search(r"48 images, 4 classes; small at 48 px, batch 8, 48 steps on cpu, amp off", text)
    assert len(re.findall(r"\d+ images/s  waiting +\d+%", text)) == 8
    assert len(re.findall(r"val: accuracy +[\d.]+%, loss [\d.]+ over 20 images", text)) == 8
    assert re.search(r"384 images in [\d.]+ s: \d+ images/s, \d+% of the time waiting for data; loss", text)


def test_a_seed_gives_the_same_run_for_any_number_of_workers(packs, tmp_path, capsys):
    runs = []
    for k, (workers, seed) in enumerate((("1", "3"), ("3", "3"), ("1", "4"))):
        saved = tmp_path / f"{k}.pt"
        arguments = [*SMALL, "--steps", "9", "--workers", workers, "--seed", seed, "--checkpoint", str(saved)]
        assert main(["train", packs[0], *arguments]) == 0
        runs.append(load_checkpoint(saved)["model"])
    capsys.readouterr()
    same, other = (
        all(torch.equal(a, b) for a, b in zip(runs[0].values(), run.values(), strict=True)) for run in runs[1:]
    )
    assert same
    assert not other


def test_resume_goes_on_within_an_epoch_as_if_never_stopped(packs, tmp_path, capsys):
    whole, parts = tmp_path / "whole.pt", tmp_path / "parts.pt"
    constant = (*SMALL, "--schedule", "constant", "--lr", "0.05")
    assert main(["train", packs[0], *constant, "--steps", "15", "--checkpoint", str(whole)]) == 0
    assert main(["train", packs[0], *constant, "--steps", "8", "--checkpoint", str(parts)]) == 0
    assert main(["train", packs[0], *constant, "--steps", "15", "--checkpoint", str(parts), "--resume"]) == 0
    one, other = load_checkpoint(whole), load_checkpoint(parts)
    assert (
        (one["updates"], one["epoch"], one["batch"]) == (other["updates"], other["epoch"], other["batch"]) == (15, 2, 3)
    )
    assert all(torch.equal(a, b) for a, b in zip(one["model"].values(), other["model"].values(), strict=True))
    capsys.readouterr()
    assert main(["train", packs[0], *constant, "--steps", "15", "--checkpoint", str(parts), "--resume"]) == 0
    assert "nothing left to train" in capsys.readouterr().out


def test_a_folder_of_images_is_trained_on_as_it_is(packs, capsys):
    folder = packs[0].removesuffix(".lmdb")
    assert main(["train", folder, *SMALL, "--steps", "2", "--accumulate", "2", "--clip", "1", "--amp", "bf16"]) == 0
    assert "2 steps on cpu, amp bf16" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--resume"], 2, "--resume needs --checkpoint"),
        (["--steps", "0"], 2, "--steps must be 1 or more"),
        (["--model", "resnet-18"], 2, "resnet18"),
        (["--device", "nonsense"], 2, "nonsense"),
        (["--device", "cuda:99"], 2, "CUDA devices here"),
        (["--checkpoint", "missing.pt", "--resume"], 1, "no checkpoint at missing.pt"),
        (["--val", "OTHER"], 2, "not in both: checks"),
    ],
)
def test_wrong_usage_is_one_line(packs, capsys, arguments, code, says):
    arguments = [packs[2] if word == "OTHER" else word for word in arguments]
    assert main(["train", packs[0], *SMALL, *arguments]) == code
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_labels_that_are_no_class_numbers_are_refused(tmp_path, capsys):
    folder = tmp_path / "flat"
    draw_samples(tmp_path / "drawn", count=2, classes=2, size=(64, 48))
    folder.mkdir()
    for k, file in enumerate(sorted((tmp_path / "drawn").glob("*/*.jpg"))):
        file.rename(folder / f"{k}.jpg")
    assert main(["pack", str(folder), str(tmp_path / "flat.lmdb"), "--workers", "1", "--quiet"]) == 0
    assert main(["train", str(tmp_path / "flat.lmdb"), *SMALL]) == 2
    assert "no class numbers" in capsys.readouterr().err


def test_without_torchvision_it_asks_for_the_extra(packs, capsys, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torchvision", None)  # import raises, as where it is not installed
    assert main(["train", packs[0], *SMALL, "--steps", "1"]) == 1
    assert "pip install 'fastdata-loader[train]'" in capsys.readouterr().err


@pytest.mark.cuda
@pytest.mark.parametrize("amp", ["auto", "fp16"])
def test_on_a_gpu(packs, capsys, amp):
    arguments = ["--model", "resnet18", "--size", "64", "--batch-size", "16", "--epochs", "3", "--amp", amp]
    assert main(["train", packs[0], "--val", packs[1], *arguments, "--report-every", "3"]) == 0
    text = capsys.readouterr().out
    assert "on cuda" in text
    assert len(_losses(text)) == 3
