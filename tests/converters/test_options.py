from __future__ import annotations

import json
import pickle

import pytest

from fastdata.converters import PackOptions, pack
from fastdata.errors import OptionError


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"resize": 0}, "resize"),
        ({"resize": 2.5}, "resize"),
        ({"resize": (256, 0), "resize_mode": "exact"}, "resize"),
        ({"resize": (256, 128)}, "exact"),
        ({"resize_mode": "widest"}, "shorter, longer"),
        ({"codec": "jpg"}, "jpeg"),
        ({"quality": 101}, "1 to 100"),
        ({"quality": True}, "1 to 100"),
        ({"subsampling": "420"}, "4:2:0"),
        ({"mode": "P"}, "RGB, L"),
        ({"background": (1, 2)}, "three numbers"),
        ({"background": (1, 2, 256)}, "three numbers"),
        ({"orientation": "turn"}, "apply, keep"),
        ({"max_pixels": 0}, "max_pixels"),
        ({"seed": -1}, "seed"),
        ({"limit": 0}, "limit"),
        ({"max_errors": 1.5}, "0.05"),
        ({"workers": 0}, "workers"),
        ({"shuffle": 1}, "True or False"),
        ({"shard_size": 10, "shards": 2}, "not both"),
        ({"filter": "nearest"}, "bicubic"),
    ],
)
def test_a_value_that_cannot_be_meant_is_named_with_what_was_expected(options, said):
    with pytest.raises(OptionError, match=said):
        PackOptions(**options)


def test_pack_names_the_options_it_has(tmp_path):
    with pytest.raises(OptionError, match=r"no option 'size'; it has resize"):
        pack(tmp_path, tmp_path / "out.lmdb", size=3)


def test_options_travel_to_workers_and_into_the_pack():
    options = PackOptions(resize=(3, 4), resize_mode="crop", workers=7, overwrite=True)
    assert pickle.loads(pickle.dumps(options)) == options
    facts = json.loads(json.dumps(options.facts()))
    assert facts["resize"] == [3, 4]
    assert not {"workers", "overwrite", "max_errors", "on_error"} & set(facts)
