"""The command line as a whole: names, exit codes, one line for an error."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import fastdata
from fastdata.cli.main import COMMANDS, main


def run(*words: object, **how: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "fastdata.cli.main", *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=120, **how)


def test_version_and_help_import_no_command():
    code = (
        "import sys\nfrom fastdata.cli.main import main\n"
        "assert main(['--version']) == 0 and main(['--help']) == 0\n"
        "heavy = {'numpy', 'torch', 'PIL', 'rich', 'lmdb', 'h5py', 'cv2'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"fastdata {fastdata.__version__}\n")
    assert all(name in done.stdout for name in COMMANDS)


@pytest.mark.parametrize("words", [[], ["pak"], ["pack"], ["pack", "--codec", "jpg", "a", "b.lmdb"], ["inspect"]])
def test_wrong_usage_is_2(words, capsys):
    assert main(words) == 2
    assert "usage" in capsys.readouterr().err


@pytest.mark.parametrize(
    "option",
    [
        "pack --resize", "pack --restart-blocks", "pack --worker-timeout", "pack --max-errors", "pack --max-pixels",
        "pack --shard-size", "pack --background",
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_kind_is_told_what_is_expected(option, capsys):
    command, name = option.split()
    assert main([command, name, "some", "a", "b"]) == 2
    assert f"argument {name}: 'some': expected " in capsys.readouterr().err


def test_an_error_is_one_line_that_says_what_and_where(capsys, tmp_path):
    assert main(["inspect", str(tmp_path / "none.lmdb")]) == 1
    err = capsys.readouterr().err
    assert err.startswith("fastdata: ")
    assert "none.lmdb" in err
    assert err.count("\n") == 1


def test_an_interrupt_is_130(monkeypatch, capsys):
    from fastdata.cli import decoders_command

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(decoders_command, "run", interrupted)
    assert main(["decoders"]) == 130
    assert capsys.readouterr().err == "fastdata: interrupted\n"


@pytest.mark.parametrize("words", ["inspect {tmp}", "inspect {tmp} --json", "--help", "pack --help"])
def test_a_reader_that_leaves_early_causes_no_traceback(tmp_path, words):
    (tmp_path / "a.png").write_bytes(b"never looked at")
    line = f"{sys.executable} -m fastdata.cli.main {words.format(tmp=tmp_path)} | true"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == ""


def test_decoders_lists_every_backend(capsys):
    assert main(["decoders", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["pillow"]["installed"]
    assert main(["decoders"]) == 0
    assert rows.keys() <= set(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_explains_itself(name, capsys):
    assert main([name, "--help"]) == 0
    assert f"usage: fastdata {name}" in capsys.readouterr().out


def test_what_the_system_refuses_is_one_line_too(capsys, tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "a.csv").write_text("path\nx.png\n")
    assert main(["pack", str(tmp_path / "a.csv"), str(tmp_path / "file" / "out.lmdb"), "--workers", "1"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("fastdata: ")
    assert err.count("\n") == 1
