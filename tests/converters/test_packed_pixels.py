"""What the pixels of a pack are, whatever the file was: upright, 8 bit, no alpha, the same through every library."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image, ImageOps

from fastdata.converters import pack
from fastdata.stores.opener import open_store


@pytest.fixture
def packed(tmp_path):
    """Pack a folder and return (store, report)."""
    stores = []

    def run(root, **options):
        dst = tmp_path / f"out{len(stores)}.lmdb"
        report = pack(root, dst, workers=1, **options)
        stores.append(open_store(dst))
        return stores[-1], report

    yield run
    for store in stores:
        store.close()


def image_of(store, key) -> Image.Image:
    return Image.open(io.BytesIO(store.read(store.find(key))))


def array_of(store, key):
    return np.asarray(image_of(store, key).convert("RGB")).astype(int)


def test_the_content_says_what_a_file_is_and_not_its_ending(maker, packed):  # C011
    maker.put("x.png")
    maker.put("y.jpg", maker.picture(5))
    png, jpg = (maker.root / "x.png").read_bytes(), (maker.root / "y.jpg").read_bytes()
    (maker.root / "x.png").rename(maker.root / "x.JPEG")
    (maker.root / "y.jpg").rename(maker.root / "y.png")
    store, _ = packed(maker.root)
    assert (bytes(store.read(0)), store.codec(0)) == (png, "png")
    assert (bytes(store.read(1)), store.codec(1)) == (jpg, "jpeg")


def test_cmyk_becomes_rgb(maker, packed):  # C013
    image = maker.picture(1, (80, 60)).convert("CMYK")
    maker.put("a.jpg", image, quality=95)
    store, _ = packed(maker.root, quality=95)
    with Image.open(maker.root / "a.jpg") as original:
        expected = np.asarray(original.convert("RGB")).astype(int)
    assert image_of(store, "a").mode == "RGB"
    assert abs(array_of(store, "a") - expected).mean() <= 3


def test_sixteen_bits_are_scaled_and_never_clipped(maker, packed):  # C014
    ramp = np.linspace(0, 65535, 256 * 16).astype(np.uint16).reshape(64, 64)
    maker.put("ramp.png", Image.fromarray(ramp))
    store, report = packed(maker.root, codec="png")
    assert abs(array_of(store, "ramp")[:, :, 0] - ramp / 257).max() <= 1
    assert dict(report.differs) == {"scaled from 16 bit": 1}


@pytest.mark.parametrize("options", [{}, {"resize": 24}])
def test_every_orientation_comes_out_upright_and_without_a_tag(maker, packed, options):  # C016
    import cv2

    for tag in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = tag
        maker.put(f"{tag}.jpg", maker.picture(3, (64, 48)), exif=exif, quality=95)
    store, report = packed(maker.root, quality=95, subsampling="4:4:4", **options)
    assert dict(report.differs) == {"turned as EXIF says": 7}
    for tag in range(1, 9):
        with Image.open(maker.root / f"{tag}.jpg") as original:
            upright = ImageOps.exif_transpose(original)
        i = store.find(str(tag))
        size = int(store.index.width[i]), int(store.index.height[i])
        if options:
            upright = upright.resize(size, Image.Resampling.BICUBIC)
        assert size == upright.size
        assert abs(array_of(store, str(tag)) - np.asarray(upright).astype(int)).mean() < 2
        assert image_of(store, str(tag)).getexif().get(0x0112, 1) == 1
        seen = cv2.imdecode(np.frombuffer(store.read(i), np.uint8), cv2.IMREAD_COLOR)
        assert seen.shape == (size[1], size[0], 3)


def test_raw_orientation_is_kept_when_asked_for_and_the_pack_says_so(maker, packed):  # C017
    exif = Image.Exif()
    exif[0x0112] = 6
    path = maker.put("a.jpg", maker.picture(3, (64, 48)), exif=exif)
    store, report = packed(maker.root, orientation="keep")
    assert (int(store.index.width[0]), int(store.index.height[0])) == (64, 48)
    assert bytes(store.read(0)) == path.read_bytes()
    assert store.info["options"]["orientation"] == "keep"
    assert not report.differs


def test_stray_bytes_before_a_marker_harm_no_decoder(maker, packed):  # C022
    import cv2
    import simplejpeg

    path = maker.put("a.jpg", maker.picture(2))
    data = path.read_bytes()
    at = data.index(b"\xff\xdb")
    path.write_bytes(data[:at] + b"\0\0\0" + data[at:])
    expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(int)
    store, _ = packed(maker.root)
    view = store.read(0)
    for got in (
        simplejpeg.decode_jpeg(view),
        cv2.imdecode(np.frombuffer(view, np.uint8), cv2.IMREAD_COLOR)[:, :, ::-1],
        array_of(store, "a"),
    ):
        assert abs(got.astype(int) - expected).mean() < 2


def test_the_limit_of_pixels_is_ours_alone(maker, packed):  # C025
    before = Image.MAX_IMAGE_PIXELS
    maker.put("big.png", maker.picture(1, (300, 200)))
    maker.put("small.png", maker.picture(2, (30, 20)))
    store, report = packed(maker.root, max_pixels=10_000, max_errors=0.5)
    assert [store.key(i) for i in range(len(store))] == ["small"]
    (skipped,) = report.skipped
    assert skipped.path.endswith("big.png")
    assert "--max-pixels" in skipped.reason
    assert len(packed(maker.root, max_pixels=60_000)[0]) == 2
    assert before == Image.MAX_IMAGE_PIXELS


def test_an_animation_is_its_first_frame(maker, packed):  # C026
    frames = [Image.new("RGB", (20, 10), colour) for colour in ("red", "lime", "blue")]
    for name in ("a.gif", "b.webp", "c.tif"):
        maker.put(name, frames[0], save_all=True, append_images=frames[1:])
    store, _ = packed(maker.root)
    assert len(store) == 3
    for key in "abc":
        assert abs(array_of(store, key) - (255, 0, 0)).max() <= 3
        assert getattr(image_of(store, key), "n_frames", 1) == 1


@pytest.mark.parametrize("codec", ["jpeg", "png", "webp", "bmp"])
def test_red_stays_red_in_every_library(maker, packed, codec):  # C028
    import cv2

    colours = {"red": (255, 0, 0), "lime": (0, 255, 0), "blue": (0, 0, 255)}
    for name in colours:
        maker.put(f"{name}.png", Image.new("RGB", (32, 32), name))
    store, _ = packed(maker.root, codec=codec, quality=95)
    for name, colour in colours.items():
        i = store.find(name)
        assert store.codec(i) == codec
        assert abs(array_of(store, name) - colour).max() <= 4
        bgr = cv2.imdecode(np.frombuffer(store.read(i), np.uint8), cv2.IMREAD_COLOR)
        assert abs(bgr[:, :, ::-1].astype(int) - colour).max() <= 4


def test_raw_is_the_pixels_themselves(maker, packed):
    image = maker.picture(4, (31, 17))
    maker.put("a.png", image)
    store, _ = packed(maker.root, codec="raw")
    assert store.codec(0) == "raw"
    raw = np.frombuffer(store.read(0), np.uint8).reshape(17, 31, 3)
    assert np.array_equal(raw, np.asarray(image))


def test_a_raw_pack_is_a_source_as_any(maker, packed, tmp_path):
    image = maker.picture(4, (32, 16))
    maker.put("a.png", image)
    packed(maker.root, codec="raw")
    same, report = packed(tmp_path / "out0.lmdb")
    assert (same.codec(0), report.kept) == ("raw", 1)
    grey, _ = packed(tmp_path / "out0.lmdb", mode="L", codec="png")
    assert np.array_equal(np.asarray(image_of(grey, "a")), np.asarray(image.convert("L")))
    small, _ = packed(tmp_path / "out0.lmdb", resize=8)
    assert image_of(small, "a").size == (16, 8)


def test_small_pictures_are_left_alone_and_nothing_gets_a_border(maker, packed):  # C029
    small = maker.put("small.jpg", maker.picture(1, (60, 40)))
    maker.put("wide.jpg", Image.new("RGB", (200, 100), (10, 20, 30)))
    store, report = packed(maker.root, resize=64)
    assert bytes(store.read(store.find("small"))) == small.read_bytes()
    assert image_of(store, "wide").size == (128, 64)
    assert abs(array_of(store, "wide") - (10, 20, 30)).max() <= 3
    assert (report.smaller, report.kept) == (1, 1)
    assert store.info["options"]["resize_mode"] == "shorter"


@pytest.mark.parametrize("mode", ["shorter", "longer", "exact", "crop", "pad"])
def test_the_thinnest_pictures_survive_every_mode(maker, packed, mode):  # C020
    for size in ((1, 1), (1, 2000), (2000, 1), (3, 900)):
        maker.put(f"{size[0]}x{size[1]}.png", Image.new("RGB", size, "green"))
    store, _ = packed(maker.root, resize=64, resize_mode=mode)
    assert len(store) == 4
    assert store.index.width.min() >= 1
    assert store.index.height.min() >= 1


@pytest.mark.parametrize("kind", ["1", "P"])
def test_bitmaps_and_palettes_are_converted_before_they_are_resampled(maker, packed, kind):  # C032
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 2, (64, 64), np.uint8) * 255).convert("1")
    if kind == "P":
        image = image.convert("RGB").quantize(4)
    maker.put("a.png", image)
    store, _ = packed(maker.root, resize=16, codec="png")
    got = array_of(store, "a")
    expected = np.asarray(image.convert("RGB").resize((16, 16), Image.Resampling.BICUBIC)).astype(int)
    assert np.array_equal(got, expected)
    assert len(np.unique(got)) > 10


def test_alpha_is_laid_on_the_background(maker, packed):
    image = Image.new("RGBA", (16, 16), (255, 0, 0, 0))
    image.paste((0, 0, 255, 255), (0, 0, 8, 16))
    maker.put("a.png", image)
    store, report = packed(maker.root, codec="png", background=(0, 255, 0))
    got = array_of(store, "a")
    assert (got[:, :8] == (0, 0, 255)).all()
    assert (got[:, 8:] == (0, 255, 0)).all()
    assert dict(report.differs) == {"laid on the background (alpha)": 1}


def test_grey_stays_grey_when_asked_for(maker, packed):
    maker.put("colour.png", maker.picture(1))
    grey = maker.put("grey.jpg", maker.picture(2).convert("L"))
    store, report = packed(maker.root, mode="L")
    assert image_of(store, "colour").mode == "L"
    assert bytes(store.read(store.find("grey"))) == grey.read_bytes()
    assert len(report.mean) == 1


def test_jpegs_are_written_at_the_asked_quality_and_subsampling(maker, packed):
    maker.put("a.png", maker.picture(1, (64, 64)))
    for text, factors in (("4:2:0", (2, 2)), ("4:2:2", (2, 1)), ("4:4:4", (1, 1))):
        store, _ = packed(maker.root, codec="jpeg", subsampling=text)
        assert image_of(store, "a").layer[0][1:3] == factors
    sizes = [len(packed(maker.root, codec="jpeg", quality=q)[0].read(0)) for q in (30, 90)]
    assert sizes[0] < sizes[1]


@pytest.mark.shared_data
def test_both_roads_refuse_the_same_files(shared_data, packed, monkeypatch):
    from fastdata.converters import quick_resize

    _, here = packed(shared_data / "awkward", max_errors=1, resize=64)
    monkeypatch.setattr(quick_resize, "available", lambda: False)
    _, usual = packed(shared_data / "awkward", max_errors=1, resize=64)
    assert here.skipped == usual.skipped
    assert here.content_hash == usual.content_hash


@pytest.mark.parametrize("how", ["bicubic", "bilinear", "lanczos", "box", "hamming"])
def test_the_compiled_road_gives_the_bytes_of_the_usual_one(maker, packed, monkeypatch, how):
    from fastdata.converters import quick_resize

    rng = np.random.default_rng(1)
    for number, (size, sampling) in enumerate([((90, 61), 0), ((200, 77), 1), ((131, 240), 2), ((64, 64), 2)]):
        noise = Image.fromarray(rng.integers(0, 256, (size[1] // 2, size[0] // 2, 3), np.uint8)).resize(size)
        maker.put(f"{number}.jpg", noise, subsampling=sampling, quality=80)
    maker.put("grey.jpg", maker.picture(5, (90, 61)).convert("L"))
    maker.put("progressive.jpg", maker.picture(6, (90, 61)), progressive=True)
    for mode in ("shorter", "crop", "pad"):
        here, _ = packed(maker.root, resize=48, resize_mode=mode, filter=how, codec="png")
        with monkeypatch.context() as patch:
            patch.setattr(quick_resize, "available", lambda: False)
            usual, _ = packed(maker.root, resize=48, resize_mode=mode, filter=how, codec="png")
        for i in range(len(usual)):
            assert bytes(here.read(i)) == bytes(usual.read(i)), (usual.key(i), mode)


def test_a_cut_jpeg_is_found_while_it_is_resized(maker, packed):  # C031
    whole = maker.put("a.jpg", maker.picture(1, (300, 200)), quality=95).read_bytes()
    (maker.root / "cut.jpg").write_bytes(whole[: len(whole) * 9 // 10])
    store, report = packed(maker.root, resize=50, max_errors=1)
    assert len(store) == 1
    assert [s.key for s in report.skipped] == ["cut"]
