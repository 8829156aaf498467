"""What ``FastLoader(sampling=)`` takes: five frozen values, checked when they are made."""

from __future__ import annotations

import math
import numbers
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fastdata.errors import OptionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Balanced", "Buckets", "Mixture", "Sampling", "Weighted", "Windowed"]


@dataclass(frozen=True, slots=True)
class Balanced:
    """Every class equally often, whatever its size; needs a set with whole numbers as labels.

    num_samples: of an epoch over all ranks, by default as many as the set has. Without replacement the classes come
    equally often to within one sample, at any point of the epoch nearly so, and a class begins anew, in another order,
    when all its samples have come. With replacement class and sample are drawn at each position by themselves.
    """

    replacement: bool = False
    num_samples: int | None = None

    def __post_init__(self) -> None:
        """Check the number; raise OptionError."""
        _check_count(self.num_samples, "Balanced: num_samples")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Weighted:
    """Sample i is drawn in proportion to weights[i], of any scale; one finite number of 0 or more for each sample.

    num_samples: of an epoch over all ranks; by default as many as the set has, and without replacement as many as have
    a weight above 0. With replacement, as torch's WeightedRandomSampler, each position is drawn by itself. Without,
    each sample comes at most once, those of large weights sooner: the first is drawn in proportion to the weights, the
    second in proportion to those that are left, and so on.
    """

    weights: Any
    replacement: bool = True
    num_samples: int | None = None

    def __post_init__(self) -> None:
        """Copy the weights as float64 (n,), read-only; raise OptionError where they are none."""
        weights = _numbers(self.weights, "Weighted: weights")
        object.__setattr__(self, "weights", weights)
        _check_count(self.num_samples, "Weighted: num_samples")
        if not self.replacement and (self.num_samples or 0) > np.count_nonzero(weights):
            msg = (
                f"Weighted: num_samples={self.num_samples} without replacement, but only {np.count_nonzero(weights)} "
                "samples have a weight above 0"
            )
            raise OptionError(msg)

    def __repr__(self) -> str:
        """Return the options, and the weights by their number and check sum."""
        sum_ = zlib.crc32(self.weights.tobytes())
        return (
            f"Weighted({len(self.weights)} weights, CRC-32 {sum_:08x}, replacement={self.replacement}, "
            f"num_samples={self.num_samples})"
        )


@dataclass(frozen=True, slots=True)
class Windowed:
    """A shuffle for media that want to be read in sequence: random inside a window that goes through the pack.

    samples, or megabytes (10**6 bytes of encoded images; packs know them): the size of the window, one of the two. A
    window is put together from ``runs`` contiguous stretches of the pack, each elsewhere; its samples come in random
    order, and every sample once (the two levels of CorgiPile: Xu et al., SIGMOD 2022). With runs=1 the pack is read
    once from its beginning to its end. More runs mix better and seek that often per window.
    """

    samples: int | None = None
    megabytes: float | None = None
    runs: int = 8

    def __post_init__(self) -> None:
        """Check the numbers; raise OptionError."""
        if (self.samples is None) == (self.megabytes is None):
            msg = "Windowed: give the window in samples= or in megabytes=, one of the two"
            raise OptionError(msg)
        _check_count(self.samples, "Windowed: samples")
        _check_count(self.runs, "Windowed: runs")
        if self.megabytes is not None and not (math.isfinite(self.megabytes) and self.megabytes > 0):
            msg = f"Windowed: megabytes={self.megabytes!r}: expected a number above 0"
            raise OptionError(msg)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Buckets:
    """Batches of one shape each: every picture goes to the size whose aspect is nearest to its own.

    sizes: (height, width) pairs, as torchvision has them. A batch holds samples of one bucket; the last sized step of
    the transform takes its size (README, "Sampling"), and on all ranks the batches of a step are of one bucket. The
    rest of a bucket is a shorter batch (none with drop_last=True); what ranks cannot share of it, ``uneven`` decides.
    of: the number of each sample's size, for a data set that does not know how large its pictures are. shuffle: False
    gives the buckets one behind the other, in the order of the set.
    """

    sizes: Any
    shuffle: bool = True
    of: Any = None

    def __post_init__(self) -> None:
        """Keep sizes as a tuple of pairs and ``of`` as int64 (n,), read-only; raise OptionError where they are none."""
        try:
            sizes = tuple((int(height), int(width)) for height, width in self.sizes)
        except (TypeError, ValueError):
            sizes = ()
        if not sizes or min(min(size) for size in sizes) < 1 or len(set(sizes)) < len(sizes):
            msg = f"Buckets: sizes={self.sizes!r}: expected different (height, width) pairs, in pixels, one at least"
            raise OptionError(msg)
        object.__setattr__(self, "sizes", sizes)
        if self.of is not None:
            of = np.asarray(self.of)
            if of.ndim != 1 or of.dtype.kind not in "iu" or (len(of) and not 0 <= of.min() <= of.max() < len(sizes)):
                msg = f"Buckets: of= is the number of each sample's size, each 0 to {len(sizes) - 1}"
                raise OptionError(msg)
            of = of.astype(np.int64)
            of.setflags(write=False)
            object.__setattr__(self, "of", of)

    def __repr__(self) -> str:
        """Return the options."""
        of = "" if self.of is None else f", of={len(self.of)} numbers, CRC-32 {zlib.crc32(self.of.tobytes()):08x}"
        return f"Buckets({list(self.sizes)}, shuffle={self.shuffle}{of})"


@dataclass(frozen=True, slots=True)
class Mixture:
    """The parts of a ConcatDataset mixed by weight: at any point of the epoch each has had about its share.

    weights: one number above 0 for each part, of any scale. Each part is shuffled by itself and gives all its samples
    before it begins anew, in another order. until: "first" ends the epoch when the part that runs out first has given
    each sample once (no sample comes twice), "last" when every part has given each sample once at least. num_samples:
    the epoch's samples over all ranks, in place of both.
    """

    weights: tuple[float, ...]
    until: Literal["first", "last"] = "first"
    num_samples: int | None = None

    def __post_init__(self) -> None:
        """Keep the weights as a tuple; raise OptionError for what is none."""
        weights = tuple(_numbers(self.weights, "Mixture: weights").tolist())
        if min(weights) <= 0:
            msg = f"Mixture: weights={weights!r}: each is above 0 (leave a part out of the ConcatDataset instead)"
            raise OptionError(msg)
        object.__setattr__(self, "weights", weights)
        if self.until not in {"first", "last"}:
            msg = f"Mixture: until={self.until!r}: expected 'first' or 'last'"
            raise OptionError(msg)
        _check_count(self.num_samples, "Mixture: num_samples")


Sampling = Balanced | Weighted | Windowed | Buckets | Mixture


def _numbers(values: object, what: str) -> NDArray[np.float64]:
    """Return a read-only copy, float64 (n,); raise OptionError unless all are finite, 0 or more, and one is above 0."""
    try:
        array = np.asarray(values).astype(np.float64)
    except (TypeError, ValueError) as error:
        msg = f"{what}: expected a sequence of numbers ({error})"
        raise OptionError(msg) from error
    if array.ndim != 1 or not len(array):
        msg = f"{what}: expected a flat sequence of numbers, one at least, and got the shape {array.shape}"
        raise OptionError(msg)
    bad = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
    if len(bad):
        msg = f"{what}: number {bad[0]} is {array[bad[0]]}; each must be finite and 0 or more"
        raise OptionError(msg)
    with np.errstate(over="ignore"):
        total = array.sum()
    if not (0 < total < math.inf):
        msg = f"{what}: their sum is {total}; it must be finite and above 0"
        raise OptionError(msg)
    array.setflags(write=False)
    return array


def _check_count(value: object, what: str) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        msg = f"{what}={value!r}: expected a whole number of 1 or more"
        raise OptionError(msg)
