from __future__ import annotations

import pickle
from contextlib import closing

import numpy as np
import pytest

from fastdata.converters import PackOptions
from fastdata.converters.sources import open_source
from fastdata.converters.work import pack_rows
from fastdata.converters.writers import open_writer
from fastdata.types import CODECS, Field, Record

MANY = 300  # more rows than are looked up at once


def write(path, prefix, label, classes):
    """A pack of tiny records, some with a caption; no picture in it is ever decoded."""
    writer = open_writer(path)
    for i in range(MANY):
        fields = [Field("image", "jpeg", b"%d" % i)]
        if i % 3:
            fields.append(Field("caption", "text", b"of %d" % i))
        writer.write(Record(f"{prefix}{i}", tuple(fields), label(i), i + 1, i + 2, {"odd": True} if i % 2 else {}))
    writer.finish({"classes": classes})
    return path


@pytest.fixture
def source(tmp_path):
    one = write(tmp_path / "one.lmdb", "a", lambda i: i % 3, ["ant", "cat", "elk"])
    two = write(tmp_path / "two.tar", "b", lambda i: i % 2, ["bee", "cat"])
    source = open_source([one, two])
    yield source
    source.close()


def by_hand(source, position):
    store, i = source.stores[position // MANY], position % MANY
    values = []
    for name, column in store.index.fields.items():
        if name != "extras" and column.length[i] >= 0:
            place = int(column.offset[i]), int(column.length[i]), int(column.checksum[i])
            values.append((name, CODECS[column.codec[i]], store.parts[int(column.part[i])], *place))
    label = source.classes.index(store.classes[int(store.index.label[i])])
    return store.key(i), values, label, i % MANY + 1, i % MANY + 2, store.extras(i)


def test_rows_are_the_stores_samples_in_any_order(source):
    order = np.random.default_rng(0).permutation(2 * MANY)
    assert source.classes == ("ant", "bee", "cat", "elk")
    for position, row in zip(order.tolist(), source.rows(order), strict=True):
        values = [(v.name, v.codec, v.path, v.offset, v.length, v.checksum) for v in row.values]
        assert (row.key, values, row.label, row.width, row.height, row.extras) == by_hand(source, position)
        assert type(row.label) is int
    assert list(source.rows(range(0))) == []
    assert [row.key for row in source.rows([599, 0])] == ["b299", "a0"]


def test_labels_that_are_vectors_or_absent(tmp_path):
    with closing(open_source(write(tmp_path / "a.lmdb", "a", lambda i: (i / 2, 1.0), []))) as source:
        assert [row.label for row in source.rows([4, 1])] == [(2.0, 1.0), (0.5, 1.0)]
    with closing(open_source(write(tmp_path / "b.lmdb", "b", lambda _: None, []))) as source:
        assert [row.label for row in source.rows([4, 1])] == [None, None]


def test_what_goes_between_processes_arrives_as_it_was(tree):
    source = open_source(tree)
    rows = list(source.rows(range(len(source))))
    made = pack_rows(rows, PackOptions(resize=20))
    assert pickle.loads(pickle.dumps((rows, made))) == (rows, made)
