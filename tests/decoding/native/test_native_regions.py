"""A region of a JPEG equals the same rectangle of Pillow's whole decode, bit for bit."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastdata.decoding.native_decoder import NativeBatchDecoder, make_decoder


def random_box(rng, width, height):
    left, top = int(rng.integers(0, width)), int(rng.integers(0, height))
    return left, top, int(rng.integers(left + 1, width + 1)), int(rng.integers(top + 1, height + 1))


def regions_of(decoder, kit, blob, size, boxes, channels=3):
    """Each box, not resampled: one call a box, since their sizes differ."""
    for box in boxes:
        width, height = box[2] - box[0], box[3] - box[1]
        out = np.full((1, height, width, channels), 99, np.uint8)
        assert decoder.decode_batch(kit.pack([blob], [size]), kit.crops([box], (width, height)), out) == {}
        yield box, out[0]


def whole_by_pillow(blob, mode="RGB"):
    image = Image.open(io.BytesIO(blob)).convert("RGB").convert(mode)
    pixels = np.asarray(image)
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


@pytest.mark.parametrize("size", [(160, 120), (157, 101), (33, 250), (250, 17)])
def test_random_boxes_equal_the_whole_decode(kit, kind, size):
    blob = kit.jpeg_of(kit.noisy_photo(*size, seed=size[0]), kind)
    whole = whole_by_pillow(blob)
    rng = np.random.default_rng(size[1])
    boxes = [random_box(rng, *size) for _ in range(60)]
    boxes += [
        (0, 0, *size),
        (0, 0, 1, 1),
        (size[0] - 1, size[1] - 1, *size),
        (size[0] // 2, 0, size[0] // 2 + 1, size[1]),
    ]
    with NativeBatchDecoder(1) as decoder:
        for box, pixels in regions_of(decoder, kit, blob, size, boxes):
            expected = whole[box[1] : box[3], box[0] : box[2]]
            assert np.array_equal(pixels, expected), f"{kind} {size} {box}"
        assert decoder._reference is None, "the core did not decode these itself"


def test_every_edge_of_a_picture_near_its_blocks(kit, kind):
    size = (70, 54)
    blob = kit.jpeg_of(kit.noisy_photo(*size), kind)
    whole = whole_by_pillow(blob)
    edges_x, edges_y = (
        [0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65],
        [0, 1, 7, 8, 15, 16, 17, 31, 32, 33, 47],
    )
    boxes = [(x, y, min(x + 11, 70), min(y + 5, 54)) for x in edges_x for y in edges_y]
    with NativeBatchDecoder(1) as decoder:
        for box, pixels in regions_of(decoder, kit, blob, size, boxes):
            assert np.array_equal(pixels, whole[box[1] : box[3], box[0] : box[2]]), f"{kind} {box}"


@pytest.mark.parametrize(
    "size", [(1, 1), (1, 2), (2, 1), (2, 2), (3, 3), (4, 5), (1, 300), (300, 1), (8, 8), (16, 16), (17, 9)]
)
def test_tiny_pictures(kit, kind, size):
    blob = kit.jpeg_of(kit.noisy_photo(*size), kind)
    whole = whole_by_pillow(blob)
    rng = np.random.default_rng(1)
    with NativeBatchDecoder(1) as decoder:
        boxes = [(0, 0, *size), *(random_box(rng, *size) for _ in range(8))]
        for box, pixels in regions_of(decoder, kit, blob, size, boxes):
            assert np.array_equal(pixels, whole[box[1] : box[3], box[0] : box[2]]), f"{kind} {size} {box}"


def test_grey_output_is_pillows(kit, kind):
    size = (61, 45)
    blob = kit.jpeg_of(kit.noisy_photo(*size), kind)
    whole = whole_by_pillow(blob, "L")
    with NativeBatchDecoder(1) as decoder:
        for box, pixels in regions_of(decoder, kit, blob, size, [(0, 0, *size), (5, 9, 40, 30)], channels=1):
            assert np.array_equal(pixels, whole[box[1] : box[3], box[0] : box[2]])


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_box_of_any_size(data, kit):
    kinds = st.sampled_from(["444", "422", "420", "440", "411", "grey", "progressive 420", "restart rows 420"])
    chosen = data.draw(kinds)
    width, height = data.draw(st.integers(1, 90)), data.draw(st.integers(1, 90))
    left, top = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    box = (left, top, data.draw(st.integers(left + 1, width)), data.draw(st.integers(top + 1, height)))
    blob = kit.jpeg_of(kit.noisy_photo(width, height), chosen)
    whole = whole_by_pillow(blob)
    with NativeBatchDecoder(1) as decoder:
        for _, pixels in regions_of(decoder, kit, blob, (width, height), [box]):
            assert np.array_equal(pixels, whole[box[1] : box[3], box[0] : box[2]])


def test_photographs(kit, shared_data):
    files = sorted((shared_data / "photos" / "classes").rglob("*.jpg"))[::40]
    assert files
    rng = np.random.default_rng(0)
    with NativeBatchDecoder(1) as decoder:
        for file in files:
            blob = file.read_bytes()
            whole = whole_by_pillow(blob)
            size = (whole.shape[1], whole.shape[0])
            boxes = [random_box(rng, *size) for _ in range(4)]
            for box, pixels in regions_of(decoder, kit, blob, size, boxes):
                assert np.array_equal(pixels, whole[box[1] : box[3], box[0] : box[2]]), f"{file} {box}"


def test_awkward_jpegs_equal_pillow_or_fail_as_it_does(kit, shared_data):
    """Every odd JPEG: crops equal Pillow's whole decode; where Pillow cannot decode it, neither is it half decoded."""
    rng = np.random.default_rng(0)
    seen = 0
    with NativeBatchDecoder(2) as decoder:
        for file in sorted((shared_data / "awkward").glob("*.jp*g")):
            blob = file.read_bytes()
            try:
                with Image.open(io.BytesIO(blob)) as image:
                    size = image.size
                    if size[0] * size[1] > 30_000_000:
                        continue
                whole = whole_by_pillow(blob)
            except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
                continue
            seen += 1
            for box, pixels in regions_of(
                decoder, kit, blob, size, [(0, 0, *size), *(random_box(rng, *size) for _ in range(3))]
            ):
                assert np.array_equal(pixels, whole[box[1] : box[3], box[0] : box[2]]), f"{file.name} {box}"
    assert seen > 30


def test_the_decoder_for_whole_images(kit, kind):
    blob = kit.jpeg_of(kit.noisy_photo(75, 43), kind)
    decode = make_decoder()
    assert np.array_equal(decode(blob), whole_by_pillow(blob))
    assert np.array_equal(decode(memoryview(blob), "L"), whole_by_pillow(blob, "L"))
