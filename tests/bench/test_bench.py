"""The bench commands measure what they say; their numbers are not looked at, only their shape and their checks."""

from __future__ import annotations

import json
import time

import pytest
import torch
from PIL import Image
from torchvision import transforms as T

from fastdata.bench.decode_bench import bench_decode
from fastdata.bench.load_bench import _agree, _Check, bench_load, train_transform
from fastdata.bench.rounds import interleave
from fastdata.bench.stages import stage_times
from fastdata.cli.main import main
from fastdata.converters import pack
from fastdata.errors import OptionError
from fastdata.loader import FastLoader
from fastdata.stores.opener import open_store
from fastdata.transforms import batch_op


def test_rounds_are_interleaved_and_warm_ups_are_not_counted():
    calls = []
    timings = interleave({name: lambda name=name: calls.append(name) or 7 for name in "ab"}, 3, warmups=2)
    assert calls == list("ab" * 5)
    assert {name: (len(timing.seconds), timing.items) for name, timing in timings.items()} == {"a": (3, 7), "b": (3, 7)}
    assert timings["a"].rate == 7 / timings["a"].median


def test_every_backend_is_measured_against_pillow(image_folder, tmp_path):
    (tmp_path / "broken.jpg").write_bytes((image_folder / "ant" / "ant0.jpg").read_bytes()[:900])
    for number in range(4):
        (tmp_path / f"{number}.jpg").write_bytes((image_folder / "ant" / f"ant{number}.jpg").read_bytes())
    report = bench_decode(tmp_path, rounds=1, threads=2, backends=["simplejpeg", "opencv", "native"])
    assert report["images"] == 4
    assert {(row["backend"], row["threads"]) for row in report["rows"]} == {
        (name, threads) for name in ("pillow", "simplejpeg", "opencv", "native") for threads in (1, 2)
    }
    for row in report["rows"]:
        assert list(row["refused"]) == ["broken"]  # the same verdict from each
        assert row["largest_difference"] == 0
        assert row["images_per_second"] > 0
    assert report["machine"]["versions"]["torch"]


def test_bench_load_beside_its_peers(packs, monkeypatch):
    # 2 % is for a thousand photographs; random crops of 21 pictures differ by more
    monkeypatch.setattr("fastdata.bench.load_bench._TOLERANCE", 0.2)
    report = bench_load(packs["lmdb"], batch_size=4, size=32, rounds=1, epochs=2, workers=1)
    rows = {row["loader"]: row for row in report["rows"]}
    assert set(rows) == {"fastdata", "torchvision, 1 workers", "webdataset"}
    assert rows["torchvision, 1 workers"]["ratio_to_torchvision"] == 1
    assert all(row["images_per_second"] > 0 for row in rows.values())


def test_what_binds_is_named(packs, tmp_path, capsys):  # C161
    def slow(batch):
        time.sleep(0.2)
        return batch

    with open_store(packs["lmdb"]) as store:
        stages = stage_times(store, train_transform(32), batch_size=4)
        assert set(stages["microseconds"]) == {"reading", "decoding", "transforms"}
        assert min(stages["microseconds"].values()) > 0
        waits = T.Compose([T.Resize((8, 8)), batch_op(slow), T.PILToTensor()])
        assert stage_times(store, waits, batch_size=4)["binds"] == "transforms"
        with pytest.raises(OptionError, match="Lambda"):
            stage_times(store, T.Lambda(slow), batch_size=4)
    (tmp_path / "large").mkdir()
    Image.new("RGB", (2000, 2000)).save(tmp_path / "large" / "large.jpg")
    pack(tmp_path / "large", tmp_path / "large.tar", workers=1)
    with open_store(tmp_path / "large.tar") as store:
        assert stage_times(store, T.Compose([T.Resize((8, 8)), T.PILToTensor()]), batch_size=1)["binds"] == "decoding"
    assert main(["bench", "load", str(packs["tars"]), "--rounds", "1", "--no-peers", "--batch-size", "4"]) == 0
    assert " binds" in capsys.readouterr().out


def test_an_unfair_comparison_is_refused():
    ours, theirs = _Check(), _Check()
    ours.see(torch.full((2, 3, 8, 8), 100, dtype=torch.uint8))
    theirs.see(torch.full((2, 3, 8, 8), 103, dtype=torch.uint8))
    with pytest.raises(OptionError, match="not be fair"):
        _agree({"ours": ours, "theirs": theirs})


def test_the_command_prints_and_writes(packs, tmp_path, capsys):
    out, plot = tmp_path / "r.json", tmp_path / "r.png"
    words = ["--rounds", "1", "--output", str(out), "--plot", str(plot)]
    assert main(["bench", "decode", str(packs["tar"]), "--backend", "simplejpeg", "--threads", "1", *words]) == 0
    assert "x Pillow" in capsys.readouterr().out
    assert len(json.loads(out.read_text())["rows"]) == 2
    assert plot.read_bytes().startswith(b"\x89PNG")
    words = ["--no-peers", "--batch-size", "4", "--size", "16", "--epochs", "1", "--json"]
    assert main(["bench", "load", str(packs["hdf5"]), "--rounds", "1", *words]) == 0
    assert json.loads(capsys.readouterr().out)["pack"]["kind"] == "hdf5"


def test_the_measured_loader_is_the_engine(packs):
    assert "threaded engine" in FastLoader(packs["lmdb"], transform=train_transform(32)).explain()
