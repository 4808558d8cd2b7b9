"""Algorithm 1 over arrays: which losses of a batch are hits, and how often each sample was hit."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from prunedata.errors import LossError
from prunedata.types import Arrays, Counts, Ids, Losses, Means, Recorded, Sizes, smallest_unsigned

__all__ = ["SampleCounts", "Tally", "batch_means", "find_hits", "hit_limits", "saturating_add", "smallest_unsigned"]

CHUNK = 1 << 15
"""Counts added at once: few enough that what is between costs no new memory of the system."""
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, np.newaxis], axis=1).astype("<u4")
_FOUR = np.ascontiguousarray(_BITS[:, 0::2] | _BITS[:, 1::2] << 16).view("V16").ravel()
"""What a tally holds of four samples, by a byte with two bits of each: whether it was observed, and whether hit."""
_OBSERVED = np.uint8(0b10101010)
"""The first bit of each."""


def batch_means(losses: Losses, sizes: Sizes) -> Means:
    """Mean loss of each batch, shape (batches,): float64, of float64 losses; the same wherever a buffer was full."""
    return np.asarray(np.add.reduceat(losses, np.cumsum(sizes) - sizes) / sizes)


def find_hits(losses: Recorded, sizes: Sizes, means: Means, tolerance: float = 0.0) -> npt.NDArray[np.bool_]:
    """Algorithm 1, line 5: True where a loss lies above its batch's mean by the tolerance.

    Where a loss lies so near that rounding decides, the mean is that of a plain loop, which adds the losses in
    order, in float64.

    Parameters
    ----------
    losses : ndarray of float32 or float64, shape (visits,)
        Batch after batch.
    sizes : ndarray of int, shape (batches,)
        Samples in each batch; their sum is ``visits``.
    means : ndarray of float64, shape (batches,)
        From :func:`batch_means`.
    tolerance : float
        A hit is ``loss > mean + tolerance * abs(mean)``. For losses that are not negative this is the
        paper's ``mean * (1 + tolerance)``, which flips its meaning below zero.
    """
    with np.errstate(all="ignore"):
        limits = hit_limits(means, tolerance)
        # More than any two orders of adding can differ by: twice (n - 1) * 2**-53 * (mean of the absolute losses).
        slack = (1 + tolerance) * 2.0**-50 * sizes * (np.abs(means) + 2 * max(0.0, -float(losses.min())))
        low, high = _rounded_down(limits - slack, losses.dtype), _rounded_down(limits + slack, losses.dtype)
    hits = _above(losses, sizes, high)
    # No float32 lies between most such limits. For float64 it takes a second look.
    if (low == high).all() or (hits == _above(losses, sizes, low)).all():
        return hits
    batch = np.repeat(np.arange(len(sizes)), sizes)
    means = np.bincount(batch, weights=losses) / sizes
    return _above(losses, sizes, hit_limits(means, tolerance))


def hit_limits(means: Means, tolerance: float) -> Means:
    """What a loss must lie above to be a hit, by the mean of its batch (Algorithm 1, line 5)."""
    return means + tolerance * np.abs(means)


def _rounded_down(limits: Means, dtype: np.dtype[Any]) -> npt.NDArray[np.floating[Any]]:
    """The largest values of the dtype that are not above the limits: exactly the same losses lie above them."""
    rounded = limits.astype(dtype)
    np.nextafter(rounded, dtype.type(-np.inf), out=rounded, where=rounded > limits)
    return rounded


def _above(losses: Recorded, sizes: Sizes, limits: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.bool_]:
    size, last = int(sizes[0]), len(sizes) - 1
    if not (sizes[:last] == size).all():
        return np.asarray(losses > np.repeat(limits, sizes))
    # All batches but the last are of one size: as many rows.
    above, cut = np.empty(losses.size, dtype=np.bool_), size * last
    np.greater(losses[:cut].reshape(last, size), limits[:last, np.newaxis], out=above[:cut].reshape(last, size))
    np.greater(losses[cut:], limits[last], out=above[cut:])
    return above


class Tally:
    """How often each sample was observed and hit in the running epoch.

    One uint32 a sample, hits in its upper half and visits in its lower, so that a buffer costs one scatter.
    """

    LIMIT = (1 << 16) - 1

    def __init__(self, samples: int) -> None:
        self.packed = np.zeros(samples, dtype="<u4")
        self.observed = 0
        self._steps = np.empty(0, dtype=np.uint32)

    def add(self, ids: Ids, hits: npt.NDArray[np.bool_]) -> None:
        """Count one visit, and perhaps one hit, for each id; an id that repeats counts each time."""
        if ids.size > self._steps.size:  # it is kept: new memory for every buffer would cost the system more
            self._steps = np.empty(ids.size, dtype=np.uint32)
        steps = self._steps[: ids.size]
        np.multiply(hits, np.uint32(1 << 16), out=steps)
        np.bitwise_or(steps, np.uint32(1), out=steps)
        np.add.at(self.packed, ids, steps)
        self.observed += ids.size

    def hit(self, ids: Ids) -> None:
        """Count one hit for each of these ids, whose visits were counted before."""
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
        """Another tally with the same counts."""
        other = Tally(self.packed.size)
        other.packed[:] = self.packed
        other.observed = self.observed
        return other

    def bits(self) -> npt.NDArray[np.uint8]:
        """Two bits a sample, four samples in a byte: whether it was observed, and whether it was hit."""
        return np.packbits(self.packed.view("<u2") != 0)

    def take(self, bits: npt.NDArray[np.uint8]) -> None:
        """Hold what these bits say, and nothing else: each sample that was observed counts once."""
        fours, rest = divmod(self.packed.size, 4)
        # By a table, four samples at once. "clip": what numpy checks otherwise, it checks on a copy.
        _FOUR.take(bits[:fours], out=self.packed[: 4 * fours].view(_FOUR.dtype), mode="clip")
        self.packed[4 * fours :] = _FOUR[bits[fours : fours + 1]].view(self.packed.dtype)[:rest]
        self.observed = int(np.count_nonzero(np.unpackbits(bits & _OBSERVED).view(np.bool_)))

    def add_up(self, packed: npt.NDArray[np.uint32], observed: int) -> None:
        """Add the visits and hits of another tally, so many in all."""
        self.packed += packed
        self.observed += observed

    def check(self) -> None:
        """Raise :class:`LossError` if a sample was observed more often than the tally can hold."""
        if self.observed > self.LIMIT and int(self.visits.sum(dtype=np.int64)) != self.observed:
            raise LossError(f"Expected a sample to be observed at most {self.LIMIT} times in an epoch. Got more.")


def saturating_add(total: npt.NDArray[np.unsignedinteger[Any]], more: npt.NDArray[np.uint16]) -> None:
    """Add ``more`` to ``total`` in place, both of shape (samples,), stopping at the largest value of its dtype."""
    largest = total.dtype.type(np.iinfo(total.dtype).max)
    for first in range(0, total.size, CHUNK):
        part = total[first : first + CHUNK]
        part += np.minimum(more[first : first + CHUNK], largest - part).astype(total.dtype)


@dataclass(frozen=True, eq=False)
class SampleCounts:
    """What a run knows of each sample after its finished epochs. Every change gives a new one.

    Attributes
    ----------
    counts : ndarray of unsigned int, shape (samples,)
        DroppingCount: hits in the current window. Saturates.
    hits, visits : ndarray of unsigned int, shape (samples,)
        Hits, and times observed, in the whole run. They get wider where they must.
    """

    counts: Counts
    hits: Counts
    visits: Counts

    @classmethod
    def empty(cls, samples: int, longest_window: int, epochs: int) -> "SampleCounts":
        """No visit yet, in the smallest dtypes that hold one visit in each epoch."""
        count, total = smallest_unsigned(min(longest_window, epochs)), smallest_unsigned(epochs)
        return cls(np.zeros(samples, count), np.zeros(samples, total), np.zeros(samples, total))

    def after(self, tally: Tally, *, reset: bool) -> "SampleCounts":
        """What is known when the epoch of ``tally`` has finished (Algorithm 1, lines 1-3 and 6).

        ``reset`` says that a window begins with this epoch. The counts before it are emptied no earlier than
        here, so that what was selected by them can be selected again when the epoch is resumed.
        """
        counts = np.zeros_like(self.counts) if reset else self.counts.copy()
        saturating_add(counts, tally.hits)
        # A rate of hits would be wrong if one of the two saturated before the other.
        most = int(self.visits.max()) + int(tally.visits.max())
        kind = np.promote_types(self.visits.dtype, smallest_unsigned(most))
        hits, visits = tally.hits.astype(kind), tally.visits.astype(kind)
        hits += self.hits
        visits += self.visits
        return SampleCounts(counts, hits, visits)

    def widened(self, longest_window: int) -> "SampleCounts":
        """The same, with room in the counts for a longer window."""
        kind = np.promote_types(self.counts.dtype, smallest_unsigned(longest_window))
        return replace(self, counts=self.counts.astype(kind))

    def arrays(self) -> Arrays:
        """The three arrays by name, as a store keeps them."""
        return {"counts": self.counts, "hits": self.hits, "visits": self.visits}
