"""Names to decoders: what is there, what is not, and the line that would install it."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest

import fastdata
from fastdata.decoding.facade import BACKENDS, CAPABILITIES, backend_in_use, batch_decoder, decode, decoder, decoders
from fastdata.errors import BackendMissingError, ImageTooLargeError, OptionError
from fastdata.types import CODECS


def test_public_names():
    assert fastdata.decode is decode
    assert fastdata.decoders is decoders


def test_every_backend_is_listed_with_version_or_install_line():
    listed = {info.name: info for info in decoders()}
    assert list(listed) == list(BACKENDS) == list(CAPABILITIES)
    for info in listed.values():
        assert "install" in info.install
        assert "\n" not in info.install
        assert bool(info.version) == info.installed
        assert bool(info.reason) != info.installed
    assert listed["pillow"].installed
    assert listed["simplejpeg"].installed
    assert "libturbojpeg0" in listed["jpeg4py"].install
    assert "libturbojpeg0" in listed["pyturbojpeg"].install
    assert {codec for codecs in CAPABILITIES.values() for codec in codecs} <= set(CODECS)


def test_unknown_names_say_the_known_ones():
    with pytest.raises(OptionError, match="simplejpeg"):
        decoder("turbo")
    with pytest.raises(OptionError, match="simplejpeg"):
        batch_decoder("turbo", 1)


def test_auto_equals_the_reference(jpegs, encode, make_photo):
    for data in (*jpegs.values(), encode(make_photo(), "PNG"), encode(make_photo(), "WEBP")):
        assert np.array_equal(decode(data), decode(data, "pillow"))
        assert np.array_equal(decode(data, mode="L"), decode(data, "pillow", "L"))


@pytest.mark.parametrize("name", ["auto", "pillow", "opencv"])
def test_max_pixels_is_an_argument(name, jpegs, encode, make_photo):  # C025
    for data in (jpegs["4:2:0"], encode(make_photo(), "PNG")):
        with pytest.raises(ImageTooLargeError, match="max_pixels=1000"):
            decode(data, name, max_pixels=1000)
        assert decode(data, name, max_pixels=157 * 101).shape == decode(data, name, max_pixels=None).shape


def test_the_backend_in_use_is_named():  # C146, C158
    there = [info.name for info in decoders() if info.installed]
    assert backend_in_use() == ("native" if "native" in there else "simplejpeg")
    assert backend_in_use("opencv") == "opencv"
    with pytest.raises(OptionError):
        backend_in_use("turbo")


WITHOUT = """
    import sys, warnings
    warnings.simplefilter("error")

    class Hidden:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in {hidden!r}:
                raise {error}
            if name == "fastdata._native":
                raise ModuleNotFoundError(name, name=name)
            return None

    sys.meta_path.insert(0, Hidden())
    import io
    import fastdata
    from fastdata.decoding.facade import backend_in_use, batch_decoder, decoder
    from fastdata.errors import BackendMissingError
    from PIL import Image
    buffer = io.BytesIO()
    Image.new("RGB", (8, 6), (200, 10, 10)).save(buffer, "JPEG")
    assert fastdata.decode(buffer.getvalue()).shape == (6, 8, 3)
    from fastdata.decoding.pixels import load_pixels
    assert load_pixels(buffer.getvalue()).array.shape == (6, 8, 3)
    batch_decoder("auto", 1).close()
    assert backend_in_use() == "pillow"
    there = {{info.name for info in fastdata.decoders() if info.installed}}
    for name in {names!r}:
        assert name not in there, name
        try:
            decoder(name)
        except BackendMissingError as error:
            assert "install" in str(error) and name in str(error), error
        else:
            raise AssertionError(name)
    assert "pillow" in there
"""


@pytest.mark.parametrize(
    "error", ["ModuleNotFoundError(name, name=name)", "OSError('libturbojpeg.so.0: cannot open shared object file')"]
)
def test_missing_libraries_break_nothing(error):  # C158
    """Not installed, or installed without the system library it loads: auto works, the names are refused."""
    hidden = ["simplejpeg", "cv2", "turbojpeg", "jpeg4py", "torchvision", "torchcodec"]
    names = ["simplejpeg", "opencv", "pyturbojpeg", "jpeg4py", "torchvision", "torchcodec", "native"]
    script = textwrap.dedent(WITHOUT).format(hidden=set(hidden), error=error, names=names)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_a_backend_asked_for_by_name_does_not_fall_back(monkeypatch, jpegs):  # C158
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    monkeypatch.delitem(sys.modules, "fastdata.decoding.simplejpeg_decoder", raising=False)
    with pytest.raises(BackendMissingError, match="pip install simplejpeg"):
        decode(jpegs["4:2:0"], "simplejpeg")
    assert decode(jpegs["4:2:0"]).shape == (101, 157, 3)


def test_importing_is_light():
    code = "import sys, fastdata; fastdata.decode; print(sorted({'torch', 'cv2', 'h5py', 'PIL'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("backend", ["auto", "pillow", "native"])
def test_any_buffer_of_bytes_is_decoded_and_nothing_else(backend, make_photo, encode):
    data = encode(make_photo(57, 33), "JPEG")
    wanted = decode(data, backend)
    for other in (np.frombuffer(data, np.uint8), bytearray(data), memoryview(data)):
        assert np.array_equal(decode(other, backend), wanted)
    for wrong in ("x.jpg", 7, None, np.frombuffer(data, np.uint8)[::2]):
        with pytest.raises(OptionError, match="bytes of an image file"):
            decode(wrong, backend)
