"""The core under many threads at once: with a GIL, and on a free-threaded interpreter, whose GIL it leaves off."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fastdata import _native
from fastdata.decoding.native_decoder import NativeBatchDecoder, channel_sums, transcode
from fastdata.errors import DecodeError, OptionError

CALLERS, ROUNDS = 8, 12
SIZE = (120, 90)
BAD = {3: b"no image", 11: None}  # position to what lies there; None: half of what was


@pytest.fixture(scope="module")
def work(kit):
    """For each caller: a batch of its own, JPEGs, PNGs (the reference's) and damaged ones, and what it must give."""
    batches = []
    for caller in range(CALLERS):
        photos = [kit.noisy_photo(*SIZE, 100 * caller + seed) for seed in range(16)]
        blobs = [kit.jpeg_of(photo, "420") for photo in photos]
        blobs[5] = _png(photos[5])
        boxes = [(seed, caller, 100 + seed % 20, 70 + seed % 20) for seed in range(16)]
        geometry = kit.crops(boxes, (48, 40))
        expected = np.stack([kit.by_pillow(blob, geometry, row) for row, blob in enumerate(blobs)])
        for row, bad in BAD.items():
            blobs[row] = blobs[row][:1000] if bad is None else bad
        encoded = kit.pack(blobs, [SIZE] * 16)
        encoded.codec[5] = 0
        batches.append((encoded, geometry, expected))
    return batches


def _png(pixels):
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def _is_right(decoder, batch):
    encoded, geometry, expected = batch
    out = np.zeros_like(expected)
    failures = decoder.decode_batch(encoded, geometry, out)
    good = [row for row in range(len(expected)) if row not in BAD]
    # What the reference decodes comes through the core, too, and may differ from Pillow's crop by a grey level.
    gap = np.abs(out[good].astype(int) - expected[good]).max()
    return list(failures) == list(BAD) and all(isinstance(e, DecodeError) for e in failures.values()) and gap <= 1


def test_importing_the_core_leaves_the_gil_as_it_was():
    code = (
        "import sys; is_on = getattr(sys, '_is_gil_enabled', lambda: True); before = is_on(); "
        "import fastdata._native; assert is_on() == before"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


@pytest.mark.parametrize("threads", [0, 1, 4])
def test_callers_of_one_decoder_get_their_own_batches(work, at_once, threads):
    with NativeBatchDecoder(threads) as decoder:  # its threads, and the reference's, start with all callers there

        def call(number):
            return [_is_right(decoder, work[number]) for _ in range(ROUNDS)]

        assert at_once(call, CALLERS) == [[True] * ROUNDS] * CALLERS


def test_decoders_side_by_side(work, at_once):
    def call(number):
        right = []
        for _ in range(ROUNDS // 2):
            with NativeBatchDecoder(1 + number % 3) as decoder:
                right += [_is_right(decoder, work[number]) for _ in range(2)]
        return right

    assert at_once(call, CALLERS) == [[True] * ROUNDS] * CALLERS


def test_a_decoder_closed_by_another_thread_gives_a_batch_or_says_so(work, at_once):
    for _ in range(ROUNDS):
        decoder = NativeBatchDecoder(2)

        def call(number, decoder=decoder):
            if number == 0:
                _is_right(decoder, work[0])
                decoder.close()
                return True
            right = True
            with contextlib.suppress(OptionError):  # "this decoder is closed"
                while right:
                    right = _is_right(decoder, work[number])
            return right

        assert at_once(call, 4) == [True] * 4


def test_a_batch_behind_the_close_leaves_no_threads(work):
    """As where one thread closes between another one's look and its call."""
    encoded, geometry, expected = work[0]
    before, decoder = _tasks(), NativeBatchDecoder(3)
    decoder.close()
    decoder._run(encoded, geometry, np.zeros_like(expected), None)
    until = time.monotonic() + 20  # a thread that was joined may stay in /proc for a moment
    while _tasks() - before and time.monotonic() < until:
        time.sleep(0.01)
    assert _tasks() <= before


def _tasks():
    return {task.name for task in Path("/proc/self/task").iterdir()}


def test_functions_of_the_core(kit, at_once):
    photos = [kit.noisy_photo(*SIZE, seed) for seed in range(CALLERS)]
    blobs = [kit.jpeg_of(photo, "420") for photo in photos]

    def work_of(number):
        blob, pixels = blobs[number], np.zeros((SIZE[1], SIZE[0], 3), np.uint8)
        header = _native.read_header(np.frombuffer(blob, np.uint8))
        status = _native.decode_whole(np.frombuffer(blob, np.uint8), pixels)
        return header, status, pixels.tobytes(), transcode(blob, restart_rows=1), channel_sums(photos[number])

    alone = [work_of(number) for number in range(CALLERS)]

    def call(number):
        return all(work_of((number + turn) % CALLERS) == alone[(number + turn) % CALLERS] for turn in range(4 * ROUNDS))

    assert at_once(call, CALLERS) == [True] * CALLERS


def test_levels_that_would_have_to_be_copied_are_refused(work):
    """The copy would be gone before the batch is decoded."""
    encoded, geometry, expected = work[0]
    levels = np.zeros((256, 3), np.float32).T
    with NativeBatchDecoder(1) as decoder, pytest.raises(ValueError, match="C-contiguous"):
        decoder.decode_batch(encoded, geometry, np.zeros(expected.shape, np.float32), levels=levels)
