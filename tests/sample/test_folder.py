"""The set as files: what is drawn, how often the same, and what is left alone."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from PIL import Image

from fastdata.cli.main import main
from fastdata.errors import DestinationExistsError, OptionError
from fastdata.sample import draw_samples


def _pixels(path):
    with Image.open(path) as image:
        return np.asarray(image)


def _files(folder):
    return sorted(folder.glob("*/*.jpg"))


def test_three_hundred_pictures_in_class_folders_no_two_equal(sample_set):
    files = _files(sample_set)
    assert len(files) == 300
    assert sorted({file.parent.name for file in files}) == ["checks", "columns", "dots", "rows"]
    assert len({hashlib.sha256(_pixels(file).tobytes()).digest() for file in files}) == 300


def test_weighs_and_measures_what_photographs_do(sample_set):
    weights = [file.stat().st_size for file in _files(sample_set)]
    assert min(weights) >= 28_000
    assert max(weights) <= 124_000
    sizes, samplings = [], []
    for file in _files(sample_set):
        with Image.open(file) as image:
            sizes.append(image.size)
            samplings.append(image.layer[0][1:3])
            assert image.mode == "RGB"
            assert not image.info.get("progressive")
    upright = np.mean([height > width for width, height in sizes])
    assert 0.3 < upright < 0.5
    areas = np.prod(sizes, axis=1) / (500 * 375)
    assert 0.8 < areas.min() < 0.95
    assert 1.05 < areas.max() < 1.2
    assert len(set(sizes)) > 100
    full = samplings.count((1, 1)) / len(samplings)
    assert samplings.count((2, 2)) + samplings.count((1, 1)) == len(samplings)
    assert 0.3 < full < 0.5


def test_the_same_seed_draws_the_same_and_a_longer_set_begins_like_a_shorter(tmp_path):
    for name, count, seed in (("a", 4, 7), ("b", 4, 7), ("longer", 8, 7), ("other", 4, 8)):
        draw_samples(tmp_path / name, count=count, classes=2, seed=seed, size=(96, 64))
    first = {file.relative_to(tmp_path / "a"): file.read_bytes() for file in _files(tmp_path / "a")}
    assert len(first) == 4
    for place, data in first.items():
        assert (tmp_path / "b" / place).read_bytes() == data
        assert (tmp_path / "longer" / place).read_bytes() == data
        assert (tmp_path / "other" / place).read_bytes() != data


def test_other_sizes_and_all_classes(tmp_path):
    report = draw_samples(tmp_path / "wide", count=8, classes=8, size=(1400, 300))
    assert len(report.classes) == 8
    assert report.bytes == sum(file.stat().st_size for file in _files(tmp_path / "wide"))
    assert all(max(_pixels(file).shape) > 1024 for file in _files(tmp_path / "wide"))  # wider than the noise is


def test_a_folder_that_is_not_empty_is_refused_and_overwriting_removes_only_pictures_of_a_set(tmp_path):
    draw_samples(tmp_path, count=6, classes=3, size=(64, 48))
    mine = tmp_path / "rows" / "holiday.jpg"
    mine.write_bytes(b"mine")
    with pytest.raises(DestinationExistsError, match="not an empty folder"):
        draw_samples(tmp_path, count=2, classes=2, size=(64, 48))
    draw_samples(tmp_path, count=2, classes=2, size=(64, 48), overwrite=True)
    assert mine.read_bytes() == b"mine"
    assert sorted(file.relative_to(tmp_path).as_posix() for file in _files(tmp_path)) == [
        "columns/00001.jpg",
        "rows/00000.jpg",
        "rows/holiday.jpg",
    ]
    assert not (tmp_path / "dots").exists()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"classes": 1}, "2 to 8"),
        ({"classes": 9}, "2 to 8"),
        ({"count": 3}, "count is 3"),
        ({"size": (500, 8)}, "500x8"),
    ],
)
def test_wrong_options_say_what_is_right_and_leave_nothing(tmp_path, wrong, says):
    with pytest.raises(OptionError, match=says):
        draw_samples(tmp_path / "new", **wrong)
    assert not (tmp_path / "new").exists()


def test_the_command(tmp_path, capsys):
    folder = tmp_path / "images"
    assert main(["sample", str(folder), "--count", "4", "--size", "64x48"]) == 0
    assert "4 pictures in 4 classes" in capsys.readouterr().out
    assert main(["sample", str(folder), "--count", "4", "--size", "64x48"]) == 1
    assert "not an empty folder" in capsys.readouterr().err
    assert main(["sample", str(folder), "--size", "big"]) == 2
