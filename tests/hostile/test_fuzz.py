"""Every parser of ours under broken and hostile input, for some seconds; benchmarks/fuzz.py goes on for longer."""

from __future__ import annotations

import importlib
import importlib.util
import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastdata.errors import FastdataError
from fastdata.stores.opener import open_store

_FOLDER = Path(__file__).with_name("fuzzing")
_FOUND = importlib.util.spec_from_file_location(
    "fuzzing", _FOLDER / "__init__.py", submodule_search_locations=[str(_FOLDER)]
)
sys.modules["fuzzing"] = importlib.util.module_from_spec(_FOUND)
targets = importlib.import_module("fuzzing.targets")

_SLOW = {
    "verify": 12,
    "info": 25,
    "columns": 25,
    "hdf5": 40,
    "lmdb": 40,
    "sidecar": 30,
}  # a file is written and opened each time


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    return targets.Workshop(tmp_path_factory.mktemp("fuzz"))


@pytest.mark.parametrize("name", list(targets.TARGETS))
def test_the_inputs_to_begin_with(workshop, name):  # C053 C148 C149
    begin = targets.TARGETS[name].begin()
    most = 2 * _SLOW.get(name, 200)
    for data in random.Random(1).sample(begin, min(most, len(begin))):
        getattr(workshop, name)(data)


@pytest.mark.parametrize("name", list(targets.TARGETS))
def test_only_our_errors_come_out(workshop, name):  # C053 C148 C149
    target = targets.TARGETS[name]
    begin = st.sampled_from(target.begin())
    numbers = st.integers(0, 255)

    @settings(
        max_examples=_SLOW.get(name, 70), deadline=None, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(begin, st.lists(st.tuples(st.integers(0, target.longest), numbers), max_size=4), st.binary(max_size=40))
    def run(data, changes, tail):
        data = bytearray(data)
        for at, value in changes:
            data[at % len(data) : at % len(data) + 1] = bytes([value])
        getattr(workshop, name)(bytes(data + tail)[: target.longest])

    run()


def opened(path, io):
    try:
        with open_store(path, io=io) as store:
            return store.index
    except FastdataError as error:
        return type(error)


@pytest.mark.parametrize("name", ["lmdb", "hdf5", "columns", "info"])
def test_what_is_mapped_and_what_is_read_page_by_page_are_one(workshop, name):
    begin, pick, opens = targets.TARGETS[name].begin(), random.Random(4), 0
    for _ in range(3 * _SLOW[name]):
        program = bytearray(pick.choice(begin))
        program[pick.randrange(len(program))] = pick.randrange(256)
        for old in workshop.input.iterdir():
            old.unlink()
        getattr(workshop, name)(bytes(program))
        for path in workshop.input.glob("*.[lh]*"):
            mapped, read = opened(path, "mmap"), opened(path, "pread")
            if isinstance(mapped, type) or isinstance(read, type):
                assert mapped is read
                continue
            opens += 1
            assert mapped.fields.keys() == read.fields.keys()
            assert mapped.keys.blob.tobytes() == read.keys.blob.tobytes()
            for field, column in mapped.fields.items():
                for one in ("part", "offset", "length", "codec", "checksum"):
                    assert np.array_equal(getattr(column, one), getattr(read.fields[field], one)), (path, field, one)
    assert opens > 10


def test_sums_are_made_to_fit(workshop):
    """Or the fuzzer would never get behind them."""
    from fuzzing import sums

    for kind in ("lmdb", "hdf5"):
        [seed, *_], spans = workshop.good.of(kind), workshop._column_spans(kind)
        data = bytearray(seed.data)
        data[spans["label"][0]] = 1
        path = workshop.input / seed.name
        path.write_bytes(sums.with_column_sums(bytes(data), spans))
        with open_store(path) as store:
            assert [store.label(i) for i in range(4)] == [1, 1, 0, 1]
    [seed] = workshop.good.of("sidecar")
    header, tail = sums.sidecar_parts(seed.data)
    at = header["columns"]["label"]["offset"]
    broken = sums.joined_sidecar(sums.json.dumps(header).encode(), tail[:at] + b"\1" + tail[at + 1 :])
    assert sums.sidecar_parts(sums.with_sidecar_sums(broken))[0]["columns"] != header["columns"]


@pytest.mark.slow
def test_the_long_run_tells_what_it_did(tmp_path):
    script = Path(__file__).resolve().parents[2] / "benchmarks" / "fuzz.py"
    report = tmp_path / "fuzz.json"
    line = [sys.executable, script, "names", "header", "--seconds=2", f"--output={report}", f"--findings={tmp_path}"]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(report.read_text())
    guided = importlib.util.find_spec("atheris") is not None
    assert found["setting"]["guided"] == guided == ("pip install" not in done.stdout)
    assert [one["target"] for one in found["targets"]] == ["names", "header"]
    for one in found["targets"]:
        assert one["executions"] > 100
        assert 2 <= one["seconds"] < 60
        assert (one["findings"], one["ended"]) == ({}, "")
    wrong = subprocess.run([*line[:2], "nobody"], capture_output=True, text=True, check=False, timeout=110)
    assert (wrong.returncode, "targets are all, lmdb" in wrong.stderr) == (2, True)
