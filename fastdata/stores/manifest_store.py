"""A list of image files (CSV, TSV or JSON lines) as a store: paths, labels, and further columns kept as extras."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from fastdata.errors import OptionError
from fastdata.stores.file_names import FileNames, keys_of
from fastdata.stores.folder_store import file_index
from fastdata.stores.index import KeyColumn
from fastdata.stores.manifest_labels import LabelColumn, label_columns
from fastdata.stores.manifest_rows import ExtrasColumn, read_rows
from fastdata.stores.store import Contents

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["read_manifest"]

_PATH_COLUMNS = ("path", "file_name", "filename")  # file_name: Hugging Face's imagefolder


def read_manifest(path: str, root: str | None = None, *, label_column: str | None = None) -> Contents:
    """Return what a .csv, .tsv or .jsonl file lists.

    Columns: ``path`` (or ``file_name``, ``filename``), relative to the manifest's folder or to ``root``; ``label``
    (integers, numbers, class names, or a list) or ``label_0``, ``label_1``, ... (a vector), or none; all others are
    extras.
    label_column: the label's column where it has another name. Where there are no labels, the info's ``columns`` names
    the extras. Class names get the numbers of their sorted order. Files are not looked at: one that is missing is named
    when it is read. A file that is listed twice is two samples, the second with ``#2`` behind its key. Errors
    (OptionError) name the row, from 1.
    """
    names, labels, extras = [], None, ExtrasColumn()
    wanted: tuple[str, Sequence[str]] | None = None
    number = 0
    for number, row in read_rows(path):
        if wanted is None:
            wanted = _path_column(path, row), _label_columns(path, row, label_column)
            labels = LabelColumn(path, typed=path.lower().endswith(".jsonl")) if wanted[1] else None
        path_column, columns = wanted
        names.append(_name(path, number, row.get(path_column)))
        if labels is None and label_columns(row):  # JSON lines may differ from one to the next
            msg = f"{path}: row {number} has a label, the rows before it have none; give each row one, or none"
            raise OptionError(msg)
        if labels is not None:
            labels.add(number, [row.get(name) for name in columns])
        extras.add({name: value for name, value in row.items() if name != path_column and name not in columns})
    if not number:
        msg = f"{path}: the manifest lists no files; it needs a header with a column 'path', and a row for each image"
        raise OptionError(msg)
    label, classes = (None, None) if labels is None else labels.build()
    info: dict[str, Any] = {} if classes is None else {"classes": classes}
    if labels is None:
        info["columns"] = list(extras.names)
    index = file_index(KeyColumn.of(_keys(names)), label)
    folder = os.path.dirname(os.path.abspath(path)) if root is None else os.path.abspath(root)  # noqa: PTH100, PTH120
    parts = FileNames(folder, KeyColumn.of(names))
    return Contents(path, "manifest", parts, index, info, whole_files=True, extras=extras.row)


def _path_column(path: str, row: Mapping[str, Any]) -> str:
    for name in _PATH_COLUMNS:
        if name in row:
            return name
    msg = f"{path}: no column 'path' (or 'file_name', 'filename'); the columns are {', '.join(map(repr, row))}"
    raise OptionError(msg)


def _label_columns(path: str, row: Mapping[str, Any], label_column: str | None) -> Sequence[str]:
    if label_column is None:
        return label_columns(row)
    if label_column not in row or label_column == _path_column(path, row):
        msg = f"{path}: no column {label_column!r} for the label; the columns are {', '.join(map(repr, row))}"
        raise OptionError(msg)
    return [label_column]


def _name(path: str, number: int, name: object) -> str:
    if not isinstance(name, str) or not name or "\0" in name:
        msg = f"{path}: row {number} has no path of a file ({name!r})"
        raise OptionError(msg)
    return name


def _keys(names: Sequence[str]) -> list[str]:
    """Return a key for each path: as in a folder, never leading out of it, each different."""
    clean = [_inside(name) for name in names]
    by_folder: dict[str, dict[str, str]] = {}
    for name in clean:
        folder, _, base = name.rpartition("/")
        by_folder.setdefault(folder, {})[base] = ""
    for folder, files in by_folder.items():
        prefix = f"{folder}/" if folder else ""
        bases = list(files)
        files.update({base: prefix + key for base, key in zip(bases, keys_of(bases), strict=True)})
    keys, seen, times = [], set[str](), dict[str, int]()
    for name in clean:
        folder, _, base = name.rpartition("/")
        key = wanted = by_folder[folder][base]
        while key in seen:
            times[wanted] = times.get(wanted, 1) + 1
            key = f"{wanted}#{times[wanted]}"
        seen.add(key)
        keys.append(key)
    return keys


def _inside(name: str) -> str:
    # Keys become names of files when a pack is written out: "..", "C:" and a leading "/" must not lead anywhere.
    parts = [part for part in os.path.normpath(name).replace("\\", "/").split("/") if part not in {"", ".", ".."}]
    return "/".join(parts) or "image"
