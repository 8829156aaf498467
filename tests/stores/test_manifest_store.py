"""Manifests: columns, labels of all kinds, extras, and errors that name the row."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from fastdata import open_store
from fastdata.errors import MissingPartError, OptionError
from fastdata.stores.manifest_store import read_manifest

if TYPE_CHECKING:
    from pathlib import Path


def _write(folder: Path, text: str, name: str = "list.csv") -> Path:
    for file in ("a/x.jpg", "a/x.png", "b/x.jpg", "y.jpg"):
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_bytes(file.encode())
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def _json(folder: Path, *rows: Any) -> Path:
    return _write(folder, "".join(json.dumps(row) + "\n" for row in rows), "list.jsonl")


def _labels(store: Any) -> list[Any]:
    return [store.label(i) for i in range(len(store))]


def test_class_names_and_extras(tmp_path):
    text = 'path,label,caption,source\nb/x.jpg,dog,"two\nlines, é",web\na/x.jpg,cat,,\n'
    with open_store(_write(tmp_path, text)) as store:
        assert store.kind == "manifest"
        assert store.classes == ("cat", "dog")
        assert _labels(store) == [1, 0]
        assert store.extras(0) == {"caption": "two\nlines, é", "source": "web"}
        assert [bytes(store.read(i)) for i in range(2)] == [b"b/x.jpg", b"a/x.jpg"]
        assert [store.key(i) for i in range(2)] == ["b/x", "a/x"]
        record = store.record(0)
        assert record.extras["source"] == "web"
        assert record.label == 1


@pytest.mark.parametrize(
    ("cells", "labels", "classes"),
    [
        (["3", "-1"], [3, -1], ()),
        (["3", "0.5"], [3.0, 0.5], ()),
        (["1e3", "2"], [1000.0, 2.0], ()),
        (["007", "12"], [0, 1], ("007", "12")),
        (["1_000", "2"], [0, 1], ("1_000", "2")),
        (["3", "cat"], [0, 1], ("3", "cat")),
        (['"[1, 0.5]"', '"[0, 2]"'], [(1.0, 0.5), (0.0, 2.0)], ()),
        (["[x", "y"], [0, 1], ("[x", "y")),
    ],
)
def test_labels_of_a_table(tmp_path, cells, labels, classes):
    text = "path,label\n" + "".join(f"{p},{cell}\n" for p, cell in zip(("a/x.jpg", "b/x.jpg"), cells, strict=True))
    with open_store(_write(tmp_path, text)) as store:
        assert _labels(store) == labels
        assert store.classes == classes
        assert [type(label) for label in _labels(store)] == [type(label) for label in labels]


def test_several_columns_make_a_vector(tmp_path):
    head = "label_1,path,label_0,label_10,label_2\n"
    with open_store(_write(tmp_path, head + "1,a/x.jpg,0,10,2.5\n5,b/x.jpg,4,7,6\n")) as store:
        assert _labels(store) == [(0.0, 1.0, 2.5, 10.0), (4.0, 5.0, 6.0, 7.0)]
        assert store.extras(0) == {}


def test_json_lines(tmp_path):
    rows = [
        {"file_name": "a/x.jpg", "label": "3", "objects": {"bbox": [[1, 2, 3, 4]], "categories": [0]}},
        {"file_name": "b/x.jpg", "label": "12"},
    ]
    with open_store(_json(tmp_path, *rows)) as store:
        assert store.classes == ("12", "3")  # text in JSON is a name
        assert store.extras(0) == {"objects": {"bbox": [[1, 2, 3, 4]], "categories": [0]}}
        assert store.extras(1) == {}


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [([1, 2], [1, 2]), ([1, 2.5], [1.0, 2.5]), ([[1, 0], [0, 1]], [(1.0, 0.0), (0.0, 1.0)]), ([True, False], [1, 0])],
)
def test_json_labels(tmp_path, labels, wanted):
    with open_store(_json(tmp_path, *({"path": "y.jpg", "label": label} for label in labels))) as store:
        assert _labels(store) == wanted


def test_no_labels(tmp_path):
    with open_store(_write(tmp_path, "path\ty\na/x.jpg\t1\n", "list.tsv")) as store:
        assert store.label(0) is None
        assert store.extras(0) == {"y": "1"}


def test_semicolons_byte_order_mark_and_empty_lines(tmp_path):
    with open_store(_write(tmp_path, "\ufeffpath;label\r\n\r\na/x.jpg;1,5\r\n\r\n")) as store:
        assert store.classes == ("1,5",)
        assert bytes(store.read(0)) == b"a/x.jpg"


def test_keys_stay_different_and_inside(tmp_path):
    names = ["a/x.jpg", "a/x.png", "a/x.jpg", "./a/x.jpg", "../b/x.jpg", "/etc/x.jpg", "a/../y.jpg", "C:\\w\\z.jpg"]
    path = _write(tmp_path, "path\n" + "\n".join(names) + "\n")
    with open_store(path) as store:
        assert [store.key(i) for i in range(len(names))] == [
            "a/x.jpg", "a/x.png", "a/x.jpg#2", "a/x.jpg#3", "b/x", "etc/x", "y", "C:/w/z",
        ]  # fmt: skip
        assert bytes(store.read(2)) == b"a/x.jpg"
        assert bytes(store.read(6)) == b"y.jpg"


def test_root_and_absolute_paths(tmp_path):
    (tmp_path / "lists").mkdir()
    for file in ("a/x.jpg", "y.jpg"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_bytes(file.encode())
    path = tmp_path / "lists" / "l.csv"
    path.write_text(f"path\na/x.jpg\n{tmp_path}/y.jpg\n")
    contents = read_manifest(str(path), root=str(tmp_path))
    assert contents.parts[:] == [str(tmp_path / "a/x.jpg"), str(tmp_path / "y.jpg")]


def test_missing_files_are_kept_and_named(tmp_path):
    with open_store(_write(tmp_path, "path\na/x.jpg\ngone/z.jpg\n")) as store:
        assert len(store) == 2
        with pytest.raises(MissingPartError, match=r"gone/z\.jpg"):
            store.read(1)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "lists no files"),
        ("path,label\n", "lists no files"),
        ("name,label\na,1\n", r"no column 'path'.*'name', 'label'"),
        ("path,label\na/x.jpg,1\nb/x.jpg\n", r"row 2 has 1 columns, the header 2"),
        ("path,label\na/x.jpg,1\nb/x.jpg,\n", r"row 2 has no label"),
        ("path,label\na/x.jpg,1\n,1\n", r"row 2 has no path"),
        ("path,label,label\na/x.jpg,1,2\n", r"same name"),
        ('path,label\na/x.jpg,1\nb/x.jpg,"[1]"\n', r"row 2.*another kind"),
        ('path,label\na/x.jpg,"[1, 2]"\nb/x.jpg,"[1]"\n', r"row 2 has 1 labels.*2"),
        ("path,label\na/x.jpg,99999999999999999999\n", r"row 1 has no label"),
    ],
)
def test_wrong_tables_name_the_row(tmp_path, text, says):
    path = _write(tmp_path, text)
    with pytest.raises(OptionError, match=says):
        open_store(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"path": "a/x.jpg"}\n[1]\n', r"row 2 is no JSON object"),
        ('{"path": "a/x.jpg"}\n{"pa\n', r"row 2 is not JSON"),
        ('{"path": "a/x.jpg", "label": 1}\n{"path": "a/x.jpg"}\n', r"row 2 has no label"),
        ('{"path": "a/x.jpg"}\n{"path": "a/x.jpg", "label": 1}\n', r"row 2 has a label"),
        ('{"path": "a/x.jpg", "label": "cat"}\n{"path": "a/x.jpg", "label": 1}\n', r"some labels are names"),
        ('{"path": 3}\n', r"row 1 has no path"),
        ("[" * 100_000 + "\n", r"row 1 is not JSON"),
    ],
)
def test_wrong_json_names_the_row(tmp_path, text, says):
    path = _write(tmp_path, text, "list.jsonl")
    with pytest.raises(OptionError, match=says):
        open_store(path)
