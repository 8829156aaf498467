"""Labelled sample pictures, drawn by our own code: photograph-like in size and JPEG weight, no download."""

from __future__ import annotations

from fastdata.sample.folder import SampleReport, draw_samples

__all__ = ["SampleReport", "draw_samples"]
