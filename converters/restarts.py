"""Restart markers for the JPEGs of a pack, so that a loader can pass over what lies outside a crop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastdata.decoding.native_decoder import available, transcode
from fastdata.decoding.restart_markers import AUTO_BLOCKS, blocks_near, columns_of
from fastdata.errors import DecodeError, OptionError

if TYPE_CHECKING:
    from fastdata.converters.options import PackOptions
    from fastdata.decoding.header_fields import Header

__all__ = ["check_restarts", "pillow_options", "with_restarts"]

_MOST_INTERVAL = 0xFFFF  # 16 bits in the file


def check_restarts(options: PackOptions) -> None:
    """Raise OptionError where JPEGs are to be kept and given markers, and the core that does it was not built."""
    if options.restarts and options.codec == "keep" and not available():
        msg = (
            "restart markers for JPEGs that are kept as they are need the compiled core, which was not built "
            "(`fastdata decoders` has the line that builds it); or encode anew: codec='jpeg' (--codec jpeg)"
        )
        raise OptionError(msg)


def with_restarts(data: bytes, header: Header, options: PackOptions) -> tuple[bytes, str]:
    """Return the bytes of a picture that is kept: a JPEG with the markers asked for, to the same pixels; and "".

    A JPEG that cannot have them without a change (scans missing, tables that change between scans) stays as it is, and
    the reason is returned with it.
    """
    if not options.restarts or header.codec != "jpeg":
        return data, ""
    blocks = AUTO_BLOCKS if options.restart_blocks == "auto" else options.restart_blocks
    try:
        marked = transcode(
            data, restart_rows=options.restart_rows, restart_blocks=blocks, max_pixels=options.max_pixels
        )
    except DecodeError as error:
        return data, str(error) or type(error).__name__
    return marked, ""


def pillow_options(width: int, mode: str, options: PackOptions) -> dict[str, int]:
    """Return what Pillow's JPEG writer takes for the markers of a picture of ``width`` pixels; {} for none."""
    if not options.restarts:
        return {}
    columns = columns_of(width, 8 if mode == "L" or options.subsampling == "4:4:4" else 16)
    if options.restart_rows is not None:
        return {"restart_marker_blocks": columns * min(options.restart_rows, max(_MOST_INTERVAL // columns, 1))}
    blocks = AUTO_BLOCKS if options.restart_blocks in {"auto", None} else options.restart_blocks
    return {"restart_marker_blocks": blocks_near(columns, int(blocks or AUTO_BLOCKS))}
