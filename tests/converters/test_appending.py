"""Samples and fields added to a pack; the old pack is there until the new one is whole."""

from __future__ import annotations

import os

import numpy as np
import pytest

from fastdata.cli.main import main
from fastdata.converters import append, pack, verify
from fastdata.errors import ChecksumError, NothingPackedError, OptionError, PackError, TooManySkippedError
from fastdata.stores.opener import open_store

NAMES = ("out.lmdb", "out.h5", "out.tar", "out-{000000..}.tar")


@pytest.fixture
def more(maker):
    """Further pictures: of a class that is there, and of one that sorts before all."""
    root, maker.root = maker.root, maker.root.parent / "more"
    for name in ("bee/9.png", "aaa/1.jpg", "aaa/2.png"):
        maker.put(name)
    more, maker.root = maker.root, root
    return more


@pytest.mark.parametrize("name", NAMES)
def test_samples_come_behind_those_that_are_there(tree, more, tmp_path, name):
    dst = tmp_path / "out" / name
    how = {"shards": 2} if "{" in name else {}
    pack(tree, dst, workers=1, resize=16, codec="png", **how)
    with open_store(dst) as store:
        before = [(store.key(i), store.label(i), bytes(store.read(i))) for i in range(12)]
    report = append(dst, more, workers=1)
    assert (report.before, report.added, report.classes) == (12, 3, ("ant", "bee", "cat", "aaa"))
    assert verify(dst).ok
    with open_store(dst) as store:
        assert [(store.key(i), store.label(i), bytes(store.read(i))) for i in range(12)] == before
        added = {store.key(i): store.classes[store.label(i)] for i in range(12, 15)}
        assert added == {"aaa/1": "aaa", "aaa/2": "aaa", "bee/9": "bee"}
        assert {store.codec(i) for i in range(15)} == {"png"}  # by the pack's own options
        assert store.index.height[12:].tolist() == [16] * 3
        told = store.info
        assert told["appended"] == [3]
    # Mean and standard deviation are those of all pixels, as of one pack of both.
    both = pack([tree, more], tmp_path / "both.lmdb", workers=1, resize=16, codec="png")
    assert told["mean"] == list(both.mean)
    assert told["std"] == list(both.std)
    assert not [p.name for p in dst.parent.iterdir() if "partial" in p.name]


@pytest.mark.parametrize("name", NAMES)
def test_what_goes_wrong_leaves_the_pack_as_it_was(tree, more, maker, monkeypatch, name):
    tmp_path = tree.parent
    dst = tmp_path / "out" / name
    pack(tree, dst, workers=1)
    files = {p.name: p.read_bytes() for p in dst.parent.iterdir()}
    with pytest.raises(OptionError, match="12 of these samples already"):
        append(dst, tree, workers=1)
    (more / "bee" / "9.png").write_bytes(b"broken")
    with pytest.raises(TooManySkippedError, match=r"9\.png"):
        append(dst, more, workers=1)
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(PackError, match="disk is full"):
        append(dst, more, workers=1, max_errors=1)
    monkeypatch.undo()
    assert {p.name: p.read_bytes() for p in dst.parent.iterdir()} == files
    assert append(dst, more, workers=2, max_errors=1).added == 2
    with pytest.raises(OptionError, match="label"):  # a flat folder has no labels, the pack has
        append(dst, more / "aaa", workers=1)
    other = more.parent / "other"
    maker.root = other
    maker.put("bee/77.png")
    with open_store(dst) as store:
        span, part = store.spans(np.array([3])), store.parts[0]
    with open(part, "r+b") as file:
        file.seek(int(span.offset[0]) + 40)
        file.write(b"????")
    with pytest.raises(ChecksumError):  # damage is not carried on
        append(dst, other, max_errors=1)
    with pytest.raises(OptionError, match="no pack of fastdata"):
        append(tree, more)


@pytest.mark.parametrize("name", NAMES)
def test_a_further_field_for_existing_keys(tree, maker, tmp_path, name):
    dst = tmp_path / "out" / name
    pack(tree, dst, workers=1)
    for key in ("ant/0", "bee/2", "dog/7"):
        path = tmp_path / "masks" / f"{key}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(maker.encoded(maker.picture(len(key)), "PNG"))
    assert main(["pack", str(tmp_path / "masks"), str(dst), "--append", "--field", "mask"]) == 0
    assert verify(dst).ok
    with open_store(dst) as store:
        assert len(store) == 12
        assert [store.key(i) for i in range(12) if store.index.fields["mask"].length[i] >= 0] == ["ant/0", "bee/2"]
        assert bytes(store.read(store.find("bee/2"), "mask")) == (tmp_path / "masks/bee/2.png").read_bytes()
        assert store.codec(0, "mask") == "png"
    with pytest.raises(OptionError, match="field 'mask' already"):
        append(dst, tmp_path / "masks", field="mask")
    with pytest.raises(NothingPackedError):
        append(dst, tmp_path / "masks" / "dog", field="other")


def test_append_as_a_user_types_it(tree, more, tmp_path, capsys):
    dst = str(tmp_path / "out.lmdb")
    assert main(["pack", str(tree), dst, "--workers", "1", "--subdir"]) == 0
    assert main(["pack", str(more), dst, "--append", "--workers", "1"]) == 0
    assert "added 3 to the 12 samples" in capsys.readouterr().out
    assert main(["pack", str(more), dst, "--append", "--overwrite"]) == 2
    assert main(["pack", str(more), str(tmp_path / "none.lmdb"), "--append"]) == 1
    assert main(["verify", dst]) == 0


def as_numbers(tree, name, labels):
    """A manifest of the tree's pictures, with numbers for labels."""
    rows = [
        f"{path.relative_to(tree)},{label}" for path, label in zip(sorted(tree.rglob("*.*g")), labels, strict=False)
    ]
    path = tree / name
    path.write_text("\n".join(["path,label", *rows, ""]))
    return path


@pytest.mark.parametrize("labels", [(0, 1, 2), (10, 20, 10), (0.5, 1.5, 2.0)])
def test_numbers_and_class_names_are_not_mixed(tree, more, tmp_path, labels):
    numbers = as_numbers(tree, "numbers.csv", labels)
    with_numbers, with_names = tmp_path / "numbers.lmdb", tmp_path / "names.lmdb"
    pack(numbers, with_numbers, workers=1)
    pack(more, with_names, workers=1)
    before = [path.read_bytes() for path in (with_numbers, with_names)]
    for dst, src in ((with_numbers, more), (with_names, numbers)):
        with pytest.raises(OptionError, match=r"numbers\.\w+ has labels without class names, .* of its own"):
            append(dst, src, workers=1)
    assert [path.read_bytes() for path in (with_numbers, with_names)] == before
    with pytest.raises(OptionError, match="into packs of their own"):
        pack([numbers, more], tmp_path / "both.lmdb")


def test_labels_of_one_side_only(tree, more, tmp_path, capsys):
    dst, flat = str(tmp_path / "out.lmdb"), tmp_path / "flat.lmdb"
    pack(tree, dst, workers=1)
    (more / "more.csv").write_text("path,species\nbee/9.png,bee\n")
    assert main(["pack", str(more / "more.csv"), dst, "--append"]) == 2
    assert "--label-column NAME says which" in capsys.readouterr().err
    pack(more / "aaa", flat, workers=1)
    with pytest.raises(OptionError, match=r"src has labels, .*flat\.lmdb has none"):
        append(flat, tree)


def test_other_options_than_the_packs_are_refused(tree, more, tmp_path, capsys):
    dst = str(tmp_path / "out.lmdb")
    pack(tree, dst, workers=1, resize=16, codec="png", background=(1, 2, 3), limit=6, shuffle=True)
    with open_store(dst) as store:
        options = store.info["options"]
    for words, text in (
        (["--resize", "12"], "resize=16, and resize=12"),
        (["--background", "3,2,1"], r"background=[1, 2, 3], and background=[3, 2, 1]"),
        (["--upscale"], "upscale=False, and upscale=True"),
    ):
        assert main(["pack", str(more), dst, "--append", *words]) == 2
        assert f"was packed with {text} was given" in capsys.readouterr().err
    words = ["--resize", "16", "--background", "1,2,3", "--limit", "2", "--on-error", "raise", "--workers", "1"]
    assert main(["pack", str(more), dst, "--append", *words]) == 0
    with open_store(dst) as store:
        assert len(store) == 8
        assert store.info["options"] == options  # as it was, for all of them


def test_masks_that_do_not_fit(tree, maker, tmp_path, capsys):
    dst = tmp_path / "out.lmdb"
    pack(tree, dst, workers=1)
    maker.root = tmp_path / "masks"
    maker.put("ant/0.png", maker.picture(1, (64, 48)).convert("L"))
    maker.put("ant/1.png", maker.picture(2, (48, 64)).convert("L"))
    before = dst.read_bytes()
    line = ["pack", str(maker.root), str(dst), "--append", "--field", "mask"]
    assert main(line) == 2
    assert "'ant/1': its mask has 48 x 64 pixels, the picture 64 x 48" in capsys.readouterr().err
    path = maker.put("ant/1.png", maker.picture(2, (64, 48)).convert("L"))
    path.write_bytes(path.read_bytes()[:100])
    assert main(line) == 1
    assert "1 of 2 files cannot be packed, more than max_errors; the first: " in capsys.readouterr().err
    with pytest.raises(PackError, match=r"ant/1\.png \(key 'ant/1'\) cannot be packed: "):
        append(dst, maker.root, field="mask", on_error="raise")
    assert dst.read_bytes() == before
    assert main([*line, "--max-errors", "50%"]) == 0
    said = capsys.readouterr().out
    assert "added field 'mask' to 1 of the 12 samples" in said
    assert "warning: 11 samples got no 'mask'" in said
    assert f"skipped {path}: " in said
    assert verify(dst).ok
