"""Algorithm 1 over arrays: which losses of a batch are hits, and how often each sample was hit."""

from typing import Any

import numpy as np
import numpy.typing as npt

from prunedata.errors import LossError

__all__ = ["SampleCounts", "Tally", "batch_means", "find_hits", "saturating_add", "smallest_unsigned"]

CHUNK = 1 << 16
Ids = npt.NDArray[np.int64]
Losses = npt.NDArray[np.float64]
Sizes = npt.NDArray[np.intp]
Means = npt.NDArray[np.float64]
Counts = npt.NDArray[np.unsignedinteger[Any]]


def smallest_unsigned(largest: int) -> np.dtype[Any]:
    """The smallest unsigned dtype, up to uint32, that holds ``largest``; counts saturate at its maximum."""
    return np.dtype(np.uint8 if largest < 1 << 8 else np.uint16 if largest < 1 << 16 else np.uint32)


def batch_means(losses: Losses, sizes: Sizes, scratch: Losses | None = None) -> Means:
    """Mean loss of each batch, shape (batches,): float64, summed in order as a plain loop would.

    The order matters: a loss that ties with the mean must not become a hit because the block around it was cut
    elsewhere. numpy's own sum is pairwise along a row, and in order down a column.

    ``scratch``, any float64 memory, is used where it is large enough: new memory for every block would cost the
    system more than the sums cost us.
    """
    size = int(sizes[0])
    if len(sizes) > 1 and (sizes == size).all():
        # The padding keeps the rows of a power-of-two batch from falling into the same cache lines.
        width = len(sizes) * (size + 8)
        if scratch is None or scratch.size < width + losses.size:
            scratch = np.empty(width + losses.size)
        rows = scratch[:width].reshape(len(sizes), size + 8)[:, :size]
        columns = scratch[width : width + losses.size].reshape(size, len(sizes))
        np.copyto(rows, losses.reshape(len(sizes), size))
        np.copyto(columns, rows.T)
        return np.asarray(columns.sum(axis=0) / size)
    last = len(sizes) - 1
    if last > 1 and (sizes[:last] == size).all():
        head = batch_means(losses[: size * last], sizes[:last], scratch)
        return np.append(head, batch_means(losses[size * last :], sizes[last:]))
    sums = np.bincount(np.repeat(np.arange(len(sizes)), sizes), weights=losses, minlength=len(sizes))
    return sums / sizes


def find_hits(losses: Losses, sizes: Sizes, means: Means, tolerance: float = 0.0) -> npt.NDArray[np.bool_]:
    """Algorithm 1, line 5: True where a loss lies above its batch's mean by the tolerance.

    Parameters
    ----------
    losses : ndarray of float64, shape (visits,)
        Batch after batch.
    sizes : ndarray of int, shape (batches,)
        Samples in each batch; their sum is ``visits``.
    means : ndarray of float64, shape (batches,)
        From :func:`batch_means`.
    tolerance : float
        A hit is ``loss > mean + tolerance * abs(mean)``. For losses that are not negative this is the
        paper's ``mean * (1 + tolerance)``, which flips its meaning below zero.
    """
    limits = means + tolerance * np.abs(means) if tolerance else means
    size, last = int(sizes[0]), len(sizes) - 1
    if not (sizes[:last] == size).all():
        return np.asarray(losses > np.repeat(limits, sizes))
    # All batches but the last are of one size: as many rows.
    hits, cut = np.empty(losses.size, dtype=np.bool_), size * last
    np.greater(losses[:cut].reshape(last, size), limits[:last, np.newaxis], out=hits[:cut].reshape(last, size))
    np.greater(losses[cut:], limits[last], out=hits[cut:])
    return hits


class Tally:
    """How often each sample was observed and hit in the running epoch.

    One uint32 a sample, hits in its upper half and visits in its lower, so that a block costs one scatter.
    """

    LIMIT = (1 << 16) - 1

    def __init__(self, samples: int) -> None:
        self.packed = np.zeros(samples, dtype="<u4")
        self.observed = 0
        self._steps = np.empty(CHUNK, dtype=np.uint32)

    def add(self, ids: Ids, hits: npt.NDArray[np.bool_]) -> None:
        """Count one visit, and perhaps one hit, for each id; an id that repeats counts each time."""
        steps = self._steps[: ids.size] if ids.size <= CHUNK else np.empty(ids.size, dtype=np.uint32)
        np.multiply(hits, np.uint32(1 << 16), out=steps, dtype=np.uint32)
        np.add(steps, np.uint32(1), out=steps)
        np.add.at(self.packed, ids, steps)
        self.observed += ids.size

    @property
    def visits(self) -> npt.NDArray[np.uint16]:
        """Times each sample was observed, shape (samples,). A view."""
        return self.packed.view("<u2")[0::2]

    @property
    def hits(self) -> npt.NDArray[np.uint16]:
        """Times each sample was hit, shape (samples,). A view."""
        return self.packed.view("<u2")[1::2]

    def check(self) -> None:
        """Raise :class:`LossError` if a sample was observed more often than the tally can hold."""
        if self.observed > self.LIMIT and int(self.visits.sum(dtype=np.int64)) != self.observed:
            raise LossError(f"Expected a sample to be observed at most {self.LIMIT} times in an epoch. Got more.")

    def clear(self) -> None:
        """Begin an epoch."""
        self.packed.fill(0)
        self.observed = 0


def saturating_add(total: npt.NDArray[np.unsignedinteger[Any]], more: npt.NDArray[np.uint16]) -> None:
    """Add ``more`` to ``total`` in place, both of shape (samples,), stopping at the largest value of its dtype."""
    largest = total.dtype.type(np.iinfo(total.dtype).max)
    step = CHUNK // 2  # small enough that what is between costs no new memory of the system
    for first in range(0, total.size, step):
        part = total[first : first + step]
        part += np.minimum(more[first : first + step], largest - part).astype(total.dtype)


class SampleCounts:
    """What a run knows of each sample: three arrays of shape (samples,), none wider than it must be.

    Parameters
    ----------
    samples : int
    longest_window, epochs : int
        The most that a count, and the most that a total, can reach with one visit an epoch.
    """

    def __init__(self, samples: int, longest_window: int, epochs: int) -> None:
        self.counts = np.zeros(samples, smallest_unsigned(min(longest_window, epochs)))
        """DroppingCount: hits in the current window."""
        self.hits, self.visits = (np.zeros(samples, smallest_unsigned(epochs)) for _ in range(2))
        """Hits, and times observed, in the whole run."""

    def counts_with(self, tally: Tally, *, reset: bool) -> Counts:
        """The counts after the epoch of ``tally`` (Algorithm 1, lines 1-3 and 6). A copy.

        ``reset`` says that a window begins with this epoch. The counts before it are emptied no earlier than
        here, so that what was selected by them can be selected again when the epoch is resumed.
        """
        counts = np.zeros_like(self.counts) if reset else self.counts.copy()
        saturating_add(counts, tally.hits)
        return counts

    def add(self, tally: Tally, *, reset: bool) -> None:
        """Take over a finished epoch."""
        self.counts = self.counts_with(tally, reset=reset)
        saturating_add(self.hits, tally.hits)
        saturating_add(self.visits, tally.visits)

    def widen(self, longest_window: int) -> None:
        """Make room for a longer window."""
        self.counts = self.counts.astype(np.promote_types(self.counts.dtype, smallest_unsigned(longest_window)))
