"""Philox4x32-10 gives the numbers that its authors published."""

from __future__ import annotations

import numpy as np

from fastdata.philox import philox4x32, uniforms, words


def test_known_answers_of_random123():
    # kat_vectors of the Random123 distribution: counter, key, result
    vectors = [
        ([0] * 4, (0, 0), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, (0xFFFFFFFF,) * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            (0xA4093822, 0x299F31D0),
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ]
    for counter, key, result in vectors:
        block = philox4x32(np.array(counter, np.uint64)[:, None], key)
        assert block[:, 0].tolist() == result


def test_draws_depend_on_their_position_only():
    all_at_once = words(9, 4, np.arange(100), 7)
    for position in (0, 13, 99):
        assert (words(9, 4, np.array([position]), 7)[0] == all_at_once[position]).all()
    assert (words(9, 4, np.arange(100), 3) == all_at_once[:, :3]).all()


def test_streams_epochs_and_seeds_are_unrelated():
    base = uniforms(1, 0, np.arange(5000), 1)[:, 0]
    for other in (
        uniforms(2, 0, np.arange(5000), 1),
        uniforms(1, 1, np.arange(5000), 1),
        uniforms(1, 0, np.arange(5000), 1, 1),
    ):
        assert abs(np.corrcoef(base, other[:, 0])[0, 1]) < 0.06
    assert base.min() >= 0
    assert base.max() < 1
    assert abs(base.mean() - 0.5) < 0.02
