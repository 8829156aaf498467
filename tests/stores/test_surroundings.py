"""Packs where they really lie: network file systems, read-only folders, files replaced while read, more than memory."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from torchvision import transforms as T

from fastdata.converters import pack
from fastdata.converters.writers import WriterOptions, open_writer
from fastdata.errors import StaleIndexError, TruncatedStoreError
from fastdata.loader import FastLoader
from fastdata.stores.opener import open_store
from fastdata.types import Field, Record

SCRIPT = Path(__file__).with_name("surroundings_script.py")
SMALL = T.Compose([T.Resize((8, 8)), T.PILToTensor()])
NAMES = {"lmdb": "p.lmdb", "hdf5": "p.h5", "tar": "p.tar"}

#: Refuses, for files below SHIM_FOLDER, what SHIM_REFUSES says: "locks", "shared" mappings, all "maps", or "any"
#: mapping, with an error that no file system gives and nobody is ready for.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

static int refused(int fd, const char *what) {
  char link[64], path[PATH_MAX];
  const char *folder = getenv("SHIM_FOLDER"), *mode = getenv("SHIM_REFUSES");
  if (fd < 0 || !folder || !mode || strcmp(mode, what)) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, sizeof path - 1);
  if (n < 0) return 0;
  path[n] = 0;
  return strncmp(path, folder, strlen(folder)) == 0;
}

static void *mapped(const char *name, void *at, size_t size, int prot, int flags, int fd, off_t offset) {
  void *(*real)(void *, size_t, int, int, int, off_t) = dlsym(RTLD_NEXT, name);
  if (refused(fd, "any")) { errno = EDOM; return MAP_FAILED; }
  if (refused(fd, "maps") || ((flags & MAP_SHARED) && refused(fd, "shared"))) { errno = ENODEV; return MAP_FAILED; }
  return real(at, size, prot, flags, fd, offset);
}
void *mmap(void *at, size_t size, int prot, int flags, int fd, off_t offset) {
  return mapped("mmap", at, size, prot, flags, fd, offset);
}
void *mmap64(void *at, size_t size, int prot, int flags, int fd, off_t offset) {
  return mapped("mmap64", at, size, prot, flags, fd, offset);
}

int flock(int fd, int how) {
  int (*real)(int, int) = dlsym(RTLD_NEXT, "flock");
  if (refused(fd, "locks")) { errno = ENOLCK; return -1; }
  return real(fd, how);
}
static int controlled(const char *name, int fd, int what, void *with) {
  int (*real)(int, int, void *) = dlsym(RTLD_NEXT, name);
  int locks = what == F_SETLK || what == F_SETLKW || what == F_GETLK || what == F_OFD_SETLK || what == F_OFD_SETLKW;
  if (locks && refused(fd, "locks")) { errno = ENOLCK; return -1; }
  return real(fd, what, with);
}
int fcntl(int fd, int what, ...) {
  va_list rest; va_start(rest, what); void *with = va_arg(rest, void *); va_end(rest);
  return controlled("fcntl", fd, what, with);
}
int fcntl64(int fd, int what, ...) {
  va_list rest; va_start(rest, what); void *with = va_arg(rest, void *); va_end(rest);
  return controlled("fcntl64", fd, what, with);
}
"""


def _run(*arguments, **environment):
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=110, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


# ---------------------------------------------------------------- network file systems


@pytest.fixture(scope="module")
def network(image_folder, packs, tmp_path_factory):
    """What loading and packing gave where locks or mappings are refused."""
    root = tmp_path_factory.mktemp("network")
    (root / "far").mkdir()
    for kind, name in NAMES.items():
        for path in packs[kind].parent.glob(f"{name}*"):
            shutil.copy(path, root / "far")
    (root / "shim.c").write_text(SHIM)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", root / "shim.so", root / "shim.c", "-ldl"], check=True)
    where = {"LD_PRELOAD": str(root / "shim.so"), "SHIM_FOLDER": str(root / "far")}
    found = _run("network", image_folder, root / "far", *NAMES.values(), **where)
    for name in ("p.lmdb", "p.h5"):
        os.truncate(root / "far" / name, 1 << 33)
    return found | _run("unmapped", root / "far", *NAMES.values(), **where)


@pytest.mark.parametrize("name", NAMES.values())
def test_without_locks_everything_works(network, name):  # C056
    assert network[f"locks mmap {name}"] == network[f"locks pread {name}"] == network[f"locks pack {name}"] == 21


@pytest.mark.parametrize("name", NAMES.values())
def test_without_shared_mappings_packs_are_read(network, name):
    assert network[f"shared mmap {name}"] == network[f"shared pread {name}"] == 21


@pytest.mark.parametrize("name", NAMES.values())
def test_without_any_mappings_pread_reads_and_the_error_names_it(network, name):
    assert network[f"maps pread {name}"] == 21
    assert network[f"maps mmap {name}"].startswith("OptionError")
    assert 'io="pread"' in network[f"maps mmap {name}"]
    assert name in network[f"maps mmap {name}"]


@pytest.mark.parametrize("name", NAMES.values())
def test_pread_maps_nothing_and_reads_little_of_a_large_file(network, name):
    pictures, private = network[f"unmapped {name}"]  # LMDB and HDF5: of 8 GiB, a hole behind the pack
    assert pictures == 21
    assert private < 20 << 10  # kB


@pytest.mark.parametrize("mode", ["shared", "maps"])
def test_packing_where_files_cannot_be_mapped(network, mode):  # C056
    assert network[f"{mode} pack p.tar"] == network[f"{mode} pack p.h5"] == 21
    assert "PackError" in network[f"{mode} pack p.lmdb"]  # LMDB writes through a mapping
    assert "pack to a local disk" in network[f"{mode} pack p.lmdb"]


# ---------------------------------------------------------------- what happens to files meanwhile


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_a_pack_that_is_replaced_while_it_is_read(image_folder, packs, tmp_path, kind, io):
    path = tmp_path / NAMES[kind]
    for source in packs[kind].parent.glob(f"{NAMES[kind]}*"):
        shutil.copy(source, tmp_path)
    loader = FastLoader(path, 4, transform=SMALL, num_workers=2, io=io)
    wanted = [labels.tolist() for _, labels in loader]
    iterator = iter(loader)
    got = [next(iterator)[1].tolist()]
    pack(image_folder / "bee", path, workers=1, overwrite=True)  # another pack, of 9 pictures without classes
    got += [labels.tolist() for _, labels in iterator]
    assert got == wanted
    assert [labels.tolist() for _, labels in loader] == wanted  # who has it open keeps what was there
    assert sum(len(batch[0]) for batch in FastLoader(path, 4, transform=SMALL, num_workers=2, io=io)) == 9


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_a_pack_that_is_replaced_before_the_first_read(image_folder, packs, tmp_path, kind, io):
    """Not its values at the old ones' places; whoever opens it again, as a worker process does, has the new one."""
    path = tmp_path / NAMES[kind]
    for source in packs[kind].parent.glob(f"{NAMES[kind]}*"):
        shutil.copy(source, tmp_path)
    for part, kind_of_error in (("bee", TruncatedStoreError), ("", StaleIndexError)):
        store = open_store(path, io=io)
        with open_store(path) as old:
            old.read(0)
            pack(image_folder / part, path, workers=1, overwrite=True)
            assert len(bytes(old.read(len(old) - 1))) > 0
        with pytest.raises(kind_of_error, match=f"{path.name} was replaced"):
            store.read(0)
        with pytest.raises(kind_of_error, match="open it again"):
            store.fetch(np.arange(2))
        again = pickle.loads(pickle.dumps(store))
        assert again.read(0)[:2] == b"\xff\xd8"
        assert len(again) == (9 if part else 21)


@pytest.mark.parametrize("kind", [*NAMES, "tars"])
def test_an_epoch_leaves_a_read_only_pack_as_it_was(packs, tmp_path, kind):  # C046
    root = tmp_path / "r"
    shutil.copytree(packs[kind].parent, root)
    files = sorted(path for path in root.rglob("*") if path.is_file())
    for path in files:
        path.chmod(0o444)
    root.chmod(0o555)

    def facts():
        names = sorted(str(path) for path in root.rglob("*"))
        stats = [(s.st_mode, s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino) for s in map(os.stat, files)]
        return names, stats, [path.read_bytes() for path in files]

    before = facts()
    try:
        for io in ("mmap", "pread"):
            loader = FastLoader(root / packs[kind].name, 4, shuffle=True, transform=SMALL, num_workers=2, io=io)
            assert sum(len(labels) for _, labels in loader) == 21
        assert facts() == before
    finally:
        root.chmod(0o755)


# ---------------------------------------------------------------- memory and time


def test_private_memory_is_flat_over_a_pack_of_300_mb(tmp_path):  # C059
    path = tmp_path / "large.lmdb"
    pixels = np.random.default_rng(0).integers(0, 255, (320, 320, 3), np.uint8)
    writer = open_writer(path, WriterOptions(samples=1000))
    for i in range(1000):
        pixels[0, 0, 0] = i % 256
        writer.write(Record(f"k{i}", (Field("image", "raw", pixels.tobytes()),), i, 320, 320))
    writer.finish({})
    assert path.stat().st_size > 300e6
    private, most = _run("much", path)
    assert max(private) - private[0] < 8 << 10  # kB; an epoch reads 300 MB
    assert most > 250 << 10  # how soon depends on the kernel, which maps large folios of its cache at once


def test_thousands_of_openings_leave_nothing(packs):
    descriptors, mappings, private = _run("cycles", *(packs[kind] for kind in NAMES))
    assert descriptors == 0
    assert mappings <= 2  # the allocator's own come and go
    assert private < 2 << 10  # kB; 1,200 openings


def test_opening_looks_at_no_image(packs):  # C046's kind: seconds, not hours, are a matter of what is read
    store = open_store(packs["lmdb"])
    assert not store._reader._maps
    assert not np.asarray(store.index.fields["image"].offset).flags.owndata
