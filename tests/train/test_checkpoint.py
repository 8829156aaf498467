"""A checkpoint is whole or not there, and runs nothing."""

from __future__ import annotations

import os
import pickle

import pytest
import torch

from fastdata.errors import StoreFormatError, StoreNotFoundError
from fastdata.train import load_checkpoint, save_checkpoint


def test_what_was_saved_comes_back(tmp_path):
    path = tmp_path / "run.pt"
    state = {"step": 3, "name": "a", "weights": {"w": torch.arange(4.0)}, "rng": torch.get_rng_state(), "none": None}
    save_checkpoint(path, state)
    found = load_checkpoint(path)
    assert torch.equal(found["weights"].pop("w"), state["weights"].pop("w"))
    assert torch.equal(found.pop("rng"), state.pop("rng"))
    assert found == state


def test_a_save_that_fails_leaves_the_old_one_and_nothing_else(tmp_path):
    path = tmp_path / "run.pt"
    save_checkpoint(path, {"step": 1})
    with pytest.raises((pickle.PicklingError, AttributeError)):
        save_checkpoint(path, {"step": 2, "bad": lambda: None})
    assert load_checkpoint(path) == {"step": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["run.pt"]


class _Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_checkpoint_from_a_stranger_runs_no_code(tmp_path):  # C148
    path, trap = tmp_path / "run.pt", tmp_path / "trap"
    torch.save({"format": "fastdata-checkpoint-1", "state": _Bomb(str(trap))}, path)
    with pytest.raises(StoreFormatError, match="not a checkpoint"):
        load_checkpoint(path)
    assert not trap.exists()


def test_what_is_no_checkpoint_is_named(tmp_path):
    path = tmp_path / "run.pt"
    with pytest.raises(StoreNotFoundError, match=r"run\.pt"):
        load_checkpoint(path)
    save_checkpoint(path, {"weights": torch.zeros(10_000)})
    whole = path.read_bytes()
    for data in (b"", b"hello", whole[: len(whole) // 2]):
        path.write_bytes(data)
        with pytest.raises(StoreFormatError, match=r"run\.pt"):
            load_checkpoint(path)
    torch.save({"model": {}}, path)
    with pytest.raises(StoreFormatError, match="no checkpoint of fastdata"):
        load_checkpoint(path)
