"""Where a JPEG's restart markers stand, so that a decoder can pass over what lies outside a crop.

Between two markers lies an interval of blocks (MCUs: 16 x 16 pixels with 4:2:0, 8 x 8 with 4:4:4 and grey). With one
row of blocks in an interval, rows can be passed over; with a part of a row that divides it, columns, too.
"""

from __future__ import annotations

__all__ = ["AUTO_BLOCKS", "blocks_near", "columns_of"]

#: For crops of 128 to 512 pixels of photographs of 3 to 10 MP, 4 to 16 blocks are about equally fast (measured); fewer
#: cost bytes and time for their markers, more cost time for what lies beside the crop.
AUTO_BLOCKS = 8


def columns_of(width: int, block_width: int) -> int:
    """Return how many blocks a row of ``width`` pixels has."""
    return -(-width // block_width)


def blocks_near(columns: int, wanted: int) -> int:
    """Return the divisor of ``columns`` that is nearest to ``wanted`` in ratio, the larger one of two."""
    divisors = [blocks for blocks in range(columns, 0, -1) if columns % blocks == 0]
    return min(divisors, key=lambda blocks: max(blocks / wanted, wanted / blocks))
