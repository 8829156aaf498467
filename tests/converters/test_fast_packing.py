"""Packs made with fidelity="fast": JPEGs decoded smaller first, never below twice the target."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fastdata.cli.main import main
from fastdata.converters import PackOptions, append, pack, quick_resize
from fastdata.converters.draft import MARGIN, scale_of
from fastdata.decoding.header import Header
from fastdata.decoding.native_decoder import available
from fastdata.errors import OptionError
from fastdata.stores.opener import open_store

needs_core = pytest.mark.skipif(not available(), reason="the core was not built")
FAST = {"resize": 32, "fidelity": "fast", "codec": "png", "workers": 1}
sides = st.integers(1, 6000)


@pytest.fixture
def road(monkeypatch):
    """Choose who decodes: the core, or Pillow as where it was not built."""

    def choose(name):
        built = available()
        if name == "core" and not built:
            pytest.skip("the core was not built")
        monkeypatch.setattr(quick_resize, "available", lambda: name == "core")

    return choose


def photo(maker, seed, size=(640, 480)):
    """Colours with edges and noise: what scaling changes can be seen."""
    rng = np.random.default_rng(seed)
    pixels = np.asarray(maker.picture(seed, size)).astype(int) + rng.integers(-30, 30, (size[1], size[0], 3))
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def pictures(path):
    with open_store(path) as store:
        return {store.key(i): Image.open(io.BytesIO(bytes(store.read(i)))) for i in range(len(store))}


def arrays(path):
    return {key: np.asarray(image).astype(int) for key, image in pictures(path).items()}


@given(sides, sides, sides, sides)
def test_the_scale_is_the_largest_that_leaves_twice_the_target(width, height, target_width, target_height):
    scale = scale_of(Header("jpeg", width, height), (target_width, target_height))
    left = width // scale, height // scale
    assert scale in {1, 2, 4, 8}
    assert scale == 1 or (left[0] >= MARGIN * target_width and left[1] >= MARGIN * target_height)
    if scale < 8:
        further = width / (2 * scale), height / (2 * scale)
        assert further[0] < MARGIN * target_width or further[1] < MARGIN * target_height


def test_only_jpegs_of_eight_bits_have_scales():
    assert scale_of(Header("jpeg", 800, 800), (50, 50)) == 8
    assert scale_of(Header("jpeg", 800, 800, bits=12), (50, 50)) == 1
    assert scale_of(Header("png", 800, 800), (50, 50)) == 1


@pytest.mark.parametrize("name", ["core", "pillow"])
@pytest.mark.parametrize("size", [(512, 384), (260, 130), (1024, 768)])
def test_the_pixels_are_those_of_pillows_thumbnail(maker, tmp_path, road, name, size):
    road(name)
    maker.put("a.jpg", photo(maker, 1, size))
    target = (64, 64 * size[1] // size[0])
    options = {**FAST, "resize": 64, "resize_mode": "longer"}
    report = pack(maker.root, tmp_path / "out.lmdb", **options)
    assert dict(report.drafted) == {name: 1}
    image = Image.open(maker.root / "a.jpg")
    image.thumbnail(target, Image.Resampling.BICUBIC, reducing_gap=MARGIN)
    assert image.size == target
    assert np.array_equal(arrays(tmp_path / "out.lmdb")["a"], np.asarray(image))


@pytest.mark.parametrize("name", ["core", "pillow"])
def test_what_leaves_no_room_is_packed_as_by_exact(maker, tmp_path, road, name):
    road(name)
    maker.put("small.jpg", photo(maker, 1, (127, 200)))
    maker.put("other.png", photo(maker, 2, (300, 200)))
    maker.put("none.jpg", photo(maker, 3, (20, 30)))
    fast = pack(maker.root, tmp_path / "fast.lmdb", **FAST)
    exact = pack(maker.root, tmp_path / "exact.lmdb", **{**FAST, "fidelity": "exact"})
    assert not fast.drafted
    assert fast.content_hash == exact.content_hash


def test_large_pictures_are_near_the_exact_ones_and_not_the_same(maker, tmp_path):
    for number in range(3):
        maker.put(f"{number}.jpg", photo(maker, number))
    fast = pack(maker.root, tmp_path / "fast.lmdb", **FAST)
    exact = pack(maker.root, tmp_path / "exact.lmdb", **{**FAST, "fidelity": "exact"})
    assert fast.content_hash != exact.content_hash
    assert (sum(fast.drafted.values()), dict(exact.drafted)) == (3, {})
    for near, true in zip(
        arrays(tmp_path / "fast.lmdb").values(), arrays(tmp_path / "exact.lmdb").values(), strict=True
    ):
        assert 0 < np.abs(near - true).max() < 30
        assert np.abs(near - true).mean() < 2


@pytest.mark.parametrize("name", ["core", "pillow"])
def test_every_orientation_comes_out_upright(maker, tmp_path, road, name):  # C016
    road(name)
    image = photo(maker, 3, (300, 160))
    for tag in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = tag
        maker.put(f"{tag}.jpg", image, exif=exif, quality=95)
    report = pack(maker.root, tmp_path / "fast.lmdb", **FAST)
    assert dict(report.drafted) == {name: 8}
    assert dict(report.differs) == {"turned as EXIF says": 7}
    pack(maker.root, tmp_path / "exact.lmdb", **{**FAST, "fidelity": "exact"})
    near, true = arrays(tmp_path / "fast.lmdb"), arrays(tmp_path / "exact.lmdb")
    for tag in "12345678":
        assert near[tag].shape == true[tag].shape == ((32, 60, 3) if tag in "1234" else (60, 32, 3))
        assert np.abs(near[tag] - true[tag]).mean() < 2
    # Unturned, all eight are one picture.
    pack(maker.root, tmp_path / "kept.lmdb", **FAST, orientation="keep")
    kept = list(arrays(tmp_path / "kept.lmdb").values())
    assert all(np.array_equal(one, kept[0]) for one in kept)


@needs_core
@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("resize_mode", ["shorter", "crop", "pad", "exact"])
def test_both_roads_give_the_same_pack_of_every_kind_of_jpeg(maker, tmp_path, road, mode, resize_mode):
    image = photo(maker, 1, (403, 301))
    for subsampling in range(3):
        maker.put(f"{subsampling}.jpg", image, subsampling=subsampling)
        maker.put(f"p{subsampling}.jpg", image, subsampling=subsampling, progressive=True)
    exif = Image.Exif()
    exif[0x0112] = 6
    maker.put("turned.jpg", image, exif=exif)
    maker.put("grey.jpg", image.convert("L"))
    maker.put("rgb.jpg", image, keep_rgb=True)
    maker.put("cmyk.jpg", image.convert("CMYK"))
    maker.put("no.png", image)
    reports = []
    for name in ("core", "pillow"):
        road(name)
        options = {**FAST, "mode": mode, "resize_mode": resize_mode}
        reports.append(pack(maker.root, tmp_path / f"{name}.lmdb", **options))
    assert reports[0].content_hash == reports[1].content_hash
    assert dict(reports[0].drafted) == {"core": 9, "pillow": 1}  # CMYK is not the core's
    assert dict(reports[1].drafted) == {"pillow": 10}
    true = tmp_path / "true.lmdb"
    pack(maker.root, true, **{**FAST, "mode": mode, "resize_mode": resize_mode, "fidelity": "exact"})
    near, exact = arrays(tmp_path / "core.lmdb"), arrays(true)
    for key, pixels in exact.items():
        assert near[key].shape == pixels.shape
        assert np.abs(near[key] - pixels).mean() < 2, key


def test_a_cut_file_is_refused_with_the_words_of_exact(maker, tmp_path):  # C031
    whole = maker.put("a.jpg", photo(maker, 1), quality=95).read_bytes()
    (maker.root / "cut.jpg").write_bytes(whole[: len(whole) * 9 // 10])
    (maker.root / "torn.jpg").write_bytes(whole[:300])
    reports = [
        pack(maker.root, tmp_path / f"{fidelity}.lmdb", **{**FAST, "fidelity": fidelity}, max_errors=1)
        for fidelity in ("fast", "exact")
    ]
    assert reports[0].skipped == reports[1].skipped
    assert {skipped.key for skipped in reports[0].skipped} == {"cut", "torn"}


@pytest.mark.parametrize("name", ["core", "pillow"])
def test_the_limit_of_pixels_holds(maker, tmp_path, road, name):  # C025
    road(name)
    maker.put("big.jpg", photo(maker, 1, (400, 300)))
    maker.put("small.jpg", photo(maker, 1, (300, 200)))
    report = pack(maker.root, tmp_path / "out.lmdb", **FAST, max_pixels=100_000, max_errors=0.5)
    assert [skipped.key for skipped in report.skipped] == ["big"]
    assert "--max-pixels" in report.skipped[0].reason


@needs_core
@pytest.mark.shared_data
def test_awkward_files_come_out_alike_on_both_roads(shared_data, tmp_path, road):
    reports = {}
    for name in ("core", "pillow"):
        road(name)
        reports[name] = pack(shared_data / "awkward", tmp_path / f"{name}.lmdb", **{**FAST, "workers": 1}, max_errors=1)
    assert reports["core"].skipped == reports["pillow"].skipped
    assert reports["core"].content_hash == reports["pillow"].content_hash
    with (shared_data / "awkward/MANIFEST.csv").open(encoding="utf-8") as file:
        rows = {row["file"]: row["expected"].partition(":")[0] for row in csv.DictReader(file)}
    refused = {skipped.path.rpartition("/")[2] for skipped in reports["core"].skipped}
    assert {name for name, expected in rows.items() if expected == "refuse"} & refused
    assert not {name for name, expected in rows.items() if expected == "decode"} & refused
    assert reports["core"].drafted["core"] > 20


# -- the option itself


def test_the_pack_says_how_it_was_made(maker, tmp_path, capsys):
    maker.put("a.jpg", photo(maker, 1))
    pack(maker.root, tmp_path / "out.lmdb", **FAST)
    with open_store(tmp_path / "out.lmdb") as store:
        assert store.info["options"]["fidelity"] == "fast"
    assert main(["inspect", str(tmp_path / "out.lmdb")]) == 0
    assert "fidelity fast" in capsys.readouterr().out
    assert PackOptions().facts()["fidelity"] == "exact"


def test_the_command_and_its_summary(maker, tmp_path, capsys, road):
    maker.put("a.jpg", photo(maker, 1))
    maker.put("b.jpg", photo(maker, 2))
    maker.put("c.png", photo(maker, 3))
    road("pillow")
    command = ["pack", str(maker.root), str(tmp_path / "out.lmdb"), "--resize", "32", "--workers", "1", "--overwrite"]
    assert main([*command, "--fidelity", "fast"]) == 0
    said = capsys.readouterr().out
    assert (
        "fidelity fast: 0 decoded smaller by the compiled core, 2 by Pillow (slower than the compiled core), 1 whole"
        in said
    )
    assert main([*command, "--fidelity", "fast", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["drafted"] == {"pillow": 2}
    assert main(command) == 0
    assert "fidelity" not in capsys.readouterr().out


@pytest.mark.parametrize("how", [{"fidelity": "quick", "resize": 8}, {"fidelity": "fast"}, {"fidelity": None}], ids=str)
def test_values_that_cannot_be_meant(how):
    with pytest.raises(OptionError, match="fidelity"):
        PackOptions(**how)


@needs_core
def test_bytes_do_not_depend_on_the_number_of_workers(maker, tmp_path):
    for number in range(5):
        maker.put(f"{number}.jpg", photo(maker, number))
    reports = [pack(maker.root, tmp_path / f"{n}.lmdb", **{**FAST, "workers": n}) for n in (1, 2)]
    assert reports[0].content_hash == reports[1].content_hash
    assert dict(reports[0].drafted) == dict(reports[1].drafted) == {"core": 5}


def test_appended_samples_are_made_as_the_pack_was(maker, tmp_path):
    image = photo(maker, 1)
    maker.put("old/a.jpg", image)
    maker.put("new/b.jpg", image)
    path = tmp_path / "out.lmdb"
    for fidelity in ("fast", "exact"):
        pack(maker.root / "old", path, **{**FAST, "fidelity": fidelity}, overwrite=True)
        append(path, maker.root / "new", workers=1)
        got = arrays(path)
        assert np.array_equal(got["a"], got["b"])
        with open_store(path) as store:
            assert store.info["options"]["fidelity"] == fidelity


def test_resume_refuses_another_fidelity_and_keeps_the_count(maker, tmp_path):
    maker.put("a.jpg", photo(maker, 1))
    maker.put("z.jpg").write_bytes(b"no picture")
    path = tmp_path / "out.lmdb"
    with pytest.raises(Exception, match="max_errors"):
        pack(maker.root, path, **FAST, resume=True, max_errors=0)
    with pytest.raises(OptionError, match="fidelity was 'fast' and is 'exact'"):
        pack(maker.root, path, **{**FAST, "fidelity": "exact"}, resume=True)
    report = pack(maker.root, path, **FAST, resume=True, max_errors=1)
    assert report.resumed == 1
    assert sum(report.drafted.values()) == 1
