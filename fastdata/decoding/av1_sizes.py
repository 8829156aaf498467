"""How large the pictures in a run of AV1 data may be, by its headers alone.

Source: AV1 Bitstream & Decoding Process Specification 1.0.0 with Errata 1, sections 5.3 (OBUs), 5.5 (sequence header)
and 5.9.2 (frame header, of which only what stands before frame_size_override_flag is read).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["largest_picture"]

_SEQUENCE, _FRAME_HEADER, _FRAME = 1, 3, 6  # obu_type
_KEY_FRAME, _SWITCH_FRAME = 0, 3  # frame_type
_SELECT = 2  # SELECT_SCREEN_CONTENT_TOOLS, SELECT_INTEGER_MV: each frame says it
_HAS_TIER = 7  # sequence levels above this one have a tier
_UVLC_LONGEST = 32


class _Bits:
    """Bits from the highest on; raises IndexError behind the end."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    def take(self, count: int) -> int:
        value = 0
        for _ in range(count):
            value = value << 1 | self._data[self._at >> 3] >> (7 - (self._at & 7)) & 1
            self._at += 1
        return value

    def pass_uvlc(self) -> None:
        zeros = 0
        while not self.take(1):
            zeros += 1
        self.take(zeros if zeros < _UVLC_LONGEST else 0)


@dataclass(slots=True)
class _Sequence:
    """What a sequence header says that a frame header is read by; widths of fields are in bits."""

    reduced: bool
    width_bits: int = 0
    height_bits: int = 0
    width: int = 0
    height: int = 0
    time_bits: int = 0  # of a temporal point info, which frames have where this is not 0
    id_bits: int = 0
    screen_tools: int = 0
    integer_vectors: int = _SELECT


def largest_picture(data: memoryview) -> tuple[int, int]:
    """Return width and height that no picture coded in ``data`` exceeds in pixels, (0, 0) without a sequence header.

    A frame may have a size of its own, which is then bounded by the bits that it has for it. Raises IndexError where a
    header ends too early.
    """
    largest, sequence, at = (0, 0), None, 0
    while at < len(data):
        kind, body, at = _obu(data, at)
        if kind == _SEQUENCE:
            sequence = _sequence(_Bits(body))
            size = sequence.width, sequence.height
        elif kind in {_FRAME_HEADER, _FRAME} and sequence is not None and _has_own_size(_Bits(body), sequence):
            size = 1 << sequence.width_bits, 1 << sequence.height_bits
        else:
            continue
        largest = max(largest, size, key=lambda sides: sides[0] * sides[1])
    return largest


def _obu(data: memoryview, at: int) -> tuple[int, memoryview, int]:
    """Return kind and body of the unit at ``at``, and where the next one begins."""
    head = data[at]
    at += 2 if head & 4 else 1  # an extension: temporal and spatial layer
    size = len(data) - at
    if head & 2:
        size = 0
        for number in range(8):  # leb128
            byte = data[at]
            at += 1
            size |= (byte & 127) << 7 * number
            if byte < 128:  # noqa: PLR2004
                break
    return head >> 3 & 15, data[at : at + size], at + size


def _sequence(bits: _Bits) -> _Sequence:
    bits.take(4)  # seq_profile, still_picture
    found = _Sequence(reduced=bool(bits.take(1)))
    if found.reduced:
        bits.take(5)
    else:
        _operating_points(bits, found)
    found.width_bits, found.height_bits = bits.take(4) + 1, bits.take(4) + 1
    found.width, found.height = bits.take(found.width_bits) + 1, bits.take(found.height_bits) + 1
    if found.reduced:
        return found
    if bits.take(1):  # frame_id_numbers_present_flag
        found.id_bits = bits.take(4) + bits.take(3) + 3
    bits.take(7)  # use_128x128_superblock to enable_dual_filter
    if bits.take(1):  # enable_order_hint
        bits.take(2)
    found.screen_tools = _SELECT if bits.take(1) else bits.take(1)
    if found.screen_tools and not bits.take(1):
        found.integer_vectors = bits.take(1)
    return found


def _operating_points(bits: _Bits, found: _Sequence) -> None:
    """Pass over timing and operating points; note how long a frame's time is, where frames have one."""
    delay_bits = 0
    if bits.take(1):  # timing_info_present_flag
        bits.take(64)
        equal = bits.take(1)
        if equal:
            bits.pass_uvlc()
        if bits.take(1):  # decoder_model_info_present_flag
            delay_bits = bits.take(5) + 1
            bits.take(37)
            time_bits = bits.take(5) + 1
            found.time_bits = 0 if equal else time_bits
    delayed = bits.take(1)  # initial_display_delay_present_flag
    for _ in range(bits.take(5) + 1):
        bits.take(12)
        if bits.take(5) > _HAS_TIER:
            bits.take(1)
        if delay_bits and bits.take(1):
            bits.take(2 * delay_bits + 1)
        if delayed and bits.take(1):
            bits.take(4)


def _has_own_size(bits: _Bits, sequence: _Sequence) -> bool:
    if sequence.reduced or bits.take(1):  # show_existing_frame
        return False
    kind, shown = bits.take(2), bits.take(1)
    bits.take(sequence.time_bits if shown else 1)  # temporal_point_info, or showable_frame
    if not (kind == _SWITCH_FRAME or (kind == _KEY_FRAME and shown)):
        bits.take(1)  # error_resilient_mode
    bits.take(1)  # disable_cdf_update
    tools = bits.take(1) if sequence.screen_tools == _SELECT else sequence.screen_tools
    if tools and sequence.integer_vectors == _SELECT:
        bits.take(1)
    bits.take(sequence.id_bits)
    return kind == _SWITCH_FRAME or bool(bits.take(1))
