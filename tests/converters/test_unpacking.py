from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fastdata.cli.main import main
from fastdata.converters import pack, unpack, verify
from fastdata.converters.inspecting import describe
from fastdata.converters.unpacking import member_path
from fastdata.converters.writers import open_writer
from fastdata.errors import DestinationExistsError, PackError, StoreFormatError
from fastdata.stores.opener import open_store
from fastdata.types import Field, Record


def files(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("ending", [".lmdb", ".h5", ".tar"])
def test_a_folder_comes_back_as_it_was(maker, tree, tmp_path, ending):
    maker.put("ant/deep/er/x.y.png")
    maker.put("ant/same.png")
    maker.put("ant/same.jpg")
    first = pack(tree, tmp_path / f"a{ending}", workers=1)
    report = unpack(tmp_path / f"a{ending}", tmp_path / "back")
    assert (report.samples, report.files, report.metadata) == (15, 15, False)
    back = files(tmp_path / "back")
    assert sorted(back.values()) == sorted(files(tree).values())
    assert {name.partition("/")[0] for name in back} == {"ant", "bee", "cat"}
    assert back["ant/deep/er/x.y.png"] == (tree / "ant/deep/er/x.y.png").read_bytes()
    again = pack(tmp_path / "back", tmp_path / f"b{ending}", workers=1)
    assert (again.samples, again.classes) == (first.samples, first.classes)


def test_classes_that_get_no_folder_are_named(tree, tmp_path, capsys):
    """Packed again, the folders number their classes anew: whoever trains on both is told."""
    pack(tree, tmp_path / "a.lmdb", workers=1)
    assert unpack(tmp_path / "a.lmdb", tmp_path / "all").no_folder == ()
    assert unpack(tmp_path / "a.lmdb", tmp_path / "some", limit=4).no_folder == ("bee", "cat")
    assert main(["unpack", str(tmp_path / "a.lmdb"), str(tmp_path / "few"), "--limit", "5"]) == 0
    assert "1 classes have no samples here and no folder, so the folders number others: cat" in capsys.readouterr().out


def write(path, *records, **info):
    writer = open_writer(path)
    for record in records:
        writer.write(record)
    writer.finish(info)


def png(colour="red") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4), colour).save(buffer, "PNG")
    return buffer.getvalue()


def test_labels_and_extras_that_folders_cannot_say_lie_in_the_metadata(tmp_path):
    image = Field("image", "png", png())
    write(
        tmp_path / "a.lmdb",
        Record("a", (image, Field("mask", "png", png("blue"))), (0.5, 1.0), extras={"by": "me"}),
        Record("b", (image,), (1.0, 2.0)),
    )
    unpack(tmp_path / "a.lmdb", tmp_path / "out")
    assert set(files(tmp_path / "out")) == {"a.png", "a.mask.png", "b.png", "metadata.jsonl"}
    rows = [json.loads(line) for line in (tmp_path / "out/metadata.jsonl").read_text().splitlines()]
    assert rows == [
        {"file_name": "a.png", "by": "me", "label": [0.5, 1.0]},
        {"file_name": "b.png", "label": [1.0, 2.0]},
    ]


def test_classes_become_folders_where_the_keys_have_none(tmp_path):
    image = Field("image", "png", png())
    write(tmp_path / "a.lmdb", Record("000", (image,), 1), Record("001", (image,), 0), classes=["ant", "bee"])
    unpack(tmp_path / "a.lmdb", tmp_path / "out")
    assert set(files(tmp_path / "out")) == {"bee/000.png", "ant/001.png"}


def test_raw_pixels_become_png(maker, tmp_path):
    image = maker.picture(1, (20, 10))
    maker.put("a.png", image)
    pack(maker.root, tmp_path / "a.lmdb", codec="raw", workers=1)
    unpack(tmp_path / "a.lmdb", tmp_path / "out")
    with Image.open(tmp_path / "out/a.png") as got:
        assert np.array_equal(np.asarray(got), np.asarray(image))


def test_files_that_exist_stay_unless_overwritten(tree, tmp_path):
    pack(tree, tmp_path / "a.lmdb", workers=1)
    (tmp_path / "out/ant").mkdir(parents=True)
    (tmp_path / "out/ant/0.jpg").write_text("mine")
    with pytest.raises(DestinationExistsError, match="overwrite"):
        unpack(tmp_path / "a.lmdb", tmp_path / "out")
    assert (tmp_path / "out/ant/0.jpg").read_text() == "mine"
    unpack(tmp_path / "a.lmdb", tmp_path / "out", overwrite=True)
    assert (tmp_path / "out/ant/0.jpg").read_bytes() == (tree / "ant/0.jpg").read_bytes()


@pytest.mark.parametrize("key", ["../evil", "a/../../evil", "/evil", "a//b", "a/./b", "..", ".", "a/", ""])
def test_no_key_leads_out_of_the_folder(tmp_path, key):  # C149
    write(tmp_path / "a.lmdb", Record(key, (Field("image", "png", png()),)))
    with pytest.raises(StoreFormatError, match="key"):
        unpack(tmp_path / "a.lmdb", tmp_path / "deep/out")
    assert set(files(tmp_path)) == {"a.lmdb"}


def test_no_class_name_leads_out_of_the_folder(tmp_path):  # C149
    write(tmp_path / "a.lmdb", Record("x", (Field("image", "png", png()),), 0), classes=["../.."])
    with pytest.raises(StoreFormatError, match="key"):
        unpack(tmp_path / "a.lmdb", tmp_path / "deep/out")


def test_a_link_in_the_folder_is_not_followed_out_of_it(tree, tmp_path):  # C149
    pack(tree, tmp_path / "a.lmdb", workers=1)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/ant").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PackError, match="link"):
        unpack(tmp_path / "a.lmdb", tmp_path / "out", overwrite=True)
    assert not list((tmp_path / "elsewhere").iterdir())


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30))
def test_a_member_path_stays_inside_whatever_the_key(key):  # C149
    for windows in (False, True):
        try:
            path = member_path(key, ".png", windows=windows)
        except StoreFormatError:
            continue
        assert Path("/root", path).is_relative_to("/root")
        assert ".." not in path.split("/")


@pytest.mark.parametrize("key", ["a/NUL", "con", "a\\b", "C:x", "a ./b", "lpt1.x"])
def test_names_that_windows_keeps_for_itself_are_refused_there(key):  # C149
    assert member_path(key, ".png", windows=False) == f"{key}.png"
    with pytest.raises(StoreFormatError):
        member_path(key, ".png", windows=True)


@pytest.mark.parametrize("ending", [".lmdb", ".h5", ".tar"])
def test_describe_says_what_was_packed(tree, tmp_path, ending):
    report = pack(tree, tmp_path / f"a{ending}", workers=1, resize=32)
    with open_store(tmp_path / f"a{ending}") as store:
        facts = json.loads(json.dumps(describe(store)))
    found = verify(tmp_path / f"a{ending}")
    assert (found.problems, found.checked, found.decoded, found.good) == ((), 12, 12, 12)
    assert facts["samples"] == 12
    assert facts["class_counts"] == {"ant": 4, "bee": 4, "cat": 4}
    assert facts["codecs"] == {"jpeg": 12}
    assert facts["height"] == {"min": 32, "median": 32, "max": 32}
    assert facts["content_hash"] == report.content_hash
    assert facts["options"]["resize"] == 32
    assert facts["mean"] == list(report.mean)


def test_describe_says_nothing_that_it_has_not_looked_at(tree):
    with open_store(tree) as store:
        facts = describe(store)
    assert facts["samples"] == 12
    assert facts["bytes"] is facts["width"] is None


@pytest.mark.parametrize("ending", [".lmdb", ".h5", ".tar"])
def test_verify_finds_a_changed_byte(tree, tmp_path, ending):
    path = tmp_path / f"a{ending}"
    pack(tree, path, workers=1)
    with open_store(path) as store:
        spans = store.spans(np.array([5]))
        key = store.key(5)
    with path.open("r+b") as file:
        file.seek(int(spans.offset[0]) + 60)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
    assert [(p.kind, p.key) for p in verify(path).problems] == [("record", key)]
    # A damaged record of a source is reported, not packed on.
    report = pack(path, tmp_path / "b.lmdb", workers=1, max_errors=0.5)
    assert [s.key for s in report.skipped] == [key]
    assert "ChecksumError" in report.skipped[0].reason


_FULL = """
import resource, signal, sys
from fastdata.cli.main import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
sys.exit(main(["unpack", *sys.argv[1:]]))
"""


def test_a_full_disk_leaves_no_part_of_a_file(tmp_path):  # a limit of file sizes stands in for it
    image = Field("image", "png", png())
    write(
        tmp_path / "a.lmdb",
        Record("a", (image,), extras={"by": "me"}),
        Record("b", (Field("image", "jpeg", bytes(5000)),)),
    )
    write(tmp_path / "b.lmdb", *(Record(f"{i}", (image,), extras={"text": "x" * 900}) for i in range(3)))
    for name, left in (("a", ["a.png"]), ("b", ["0.png", "1.png", "2.png"])):
        line = [sys.executable, "-c", _FULL, str(tmp_path / f"{name}.lmdb"), str(tmp_path / name)]
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"fastdata: cannot write {tmp_path / name}/")
        assert sorted(p.name for p in (tmp_path / name).iterdir()) == left
