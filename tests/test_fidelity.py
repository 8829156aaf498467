"""FastLoader(fidelity=...): exact pixels by default, near ones that cost less where they are asked for."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

from fastdata.converters import pack
from fastdata.decoding.facade import batch_decoder
from fastdata.decoding.native_decoder import available
from fastdata.errors import OptionError
from fastdata.loader import FastLoader

needs_core = pytest.mark.skipif(not available(), reason="the core was not built")
TRAIN = T.Compose([T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.PILToTensor()])
SMALL = T.Compose([T.Resize(64), T.CenterCrop(56), T.PILToTensor()])


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Pictures of 480 x 360, so that Resize(64) shrinks them by more than four; smooth, as photographs are."""
    root = tmp_path_factory.mktemp("photos")
    for number in range(8):
        rng = np.random.default_rng(number)
        small = Image.fromarray(rng.integers(0, 256, (18, 24, 3), dtype=np.uint8))
        (root / "abcd"[number % 4]).mkdir(exist_ok=True)
        picture = small.resize((480, 360), Image.Resampling.BICUBIC)
        picture.save(root / "abcd"[number % 4] / f"{number}.jpg", quality=90)
    pack(root, root.parent / f"{root.name}.lmdb", workers=1)
    return root.parent / f"{root.name}.lmdb"


def images_of(source, transform, **options):
    loader = FastLoader(source, 4, transform=transform, seed=3, **{"num_workers": 2, **options})
    images = torch.cat([images for images, _ in loader])
    loader.close()
    return images.numpy().astype(int)


@needs_core
@pytest.mark.parametrize("transform", [TRAIN, SMALL], ids=["crops", "shrunk"])
def test_fast_pixels_are_near_and_not_the_same(photos, transform):
    exact, fast = images_of(photos, transform), images_of(photos, transform, fidelity="fast")
    difference = np.abs(exact - fast)
    assert difference.max() > 1, "the keyword did not reach the decoder"
    assert difference.mean() < 3
    assert np.quantile(difference, 0.999) < 48


@needs_core
def test_exact_is_the_default_and_pillows(photos):
    exact = images_of(photos, SMALL, fidelity="exact")
    assert np.array_equal(exact, images_of(photos, SMALL))
    assert np.abs(exact - images_of(photos, SMALL, decoder="pillow")).max() <= 1


@needs_core
def test_fast_pixels_do_not_depend_on_the_number_of_threads_or_the_cache(photos):
    fast = images_of(photos, TRAIN, fidelity="fast")
    assert np.array_equal(fast, images_of(photos, TRAIN, fidelity="fast", num_workers=1))
    assert np.array_equal(fast, images_of(photos, TRAIN, fidelity="fast", cache="encoded", cache_bytes=64 << 20))


@needs_core
def test_explain_says_it(photos):
    assert "fidelity fast" in FastLoader(photos, 4, transform=TRAIN, fidelity="fast").explain()
    assert "fidelity" not in FastLoader(photos, 4, transform=TRAIN).explain()


@needs_core
def test_it_survives_pickling(photos):
    loader = pickle.loads(pickle.dumps(FastLoader(photos, 4, transform=TRAIN, seed=3, num_workers=2, fidelity="fast")))
    assert np.array_equal(torch.cat([images for images, _ in loader]), images_of(photos, TRAIN, fidelity="fast"))


@needs_core
def test_an_imagefolder_can_be_read_fast(image_folder):
    transform = T.Compose([T.Resize(20), T.CenterCrop(20), T.PILToTensor()])
    batches = [
        torch.cat([images for images, _ in FastLoader(ImageFolder(str(image_folder), transform), 4, fidelity=fidelity)])
        for fidelity in ("exact", "fast")
    ]
    assert (batches[0].int() - batches[1].int()).abs().max() > 1


@pytest.mark.parametrize("decoder", ["pillow", "simplejpeg"])
def test_another_decoder_has_no_fast_way(photos, decoder):
    with pytest.raises(OptionError, match=rf"compiled core's, and the decoder here is '{decoder}'"):
        FastLoader(photos, 4, transform=TRAIN, decoder=decoder, fidelity="fast")
    with pytest.raises(OptionError, match="compiled core's"):
        batch_decoder(decoder, 1, fast=True)


def test_values_that_cannot_be_meant(photos):
    with pytest.raises(OptionError, match="expected 'exact' or 'fast'"):
        FastLoader(photos, 4, transform=TRAIN, fidelity="quick")


@needs_core
def test_what_is_not_the_engines_is_refused(photos):
    with pytest.raises(OptionError, match="fidelity='fast', which is the engine's, but"):
        FastLoader(photos, 4, transform=T.Compose([TRAIN, lambda x: x]), fidelity="fast")
    with pytest.raises(OptionError, match="which is the engine's, but"):
        FastLoader(TensorDataset(torch.zeros(3)), 2, fidelity="fast")
    with pytest.raises(OptionError, match="cache='encoded'"):
        FastLoader(photos, 4, transform=TRAIN, fidelity="fast", cache="decoded")
