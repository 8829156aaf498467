"""Folders: ImageFolder's order and class map, what is passed over, awkward trees."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from fastdata import open_store
from fastdata.errors import MissingPartError, StoreError, StoreFormatError
from fastdata.stores.file_names import keys_of

if TYPE_CHECKING:
    from collections.abc import Iterable


def _tree(root: Path, names: Iterable[str]) -> Path:
    for i, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir()
        elif path.suffix.lower() in {".jpg", ".jpeg", ".png", ".bmp", ".webp"}:
            Image.new("RGB", (2, 2), (i % 256, i // 256, 0)).save(path)
        else:
            path.write_bytes(b"%d" % i)
    return root


def _keys(store) -> list[str]:
    return [store.key(i) for i in range(len(store))]


def test_order_and_classes_are_imagefolders(tmp_path):  # C002
    from torchvision.datasets import ImageFolder

    make = random.Random(3)
    parts = ["a", "b", "a-b", "a b", "a.b", "A", "Z", "é", "画", "0", "10", "2"]
    names = {
        "/".join([make.choice(parts) for _ in range(make.randrange(2, 5))]) + f"_{i}{make.choice(['.png', '.JPG'])}"
        for i in range(300)
    }
    # Class folders named by numbers are sorted as text, as ImageFolder does.
    root = _tree(tmp_path / "root", sorted({f"{make.randrange(1, 13)}/{name}" for name in names}))
    wanted = ImageFolder(str(root))
    with open_store(root) as store:
        assert list(store.classes) == wanted.classes
        assert store.class_to_idx == wanted.class_to_idx
        assert [(store.parts[i], store.label(i)) for i in range(len(store))] == wanted.samples


def test_dot_folders_and_stray_files_are_counted(tmp_path):  # C004 C005
    names = ["b/1.png", "a/1.png", "a/.DS_Store", "a/Thumbs.db", "b/notes.txt", "b/labels.csv", "a/deep/x.TXT", "x.png"]
    root = _tree(tmp_path, [*names, ".ipynb_checkpoints/1.png", "a/.cache/1.png", "a/README"])
    with open_store(root) as store:
        assert store.classes == ("a", "b")
        assert _keys(store) == ["a/1", "b/1"]
        assert store.info["ignored"] == {
            ".csv": 1, ".db": 1, ".txt": 2, "hidden": 3, "outside the class folders": 1, "without ending": 1,
        }  # fmt: skip


def test_empty_class_keeps_its_number(tmp_path):
    from torchvision.datasets import ImageFolder

    root = _tree(tmp_path, ["a/1.png", "b/", "c/1.png", "d/only.txt"])
    wanted = ImageFolder(str(root), allow_empty=True)
    with open_store(root) as store:
        assert store.class_to_idx == wanted.class_to_idx
        assert [store.label(i) for i in range(2)] == wanted.targets == [0, 2]
        assert store.info["empty_classes"] == ["b", "d"]


def test_flat_folder_has_no_labels(tmp_path):
    with open_store(_tree(tmp_path, ["2.png", "10.png", "empty/", "notes.txt"])) as store:
        assert _keys(store) == ["10", "2"]
        assert store.classes == ()
        assert store.label(0) is None
        assert store.index.label is None
        assert store.info["ignored"] == {".txt": 1}


@pytest.mark.parametrize("names", [[], ["a/x.txt", "a/.hid.png"], ["out-0.mp4"]])
def test_no_images_says_what_is_there(tmp_path, names):
    with pytest.raises(StoreFormatError, match="no images"):
        open_store(_tree(tmp_path, names))


def test_one_stem_with_several_endings(tmp_path):  # C001
    names = ["a/x.png", "a/x.jpg", "a/x.png.jpg", "a/y.png", "a/y.tar.png", "b/x.png"]
    with open_store(_tree(tmp_path, names)) as store:
        assert dict(zip(_keys(store), (store.parts[i].split("/")[-2:] for i in range(6)), strict=True)) == {
            "a/x.jpg": ["a", "x.jpg"], "a/x.png": ["a", "x.png"], "a/x.png.jpg": ["a", "x.png.jpg"],
            "a/y": ["a", "y.png"], "a/y.tar": ["a", "y.tar.png"], "b/x": ["b", "x.png"],
        }  # fmt: skip


def test_keys_of_are_always_different():
    make = random.Random(1)
    for _ in range(500):
        names = {"".join(make.choices("ab.", k=make.randrange(1, 8))) + ".png" for _ in range(12)}
        keys = keys_of(sorted(names))
        assert len(set(keys)) == len(keys)
    assert keys_of([".png", "x", "a.b.png"]) == [".png", "x", "a.b"]


def test_every_kind_of_image_is_taken(tmp_path):
    endings = (".jpg .JPEG .png .ppm .bmp .pgm .tif .tiff .webp .gif .avif .heic .heif .jxl .jp2 .j2k").split()  # noqa: SIM905
    for ending in endings:
        (tmp_path / f"i{ending}").write_bytes(ending.encode())
    with open_store(tmp_path) as store:
        assert {bytes(r.fields[0].data).decode() for r in store.records()} == set(endings)
        assert (store.index.width == 0).all()


def test_links(tmp_path):
    from torchvision.datasets import ImageFolder

    root = _tree(tmp_path / "root", ["a/1.png", "b/2.png"])
    other = _tree(tmp_path / "other", ["3.png", "sub/4.png"])
    (root / "a" / "linked").symlink_to(other)
    (root / "c").symlink_to(other)
    (root / "b" / "5.png").symlink_to(other / "3.png")
    wanted = ImageFolder(str(root))
    with open_store(root) as store:
        assert [(store.parts[i], store.label(i)) for i in range(len(store))] == wanted.samples


def test_links_in_circles_and_to_nowhere(tmp_path):
    root = _tree(tmp_path / "root", ["a/1.png", "a/deep/2.png"])
    (root / "a" / "deep" / "up").symlink_to(root / "a")
    (root / "a" / "deep" / "root").symlink_to(root)
    (root / "a" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    (root / "a" / "self.png").symlink_to(root / "a" / "self.png")
    with open_store(root) as store:
        assert _keys(store) == ["a/1", "a/deep/2"]
        assert store.info["ignored"] == {"broken link": 2, "link to a folder above it": 2}


def test_a_pipe_is_no_image(tmp_path):
    root = _tree(tmp_path, ["a/1.png"])
    os.mkfifo(root / "a" / "2.png")
    with open_store(root) as store:
        assert _keys(store) == ["a/1"]
        assert store.info["ignored"] == {"not a file": 1}


def test_names_that_are_not_utf8(tmp_path):
    folder = os.fsencode(tmp_path) + b"/a\xff"
    os.mkdir(folder)
    with open(folder + b"/\xe9 1.jpg", "wb") as file:
        file.write(b"bytes")
    with open_store(tmp_path) as store:
        assert os.fsencode(store.key(0)) == b"a\xff/\xe9 1"
        assert bytes(store.read(0)) == b"bytes"
        assert store.find(store.key(0)) == 0


def test_a_file_is_read_as_it_is_now(tmp_path):
    (tmp_path / "x.jpg").write_bytes(b"short")
    (tmp_path / "y.jpg").write_bytes(b"")
    with open_store(tmp_path) as store:
        (tmp_path / "x.jpg").write_bytes(b"much longer now")
        assert bytes(store.read(0)) == b"much longer now"
        assert store.spans(np.arange(2)).length.tolist() == [15, 0]
        encoded = store.fetch(np.arange(2))
        assert encoded.length.tolist() == [15, 0]
        assert len(encoded.views[1]) == 0


def test_a_missing_file_is_named(tmp_path):
    root = _tree(tmp_path, ["a/1.png", "a/2.png"])
    with open_store(root) as store:
        (root / "a" / "2.png").unlink()
        for call in (store.read, lambda i: store.fetch(np.array([i])), lambda i: store.spans(np.array([i]))):
            with pytest.raises(MissingPartError, match=r"2\.png"):
                call(1)
        assert len(store.read(0)) > 0


def test_a_folder_in_place_of_a_file(tmp_path):
    root = _tree(tmp_path, ["a/1.png"])
    with open_store(root) as store:
        (root / "a" / "1.png").unlink()
        (root / "a" / "1.png").mkdir()
        with pytest.raises(StoreError, match=r"1\.png"):
            store.read(0)


def test_no_descriptor_stays_open(tmp_path):
    root = _tree(tmp_path, [f"a/{i}.png" for i in range(50)])
    before = len(list(Path("/proc/self/fd").iterdir()))
    with open_store(root) as store:
        views = [store.read(i) for i in range(50)]
        threads = [threading.Thread(target=lambda: [store.read(i) for i in range(50)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(list(Path("/proc/self/fd").iterdir())) == before
        assert len(views) == 50


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change to another user")
def test_unreadable_folder_is_named(tmp_path):
    import subprocess
    import sys

    root = _tree(tmp_path, ["a/1.png", "a/locked/2.png", "b/3.png"])
    code = (
        "import os, sys\n"
        "from fastdata import open_store\n"
        "open_store(sys.argv[1])\n"
        "os.chdir(sys.argv[1]); os.setgid(65534); os.setuid(65534)\n"
        "store = open_store('.')\n"
        "print([store.key(i) for i in range(len(store))], store.info['ignored'], store.info['unreadable'])\n"
    )
    for folder in (root, root / "a", root / "b"):
        folder.chmod(0o755)
    (root / "a" / "locked").chmod(0)
    done = subprocess.run([sys.executable, "-c", code, str(root)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['a/1', 'b/3'] {'unreadable folder': 1} ['./a/locked']"


def test_memory_of_many_files_is_their_names(tmp_path):
    import tracemalloc

    (tmp_path / "a").mkdir()
    for i in range(3000):
        (tmp_path / "a" / f"{i:08d}.jpg").touch()
    open_store(tmp_path)  # imports
    tracemalloc.start()
    store = open_store(tmp_path)
    now, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # names 11 + 8, key 11 + 8, label 8, span 25, sizes 4: 75 and what the texts add
    assert now / len(store) < 130


@pytest.mark.shared_data
def test_real_photographs(shared_data):
    from torchvision.datasets import ImageFolder

    root = shared_data / "photos" / "classes"
    wanted = ImageFolder(str(root))
    with open_store(root) as store:
        assert [(store.parts[i], store.label(i)) for i in range(len(store))] == wanted.samples
        assert list(store.classes) == wanted.classes
        assert len(set(_keys(store))) == 1000
