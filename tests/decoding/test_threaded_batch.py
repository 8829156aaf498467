"""Any Decoder as a BatchDecoder: order, failures by position, raw records, many callers, forks, closing."""

from __future__ import annotations

import gc
import os
import threading
import time

import numpy as np
import pytest

from fastdata.decoding.facade import decoder
from fastdata.decoding.header import probe
from fastdata.decoding.resample import resample_into
from fastdata.decoding.threaded_batch import ThreadedBatchDecoder
from fastdata.errors import DecodeError, OptionError, TruncatedImageError
from fastdata.types import CODEC_IDS, Encoded, Geometry


def batch(records: list[tuple[str, bytes, int, int]], side: int = 16) -> tuple[Encoded, Geometry]:
    count = len(records)
    lengths = np.array([len(data) for _, data, _, _ in records], np.int64)
    codecs = np.array([CODEC_IDS[codec] for codec, *_ in records], np.uint8)
    width = np.array([w for *_, w, _ in records], np.int32)
    height = np.array([h for *_, h in records], np.int32)
    views = [memoryview(data) for _, data, _, _ in records]
    window = np.stack([np.zeros(count), np.zeros(count), width, height], 1)
    geometry = Geometry(
        window.astype(np.int32), window, np.full((count, 2), side, np.int32),
        np.tile(np.array([0, 0, side, side], np.int32), (count, 1)), np.arange(count) % 2 == 1, np.zeros(count, bool),
    )  # fmt: skip
    return Encoded(np.zeros(count, np.uint64), lengths, codecs, width, height, views, records), geometry


@pytest.fixture
def records(jpegs):
    usual = [("jpeg", jpegs[name], 0, 0) for name in ("4:4:4", "4:2:0", "grey", "progressive", "1x1", "3x900")] * 3
    return [(codec, data, probe(data).width, probe(data).height) for codec, data, _, _ in usual]


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_row_is_what_one_image_gives(records, threads, channels):
    encoded, geometry = batch(records)
    out = np.zeros((len(records), channels, 16, 16), np.uint8)
    decode = decoder("simplejpeg")
    with ThreadedBatchDecoder(decode, threads) as pool:
        assert pool.decode_batch(encoded, geometry, out.transpose(0, 2, 3, 1)) == {}
    for position, (_, data, _, _) in enumerate(records):
        expected = np.zeros((16, 16, channels), np.uint8)
        resample_into(decode(data, "L" if channels == 1 else "RGB"), geometry, position, expected)
        assert np.array_equal(out[position].transpose(1, 2, 0), expected)


def test_failures_are_named_by_position_and_the_others_are_done(records):
    damaged = list(records)
    codec, data, width, height = damaged[3]
    damaged[3] = (codec, data[: len(data) // 2], width, height)
    damaged[7] = (codec, b"no image", width, height)
    encoded, geometry = batch(damaged)
    out, whole = np.zeros((len(records), 16, 16, 3), np.uint8), np.zeros((len(records), 16, 16, 3), np.uint8)
    with ThreadedBatchDecoder(decoder("simplejpeg"), 3) as pool:
        failures = pool.decode_batch(encoded, geometry, out)
        assert pool.decode_batch(*batch(records), whole) == {}
    assert list(failures) == [3, 7]
    assert isinstance(failures[3], TruncatedImageError)
    good = [n for n in range(len(records)) if n not in failures]
    assert np.array_equal(out[good], whole[good])


def test_an_exception_of_a_decoder_is_a_decode_error_of_its_image(records):
    def odd(*_):
        raise ZeroDivisionError("by nought")  # noqa: EM101

    encoded, geometry = batch(records[:2])
    with ThreadedBatchDecoder(odd, 1) as pool:
        failures = pool.decode_batch(encoded, geometry, np.zeros((2, 16, 16, 3), np.uint8))
    assert all(type(error) is DecodeError for error in failures.values())
    assert "ZeroDivisionError: by nought" in str(failures[0])


def test_a_wrong_option_is_the_callers_error(records):
    encoded, geometry = batch(records[:2])
    geometry = Geometry(*(getattr(geometry, n) for n in ("box", "window", "size", "rect", "hflip", "vflip")),
                        interpolation="lanczos", antialias=False)  # fmt: skip
    with ThreadedBatchDecoder(decoder("simplejpeg"), 2) as pool, pytest.raises(OptionError):
        pool.decode_batch(encoded, geometry, np.zeros((2, 16, 16, 3), np.uint8))


def test_raw_records_are_not_decoded():
    rng = np.random.default_rng(0)
    colour, grey = rng.integers(0, 256, (16, 16, 3), np.uint8), rng.integers(0, 256, (16, 16, 1), np.uint8)
    raw = [("raw", colour.tobytes(), 16, 16), ("raw", grey.tobytes(), 16, 16), ("raw", b"123", 16, 16)]
    out, thin = np.zeros((3, 16, 16, 3), np.uint8), np.zeros((3, 16, 16, 1), np.uint8)
    with ThreadedBatchDecoder(decoder("pillow"), 1) as pool:
        failures = pool.decode_batch(*batch(raw), out)
        pool.decode_batch(*batch(raw), thin)
    assert np.array_equal(out[0], colour)
    assert np.array_equal(out[1], np.repeat(grey[:, ::-1], 3, 2))
    assert list(failures) == [2]
    assert "16 x 16" in str(failures[2])
    assert np.array_equal(thin[1], grey[:, ::-1])


def test_several_callers_share_the_threads(records):
    encoded, geometry = batch(records)
    outs = [np.zeros((len(records), 16, 16, 3), np.uint8) for _ in range(4)]
    before = threading.active_count()
    with ThreadedBatchDecoder(decoder("simplejpeg"), 2) as pool:
        assert threading.active_count() == before  # none before the first batch
        callers = [threading.Thread(target=pool.decode_batch, args=(encoded, geometry, out)) for out in outs]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        assert threading.active_count() == before + 2
    assert threading.active_count() == before
    assert all(np.array_equal(out, outs[0]) for out in outs)


def test_close_waits_and_may_be_called_twice():
    done = []

    def slow(*_):
        time.sleep(0.02)
        done.append(1)
        return np.zeros((8, 8, 3), np.uint8)

    encoded, geometry = batch([("jpeg", b"", 8, 8)] * 4)
    pool = ThreadedBatchDecoder(slow, 1)
    caller = threading.Thread(target=pool.decode_batch, args=(encoded, geometry, np.zeros((4, 16, 16, 3), np.uint8)))
    caller.start()
    while not done:
        time.sleep(0.001)
    pool.close()
    pool.close()
    caller.join(5)
    assert not caller.is_alive()
    assert len(done) == 4
    with pytest.raises(OptionError, match="closed"):
        pool.decode_batch(encoded, geometry, np.zeros((4, 16, 16, 3), np.uint8))
    with pytest.raises(OptionError):
        ThreadedBatchDecoder(slow, 0)


def test_threads_end_when_the_object_is_dropped(records):
    before = threading.active_count()
    pool = ThreadedBatchDecoder(decoder("simplejpeg"), 2)
    pool.decode_batch(*batch(records), np.zeros((len(records), 16, 16, 3), np.uint8))
    del pool
    gc.collect()
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.005)
    assert threading.active_count() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_starts_threads_of_its_own(records):
    encoded, geometry = batch(records)
    out = np.zeros((len(records), 16, 16, 3), np.uint8)
    with ThreadedBatchDecoder(decoder("simplejpeg"), 2) as pool:
        pool.decode_batch(encoded, geometry, out)
        child = os.fork()
        if not child:
            again = np.zeros_like(out)
            fine = pool.decode_batch(encoded, geometry, again) == {} and np.array_equal(out, again)
            os._exit(0 if fine else 1)
        deadline = time.monotonic() + 20
        while (state := os.waitpid(child, os.WNOHANG)) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(child, 9)
                os.waitpid(child, 0)
                pytest.fail("the child hangs")
            time.sleep(0.01)
        assert os.waitstatus_to_exitcode(state[1]) == 0
        assert pool.decode_batch(encoded, geometry, out) == {}
