"""What programs read: with --json stdout is one JSON value and nothing else, whatever happens."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from fastdata.cli.main import COMMANDS, main
from fastdata.stores.opener import open_store


def _parsers(parser):
    """The parser and those of its sub-commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.values()


def _with_json():
    for name, command in COMMANDS.items():
        parser = argparse.ArgumentParser(prog=name)
        importlib.import_module(command.module).add_arguments(parser)
        for one in _parsers(parser):
            if "--json" in one._option_string_actions:
                yield one.prog


@pytest.fixture
def said(capsys):
    """Run a command with --json; return its exit code and what a program reads, with all numbers finite."""

    def run(*words):
        code = main([*map(str, words), "--json"])
        out = capsys.readouterr().out
        return code, json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))

    return run


@pytest.fixture
def places(image_folder, packs, tmp_path):
    """What commands are given: good and damaged packs, a folder, a broken picture, and places for what is written."""
    damaged = tmp_path / "damaged.lmdb"
    shutil.copy(packs["lmdb"], damaged)
    with open_store(damaged) as store:
        at = int(store.index.fields["image"].offset[3]) + 40
    with damaged.open("r+b") as file:
        file.seek(at)
        file.write(b"\0\0\0\0")
    more = tmp_path / "more"
    shutil.copytree(image_folder / "ant", more / "new")
    (more / "new" / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 no picture")
    shutil.copy(packs["hdf5"], tmp_path / "own.h5")
    return {"images": image_folder, "pack": packs["lmdb"], "own": tmp_path / "own.h5", "damaged": damaged,
            "more": more, "out": tmp_path / "out", "none": tmp_path / "none"}  # fmt: skip


#: Command lines by the parser they are for: what comes out, and a name that the JSON has.
LINES = {
    "pack": [
        ("pack {images} {out}.lmdb --workers 1", 0, "samples"),
        ("pack {images} {out}.tar --workers 2 --resume --shuffle --limit 5", 0, "samples"),
        ("pack {more} {out}.h5 --workers 1 --max-errors 50%", 0, "skipped"),
        ("pack {more} {out}.h5 --workers 1", 1, "error"),
        ("pack {more} {out}.h5 --workers 1 --on-error raise", 1, "error"),
        ("pack {none} {out}.h5", 1, "error"),
        ("pack {images} {out}.xyz", 2, "error"),
        ("pack {images} {own}", 1, "error"),
        ("pack {images} {out}.h5 --codec jpg", 2, "error"),
        ("pack", 2, "error"),
        ("pack {more} {own} --append --max-errors 1", 0, "added"),
        ("pack {images} {own} --append --field mask", 0, "without"),
        ("pack {images} {own} --append", 2, "error"),
        ("pack {images} {own} --append --overwrite", 2, "error"),
        ("pack {images} {own} --field mask", 2, "error"),
        ("pack {images} {none}.h5 --append", 1, "error"),
    ],
    "inspect": [("inspect {pack}", 0, "samples"), ("inspect {images}", 0, "samples"), ("inspect {none}", 1, "error")],
    "verify": [
        ("verify {pack}", 0, "ok"), ("verify {pack} --no-decode", 0, "ok"), ("verify {damaged}", 1, "ok"),
        ("verify {damaged} --no-decode", 1, "ok"), ("verify {none}", 1, "error"), ("verify", 2, "error"),
    ],
    "repair": [
        ("repair {pack} {out}.h5", 0, "dst"), ("repair {damaged} {out}.tar --no-decode", 1, "dst"),
        ("repair {damaged} {own}", 1, "error"), ("repair {damaged} {own} --overwrite", 1, "dst"),
        ("repair {none} {out}.h5", 1, "error"),
    ],
    "sample": [
        ("sample {out} --count 4 --classes 2 --size 64x48", 0, "pictures"), ("sample {images}", 1, "error"),
        ("sample {out} --classes 99", 2, "error"), ("sample {out} --size 4", 2, "error"),
    ],
    "decoders": [("decoders", 0, None), ("decoders more", 2, "error")],
    "bench decode": [
        ("bench decode {images} --limit 2 --rounds 1 --threads 1 --backend pillow", 0, "rows"),
        ("bench decode {none}", 1, "error"), ("bench decode {images} --rounds 0", 2, "error"),
        ("bench decode {images} --backend nobody", 2, "error"),
    ],
    "bench load": [
        ("bench load {pack} --no-peers --rounds 1 --epochs 1 --workers 1 --size 16 --batch-size 4", 0, "rows"),
        ("bench load {pack} --no-peers --size 16", 2, "error"), ("bench load {none}", 1, "error"),
        ("bench", 2, "error"),
    ],
}  # fmt: skip


def test_every_command_that_has_it_is_tried():
    assert set(_with_json()) == set(LINES)


@pytest.mark.parametrize("line", [line for lines in LINES.values() for line in lines], ids=lambda line: line[0])
def test_stdout_is_one_value(said, places, line):
    words, code, name = line
    found = said(*words.format(**places).split())
    assert found[0] == code
    if name is not None:
        assert name in found[1]
        assert (name == "error") == ("message" in found[1])


def test_an_interrupt_is_told_too(image_folder, tmp_path):
    (tmp_path / "many").mkdir()
    for number in range(300):
        shutil.copytree(image_folder, tmp_path / "many" / str(number), copy_function=os.link)
    line = [sys.executable, "-m", "fastdata.cli.main", "pack", tmp_path / "many", tmp_path / "out.lmdb", "--json"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        while not any(".partial" in path.name for path in tmp_path.iterdir()):
            assert child.poll() is None
            time.sleep(0.01)
        child.send_signal(signal.SIGTERM)
        out, _ = child.communicate(timeout=60)
    assert child.returncode == 128 + signal.SIGTERM
    assert json.loads(out)["message"] == "terminated"
