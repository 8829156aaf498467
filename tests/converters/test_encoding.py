from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from fastdata.converters.encoding import encode, encoder_name
from fastdata.converters.options import PackOptions
from fastdata.decoding.pillow_arrays import view_array
from fastdata.errors import UnsupportedImageError

CODECS = ("jpeg", "png", "webp", "bmp")


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("codec", CODECS)
def test_what_is_written_is_read_by_pillow(maker, codec, mode):
    picture = maker.picture(3, (61, 40)).convert(mode)
    with Image.open(io.BytesIO(encode(view_array(picture), codec, PackOptions(quality=95)))) as back:
        assert back.size == (61, 40)
        got = np.asarray(back.convert(mode)).astype(int)
    difference = abs(got - np.asarray(picture).astype(int))
    assert difference.mean() < (4 if codec in {"jpeg", "webp"} else 1e-9)


@pytest.mark.parametrize(("codec", "size"), [("jpeg", (65_501, 1)), ("webp", (1, 16_384))])
def test_what_a_codec_cannot_hold_is_said(codec, size):
    with pytest.raises(UnsupportedImageError, match="sides of at most"):
        encode(view_array(Image.new("RGB", size)), codec, PackOptions())


@pytest.mark.parametrize("codec", ["keep", "raw", *CODECS])
def test_the_encoder_is_named_with_its_version(codec):
    name = encoder_name(PackOptions(codec=codec))
    assert name == "numpy" or name.split()[1][0].isdigit()
