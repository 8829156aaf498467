"""What installing and importing the package promises; building it is .ci/wheel's matter."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def _settings() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def _modules_after(statement: str) -> set[str]:
    code = f"import sys, json; {statement}; print(json.dumps(sorted({{n.partition('.')[0] for n in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("statement", ["import fastdata", "import fastdata; dir(fastdata)", "import fastdata.cli.main"])
def test_import_brings_no_heavy_library(statement):
    heavy = {"torch", "torchvision", "cv2", "h5py", "lmdb", "numpy", "PIL", "simplejpeg", "rich", "matplotlib"}
    assert not heavy & _modules_after(statement)


def test_import_takes_no_thread_and_starts_no_process():
    code = "import fastdata, threading; print(threading.active_count())"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "1\n"


_WITHOUT_EXTRAS = """
import sys

class Absent:
    names = {"cv2", "torchvision", "torchcodec", "jpeg4py", "turbojpeg", "webdataset", "matplotlib"}
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ImportError("libGL.so.1: cannot open shared object file: No such file or directory")

sys.meta_path.insert(0, Absent())
import torch
from fastdata import FastLoader, decoders
from fastdata.converters import pack

pack(sys.argv[1], sys.argv[2], workers=1, resize=16, resize_mode="exact")
decoders()
model = torch.nn.Linear(3 * 16 * 16, 3)
before = model.weight.detach().clone()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for workers in (0, 2):
    for images, labels in FastLoader(sys.argv[2], 8, shuffle=True, num_workers=workers):
        loss = torch.nn.functional.cross_entropy(model(images.flatten(1) / 255), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
assert not torch.equal(model.weight, before)
assert not Absent.names & {name for name in sys.modules}
print(FastLoader(sys.argv[2], 8).explain().partition(",")[0])
"""


def test_without_extras_and_libgl_packing_and_training_work(image_folder, tmp_path):  # C157
    command = [sys.executable, "-c", _WITHOUT_EXTRAS, str(image_folder), str(tmp_path / "p.lmdb")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "threaded engine\n"


def test_version_is_that_of_the_distribution():
    import fastdata

    assert fastdata.__version__ == _settings()["project"]["version"]
    assert fastdata.__version__ == importlib.metadata.version("fastdata-loader")


def test_command_is_installed():
    (entry,) = [entry for entry in importlib.metadata.entry_points(group="console_scripts") if entry.name == "fastdata"]
    assert callable(entry.load())


def test_every_source_of_the_core_is_built():
    core = ROOT / "fastdata" / "_cpp"
    listed = set(re.findall(r"^  (\w+\.cpp)\b", (core / "CMakeLists.txt").read_text(), re.MULTILINE))
    assert listed == {path.name for path in core.glob("*.cpp")}


def test_the_sdist_is_given_what_a_build_needs():
    allowed = {line[2:] for line in _settings()["tool"]["scikit-build"]["sdist"]["exclude"] if line.startswith("!/")}
    assert {"pyproject.toml", "README.md", "LICENSE", "fastdata", "converters"} <= allowed
    assert all((ROOT / name).exists() for name in allowed)


def test_a_failed_build_is_an_error_only_where_the_core_is_demanded():
    (override,) = _settings()["tool"]["scikit-build"]["overrides"]
    assert override["if"] == {"failed": True, "env": {"FASTDATA_NATIVE": False}}
    assert override["wheel"] == {"cmake": False}
