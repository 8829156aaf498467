"""The awkward corpus: each file through pack with each codec, and what is stored through each decode backend."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fastdata.converters import pack
from fastdata.decoding.facade import BACKENDS, decoder
from fastdata.decoding.header import probe, sniff
from fastdata.decoding.pixels import load_pixels
from fastdata.errors import BackendMissingError, DecodeError
from fastdata.stores.opener import open_store

pytestmark = pytest.mark.shared_data

#: "decode-or-refuse" files of the manifest that are taken, and why that is right; all others of that kind are refused.
TAKEN = {
    "jpegdec__dc-predictor-overflow.jpg": "libjpeg warns of the end of a data segment, all pixels are there",
    "pillow__hopper_bad_exif.jpg": "extraneous bytes before a restart marker: a warning of libjpeg, nothing is missing",
    "pngsuite__xcsn0g01.png": "a wrong checksum of a chunk without pixels",
}
#: Files that the manifest would have refused for want of a plugin, which are read where it is installed.
BY_PLUGIN = {
    "exif-py__heic_hdlr_box.jpg": "pillow_heif",
    "exif-samples__samplefilehub.heif": "pillow_heif",
    "test-assets__IMG_2682.heic": "pillow_heif",
    "exif-py__test_0001.jxl": "pillow_jxl",
    "testdata__cropped_traffic_light.jxl": "pillow_jxl",
}
#: JPEGs that end too early: what --accept-truncated takes.
CUT = {
    "cameratrapai__african_elephants_truncated_file.jpg", "lepton__badzerorun.jpg", "lepton__gray2sf.jpg",
    "lepton__narrowrst.jpg", "lepton__singlerowtrunc.jpg", "pillow__truncated_jpeg.jpg", "tensorflow__corrupt34_3.jpg",
}  # fmt: skip
_FINE = {"quality": 95, "subsampling": "4:4:4"}
CODECS = {
    "keep": _FINE, "jpeg": {"resize": 48, **_FINE}, "png": {"resize": 48}, "webp": {"resize": 48, "quality": 95},
    "raw": {"resize": 48},
}  # fmt: skip
#: Mean difference in grey levels that a codec may make; WebP halves its colours, some pictures are noise.
LOSS = {"keep": 5, "jpeg": 5, "webp": 16, "png": 0, "raw": 0}


@pytest.fixture(scope="module")
def corpus(shared_data):
    return shared_data / "awkward"


@pytest.fixture(scope="module")
def wanted(corpus) -> set[str]:
    """The files that are to be packed."""
    with (corpus / "MANIFEST.csv").open(newline="", encoding="utf-8") as file:
        verdicts = {row["file"]: row["expected"].partition(":")[0] for row in csv.DictReader(file)}
    assert len(verdicts) == 185
    assert {verdicts[name] for name in TAKEN} == {verdicts[name] for name in CUT} == {"decode-or-refuse"}
    plugged = {name for name, module in BY_PLUGIN.items() if importlib.util.find_spec(module) is not None}
    return {name for name, verdict in verdicts.items() if verdict == "decode"} | TAKEN.keys() | plugged


@pytest.fixture(scope="module")
def packed(corpus, tmp_path_factory):
    """Pack the corpus by one codec, once: (store, report, file name by key)."""
    root, made = tmp_path_factory.mktemp("awkward"), {}

    def run(codec: str, dst: str = "p.lmdb", **options: object):
        name = f"{codec}-{dst}-{len(options)}"
        if name not in made:
            report = pack(
                corpus, root / f"{name}{dst[1:]}", codec=codec, workers=1, max_errors=1, **CODECS[codec], **options
            )
            made[name] = open_store(report.dst), report
        return made[name]

    yield run
    for store, _ in made.values():
        store.close()


def names_of(corpus, store) -> dict[str, int]:
    """Which sample came of which file."""
    with open_store(corpus) as source:
        files = {source.key(i): source.parts[i].rpartition("/")[2] for i in range(len(source))}
    return {files[store.key(i)]: i for i in range(len(store))}


@pytest.mark.parametrize("codec", list(CODECS))
def test_every_file_is_packed_or_named_with_every_codec(corpus, wanted, packed, codec):  # C011 C013 C014 C020 C022 C023
    store, report = packed(codec)
    refused = {skipped.path.rpartition("/")[2]: skipped.reason for skipped in report.skipped}
    assert names_of(corpus, store).keys() == wanted
    assert not wanted & refused.keys()
    for name, module in BY_PLUGIN.items():
        if name in refused:
            assert {"pillow_heif": "pillow-heif", "pillow_jxl": "pillow-jxl-plugin"}[module] in refused[name]
    assert refused.keys() >= CUT  # C031: kept bytes are decoded, too


@pytest.mark.parametrize("codec", list(CODECS))
def test_what_is_stored_is_the_picture_by_every_backend(corpus, packed, codec):  # C013 C014 C016 C022 C026 C028
    store, _ = packed(codec)
    backends = {}
    for name in BACKENDS:
        try:
            backends[name] = decoder(name)
        except BackendMissingError:
            continue
    assert len(backends) > 3
    for file, i in names_of(corpus, store).items():
        data, size = bytes(store.read(i)), (int(store.index.width[i]), int(store.index.height[i]))
        source = (corpus / file).read_bytes()
        if codec == "keep" and (data == source or size[0] * size[1] > 100_000):
            continue  # bytes that are kept: tests/decoding; large ones are stored as smaller ones are
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of broken EXIF
            expected = load_pixels(source).array
        if codec == "raw":
            shown = [np.frombuffer(data, np.uint8).reshape(size[1], size[0], 3)]
        else:
            assert store.codec(i) == sniff(data)
            assert probe(data).orientation == 1, file  # nothing turns it again
            shown = [decode(data) for decode in backends.values()]
        for pixels in shown:
            assert pixels.shape == (size[1], size[0], 3), file
            assert np.array_equal(pixels, shown[0]), file
        if (expected.shape[1], expected.shape[0]) == size and min(size) >= 32:
            assert abs(shown[0].astype(int) - expected).mean() <= LOSS[codec], file


def test_formats_hold_the_same(packed, tmp_path):
    store, report = packed("raw")
    for name in ("p.h5", "p.tar"):
        assert pack(store.path, tmp_path / name, workers=1).content_hash == report.content_hash


@pytest.mark.slow
@pytest.mark.parametrize("dst", ["p.h5", "p.tar"])  # p.lmdb is above
@pytest.mark.parametrize("codec", list(CODECS))
def test_every_codec_in_every_format(corpus, wanted, packed, codec, dst):
    (store, report), (first, its_report) = packed(codec, dst), packed(codec)
    names = names_of(corpus, store)
    assert names.keys() == wanted
    assert report.content_hash == its_report.content_hash
    assert [skipped.reason for skipped in report.skipped] == [skipped.reason for skipped in its_report.skipped]
    for file, i in names_of(corpus, first).items():
        assert bytes(store.read(names[file])) == bytes(first.read(i)), file
        assert store.codec(names[file]) == first.codec(i)


def test_cut_jpegs_are_taken_where_that_is_asked_for(corpus, wanted, packed, tmp_path):
    store, report = packed("jpeg", accept_truncated=True)
    names = names_of(corpus, store)
    assert names.keys() == wanted | CUT
    assert {one.path.rpartition("/")[2] for one in report.truncated} == CUT
    lines = Path(f"{report.dst}.report.jsonl").read_text(encoding="utf-8").splitlines()
    said = [json.loads(line) for line in lines]
    assert {one["path"].rpartition("/")[2] for one in said if one["reason"].startswith("accepted")} == CUT
    assert any("accepted 7 JPEGs" in line for line in report.lines())
    assert store.info["options"]["accept_truncated"] is True
    for name in CUT:  # what is stored is whole
        assert decoder("auto")(bytes(store.read(names[name]))).shape[2] == 3
    photo = np.random.default_rng(0).integers(0, 256, (16, 20, 3), np.uint8)
    for number, how in enumerate(({}, {"progressive": True}, {"restart_marker_rows": 1}, {"keep_rgb": True})):
        buffer = io.BytesIO()
        Image.fromarray(photo).resize((320, 256)).save(buffer, "JPEG", quality=90, **how)
        data = buffer.getvalue()
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "a.jpg").write_bytes(data[: len(data) // 2])
        (folder / "b.jpg").write_bytes(data)
        (folder / "head.jpg").write_bytes(data[: data.index(b"\xff\xda")])
        for options in ({}, {"resize": 64}, {"resize": 64, "fidelity": "fast"}, {"workers": 2, "resume": True}):
            made = pack(folder, tmp_path / "out.lmdb", accept_truncated=True, max_errors=1, overwrite=True,
                        **{"workers": 1, "codec": "png", **options})  # fmt: skip
            assert (made.samples, [s.key for s in made.truncated]) == (2, ["a"])
            assert [s.key for s in made.skipped] == ["head"]  # ends before there is a picture
        with open_store(tmp_path / "out.lmdb") as cut:
            a, b = (decoder("pillow")(bytes(cut.read(i))).astype(int) for i in range(2))
        assert (a.shape, b.shape) == ((256, 320, 3),) * 2
        if "progressive" in how:
            continue  # half of the file is all of the picture, less sharp
        assert np.array_equal(a[:80], b[:80])
        rest = a[-8:].reshape(-1, 3)
        assert np.ptp(rest, axis=0).max() == 0
        assert abs(rest[0] - 128).max() <= 1
        with pytest.raises(DecodeError):
            load_pixels(data[: len(data) // 2])
