"""Packs whose JPEGs have restart markers: the same pictures, in intervals that a crop can pass over."""

from __future__ import annotations

import io
import json
import struct

import numpy as np
import pytest
from PIL import Image

from fastdata.cli.main import main
from fastdata.converters import append, pack
from fastdata.converters.encoding import encode, encoder_name
from fastdata.converters.options import PackOptions
from fastdata.converters.report import PackReport
from fastdata.decoding.header import probe
from fastdata.decoding.native_decoder import available
from fastdata.decoding.pillow_arrays import view_array
from fastdata.errors import OptionError
from fastdata.stores.opener import open_store

needs_core = pytest.mark.skipif(not available(), reason="the core was not built")


def pixels(blob):
    with Image.open(io.BytesIO(blob)) as image:
        return np.asarray(image)


def interval(blob):
    """Blocks between two markers; 0 without markers."""
    at = 2
    while blob[at + 1] != 0xDA:
        if blob[at + 1] == 0xDD:
            return struct.unpack_from(">H", blob, at + 4)[0]
        at += 2 + int.from_bytes(blob[at + 2 : at + 4], "big")
    return 0


def markers(blob):
    scan = blob.index(b"\xff\xda")
    return sum(blob[at] == 0xFF and 0xD0 <= blob[at + 1] <= 0xD7 for at in range(scan, len(blob) - 1))


def columns(blob):
    header = probe(blob)
    return -(-header.width // header.block_width)


def records(path):
    with open_store(path) as store:
        return {store.key(i): bytes(store.read(i)) for i in range(len(store))}


WAYS = ({"restart_rows": 1}, {"restart_rows": 2}, {"restart_blocks": 5}, {"restart_blocks": "auto"})


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("subsampling", ["4:2:0", "4:2:2", "4:4:4"])
@pytest.mark.parametrize("how", WAYS, ids=str)
def test_encoded_pictures_have_the_markers_and_the_same_pixels(maker, how, subsampling, mode):
    picture = maker.picture(3, (320, 200)).convert(mode)
    blob = encode(view_array(picture), "jpeg", PackOptions(codec="jpeg", subsampling=subsampling, **how))
    across = columns(blob)
    assert across == (20 if mode == "RGB" and subsampling != "4:4:4" else 40)
    number = next(iter(how.values()))
    wanted = number * across if "restart_rows" in how else {20: 10, 40: 8}[across] if number == "auto" else number
    assert interval(blob) == wanted
    assert markers(blob) > 0
    colours = {} if mode == "L" else {"subsampling": subsampling}
    assert np.array_equal(pixels(blob), pixels(maker.encoded(picture, quality=90, **colours)))
    # The usual encoder rounds elsewhere, in libjpeg's quicker transform.
    usual = pixels(encode(view_array(picture), "jpeg", PackOptions(codec="jpeg", subsampling=subsampling)))
    assert np.abs(pixels(blob).astype(int) - usual).mean() < 1


def test_more_rows_than_sixteen_bits_can_count(maker):
    blob = encode(view_array(maker.picture(1, (640, 64))), "jpeg", PackOptions(codec="jpeg", restart_rows=10**6))
    assert interval(blob) == 65_535 // 40 * 40
    assert pixels(blob).shape == (64, 640, 3)


@needs_core
@pytest.mark.parametrize("ending", [".lmdb", ".h5", ".tar"])
@pytest.mark.parametrize("how", [{"restart_rows": 1}, {"restart_blocks": 2}])
def test_kept_jpegs_get_them_without_loss_and_other_files_stay(tree, tmp_path, ending, how):
    pack(tree, tmp_path / "plain.lmdb", workers=1)
    path = tmp_path / f"out{ending}"
    report = pack(tree, path, workers=1, **how)
    assert (report.samples, report.kept) == (12, 12)
    before, after = records(tmp_path / "plain.lmdb"), records(path)
    assert before.keys() == after.keys()
    jpegs = 0
    for key, blob in after.items():
        assert np.array_equal(pixels(before[key]), pixels(blob))
        if blob[:2] == b"\xff\xd8":
            jpegs += 1
            assert interval(blob) == (columns(blob) if "restart_rows" in how else 2)
        else:
            assert blob == before[key]
    assert jpegs == 6
    with open_store(path) as store:
        options = dict(store.info["options"])
    assert {name: options[name] for name in how} == how
    again = tmp_path / "again.lmdb"
    pack(path, again, workers=1, **how)
    assert records(again) == after


@needs_core
def test_bytes_do_not_depend_on_the_number_of_workers(tree, tmp_path):
    for workers in (1, 2):
        pack(tree, tmp_path / f"{workers}.lmdb", workers=workers, restart_blocks="auto")
    assert records(tmp_path / "1.lmdb") == records(tmp_path / "2.lmdb")


@needs_core
def test_orientation_is_handled_as_without_markers(maker, tmp_path):
    exif = Image.Exif()
    exif[274] = 6
    maker.put("a.jpg", maker.picture(1), exif=exif)
    for orientation, turned in (("apply", 1), ("keep", 6)):
        path = tmp_path / f"{orientation}.lmdb"
        pack(maker.root, path, workers=1, orientation=orientation, restart_rows=1)
        (blob,) = records(path).values()
        assert probe(blob).orientation == turned
        assert interval(blob) == columns(blob)


@needs_core
def test_what_cannot_have_them_stays_as_it_is(maker, tmp_path):
    """A progressive JPEG without its last scans, which decoders smooth."""
    path = maker.put("a.jpg", maker.picture(1, (160, 120)), progressive=True, quality=90)
    blob = path.read_bytes()
    scans = [at for at in range(len(blob) - 1) if blob[at : at + 2] == b"\xff\xda"]
    cut = blob[: blob.rfind(b"\xff\xc4", 0, scans[3])] + b"\xff\xd9"
    path.write_bytes(cut)
    maker.put("b.jpg")
    report = pack(maker.root, tmp_path / "out.lmdb", workers=1, restart_rows=1)
    assert (report.samples, report.unmarked) == (2, 1)
    got = records(tmp_path / "out.lmdb")
    assert got["a"] == cut
    assert interval(got["b"]) == 4
    lines = list(report.lines())
    at = lines.index("1 JPEGs could not get restart markers and are kept without:")
    assert lines[at + 1].startswith("  key 'a': ")
    assert len(lines[at + 1]) > len("  key 'a': ")
    assert pack(maker.root, tmp_path / "plain.lmdb", workers=1).unmarked == 0


def test_a_summary_names_ten_without_markers_and_counts_the_rest():
    report = PackReport(
        "out.lmdb", 30, (), 1, 1, unmarked=12, unmarked_first=tuple(f"key '{n}': why" for n in range(10))
    )
    lines = list(report.lines())
    assert "12 JPEGs could not get restart markers and are kept without:" in lines
    assert lines[-2:] == ["  key '9': why", "  ... and 2 more"]


@needs_core
def test_appended_samples_get_them_too(maker, tmp_path):
    maker.put("old/a.jpg")
    maker.put("new/b.jpg")
    path = tmp_path / "out.lmdb"
    pack(maker.root / "old", path, workers=1, restart_rows=1)
    append(path, maker.root / "new", workers=1)
    assert {key: interval(blob) for key, blob in records(path).items()} == {"a": 4, "b": 4}


@pytest.mark.parametrize("how", [
    {"restart_rows": 0}, {"restart_rows": True}, {"restart_rows": 1.5}, {"restart_blocks": 0},
    {"restart_blocks": "many"}, {"restart_rows": 1, "restart_blocks": 1}, {"restart_rows": 1, "codec": "png"},
    {"restart_blocks": "auto", "codec": "raw"},
], ids=str)  # fmt: skip
def test_values_that_cannot_be_meant(how):
    with pytest.raises(OptionError, match="restart"):
        PackOptions(**how)


def test_without_the_core_kept_files_are_refused_and_encoded_ones_are_not(tree, tmp_path, monkeypatch):
    monkeypatch.setattr("fastdata.converters.restarts.available", lambda: False)
    with pytest.raises(OptionError, match=r"compiled core.*fastdata decoders.*--codec jpeg"):
        pack(tree, tmp_path / "out.lmdb", workers=1, restart_rows=1)
    assert not (tmp_path / "out.lmdb").exists()
    pack(tree, tmp_path / "out.lmdb", workers=1, restart_rows=1, codec="jpeg")
    assert all(interval(blob) == columns(blob) for blob in records(tmp_path / "out.lmdb").values())


def test_the_command(tree, tmp_path, capsys):
    path = tmp_path / "out.lmdb"
    command = ["pack", str(tree), str(path), "--codec", "jpeg", "--workers", "1", "--json", "--quiet"]
    assert main([*command, "--restart-blocks", "auto"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 12
    assert {interval(blob) for blob in records(path).values()} == {4}
    assert main([*command, "--overwrite", "--restart-rows", "2"]) == 0
    assert {interval(blob) for blob in records(path).values()} == {8}
    assert main([*command, "--overwrite", "--restart-rows", "2", "--restart-blocks", "2"]) != 0


def test_the_encoder_that_is_named_is_the_one_that_writes_them():
    assert encoder_name(PackOptions(codec="jpeg")).startswith("simplejpeg")
    assert encoder_name(PackOptions(codec="jpeg", restart_rows=1)).startswith("pillow")


@needs_core
@pytest.mark.shared_data
def test_camera_photographs(shared_data, tmp_path):
    from torchvision import transforms as T

    from fastdata import FastLoader

    files = sorted((shared_data / "photos" / "camera").glob("*.jpg"))[1:4]
    source = tmp_path / "photos"
    source.mkdir()
    for file in files:
        (source / file.name).write_bytes(file.read_bytes())
    transform = T.Compose([T.RandomCrop(300), T.PILToTensor()])
    batches = []
    for name, how in (("plain", {}), ("rows", {"restart_rows": 1}), ("blocks", {"restart_blocks": "auto"})):
        path = tmp_path / f"{name}.lmdb"
        pack(source, path, workers=1, **how)
        loader = FastLoader(path, 3, num_workers=1, transform=transform, seed=1, engine=True)
        batches.append(next(iter(loader))[0].numpy())
        loader.close()
    assert np.array_equal(batches[0], batches[1])
    assert np.array_equal(batches[0], batches[2])
