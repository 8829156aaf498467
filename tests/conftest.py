"""What all tests share."""

from __future__ import annotations

import gc
import importlib
import os
import shutil
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType


def _shared_folder() -> Path:
    named = os.environ.get("FASTDATA_SHARED_DATA")
    return Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--no-skips", action="store_true", help="fail if a test that does not need CUDA is skipped (what CI runs)"
    )


def pytest_configure() -> None:
    # Python puts the current folder first on the path of its -c and -m; here that is the sources, where neither the
    # compiled core nor fastdata.converters has its place. Tests start processes that are to see what is installed.
    os.environ["PYTHONSAFEPATH"] = "1"
    # A shell starts what is to run behind it with SIGINT ignored, and children would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in _uncalled_for(terminalreporter):
        terminalreporter.write_line(f"--no-skips: {report.nodeid} was skipped: {report.longrepr}", red=True)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus == pytest.ExitCode.OK and reporter is not None and _uncalled_for(reporter):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _uncalled_for(reporter: pytest.TerminalReporter) -> list[pytest.TestReport]:
    """The skipped tests that should have run: with --no-skips, all but those marked cuda."""
    if not reporter.config.getoption("--no-skips"):
        return []
    return [report for report in reporter.stats.get("skipped", ()) if "cuda" not in getattr(report, "keywords", {})]


@pytest.hookimpl(tryfirst=True)  # before -m takes its choice
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    no_data = None
    if not (_shared_folder() / "PHOTOS.csv").is_file():
        no_data = pytest.mark.skip(reason=f"no folder of real photographs at {_shared_folder()}")
    no_cuda = None
    if any(item.get_closest_marker("cuda") for item in items):
        import torch

        if not torch.cuda.is_available():
            no_cuda = pytest.mark.skip(reason="no CUDA device")
    for item in items:
        if "shared_data" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.shared_data)
        if no_data and item.get_closest_marker("shared_data"):
            item.add_marker(no_data)
        if no_cuda and item.get_closest_marker("cuda"):
            item.add_marker(no_cuda)


def pytest_collection_finish() -> None:
    # Half a million objects of torch and its kin would be gone through again by every collection, and by forked workers
    # copied for it: a quarter of a second each time. They stay to the end, so none needs to look at them.
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real photographs, annotated sets and awkward files; its tests carry the marker shared_data."""
    return _shared_folder()


def _picture(number: int, size: tuple[int, int]) -> Image.Image:
    """A picture that no other number gives: a colour of its own, a gradient, a little noise."""
    width, height = size
    rng = np.random.default_rng(number)
    y, x = np.mgrid[:height, :width]
    pixels = np.stack([x * 200 / width, y * 200 / height, (x + y) * 100 / (width + height)], axis=2)
    pixels += rng.integers(0, 56, 3) + rng.normal(0, 3, (height, width, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


@pytest.fixture
def spawnable(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The test's own module under a name that a spawned process can import: what it unpickles it must find."""
    name = f"spawned_{request.module.__name__.rpartition('.')[2]}"
    shutil.copy(request.module.__file__, tmp_path / f"{name}.py")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module(name)
    sys.modules.pop(name, None)


@pytest.fixture
def at_once() -> Iterator[Callable[..., list[object]]]:
    """``at_once(call, count)``: what call(0), ..., call(count - 1) return, in threads that begin at one moment.

    With a GIL the interpreter changes threads a thousand times as often as it would.
    """

    def run(call: Callable[[int], object], count: int = 8) -> list[object]:
        gate = threading.Barrier(count)

        def begin(number: int) -> object:
            gate.wait()
            return call(number)

        with ThreadPoolExecutor(count) as threads:
            return list(threads.map(begin, range(count)))

    usual = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield run
    sys.setswitchinterval(usual)


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ImageFolder tree: 3 classes of 7, 9 and 5 JPEGs, sizes from 90x70 to 160x120, 21 images."""
    root = tmp_path_factory.mktemp("images")
    number = 0
    for name, count in (("ant", 7), ("bee", 9), ("cat", 5)):
        (root / name).mkdir()
        for i in range(count):
            size = (90 + 10 * (number % 8), 70 + 10 * (number % 6))
            _picture(number, size).save(root / name / f"{name}{i}.jpg", quality=90)
            number += 1
    return root


@pytest.fixture(scope="session")
def packs(image_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folder ``image_folder`` packed as it is, by format: lmdb, hdf5, tar, tars (three shards)."""
    from fastdata.converters import pack

    root = tmp_path_factory.mktemp("packs")
    names = {"lmdb": "p.lmdb", "hdf5": "p.h5", "tar": "p.tar", "tars": "s-{000000..}.tar"}
    for kind, name in names.items():
        pack(image_folder, root / name, workers=1, **({"shards": 3} if kind == "tars" else {}))
    return {kind: root / name for kind, name in names.items()}
