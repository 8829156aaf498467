"""Which samples an epoch is made of: what ``FastLoader(sampling=)`` takes, and the pure orders behind it."""

from fastdata.sampling.values import Balanced, Buckets, Mixture, Sampling, Weighted, Windowed

__all__ = ["Balanced", "Buckets", "Mixture", "Sampling", "Weighted", "Windowed"]
