"""Every public name is there, is in the README and is used by a test; every error has its place in the tree."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import shutil
from pathlib import Path

import pytest

import fastdata
import fastdata.errors
from fastdata import converters

HERE = Path(__file__).resolve().parent
README = (HERE.parent / "README.md").read_text(encoding="utf-8")
TESTS = "\n".join(path.read_text(encoding="utf-8") for path in HERE.rglob("test_*.py"))
NAMES = [
    *(("fastdata", name) for name in fastdata.__all__ if not name.startswith("_")),
    *(("fastdata.converters", name) for name in converters.__all__),
]


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_public_names_are_there_documented_and_tested(module, name):
    value = getattr(importlib.import_module(module), name)
    assert inspect.getdoc(value), f"{name} has no docstring"
    assert re.search(rf"\b{name}\b", README), f"{name} is not in the README"
    assert re.search(rf"\b{name}\b", TESTS), f"{name} is in no test"


def test_functions_give_what_they_are_said_to_give(image_folder, tmp_path):
    out, saved = tmp_path / "p.lmdb", tmp_path / "saved.h5"
    assert isinstance(converters.pack(image_folder, out, workers=1), converters.PackReport)
    assert isinstance(converters.verify(out), converters.VerifyReport)
    assert isinstance(converters.repair(out, saved), converters.RepairReport)
    (tmp_path / "more" / "ant").mkdir(parents=True)
    shutil.copy(image_folder / "ant" / "ant0.jpg", tmp_path / "more" / "ant" / "new.jpg")
    assert isinstance(converters.append(out, tmp_path / "more"), converters.AppendReport)
    with fastdata.open_store(out) as store:
        assert isinstance(store, fastdata.Store)
        assert len(store) == 22


def test_every_module_says_what_is_public_and_has_it():
    for info in pkgutil.walk_packages(fastdata.__path__, "fastdata."):
        if info.name.endswith(("_native", "__main__")):
            continue
        module = importlib.import_module(info.name)
        for name in getattr(module, "__all__", ()):
            assert hasattr(module, name), f"{info.name} has no {name}"
        assert module.__doc__, f"{info.name} has no docstring"
        if not info.ispkg:
            assert hasattr(module, "__all__"), f"{info.name} has no __all__"


def test_errors_are_one_tree_and_their_docstring_draws_it():
    for name in fastdata.errors.__all__:
        error = getattr(fastdata.errors, name)
        assert issubclass(error, fastdata.errors.FastdataError)
        assert name in (fastdata.errors.__doc__ or "")
        made = error("one text")
        assert str(made) == "one text"
        assert not hasattr(made, "message")
