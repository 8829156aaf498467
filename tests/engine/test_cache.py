"""FastLoader(cache=...): the same batches to the bit, fewer reads, nothing left behind."""

from __future__ import annotations

import gc
import io
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

from fastdata.engine.source import FileSource
from fastdata.errors import OptionError, SampleError
from fastdata.loader import FastLoader
from fastdata.types import CODEC_IDS

TRAIN = T.Compose([T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.PILToTensor()])
CACHES = ["decoded", "encoded"]
KINDS = ["lmdb", "hdf5", "tar", "folder", "imagefolder"]
ROOMY = 64 << 20


def _made(kind, packs, image_folder, **more):
    options = {"num_workers": 2, "seed": 7, "shuffle": True, **more}
    if kind == "imagefolder":
        return FastLoader(ImageFolder(str(image_folder), TRAIN), 4, **options)
    return FastLoader(image_folder if kind == "folder" else packs[kind], 4, transform=TRAIN, **options)


def _epoch(loader):
    batches = list(loader)
    return torch.cat([b[0] for b in batches]), torch.cat([b[1] for b in batches])


def _same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def _state(loader):
    return loader._cache._arena.state


# ---------------------------------------------------------------- pixels


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cache", CACHES)
def test_batches_are_bit_identical_with_and_without_cache(kind, cache, packs, image_folder):
    plain = _made(kind, packs, image_folder)
    loader = _made(kind, packs, image_folder, cache=cache, cache_bytes=ROOMY)
    for epoch in range(3):
        assert _same(_epoch(plain), _epoch(loader)), epoch
    state = _state(loader)
    assert (state.records, state.full, state.large) == (21, False, 0)
    assert loader._cache._hits.hits == 21  # the last epoch came from memory
    assert "21 of 21 samples" in loader.explain()


@pytest.mark.parametrize("workers", [0, 1, 5])
def test_any_number_of_workers_gives_the_same(workers, packs, image_folder):
    plain = _made("lmdb", packs, image_folder)
    loader = _made("lmdb", packs, image_folder, cache="decoded", cache_bytes=ROOMY, num_workers=workers)
    for _ in range(2):
        assert _same(_epoch(plain), _epoch(loader))


@pytest.mark.parametrize("decoder", ["simplejpeg", "pillow", "opencv"])
def test_named_decoders_keep_their_own_pixels(decoder, packs, image_folder):
    plain = _made("lmdb", packs, image_folder, decoder=decoder)
    loader = _made("lmdb", packs, image_folder, decoder=decoder, cache="decoded", cache_bytes=ROOMY)
    for _ in range(2):
        assert _same(_epoch(plain), _epoch(loader))


def _odd_folder(root):
    """Pictures of every kind that takes a road of its own: PNG in its modes, grey and CMYK JPEG, EXIF, WebP, damage."""
    rng = np.random.default_rng(0)
    pixels = Image.fromarray(rng.integers(0, 256, (50, 60, 3), np.uint8))
    (root / "a").mkdir(parents=True)
    save = {
        "rgb.png": pixels, "rgba.png": pixels.convert("RGBA"), "grey.png": pixels.convert("L"),
        "palette.png": pixels.quantize(16), "bits.png": pixels.convert("1"),
        "deep.png": Image.fromarray(rng.integers(0, 65536, (50, 60), np.uint16)),
        "grey.jpg": pixels.convert("L"), "cmyk.jpg": pixels.convert("CMYK"), "usual.jpg": pixels, "p.webp": pixels,
    }  # fmt: skip
    for name, image in save.items():
        image.save(root / "a" / name)
    pixels.save(root / "a" / "progressive.jpg", progressive=True)
    exif = Image.Exif()
    exif[0x0112] = 6
    pixels.save(root / "a" / "turned.jpg", exif=exif)
    buffer = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (300, 200, 3), np.uint8)).save(buffer, "JPEG")
    (root / "a" / "cut.jpg").write_bytes(buffer.getvalue()[:-4000])
    (root / "a" / "nothing.jpg").write_bytes(b"")
    return root


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_odd_and_damaged_files_take_the_same_road_every_epoch(cache, on_error, tmp_path):
    root = _odd_folder(tmp_path / "odd")
    make = lambda **more: FastLoader(  # noqa: E731
        ImageFolder(str(root), TRAIN), 5, seed=3, shuffle=True, num_workers=2, on_error=on_error, **more
    )
    plain, loader = make(), make(cache=cache, cache_bytes=ROOMY)
    for epoch in range(3):
        assert _same(_epoch(plain), _epoch(loader)), epoch
        assert len(plain.faults) >= 1
        assert set(plain.faults.faults) == set(loader.faults.faults)
    assert loader._cache._hits.hits >= 12


def test_all_but_odd_jpegs_are_kept_as_pixels(tmp_path):
    root = _odd_folder(tmp_path / "odd")
    loader = FastLoader(
        ImageFolder(str(root), TRAIN), 5, cache="decoded", cache_bytes=ROOMY, num_workers=2, on_error="skip"
    )
    list(loader)
    source = loader._cache.wrap(FileSource(loader.dataset.samples), loader.dataset, "RGB", "auto", 0)
    names = [Path(path).name for path, _ in loader.dataset.samples]
    raw = source.fetch(np.arange(len(names))).codec == CODEC_IDS["raw"]
    encoded = {name for name, pixels in zip(names, raw, strict=True) if not pixels}
    assert encoded == {"cut.jpg", "nothing.jpg", "cmyk.jpg"}


def test_a_damaged_file_raises_every_time(tmp_path):
    root = _odd_folder(tmp_path / "odd")
    loader = FastLoader(ImageFolder(str(root), TRAIN), 5, cache="decoded", cache_bytes=ROOMY, num_workers=1, seed=3)
    for _ in range(2):
        with pytest.raises(SampleError, match=r"(nothing|cut)\.jpg"):
            list(loader)


def test_a_file_that_vanishes_is_still_there_and_one_never_seen_is_not(image_folder, tmp_path):
    root = tmp_path / "copy"
    shutil.copytree(image_folder, root)
    plain, loader = (
        _made("imagefolder", None, root, **more) for more in ({}, {"cache": "encoded", "cache_bytes": ROOMY})
    )
    first = _epoch(plain)
    assert _same(first, _epoch(loader))
    second = _epoch(plain)
    shutil.rmtree(root)
    assert _same(second, _epoch(loader))  # nothing is read any more


def test_rows_that_the_user_changes_count(image_folder):
    data = ImageFolder(str(image_folder), TRAIN)
    loader = FastLoader(data, 7, seed=1, num_workers=2, cache="decoded", cache_bytes=ROOMY)
    _epoch(loader)
    data.samples[:] = data.samples[::-1]
    plain = FastLoader(data, 7, seed=1, num_workers=2)
    plain.set_epoch(1)
    assert _same(_epoch(plain), _epoch(loader))
    data.samples.append(data.samples[0])
    loader, plain = (FastLoader(data, 7, seed=1, num_workers=2, **more) for more in ({"cache": "encoded"}, {}))
    assert _same(_epoch(plain), _epoch(loader))


# ---------------------------------------------------------------- limits


@pytest.mark.parametrize("cache", CACHES)
def test_a_full_cache_takes_no_more_and_says_so(cache, packs, image_folder):
    limit = 8192 + (120_000 if cache == "decoded" else 20_000)
    plain = _made("lmdb", packs, image_folder)
    loader = _made("lmdb", packs, image_folder, cache=cache, cache_bytes=limit)
    for _ in range(4):
        assert _same(_epoch(plain), _epoch(loader))
        kept = _state(loader).records
        assert 0 < kept < 21
    state = _state(loader)
    assert state.full
    assert state.bytes <= state.limit <= limit
    assert loader._cache._hits.hits == kept
    assert "takes no more" in loader.explain()


def test_limits_are_checked_at_once(packs):  # C155
    with pytest.raises(OptionError, match="at least 12288"):
        FastLoader(packs["lmdb"], 4, transform=TRAIN, cache="decoded", cache_bytes=1000)
    smallest = FastLoader(packs["lmdb"], 21, transform=TRAIN, cache="decoded", cache_bytes=12288, num_workers=1)
    assert len(_epoch(smallest)[0]) == 21
    for wrong in (True, 1e9, "8GB", -1, 0):
        with pytest.raises(OptionError, match="cache_bytes"):
            FastLoader(packs["lmdb"], 4, transform=TRAIN, cache="decoded", cache_bytes=wrong)
    with pytest.raises(OptionError, match="expected 'decoded'"):
        FastLoader(packs["lmdb"], 4, transform=TRAIN, cache="pixels")
    with pytest.raises(OptionError, match="goes with cache="):
        FastLoader(packs["lmdb"], 4, transform=TRAIN, cache_bytes=1 << 20)


def test_the_dataloaders_way_has_no_such_cache(packs):
    with pytest.raises(OptionError, match=r"fastdata\.cached"):
        FastLoader(packs["lmdb"], 4, transform=T.Lambda(lambda image: image), cache="decoded")


# ---------------------------------------------------------------- processes


def _total(loader):
    # By numpy: torch's OpenMP threads, which the parent may have started, do not survive a fork.
    return sum(int(images.numpy().sum(dtype=np.int64)) for images, _ in loader)


def _child(loader, queue):
    queue.put((_total(loader), loader._cache._hits.hits))


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_children_share_what_their_parent_has_and_add_to_it(method, packs, image_folder, spawnable):
    loader = spawnable._made("lmdb", packs, image_folder, cache="decoded", cache_bytes=ROOMY, drop_last=True)
    half = iter(loader)
    next(half)
    del half
    loader.set_epoch(0)
    had = _state(loader).records
    assert 0 < had <= 21
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=spawnable._child, args=(loader, queue))
    child.start()
    total, hits = queue.get(timeout=60)
    child.join()
    assert hits >= min(had, 20) - 1
    assert _state(loader).records >= 20  # what the child added is here, too
    assert _total(loader) == total
    assert loader._cache._hits.hits == 20


def test_a_pickle_reaches_the_same_memory_or_begins_anew(packs, image_folder):
    loader = _made("lmdb", packs, image_folder, cache="decoded", cache_bytes=ROOMY)
    first = _epoch(loader)
    data = pickle.dumps(loader)
    again = pickle.loads(data)
    assert _state(again).records == 21
    again.set_epoch(0)
    assert _same(first, _epoch(again))
    assert again._cache._hits.hits == 21
    del again
    loader.close()
    gc.collect()
    alone = pickle.loads(data)  # the memory of the pickle is gone
    alone.set_epoch(0)
    assert _same(first, _epoch(alone))
    assert alone._cache._hits.hits == 0


RANK = """
    import sys, time
    sys.path.insert(0, {tests!r})
    from test_cache import *
    from test_cache import _epoch, _state
    loader = FastLoader({pack!r}, 4, transform=TRAIN, seed=1, shuffle=True, num_workers=1, uneven="exact",
                        cache="decoded", cache_bytes=ROOMY)
    _epoch(loader)
    print("ready", flush=True)
    sys.stdin.readline()
    loader.set_epoch(1)
    _epoch(loader)
    print(_state(loader).records, loader._cache._hits.hits, loader._cache._hits.misses, flush=True)
    sys.stdin.readline()
"""


def _ranks(pack, world=2):
    code = textwrap.dedent(RANK.format(tests=os.path.dirname(__file__), pack=str(pack)))
    return [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for rank in range(world)
    ]  # fmt: skip


def _memfds():
    """Descriptors of this machine's processes that hold a cache of the ranks'."""
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            found += [
                link for name in os.listdir(f"/proc/{process}/fd")
                if (link := os.readlink(f"/proc/{process}/fd/{name}")).startswith("/memfd:fastdata-cache-")
            ]  # fmt: skip
        except OSError:
            continue
    return found


SHM = "/dev/shm"  # noqa: S108  where others leave their names


def test_ranks_find_each_other_and_kill_9_leaves_nothing(packs):  # C113
    before = len(_memfds())
    ranks = _ranks(packs["lmdb"])
    try:
        for rank in ranks:
            assert rank.stdout.readline() == "ready\n"
        for rank in ranks:
            rank.stdin.write("\n")
            rank.stdin.flush()
        lines = [list(map(int, rank.stdout.readline().split())) for rank in ranks]
        assert [line[0] for line in lines] == [21, 21]
        assert sum(line[1] for line in lines) >= 21  # each got what the other had read
        assert sum(line[2] for line in lines) == 0
    finally:
        for rank in ranks:
            rank.send_signal(signal.SIGKILL)
            rank.wait()
            rank.stdin.close()
            rank.stdout.close()
    marks = ("fastdata-cache-", *(f"torch_{rank.pid}_" for rank in ranks))
    assert not [name for name in os.listdir(SHM) if name.startswith(marks)]
    assert len(_memfds()) == before


# ---------------------------------------------------------------- memory and threads


def _memory(field):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(field + ":"))


def _own_memfds():
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue
    return sum(link.startswith("/memfd:fastdata-cache") for link in links)


def _allocated(loader):
    """Bytes the kernel holds for the cache's memory, whoever looks at it."""
    return os.fstat(loader._cache._arena.descriptor).st_blocks * 512


def test_memory_is_shared_memory_flat_over_epochs_and_freed(packs, image_folder):
    gc.collect()
    files, threads = _own_memfds(), threading.active_count()
    loader = _made("lmdb", packs, image_folder, cache="decoded", cache_bytes=1 << 40)  # the limit, not what is taken
    for _ in range(3):
        _epoch(loader)
    held, state = _allocated(loader), _state(loader)
    assert state.bytes <= held <= state.bytes + (64 << 10)
    assert _memory("RssShmem") >= state.bytes // 2
    private = _memory("RssAnon")
    for _ in range(20):
        _epoch(loader)
    assert _allocated(loader) == held
    assert _memory("RssAnon") - private < 8 << 20
    loader.close()
    loader.close()
    gc.collect()
    assert (_own_memfds(), threading.active_count()) == (files, threads)
    assert len(_epoch(loader)[0]) == 21  # closed is not dead
    del loader
    gc.collect()
    deadline = time.monotonic() + 5
    while (_own_memfds(), threading.active_count()) != (files, threads) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (_own_memfds(), threading.active_count()) == (files, threads)


def test_verify_still_reads_the_packs_own_bytes(packs, image_folder):
    loader = _made("lmdb", packs, image_folder, cache="decoded", cache_bytes=ROOMY, verify=True)
    plain = _made("lmdb", packs, image_folder)
    for _ in range(2):
        assert _same(_epoch(plain), _epoch(loader))
