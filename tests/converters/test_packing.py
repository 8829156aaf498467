"""One run from source to pack: what is in it, in which order, and what it says."""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fastdata.converters import PackOptions, pack
from fastdata.converters.working import pace_of
from fastdata.errors import (
    DestinationExistsError,
    NothingPackedError,
    OptionError,
    PackError,
    StoreFormatError,
    TooManySkippedError,
)
from fastdata.stores.opener import open_store

ENDINGS = (".lmdb", ".h5", ".tar")


def pixels(store, i):
    import io

    return np.asarray(Image.open(io.BytesIO(store.read(i))).convert("RGB"))


@pytest.mark.parametrize("ending", ENDINGS)
def test_equal_names_in_three_folders_stay_three_samples(maker, tmp_path, ending):  # C001
    paths = [maker.put(f"{name}/x.png") for name in "ABC"]
    report = pack(maker.root, tmp_path / f"out{ending}", workers=1)
    assert (report.samples, report.kept) == (3, 3)
    with open_store(tmp_path / f"out{ending}") as store:
        assert len(store) == 3
        for number, (name, path) in enumerate(zip("ABC", paths, strict=True)):
            i = store.find(f"{name}/x")
            assert store.label(i) == number
            assert bytes(store.read(i)) == path.read_bytes()


def test_the_class_map_is_imagefolders(maker, tmp_path):  # C002 C004 C005
    from torchvision.datasets import ImageFolder

    for number in range(1, 13):
        maker.put(f"{number}/a.png")
    expected = ImageFolder(maker.root).class_to_idx
    maker.put(".ipynb_checkpoints/b.png")
    for name in (".DS_Store", "Thumbs.db", "notes.txt", "labels.csv"):
        (maker.root / "1" / name).write_text("x")
    report = pack(maker.root, tmp_path / "out.lmdb", workers=1)
    assert report.samples == 12
    assert dict(report.ignored) == {".csv": 1, ".db": 1, ".txt": 1, "hidden": 2}
    with open_store(tmp_path / "out.lmdb") as store:
        assert store.class_to_idx == expected == store.info["class_to_idx"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_dots_in_names_of_files_and_folders_cut_nothing(maker, tmp_path, ending):  # C007 C008
    names = ["run1.5/1", "run1.6/1", "run1.6/22.05", "run1.6/22.06", "run1.6/scan 2.0 (v1)", "run1.6/a.b.c.d"]
    wanted = {name: maker.put(name + ".png").read_bytes() for name in names}
    pack(maker.root, tmp_path / f"out{ending}", workers=1)
    with open_store(tmp_path / f"out{ending}") as store:
        assert {store.key(i): bytes(store.read(i)) for i in range(len(store))} == wanted


def test_a_path_of_600_bytes_is_found_by_its_name(maker, tmp_path):  # C010
    name = "/".join(["d" * 120] * 5) + "/x"
    path = maker.put(name + ".png")
    pack(maker.root, tmp_path / "out.lmdb", workers=1)
    with open_store(tmp_path / "out.lmdb") as store:
        assert bytes(store.read(store.find(name))) == path.read_bytes()


@pytest.mark.parametrize("ending", ENDINGS)
def test_bytes_do_not_depend_on_workers_or_executor(tree, tmp_path, ending):
    made = []
    with (
        ThreadPoolExecutor(3) as threads,
        ProcessPoolExecutor(2, mp_context=get_context("forkserver")) as processes,
    ):
        for number, how in enumerate(
            ({"workers": 1}, {"workers": 2}, {"workers": 4}, {"executor": threads}, {"executor": processes})
        ):
            dst = tmp_path / f"{number}" / f"out{ending}"
            report = pack(tree, dst, resize=32, shuffle=True, seed=5, **how)
            made.append((report.content_hash, report.mean, report.std, dst.read_bytes() if ending == ".tar" else b""))
    assert made.count(made[0]) == 5
    with open_store(tmp_path / "0" / f"out{ending}") as store:
        assert store.info["content_hash"] == made[0][0]


@pytest.mark.parametrize(("workers", "count"), [(1, 1), (4, 1), (4, 3), (16, 3), (64, 5)])
def test_more_workers_than_images(maker, tmp_path, workers, count):  # C034
    for number in range(count):
        maker.put(f"{number}.png")
    report = pack(maker.root, tmp_path / "out.lmdb", workers=workers)
    assert report.samples == count
    assert report.workers <= count


def test_an_empty_folder_says_what_it_holds(tmp_path):  # C034
    (tmp_path / "src").mkdir()
    with pytest.raises(StoreFormatError, match="no images"):
        pack(tmp_path / "src", tmp_path / "out.lmdb")
    assert not (tmp_path / "out.lmdb").exists()


def test_mean_and_std_are_those_of_all_pixels_packed(maker, tmp_path):
    for number in range(5):
        maker.put(f"{number}.png", maker.picture(number, (30 + number, 20)))
    report = pack(maker.root, tmp_path / "out.lmdb", workers=1)
    with open_store(tmp_path / "out.lmdb") as store:
        everything = np.concatenate([pixels(store, i).reshape(-1, 3) for i in range(5)]) / 255
        assert np.allclose(report.mean, everything.mean(0), atol=1e-12)
        assert np.allclose(report.std, everything.std(0), atol=1e-9)
        assert store.info["mean"] == list(report.mean)
        assert store.info["std"] == list(report.std)


def test_shuffling_mixes_and_is_a_function_of_the_seed(maker, tmp_path):
    for number in range(40):
        maker.put(f"{number // 20}/{number:02}.png", maker.picture(number, (4, 4)))

    def keys(**how):
        pack(maker.root, tmp_path / "out.lmdb", overwrite=True, workers=1, **how)
        with open_store(tmp_path / "out.lmdb") as store:
            return [store.key(i) for i in range(len(store))]

    plain = keys()
    assert plain == sorted(plain)
    first, again, other = keys(shuffle=True), keys(shuffle=True, seed=0), keys(shuffle=True, seed=1)
    assert first == again != other
    assert sorted(first) == sorted(other) == plain != first
    assert keys(shuffle=True, limit=7) == first[:7]


def test_a_pack_becomes_another_pack_byte_for_byte(tree, tmp_path):
    hashes = {pack(tree, tmp_path / "a.lmdb", workers=1).content_hash}
    for src, dst in (("a.lmdb", "b.h5"), ("b.h5", "c.tar"), ("c.tar", "d.lmdb")):
        report = pack(tmp_path / src, tmp_path / dst, workers=1)
        assert (report.samples, report.kept) == (12, 12)
        hashes.add(report.content_hash)
    assert len(hashes) == 1
    with open_store(tmp_path / "d.lmdb") as store:
        assert store.classes == ("ant", "bee", "cat")


def test_several_sources_share_one_class_map(maker, tmp_path):
    for name in ("one/bee/x", "one/ant/x", "two/cat/x", "two/ant/x"):
        maker.put(name + ".png")
    report = pack([maker.root / "one", maker.root / "two"], tmp_path / "out.lmdb", workers=1)
    assert report.classes == ("ant", "bee", "cat")
    with open_store(tmp_path / "out.lmdb") as store:
        got = {store.key(i): store.classes[store.label(i)] for i in range(len(store))}
    assert got == {"one/ant/x": "ant", "one/bee/x": "bee", "two/ant/x": "ant", "two/cat/x": "cat"}


def test_keys_that_do_not_collide_get_no_prefix(maker, tmp_path):
    for name in ("one/bee/x", "two/cat/y"):
        maker.put(name + ".png")
    pack([maker.root / "one", maker.root / "two"], tmp_path / "out.lmdb", workers=1)
    with open_store(tmp_path / "out.lmdb") as store:
        assert [store.key(i) for i in range(2)] == ["bee/x", "cat/y"]


def test_a_manifest_gives_labels_and_extras(maker, tmp_path):
    for name in "ab":
        maker.put(f"{name}.png")
    manifest = tmp_path / "list.csv"
    manifest.write_text("path,label,caption\na.png,0.5,red\nb.png,1.5,blue\n")
    pack(maker.root, tmp_path / "out.lmdb", manifest=manifest, workers=1)
    with open_store(tmp_path / "out.lmdb") as store:
        assert [store.label(i) for i in range(2)] == [0.5, 1.5]
        assert store.extras(1) == {"caption": "blue"}
    (maker.root / "list.csv").write_text(manifest.read_text())
    assert pack(maker.root / "list.csv", tmp_path / "two.lmdb", workers=2).samples == 2


def test_broken_files_are_named_and_the_rest_is_packed(tree, maker, tmp_path):  # C023 C031
    maker.put("ant/cut.jpg", maker.picture(9, (200, 200)))
    whole = (tree / "ant/cut.jpg").read_bytes()
    (tree / "ant/cut.jpg").write_bytes(whole[: len(whole) // 2])
    (tree / "bee/empty.png").write_bytes(b"")
    png = (tree / "bee/1.png").read_bytes()
    (tree / "bee/cut.png").write_bytes(png[: len(png) // 2])
    with pytest.raises(TooManySkippedError, match="3 of 15"):
        pack(tree, tmp_path / "out.lmdb", workers=1)
    assert not (tmp_path / "out.lmdb").exists()
    report = pack(tree, tmp_path / "out.lmdb", workers=2, max_errors=0.5)
    assert report.samples == 12
    assert [s.key for s in report.skipped] == ["ant/cut", "bee/cut", "bee/empty"]
    lines = (tmp_path / "out.lmdb.report.jsonl").read_text().splitlines()
    assert [json.loads(line)["path"] for line in lines] == [s.path for s in report.skipped]
    assert all(s.reason for s in report.skipped)
    with pytest.raises(PackError, match=r"cut\.jpg"):
        pack(tree, tmp_path / "two.lmdb", workers=1, on_error="raise")
    # A later run in which nothing is skipped leaves no report that is not its own.
    for skipped in report.skipped:
        Path(skipped.path).unlink()
    pack(tree, tmp_path / "out.lmdb", workers=1, overwrite=True)
    assert not (tmp_path / "out.lmdb.report.jsonl").exists()


@pytest.mark.parametrize("kind", ["ValueError", "struct.error", "SyntaxError", "MemoryError", "RecursionError"])
def test_whatever_a_decoder_raises_ends_in_the_report(tree, tmp_path, monkeypatch, kind):  # C023
    import builtins
    import struct

    from fastdata.converters import work

    error = struct.error if kind == "struct.error" else getattr(builtins, kind)
    real = work.load_pixels
    bad = (tree / "ant/1.png").read_bytes()

    def load(data, policy):
        if data == bad:
            raise error
        return real(data, policy)

    monkeypatch.setattr(work, "load_pixels", load)
    report = pack(tree, tmp_path / "out.lmdb", workers=1, max_errors=1)
    assert [(s.key, s.reason.partition(":")[0]) for s in report.skipped] == [("ant/1", error.__name__)]


def test_nothing_packed_is_an_error(maker, tmp_path):
    (maker.put("a.png")).write_bytes(b"no picture")
    with pytest.raises(NothingPackedError, match=r"a\.png"):
        pack(maker.root, tmp_path / "out.lmdb", max_errors=1, workers=1)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.lmdb.report.jsonl", "src"]


def test_a_hopeless_run_ends_early(maker, tmp_path):
    for number in range(400):
        path = maker.root / f"{number:03}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"no picture")
    seen = []
    with pytest.raises(NothingPackedError):
        pack(maker.root, tmp_path / "out.lmdb", workers=1, progress=seen.append)
    assert seen[-1].done < 150


def test_the_source_is_never_written_to(tree, tmp_path):
    before = {p: p.stat().st_mtime_ns for p in tree.rglob("*")}
    for dst in (tree / "out.lmdb", tree / "ant" / "out.h5", tree):
        with pytest.raises(OptionError):
            pack(tree, dst, workers=1, overwrite=True)
    pack(tree, tmp_path / "out.lmdb", workers=1)
    with pytest.raises(OptionError, match="source"):
        pack(tmp_path / "out.lmdb", tmp_path / "out.lmdb", overwrite=True)
    link = tmp_path / "link"
    link.symlink_to(tree)
    with pytest.raises(OptionError, match="source"):
        pack(tree, link / "out.lmdb", workers=1)
    assert {p: p.stat().st_mtime_ns for p in tree.rglob("*")} == before


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_is_there_stays_unless_overwritten(tree, tmp_path, ending):  # C041
    dst = tmp_path / f"out{ending}"
    first = pack(tree, dst, workers=1, limit=2).content_hash
    with pytest.raises(DestinationExistsError, match="overwrite"):
        pack(tree, dst, workers=1)
    with open_store(dst) as store:
        assert store.info["content_hash"] == first
    assert pack(tree, dst, workers=1, overwrite=True).samples == 12


def test_a_run_that_fails_late_leaves_nothing_and_keeps_what_was_there(tree, tmp_path):
    dst = tmp_path / "out.lmdb"
    pack(tree, dst, workers=1, limit=2)
    before = dst.read_bytes()

    def stop(progress):
        if progress.done == 9:
            raise KeyboardInterrupt

    for workers in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            pack(tree, dst, workers=workers, overwrite=True, progress=stop)
    assert dst.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.lmdb", "src"]


def test_a_crash_of_a_decoder_says_what_to_do(tree, tmp_path):
    class Crashing(ThreadPoolExecutor):
        def submit(self, *_, **__):
            from concurrent.futures import Future
            from concurrent.futures.process import BrokenProcessPool

            future = Future()
            future.set_exception(BrokenProcessPool("a process was terminated abruptly"))
            return future

    with Crashing(1) as executor, pytest.raises(PackError, match=r"ant/0\.jpg.*--workers 1"):
        pack(tree, tmp_path / "out.lmdb", executor=executor)
    assert [p.name for p in tmp_path.iterdir()] == ["src"]


@given(st.integers(1, 64), st.integers(0, 10**7), st.sampled_from([None, 1, 256, 512, 724, 725, 4096]))
def test_tasks_grow_only_where_results_are_small_and_workers_have_many(workers, total, resize):
    pace = pace_of(PackOptions(resize=resize), workers, total)
    assert pace.in_flight == workers * 2 * pace.rows
    assert 2 <= pace.rows <= 8
    if pace.rows > 2:
        assert resize is not None
        assert resize <= 724
        assert pace.rows * workers * 16 <= total


@pytest.mark.parametrize(("many", "resize", "each"), [(60, None, 4), (60, 8, 4), (300, 8, 12)])
def test_at_most_so_many_images_a_worker_are_in_flight(maker, tmp_path, many, resize, each):
    import threading

    for number in range(many):
        maker.put(f"{number}.png", maker.picture(number, (4, 4)))
    lock, state = threading.Lock(), {"now": 0, "most": 0}

    class Counting(ThreadPoolExecutor):
        def submit(self, fn, rows, options):
            with lock:
                state["now"] += len(rows)
                state["most"] = max(state["most"], state["now"])
            return super().submit(fn, rows, options)

    def written(_):
        with lock:
            state["now"] -= 1

    with Counting(2) as executor:
        pack(maker.root, tmp_path / "out.lmdb", executor=executor, workers=3, resize=resize, progress=written)
    assert 3 * (each - each // 4) <= state["most"] <= 3 * each + 1


def test_the_report_speaks_and_counts(tree, tmp_path):
    report = pack(tree, tmp_path / "out.lmdb", workers=1, resize=1000)
    text = "\n".join(report.lines())
    assert "packed 12 images in 3 classes" in text
    assert "12 images are smaller" in text
    facts = json.loads(json.dumps(report.to_dict()))
    assert facts["samples"] == 12
    assert facts["bytes_in"] == sum(p.stat().st_size for p in tree.rglob("*.*")) == facts["bytes_out"]
    assert facts["images_per_second"] > 0


@pytest.mark.parametrize("ending", ENDINGS)
def test_further_fields_ride_along_and_are_never_left_at_another_size(maker, tmp_path, ending):
    from fastdata.converters.writers import open_writer
    from fastdata.types import Field, Record

    png = maker.encoded(maker.picture(1), "PNG")
    fields = Field("image", "png", png), Field("caption", "text", b"a cat"), Field("mask", "png", png)
    writer = open_writer(tmp_path / "a.lmdb")
    writer.write(Record("x", fields, 3, 64, 48, {"by": "me"}))
    writer.finish({})
    pack(tmp_path / "a.lmdb", tmp_path / f"b{ending}", workers=1)
    with open_store(tmp_path / f"b{ending}") as store:
        assert bytes(store.read(0, "mask")) == png
        assert bytes(store.read(0, "caption")) == b"a cat"
        assert (store.label(0), store.extras(0)) == (3, {"by": "me"})
    with pytest.raises(OptionError, match="mask"):
        pack(tmp_path / "a.lmdb", tmp_path / "c.lmdb", workers=1, resize=16)


def test_labels_that_cannot_be_merged_are_refused(maker, tmp_path):
    maker.put("one/bee/x.png")
    maker.put("two/x.png")
    (maker.root / "two/list.csv").write_text("path,label\nx.png,7\n")
    with pytest.raises(OptionError, match="class names"):
        pack([maker.root / "one", maker.root / "two/list.csv"], tmp_path / "out.lmdb", workers=1)


def test_a_file_that_may_not_be_read_is_named(tree, tmp_path, monkeypatch):
    from fastdata.stores import file_reader

    real = file_reader.open_regular

    def open_regular(path):
        if path.endswith("ant/0.jpg"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(file_reader, "open_regular", open_regular)
    report = pack(tree, tmp_path / "out.lmdb", workers=1, max_errors=0.5)
    assert ["Permission denied" in s.reason for s in report.skipped] == [True]
