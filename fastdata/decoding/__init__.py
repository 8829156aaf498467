"""Encoded bytes to pixels: headers, one adapter per library, one reference, one contract."""
