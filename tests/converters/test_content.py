from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastdata.converters.content import DigestedRecord, record_digest
from fastdata.types import Field, Record

TEXT = st.text(st.characters(), max_size=9)  # lone surrogates, too: names that are no UTF-8
LABELS = st.none() | st.integers(-(2**40), 2**40) | st.booleans() | st.tuples(st.integers(0, 9), st.just(0.5))
VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT | st.lists(TEXT, max_size=2)
FIELDS = st.lists(st.tuples(TEXT, st.sampled_from(["jpeg", "text", "raw"]), st.binary(max_size=9)), max_size=2)


def by_hand(record):
    """The definition: what is hashed is JSON with sorted names, a line end, and the bytes, the image's first."""
    fields = sorted(record.fields, key=lambda f: (f.name != "image", f.name))
    head = {
        "key": record.key,
        "label": [float(v) for v in record.label] if isinstance(record.label, tuple) else record.label,
        "extras": record.extras,
        "fields": [(f.name, f.codec, len(f.data)) for f in fields],
    }
    text = json.dumps(head, sort_keys=True, separators=(",", ":")).encode() + b"\n"
    return hashlib.blake2b(text + b"".join(f.data for f in fields), digest_size=16).digest()


@given(TEXT, LABELS, st.dictionaries(TEXT, VALUES, max_size=3), FIELDS)
def test_the_digest_is_that_of_its_definition(key, label, extras, more):
    fields = (*(Field(*one) for one in more), Field("image", "jpeg", b"xyz"))
    record = Record(key, fields, label, 3, 4, extras)
    assert record_digest(record) == by_hand(record)
    assert DigestedRecord.of(key, fields, label, (3, 4), extras).digest == by_hand(record)


@pytest.mark.parametrize(
    ("record", "digest"),
    [
        (Record("a", (Field("image", "jpeg", b"xyz"),), 7), "24ea2063b6b05e4d23f035cd50f15739"),
        (
            Record(
                'a/b "\u00fc" \udc80\n',
                (Field("mask", "png", b"12"), Field("image", "jpeg", b"xyz")),
                (0.1, 2.0),
                extras={"b": [1, None, "\u00e9"], "a": 0.5},
            ),
            "38ed8280bebb54ef0fbc7609501f5bf7",
        ),
    ],
)
def test_packs_that_were_written_before_keep_their_digests(record, digest):
    assert record_digest(record).hex() == digest
