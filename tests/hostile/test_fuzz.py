"""Every parser of ours under broken and hostile input, for some seconds; benchmarks/fuzz.py goes on for longer."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

_PATH = Path(__file__).with_name("fuzz_targets.py")
_SPEC = importlib.util.spec_from_file_location("fuzz_targets", _PATH)
fuzz_targets = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = fuzz_targets  # dataclasses look for their module there
_SPEC.loader.exec_module(fuzz_targets)

_SLOW = {"verify": 25, "info": 60, "columns": 60, "hdf5": 100, "sidecar": 60}  # a file is written and opened each time


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    return fuzz_targets.Workshop(tmp_path_factory.mktemp("fuzz"))


@pytest.mark.parametrize("name", list(fuzz_targets.TARGETS))
def test_the_inputs_to_begin_with(workshop, name):  # C053 C148 C149
    begin = fuzz_targets.TARGETS[name].begin()
    most = 2 * _SLOW.get(name, 200)
    for data in random.Random(1).sample(begin, min(most, len(begin))):
        getattr(workshop, name)(data)


@pytest.mark.parametrize("name", list(fuzz_targets.TARGETS))
def test_only_our_errors_come_out(workshop, name):  # C053 C148 C149
    target = fuzz_targets.TARGETS[name]
    begin = st.sampled_from(target.begin())
    numbers = st.integers(0, 255)

    @settings(
        max_examples=_SLOW.get(name, 120), deadline=None, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(begin, st.lists(st.tuples(st.integers(0, target.longest), numbers), max_size=4), st.binary(max_size=40))
    def run(data, changes, tail):
        data = bytearray(data)
        for at, value in changes:
            data[at % len(data) : at % len(data) + 1] = bytes([value])
        getattr(workshop, name)(bytes(data + tail)[: target.longest])

    run()
