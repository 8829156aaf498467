"""``fastdata pack``, ``inspect``, ``verify`` and ``unpack`` as a user types them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fastdata.cli.main import main
from fastdata.cli.stopping import stoppable
from fastdata.converters.options import PackOptions
from fastdata.stores.opener import open_store


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for number in range(6):
        path = tmp_path / "src" / ("ant" if number < 3 else "bee") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (20, 30, 3), np.uint8)).save(path)
    return tmp_path / "src"


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """A folder that takes a while: links to one large picture."""
    folder = tmp_path / "many"
    folder.mkdir()
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 256, (40, 60, 3), np.uint8)).resize((900, 600))
    image.save(folder / "0.jpg", quality=90)
    for number in range(1, 3000):
        os.link(folder / "0.jpg", folder / f"{number}.jpg")
    return folder


def start(*words: object) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "fastdata.cli.main", *map(str, words)]
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # children inherit what nohup, say, has ignored for the tests
    try:
        return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    finally:
        signal.signal(signal.SIGHUP, before)


def until_partial(tmp_path: Path, name: str) -> Path:
    partial = tmp_path / f"{name}.partial"
    deadline = time.monotonic() + 60
    while not partial.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.3)
    assert partial.exists()
    return partial


def test_pack_inspect_verify_unpack(tree, tmp_path, capsys):
    pack = tmp_path / "out.lmdb"
    # Options may stand between the two paths.
    assert main(["pack", str(tree), "--resize", "16", "--resize-mode", "crop", str(pack), "--workers", "1"]) == 0
    out, err = capsys.readouterr()
    assert "packed 6 images in 2 classes" in out
    assert err == ""  # C043: no terminal, no progress
    assert main(["inspect", str(pack), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["samples"], facts["width"]["max"], facts["classes"]) == (6, 16, ["ant", "bee"])
    assert main(["inspect", str(pack)]) == 0
    assert "content_hash" in capsys.readouterr().out
    assert main(["verify", str(pack)]) == 0
    assert "6 of 6 records are as packed" in capsys.readouterr().out
    assert main(["unpack", str(pack), str(tmp_path / "back")]) == 0
    assert len(list((tmp_path / "back").rglob("*.jpg"))) == 6
    assert main(["unpack", str(pack), str(tmp_path / "back")]) == 1
    assert main(["unpack", str(pack), str(tmp_path / "back"), "--overwrite"]) == 0


def test_the_summary_as_json(tree, tmp_path, capsys):
    (tree / "ant/x.png").write_bytes(b"broken")
    line = ["pack", str(tree), str(tmp_path / "out.h5"), "--json", "--workers", "1", "--max-errors"]
    assert main([*line, "10%"]) == 1
    assert "1 of 7" in capsys.readouterr().err
    assert main([*line, "20%"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["samples"] == 6
    assert [skipped["key"] for skipped in facts["skipped"]] == ["ant/x"]
    assert {"classes", "bytes_in", "bytes_out", "seconds", "images_per_second"} <= facts.keys()


def test_pictures_above_the_limit_are_skipped_and_named(tmp_path, capsys):  # C025
    for name, size in (("small", (30, 20)), ("large", (300, 200))):
        (tmp_path / "src").mkdir(exist_ok=True)
        Image.new("RGB", size).save(tmp_path / "src" / f"{name}.png")
    src, dst = str(tmp_path / "src"), str(tmp_path / "out.lmdb")
    line = ["pack", src, dst, "--workers", "1", "--max-errors", "1", "--overwrite"]
    assert main([*line, "--max-pixels", "10k"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"large\.png: .*png of 300 x 200 = 60000 pixels, more than max_pixels=10000", said)
    assert "packed 1 images" in said
    for most in ("60k", "none"):
        assert main([*line, "--max-pixels", most]) == 0
        assert "packed 2 images" in capsys.readouterr().out


def test_the_help_says_the_defaults_that_hold(capsys):
    assert main(["pack", "--help"]) == 0
    said, options = " ".join(capsys.readouterr().out.split()), PackOptions()
    for text, value in (
        ("JPEG and WebP; default: 90", options.quality == 90),
        ("stuck for S seconds; default: 600", options.worker_timeout == 600),
        ("above this share; default: 5%", options.max_errors == 0.05),
        ("skip larger pictures; default: 178M", options.max_pixels // 10**6 == 178),
        ("what a broken file does; default: skip", options.on_error == "skip"),
    ):
        assert text in said
        assert value, text


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["{src}", "{tmp}/out.zip"], 2),
        (["{src}", "{src}/out.lmdb"], 2),
        (["{tmp}/none", "{tmp}/out.lmdb"], 1),
        (["{src}", "{tmp}/out.lmdb", "--quality", "0"], 2),
        (["{src}", "{tmp}/out.lmdb", "--resize", "0"], 2),
        (["{src}", "{tmp}/out.lmdb", "--resize", "ten"], 2),
        (["{src}", "{tmp}/out.lmdb", "--background", "nocolour"], 2),
        (["{src}", "{tmp}/out.lmdb", "--shards", "2"], 2),
        (["{tmp}/out.lmdb"], 2),
    ],
)
def test_exit_codes(tree, tmp_path, capsys, words, code):
    line = [word.format(src=tree, tmp=tmp_path) for word in words]
    assert main(["pack", *line, "--workers", "1"]) == code
    assert capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["src"]


def test_a_set_does_not_replace_the_set_it_is_made_from(tree, tmp_path, capsys):
    name = str(tmp_path / "out-{000000..}.tar")
    assert main(["pack", str(tree), name, "--shards", "2", "--workers", "1"]) == 0
    before = {p.name: p.read_bytes() for p in tmp_path.glob("out*")}
    part, shard = str(tmp_path / "out-{000000..000001}.tar"), str(tmp_path / "out-000000.tar")
    for line in (["pack", part, name, "--workers", "1"], ["repair", part, name], ["repair", name, shard]):
        assert main([*line, "--overwrite"]) == 2
        assert "lies in the source" in capsys.readouterr().err
    assert {p.name: p.read_bytes() for p in tmp_path.glob("out*")} == before


def test_every_option_reaches_the_pack(tree, tmp_path):
    line = [
        "--resize=8x6", "--resize-mode=pad", "--upscale", "--filter=lanczos", "--codec=png", "--quality=80",
        "--subsampling=4:4:4", "--mode=L", "--background=#102030", "--orientation=keep", "--max-pixels=1M", "--shuffle",
        "--seed=3", "--limit=5", "--on-error=raise", "--max-errors=0", "--workers=2", "--overwrite", "--subdir",
        "--quiet", "--resume", "--worker-timeout=60",
    ]  # fmt: skip
    assert main(["pack", str(tree), str(tmp_path / "out.lmdb"), *line]) == 0
    with open_store(tmp_path / "out.lmdb") as store:
        options = store.info["options"]
        assert len(store) == 5
        assert set(store.index.width.tolist()) == {8}
    expected = {
        "resize": [8, 6], "resize_mode": "pad", "upscale": True, "filter": "lanczos", "codec": "png", "quality": 80,
        "subsampling": "4:4:4", "mode": "L", "background": [16, 32, 48], "orientation": "keep",
        "max_pixels": 1_000_000, "shuffle": True, "seed": 3, "limit": 5, "subdir": True,
    }  # fmt: skip
    assert {name: options[name] for name in expected} == expected


def test_shards(tree, tmp_path):
    assert main(["pack", str(tree), str(tmp_path / "out-{000000..}.tar"), "--shards", "3", "--workers", "1"]) == 0
    assert len(list(tmp_path.glob("out*.tar"))) == 3
    assert main(["pack", str(tree), str(tmp_path / "two-{000000..}.tar"), "--shard-size", "4k", "--workers", "1"]) == 0
    assert len(list(tmp_path.glob("two*.tar"))) > 1


def test_a_manifest_over_a_folder(tree, tmp_path):
    manifest = tmp_path / "list.tsv"
    manifest.write_text("path\tlabel\nant/0.png\tyes\nbee/4.png\tno\n")
    assert main(["pack", str(tree), "--manifest", str(manifest), str(tmp_path / "out.lmdb"), "--workers", "1"]) == 0
    with open_store(tmp_path / "out.lmdb") as store:
        assert store.classes == ("no", "yes")
        assert [store.label(i) for i in range(2)] == [1, 0]


def test_a_label_column_of_another_name(tree, tmp_path, capsys):
    manifest = tmp_path / "src" / "list.csv"
    manifest.write_text("path,species,site\nant/0.png,ant,7\nbee/4.png,bee,8\n")
    out = str(tmp_path / "out.lmdb")
    assert main(["pack", str(manifest), out, "--workers", "1"]) == 0
    said = "no labels; further columns: species, site (--label-column NAME says which of them is the label)\n"
    assert said in capsys.readouterr().out
    for words in ([str(manifest)], ["--manifest", str(manifest), str(tree)]):
        assert main(["pack", *words, out, "--workers", "1", "--overwrite", "--label-column", "species"]) == 0
        assert "no labels" not in capsys.readouterr().out
        with open_store(out) as store:
            assert store.classes == ("ant", "bee")
            assert [store.label(i) for i in range(2)] == [0, 1]
            assert store.extras(1) == {"site": "8"}
    manifest.with_name("more.csv").write_text("path,species,site\nbee/5.png,cat,9\n")
    assert main(["pack", str(tmp_path / "src" / "more.csv"), out, "--append", "--label-column", "species"]) == 0
    with open_store(out) as store:
        assert store.classes == ("ant", "bee", "cat")
        assert store.label(2) == 2
    capsys.readouterr()
    assert main(["pack", str(manifest), out, "--overwrite", "--label-column", "colour"]) == 2
    assert "no column 'colour' for the label; the columns are 'path', 'species', 'site'" in capsys.readouterr().err
    assert main(["pack", str(tree), out, "--overwrite", "--label-column", "colour"]) == 2
    assert "is for manifests" in capsys.readouterr().err


def test_class_names_are_never_lost_without_a_word(tree, tmp_path, capsys):
    pattern = str(tmp_path / "c-{000000..}.tar")
    assert main(["pack", str(tree), pattern, "--shards", "2", "--workers", "1"]) == 0
    one = str(tmp_path / "c-000000.tar")
    capsys.readouterr()
    assert main(["pack", one, str(tmp_path / "a.lmdb"), "--workers", "1"]) == 0
    index = tmp_path / "c.set.fdindex"
    assert f"no class names: {one} is one file of the set {index}, whose index has them\n" in capsys.readouterr().out
    index.unlink()
    assert main(["pack", pattern, str(tmp_path / "b.lmdb"), "--workers", "1"]) == 0
    assert f"no class names: the index of {pattern} (.fdindex) is missing\n" in capsys.readouterr().out


def test_the_first_of_equal_members_is_taken_when_asked(tree, tmp_path, capsys):
    with tarfile.open(tmp_path / "twice.tar", "w") as tar:
        for name, number in (("a.png", 0), ("a.png", 1), ("b.png", 2)):
            tar.add(tree / "ant" / f"{number}.png", name)
    words = ["pack", str(tmp_path / "twice.tar"), str(tmp_path / "out.lmdb"), "--workers", "1"]
    assert main(words) == 1
    assert "--on-duplicate skip" in capsys.readouterr().err
    assert main([*words, "--on-duplicate", "skip"]) == 0
    with open_store(tmp_path / "out.lmdb") as store:
        assert bytes(store.read(0)) == (tree / "ant" / "0.png").read_bytes()
        assert len(store) == 2


def test_the_columns_of_an_hdf5_pack_are_no_columns_of_a_manifest(tree, tmp_path, capsys):
    assert main(["pack", str(tree), str(tmp_path / "a.h5"), "--workers", "1"]) == 0
    assert main(["pack", str(tmp_path / "a.h5"), str(tmp_path / "b.h5"), "--workers", "1"]) == 0
    assert "no labels" not in capsys.readouterr().out


@pytest.mark.parametrize("ending", ["lmdb", "h5", "tar"])
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_leaves_nothing(many, tmp_path, ending, how):
    child = start("pack", many, tmp_path / f"out.{ending}", "--resize", "64", "--workers", "2")
    until_partial(tmp_path, f"out.{ending}")
    if how == signal.SIGINT:
        os.killpg(child.pid, how)
    else:
        child.send_signal(how)
    _, err = child.communicate(timeout=30)
    assert child.returncode == 128 + how
    first, last = err.splitlines()
    assert first.startswith(f"fastdata: {tmp_path}/out.{ending} is as it was before; the same command begins anew")
    assert last == f"fastdata: {'interrupted' if how == signal.SIGINT else 'terminated'}"
    assert [p.name for p in tmp_path.iterdir()] == ["many"]


def test_what_does_not_go_with_append_is_named(tree, tmp_path, capsys):
    out = str(tmp_path / "out.lmdb")
    for words, text in (
        (["--append", "--overwrite"], "--append adds to the pack that lies at DST, so it does not go with --overwrite"),
        (["--append", "--resume"], "so it does not go with --resume"),
        (["--field", "mask"], "--field needs --append"),
    ):
        assert main(["pack", str(tree), out, *words]) == 2
        assert text in capsys.readouterr().err


def test_nohup_goes_on(tmp_path):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stoppable(str(tmp_path / "out.lmdb"), resume=False):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


def test_ctrl_c_with_resume_says_how_to_go_on(many, tmp_path):  # C038
    line = ["pack", many, tmp_path / "out.lmdb", "--resize", "64", "--workers", "2", "--limit", "400", "--resume"]
    child = start(*line)
    until_partial(tmp_path, "out.lmdb")
    os.killpg(child.pid, signal.SIGINT)
    _, err = child.communicate(timeout=30)
    assert child.returncode == 130
    assert err == "fastdata: finished work is kept; the same command goes on with it\nfastdata: interrupted\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["many", "out.lmdb.resume"]
    out, err = start(*line).communicate(timeout=60)
    assert "of them were finished by the run before" in out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["many", "out.lmdb"]


def test_a_worker_that_is_killed_costs_nothing(many, tmp_path):  # C109's kind: no hang, nobody left behind
    child = start("pack", many, tmp_path / "out.lmdb", "--resize", "64", "--workers", "2", "--limit", "600")
    until_partial(tmp_path, "out.lmdb")
    child.send_signal(signal.SIGSTOP)  # or it might be done before we come to it
    workers = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
    assert len(workers) == 2
    os.kill(int(workers[0]), signal.SIGKILL)
    child.send_signal(signal.SIGCONT)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (0, "")
    assert "packed 600 images" in out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["many", "out.lmdb"]
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)


def test_a_killed_run_leaves_nothing_that_looks_whole(many, tmp_path, capsys):  # C041 C047
    child = start("pack", many, tmp_path / "out.lmdb", "--resize", "64", "--workers", "2")
    partial = until_partial(tmp_path, "out.lmdb")
    child.kill()
    child.communicate(timeout=30)
    assert not (tmp_path / "out.lmdb").exists()
    assert main(["inspect", str(partial)]) == 1
    assert "incomplete" in capsys.readouterr().err
    line = ["pack", str(many), str(tmp_path / "out.lmdb"), "--limit", "3", "--workers", "1"]
    assert main(line) == 1
    assert "--overwrite" in capsys.readouterr().err
    assert main([*line, "--overwrite"]) == 0
    assert not partial.exists()


@pytest.mark.parametrize("ending", ["lmdb", "h5", "tar"])
def test_a_full_disk_is_named_and_what_was_there_stays(tree, many, tmp_path, ending):  # C037
    dst = tmp_path / f"out.{ending}"
    assert main(["pack", str(tree), str(dst), "--workers", "1"]) == 0
    # A limit of the size of files stands in for a full disk: the same call fails, with another number.
    code = (
        "import resource, signal, sys\nfrom fastdata.cli.main import main\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    line = [sys.executable, "-c", code, "pack", str(many), str(dst), "--overwrite", "--workers", "1", "--limit", "200"]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert done.stderr.startswith("fastdata: cannot write")
    assert str(dst) in done.stderr
    with open_store(dst) as store:
        assert len(store) == 6
    assert not list(tmp_path.glob("*.partial"))


def test_folders_without_classes_are_said_to_give_no_labels(tree, tmp_path, capsys):
    """A shell's ``SRC/*`` hands over the class folders one by one: each is a flat folder then."""
    folders = sorted(map(str, tree.iterdir()))
    assert main(["pack", *folders, str(tmp_path / "flat.lmdb"), "--workers", "1"]) == 0
    assert "no labels: pictures that lie in no class folder" in capsys.readouterr().out
    assert main(["pack", str(tree), str(tmp_path / "classes.lmdb"), "--workers", "1"]) == 0
    assert "no labels" not in capsys.readouterr().out


def test_progress_shows_rate_time_and_failures_on_a_terminal(tree, tmp_path):  # C043
    import pty

    (tree / "ant/x.png").write_bytes(b"broken")
    parent, terminal = pty.openpty()
    line = [
        sys.executable,
        "-m",
        "fastdata.cli.main",
        "pack",
        str(tree),
        str(tmp_path / "out.lmdb"),
        "--max-errors",
        "1",
    ]
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "160"}
    child = subprocess.Popen(line, stderr=terminal, stdout=subprocess.PIPE, text=True, env=env)
    child.communicate(timeout=60)
    os.close(terminal)
    shown = b""
    try:
        while data := os.read(parent, 65536):
            shown += data
    except OSError:  # Linux's word for the end of a terminal
        pass
    os.close(parent)
    assert child.returncode == 0
    assert b"images/s" in shown
    assert b"MB/s" in shown
    assert b"1 skipped" in shown
