"""Algorithm 1 over arrays: which losses of a batch are hits, and how often each sample was hit."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prunedata.errors import LossError
from prunedata.types import Array, Counts, Ids, Losses, Means, Recorded, Sizes, smallest_unsigned

_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, np.newaxis], axis=1).astype("<u4")
_FOUR = np.ascontiguousarray(_BITS[:, 0::2] | _BITS[:, 1::2] << 16).view("V16").ravel()
"""The numbers of four samples in a tally, by a byte with two bits for each: whether it was observed, and hit."""
_OBSERVED = np.uint8(0b10101010)
"""The first bit of each of the four samples."""


def batch_means(losses: Losses, sizes: Sizes) -> Means:
    """Return the mean loss of each batch, shape (batches,), of float64 losses. It does not depend on the buffers."""
    return np.asarray(np.add.reduceat(losses, np.cumsum(sizes) - sizes) / sizes)


def find_hits(losses: Recorded, sizes: Sizes, means: Means, tolerance: float = 0.0) -> npt.NDArray[np.bool_]:
    """Return which losses are above their batch's mean by the tolerance (Algorithm 1, line 5).

    Where a loss is so near to the limit that rounding decides, the mean is that of a plain loop, which adds the losses
    in order, in float64. ``losses``, ``sizes`` and ``means`` are those of :class:`Batches`, the result has the shape
    (visits,).

    A hit is ``loss > mean + tolerance * abs(mean)``. For losses that are not negative this is the paper's
    ``mean * (1 + tolerance)``, which flips its meaning below zero.
    """
    with np.errstate(all="ignore"):
        limits = hit_limits(means, tolerance)
        # More than two orders of adding can differ by, which is twice (n - 1) * 2**-53 * (mean of the absolute losses).
        slack = (1 + tolerance) * 2.0**-50 * sizes * (np.abs(means) + 2 * max(0.0, -float(losses.min())))
        low, high = _rounded_down(limits - slack, losses.dtype), _rounded_down(limits + slack, losses.dtype)
    hits = _above(losses, sizes, high)
    # There is no float32 between most such limits. For float64 compare the hits as well.
    if (low == high).all() or (hits == _above(losses, sizes, low)).all():
        return hits
    batch = np.repeat(np.arange(len(sizes)), sizes)
    means = np.bincount(batch, weights=losses) / sizes
    return _above(losses, sizes, hit_limits(means, tolerance))


def hit_limits(means: Means, tolerance: float) -> Means:
    """Return the limit above which a loss is a hit, by the mean of its batch (Algorithm 1, line 5)."""
    return means + tolerance * np.abs(means)


def _rounded_down(limits: Means, dtype: np.dtype[Any]) -> npt.NDArray[np.floating[Any]]:
    """Return the largest values of the dtype that are not above the limits: exactly the same losses exceed them."""
    rounded = limits.astype(dtype)
    np.nextafter(rounded, dtype.type(-np.inf), out=rounded, where=rounded > limits)
    return rounded


def _above(losses: Recorded, sizes: Sizes, limits: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.bool_]:
    above = np.empty(losses.size, dtype=np.bool_)
    each_batch(np.greater, losses, sizes, limits, above)
    return above


def each_batch(operation: np.ufunc, losses: Recorded, sizes: Sizes, values: Array, out: Array) -> None:
    """Apply a ufunc to each loss and the value of its batch, shape (batches,); write to ``out``, shape (visits,)."""
    size, last = int(sizes[0]), len(sizes) - 1
    if not (sizes[:last] == size).all():
        operation(losses, np.repeat(values, sizes), out=out)
        return
    # All batches but the last have the same size: they are the rows of a matrix.
    cut = size * last
    operation(losses[:cut].reshape(last, size), values[:last, np.newaxis], out=out[:cut].reshape(last, size))
    operation(losses[cut:], values[last], out=out[cut:])


class Tally:
    """How often each sample was observed and hit in the open epoch.

    It is one uint32 a sample, with the hits in the upper half and the visits in the lower, so that a buffer is added by
    one scatter.
    """

    LIMIT = (1 << 16) - 1

    def __init__(self, samples: int) -> None:
        self.packed = np.zeros(samples, dtype="<u4")
        self.observed = 0
        self._steps = np.empty(0, dtype=np.uint32)

    def add(self, ids: Ids, hits: npt.NDArray[np.bool_]) -> None:
        """Add one visit, and one hit where ``hits`` is True, for each id; an id that repeats counts each time."""
        if ids.size > self._steps.size:  # it is reused: new memory for every buffer would take longer
            self._steps = np.empty(ids.size, dtype=np.uint32)
        steps = self._steps[: ids.size]
        np.multiply(hits, np.uint32(1 << 16), out=steps)
        np.bitwise_or(steps, np.uint32(1), out=steps)
        np.add.at(self.packed, ids, steps)
        self.observed += ids.size

    def hit(self, ids: Ids) -> None:
        """Add one hit for each of these ids, whose visits were added before."""
        self.packed[ids] += np.uint32(1 << 16)

    @property
    def visits(self) -> npt.NDArray[np.uint16]:
        """Times each sample was observed, shape (samples,). A view."""
        return self.packed.view("<u2")[0::2]

    @property
    def hits(self) -> npt.NDArray[np.uint16]:
        """Times each sample was hit, shape (samples,). A view."""
        return self.packed.view("<u2")[1::2]

    @property
    def repeats(self) -> bool:
        """Whether a sample was observed more than once."""
        return bool(int(np.bitwise_or.reduce(self.packed)) & self.LIMIT > 1)

    def copy(self) -> "Tally":
        """Return a copy of the tally."""
        other = Tally(self.packed.size)
        other.packed[:] = self.packed
        other.observed = self.observed
        return other

    def bits(self) -> npt.NDArray[np.uint8]:
        """Return two bits a sample, four samples in a byte: whether it was observed, and whether it was hit."""
        return np.packbits(self.packed.view("<u2") != 0)

    def set_bits(self, bits: npt.NDArray[np.uint8]) -> None:
        """Replace the tally by what :meth:`bits` returned: one visit, and at most one hit, for each observed sample."""
        fours, rest = divmod(self.packed.size, 4)
        # By a table, four samples at once. With "clip" numpy makes no copy to check the indices.
        _FOUR.take(bits[:fours], out=self.packed[: 4 * fours].view(_FOUR.dtype), mode="clip")
        self.packed[4 * fours :] = _FOUR[bits[fours : fours + 1]].view(self.packed.dtype)[:rest]
        self.observed = int(np.count_nonzero(np.unpackbits(bits & _OBSERVED).view(np.bool_)))

    def add_up(self, packed: npt.NDArray[np.uint32], observed: int) -> None:
        """Add the visits and hits of another tally, which has ``observed`` visits in all."""
        self.packed += packed
        self.observed += observed

    def check(self) -> None:
        """Raise :class:`LossError` if a sample was observed more often than the tally can hold."""
        if self.observed > self.LIMIT and int(self.visits.sum(dtype=np.int64)) != self.observed:
            raise LossError(f"Expected a sample to be observed at most {self.LIMIT} times in an epoch. Got more.")


class SampleCounts(NamedTuple):
    """The counts of each sample after the finished epochs of a run. Every change returns a new object.

    Each array has the shape (samples,). It is uint8 at first, and gets wider when it must.
    """

    counts: Counts  # DroppingCount: hits in the current window
    hits: Counts  # in the whole run
    visits: Counts  # times observed in the whole run

    @classmethod
    def empty(cls, samples: int) -> "SampleCounts":
        """Return counts without a visit."""
        return cls(*(np.zeros(samples, np.uint8) for _ in range(3)))

    def after(self, tally: Tally, *, reset: bool) -> "SampleCounts":
        """Return the counts after the epoch of ``tally`` (Algorithm 1, lines 1-3 and 6).

        ``reset`` if a window begins with this epoch. The counts of the window before are dropped no earlier than here,
        so that a resumed epoch can select by them again.
        """
        before = np.zeros_like(self.counts) if reset else self.counts
        return SampleCounts(_sum(before, tally.hits), _sum(self.hits, tally.hits), _sum(self.visits, tally.visits))


def _sum(before: Counts, more: npt.NDArray[np.uint16]) -> Counts:
    """Return the sum of both, shape (samples,), in the dtype of ``before``, or a wider one that it needs."""
    most = int(before.max()) + int(more.max())
    total = more.astype(np.promote_types(before.dtype, smallest_unsigned(most)))
    total += before
    return total
