"""Resampling agrees with Pillow to the bit, whatever the filter, the instruction set and the layout of the output."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastdata.decoding.native_decoder import NativeBatchDecoder
from fastdata.decoding.resample import resample_into
from fastdata.types import Geometry

FILTERS = ("nearest", "nearest-exact", "box", "bilinear", "hamming", "bicubic", "lanczos")


def raw_batch(kit, pictures):
    return kit.pack([picture.tobytes() for picture in pictures], [picture.shape[1::-1] for picture in pictures], "raw")


def geometry_of(rng, sizes, out, filt):
    """Half crops (window = box), half Resize + crop with a rectangle that may leave the picture."""
    n = len(sizes)
    box, window = np.zeros((n, 4), np.int32), np.zeros((n, 4))
    size, rect = np.zeros((n, 2), np.int32), np.zeros((n, 4), np.int32)
    for row, (width, height) in enumerate(sizes):
        left, top = int(rng.integers(0, width)), int(rng.integers(0, height))
        if row % 2:
            box[row] = (left, top, rng.integers(left + 1, width + 1), rng.integers(top + 1, height + 1))
            size[row], rect[row] = out, (0, 0, *out)
        else:
            box[row] = (0, 0, width, height)
            size[row] = rng.integers(1, 2 * out[0] + 2), rng.integers(1, 2 * out[1] + 2)
            rect[row] = (*rng.integers(-out[0] // 2, out[0], 2), *out)
        window[row] = box[row]
    return Geometry(
        box=box, window=window, size=size, rect=rect, hflip=rng.random(n) < 0.5, vflip=rng.random(n) < 0.5,
        fill=(9, 80, 200), interpolation=filt,
    )  # fmt: skip


@pytest.mark.parametrize("filt", FILTERS)
@pytest.mark.parametrize("channels", [1, 3])
def test_equal_to_pillow(kit, kernels, filt, channels):
    rng = np.random.default_rng(3)
    with NativeBatchDecoder(1, kernels=kernels) as decoder:
        for _ in range(12):
            shapes = [(*rng.integers(1, 220, 2), channels) for _ in range(6)]
            pictures = [rng.integers(0, 256, shape, dtype=np.uint8) for shape in shapes]
            geometry = geometry_of(rng, [p.shape[1::-1] for p in pictures], tuple(rng.integers(1, 120, 2)), filt)
            out = np.full((6, *geometry.rect[0, 3:1:-1], channels), 77, np.uint8)
            assert decoder.decode_batch(raw_batch(kit, pictures), geometry, out) == {}
            for row, picture in enumerate(pictures):
                named = Geometry(**{f: getattr(geometry, f) for f in Geometry.__slots__} | {
                    "interpolation": filt.split("-")[0]})  # fmt: skip
                image = Image.fromarray(picture if channels == 3 else picture[:, :, 0])
                assert np.array_equal(out[row], kit.picture_by_pillow(image, named, row, channels)), f"{filt} {row}"


@settings(max_examples=200, deadline=None)
@given(
    width=st.integers(1, 400), height=st.integers(1, 60), out_width=st.integers(1, 300), out_height=st.integers(1, 60),
    filt=st.sampled_from(FILTERS[1:]), seed=st.integers(0, 9),
)  # fmt: skip
def test_all_instruction_sets_give_the_same_bits(  # noqa: PLR0913, PLR0917  drawn
    kit, width, height, out_width, out_height, filt, seed
):
    rng = np.random.default_rng(seed)
    picture = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    geometry = kit.crops([(0, 0, width, height)], (out_width, out_height), interpolation=filt,
                         hflip=np.array([seed % 2 == 0]))  # fmt: skip
    outs = []
    for kernels in ("generic", "avx2", "avx512"):
        try:
            decoder = NativeBatchDecoder(1, kernels=kernels)
        except ValueError:
            continue
        out = np.zeros((1, out_height, out_width, 3), np.uint8)
        assert decoder.decode_batch(raw_batch(kit, [picture]), geometry, out) == {}
        outs.append(out)
        decoder.close()
    for other in outs[1:]:
        assert np.array_equal(outs[0], other)


@pytest.mark.parametrize("antialias", [True, False])
def test_the_reference_agrees_within_one_level(kit, antialias):
    """Fractional windows, partial boxes, rectangles that leave the picture; C016-like rows of a real transform."""
    rng = np.random.default_rng(11)
    picture = np.asarray(Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize((171, 128)))
    rows = 40
    window = np.stack([rng.uniform(0, 80, rows), rng.uniform(0, 60, rows), rng.uniform(90, 171, rows),
                       rng.uniform(70, 128, rows)], 1)  # fmt: skip
    geometry = Geometry(
        box=np.tile(np.array([0, 0, 171, 128], np.int32), (rows, 1)), window=window,
        size=rng.integers(20, 200, (rows, 2)).astype(np.int32),
        rect=np.concatenate([rng.integers(-20, 60, (rows, 2)), np.full((rows, 2), 40)], 1).astype(np.int32),
        hflip=rng.random(rows) < 0.5, vflip=rng.random(rows) < 0.5, fill=(1, 2, 3), antialias=antialias,
    )  # fmt: skip
    out, expected = np.zeros((rows, 40, 40, 3), np.uint8), np.zeros((rows, 40, 40, 3), np.uint8)
    with NativeBatchDecoder(2) as decoder:
        assert decoder.decode_batch(raw_batch(kit, [picture] * rows), geometry, out) == {}
    for row in range(rows):
        resample_into(picture, geometry, row, expected[row])
    assert np.abs(out.astype(int) - expected).max() <= 1


def test_resize_and_centre_crop_decodes_only_what_it_needs_and_equals_the_whole(kit):
    blob = kit.jpeg_of(kit.noisy_photo(300, 200), "420")
    image_size = (300, 200)
    size, rect = (384, 256), (80, 16, 224, 224)
    whole = Geometry(
        box=np.array([[0, 0, 300, 200]], np.int32), window=np.array([[0.0, 0, 300, 200]]),
        size=np.array([size], np.int32), rect=np.array([rect], np.int32),
        hflip=np.array([False]), vflip=np.array([False]),
    )  # fmt: skip
    part = Geometry(
        box=np.array([[60, 10, 240, 190]], np.int32), window=whole.window, size=whole.size, rect=whole.rect,
        hflip=whole.hflip, vflip=whole.vflip,
    )  # fmt: skip
    outs = np.zeros((2, 224, 224, 3), np.uint8)
    with NativeBatchDecoder(1) as decoder:
        assert decoder.decode_batch(kit.pack([blob], [image_size]), whole, outs[:1]) == {}
        assert decoder.decode_batch(kit.pack([blob], [image_size]), part, outs[1:]) == {}
    expected = kit.by_pillow(blob, whole, 0)
    assert np.array_equal(outs[0], expected)
    assert np.array_equal(outs[1], expected)


@pytest.mark.parametrize("layout", ["HWC", "CHW", "channels_last slice", "negative", "transposed"])
@pytest.mark.parametrize("source", ["420", "grey"])
def test_any_strides(kit, kernels, layout, source):
    blobs = [kit.jpeg_of(kit.noisy_photo(90, 70, seed), source) for seed in range(4)]
    boxes = [(3, 5, 88, 60)] * 4
    geometry = kit.crops(boxes, (31, 22), hflip=np.array([True, False] * 2), vflip=np.array([True, True, False, False]))
    out = {
        "HWC": lambda: np.zeros((4, 22, 31, 3), np.uint8),
        "CHW": lambda: np.zeros((4, 3, 22, 31), np.uint8).transpose(0, 2, 3, 1),
        "channels_last slice": lambda: np.zeros((4, 30, 40, 5), np.uint8)[:, 4:26, 7:38, 1:4],
        "negative": lambda: np.zeros((4, 22, 31, 3), np.uint8)[:, ::-1, :, ::-1],
        "transposed": lambda: np.zeros((3, 31, 22, 4), np.uint8).transpose(3, 2, 1, 0),
    }[layout]()
    with NativeBatchDecoder(2, kernels=kernels) as decoder:
        assert decoder.decode_batch(kit.pack(blobs, [(90, 70)] * 4), geometry, out) == {}
    for row, blob in enumerate(blobs):
        assert np.array_equal(out[row], kit.by_pillow(blob, geometry, row))
    if layout == "channels_last slice":
        base = out.base.copy()
        base[:, 4:26, 7:38, 1:4] = 0
        assert not base.any(), "something was written outside the view"


@pytest.mark.parametrize("planar", [True, False])
@pytest.mark.parametrize("source", ["420", "grey"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint16])
def test_levels_make_floats(kit, planar, source, dtype):
    """uint16 holds the bits of bfloat16."""
    rng = np.random.default_rng(0)
    levels = rng.integers(0, 2**16, (3, 256), np.uint16) if dtype == np.uint16 else rng.normal(size=(3, 256))
    levels = levels.astype(dtype)
    blob = kit.jpeg_of(kit.noisy_photo(64, 48), source)
    geometry = kit.crops([(0, 0, 64, 48)], (40, 30), rect=np.array([[-3, -2, 40, 30]], np.int32), fill=(7, 8, 9))
    memory = np.zeros((2, 3, 30, 40) if planar else (2, 30, 40, 3), dtype)
    floats = memory.transpose(0, 2, 3, 1) if planar else memory
    with NativeBatchDecoder(1) as decoder:
        assert decoder.decode_batch(kit.pack([blob], [(64, 48)]), geometry, floats[:1], levels=levels) == {}
    expected = kit.by_pillow(blob, geometry, 0)
    for channel in range(3):
        assert np.array_equal(floats[0, :, :, channel], levels[channel][expected[:, :, channel]])
    assert not memory[1].any(), "something was written behind the picture"


def test_levels_and_pixels_have_one_dtype(kit):
    blob = kit.jpeg_of(kit.noisy_photo(16, 16), "420")
    geometry = kit.crops([(0, 0, 16, 16)], (8, 8))
    with NativeBatchDecoder(1) as decoder:
        for levels, pixels in itertools.permutations((np.float32, np.float16, np.uint16, np.float64), 2):
            out = np.zeros((1, 8, 8, 3), pixels)
            with pytest.raises(ValueError, match="levels"):
                decoder.decode_batch(kit.pack([blob], [(16, 16)]), geometry, out, levels=np.zeros((3, 256), levels))
        with pytest.raises(ValueError, match="levels"):
            decoder.decode_batch(kit.pack([blob], [(16, 16)]), geometry, np.zeros((1, 8, 8, 3), np.uint16))
