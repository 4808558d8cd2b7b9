"""A buffer that collects losses until there are enough to process them together.

To add a batch takes two copies into preallocated memory. The contents are taken out as :class:`Batches`: checked, and
with the means of the batches.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from prunedata.counting.batches import NO_NUMBER, NOTHING, Batches, filled, plain_ids, plain_losses
from prunedata.counting.counts import batch_means
from prunedata.errors import LossError
from prunedata.types import Guesses, Ids, Means, Recorded, Sizes

CAPACITY = 1 << 16
"""Losses in a buffer: enough to spread the cost of a call, few enough to stay in a processor's cache."""


class Taken(NamedTuple):
    """The contents of a buffer: the batches that can be recorded, if any, and the error message for others, or none.

    The arrays are valid until the next batch is put in.
    """

    good: Batches | None
    complaint: str


class LossBuffer:
    """A buffer of losses that wait to be processed. Ids must lie in ``0 <= id < samples``."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.batches = 0
        """Batches taken out in this epoch."""
        self.passes_nan: Callable[[], object] | None = None
        """If set, a loss that is no number counts as the mean of its batch, and logits with a NaN as none.

        It is called for such losses.
        """
        self._ids = np.empty(CAPACITY, dtype=np.int64)
        self._narrow = np.empty(CAPACITY, dtype=np.float32)
        self._wide = np.empty(CAPACITY, dtype=np.float64)
        self._ends = np.zeros(CAPACITY + 1, dtype=np.int64)
        self._ids_view, self._ends_view = self._ids.data, self._ends.data
        self._guesses: Guesses | None = None
        """The guesses of the visits, once some came with logits."""
        self._use(self._narrow)
        self.clear()

    def clear(self) -> None:
        """Drop all losses, as an epoch begins or ends, and let :meth:`add` refuse the next batch.

        So :meth:`put` checks the first batch of an epoch at once: most errors in loops show there.
        """
        self._empty()
        self.batches = self._room = 0

    def _empty(self) -> None:
        """Fill from the front again. Batch number n is from ``ends[n]`` to ``ends[n + 1]``."""
        self._fill = 0  # where the next batch begins
        self._added = self._taken = 0  # batches that were put in, and taken out
        if self._guesses is not None:
            self._guesses.fill(NOTHING)

    def add(self, ids: Any, losses: Any) -> bool:
        """Add one batch, if it is plain arrays and there is room; otherwise return False: then call :meth:`put`.

        ``ids`` of int64 and ``losses`` of float, each of shape (n,).
        """
        # This runs for every batch of the run. A memoryview copies in a third of the time of an array, and raises for
        # another dtype, shape or length; put() converts such a batch or says what is wrong with it. The line before
        # `return True` adds the batch. It calls nothing, so no signal handler runs in its middle, and one that calls
        # take() before that line sees the buffer without this batch.
        fill = self._fill
        try:
            end = fill + len(ids)
            if fill < end <= self._room:
                self._ids_view[fill:end] = ids
                self._losses_view[fill:end] = losses
                self._added, self._fill, self._ends_view[self._added] = self._added + 1, end, end
                return True
        except (TypeError, ValueError, BufferError, NotImplementedError):
            pass
        return False

    def put(self, ids: Any, losses: Any, sizes: Any = None, guesses: Any = None) -> Iterator[Taken]:
        """Add what :meth:`add` refused, and yield what is to be recorded; record each before taking the next.

        Yields the contents of the buffer if there is no room, and batches that cannot go into it, as they are several,
        too large, or bad. Raises :class:`LossError` if the arrays are no batch. ``sizes``, of shape (batches,), are the
        samples in each of several batches; ``guesses`` of shape (n,) are those of
        :func:`prunedata.counting.guess.two_likeliest`.
        """
        arrays = sizes is None and isinstance(ids, np.ndarray) and isinstance(losses, np.ndarray)
        ids = plain_ids(ids)
        losses = plain_losses(losses, ids.size)
        if ids.shape != losses.shape:
            raise LossError(
                f"Expected one loss for each id. Got {ids.size} ids and {losses.size} losses: if a sample has "
                "several, as of tokens, pixels or labels, pass their mean."
            )
        if guesses is not None and np.shape(guesses) != ids.shape:
            raise LossError(
                f"Expected logits for each of {ids.size} ids. Got those of {np.size(guesses)}: pass a row for each."
            )
        if not ids.size:
            return
        several = np.array([ids.size]) if sizes is None else plain_ids(sizes)
        if sizes is not None and ((several < 1).any() or int(several.sum()) != ids.size):
            raise LossError(f"Expected sizes of batches, from 1, that add up to {ids.size} losses. Got {sizes}.")
        first = self._room == 0
        one = sizes is None and ids.size <= CAPACITY
        waits = one and ((arrays and not first) or self._is_good(ids, losses, guesses))
        # The first batch of an epoch decides on float32 or float64; float64 losses switch the buffer to float64.
        narrow = losses.dtype == np.float32 and (first or self._losses is self._narrow)
        array = self._narrow if narrow else self._wide
        if not waits or self._losses is not array or self._fill + ids.size > CAPACITY:
            taken = self.take()
            if taken is not None:
                yield taken
            self._empty()
        self._use(array)
        self._room = CAPACITY
        if not waits:
            yield self._checked(ids, losses, several, guesses)
            return
        fill, end = self._fill, self._fill + ids.size
        if guesses is not None:
            if self._guesses is None:
                self._guesses = np.full(CAPACITY, NOTHING, dtype=np.int32)
            self._guesses[fill:end] = guesses
        self._ids[fill:end], self._losses[fill:end] = ids, losses
        self._added, self._fill, self._ends_view[self._added] = self._added + 1, end, end

    def _use(self, losses: Recorded) -> None:
        self._losses, self._losses_view = losses, losses.data

    def take(self) -> Taken | None:
        """Take out the contents; None if the buffer is empty.

        Batches with ids out of range, or with losses that are not finite, are left out, and the complaint names them.
        """
        if self._taken == self._added:
            return None
        ends = self._ends[self._taken : self._added + 1]
        self._taken = self._added  # and nothing else: this may run in a signal handler, in the middle of add()
        first, last = int(ends[0]), int(ends[-1])
        if first == last:
            return None
        guesses = None if self._guesses is None else self._guesses[first:last]
        return self._checked(self._ids[first:last], self._losses[first:last], ends[1:] - ends[:-1], guesses)

    def _checked(self, ids: Ids, losses: Recorded, sizes: Sizes, guesses: Any) -> Taken:
        first, self.batches = self.batches, self.batches + len(sizes)
        means = self._means(losses, sizes)
        if self.passes_nan is not None:
            guesses = None if guesses is None else np.where(guesses == NO_NUMBER, NOTHING, guesses)
            if not np.isfinite(means).all():
                self.passes_nan()
                losses = filled(losses, sizes)
                means = self._means(losses, sizes)
        batches = Batches(ids, losses, sizes, means, guesses)
        bad = batches.bad(self.samples)
        if not bad.any():
            return Taken(batches, "")
        good = None if bad.all() else batches.of(np.repeat(~bad, sizes))
        return Taken(good, batches.complaint(first, self.samples))

    def _means(self, losses: Recorded, sizes: Sizes) -> Means:
        # A ufunc casts part by part, so that a batch's sum would depend on where the parts end. So cast all at once,
        # into memory that is reused: new memory for every buffer would take longer than the sums.
        if losses.base is self._wide:
            wide = np.asarray(losses, dtype=np.float64)  # itself
        else:
            wide = (self._wide if losses.size <= CAPACITY else np.empty(losses.size))[: losses.size]
            np.copyto(wide, losses)
        with np.errstate(invalid="ignore", over="ignore"):
            return batch_means(wide, sizes)

    def _is_good(self, ids: Ids, losses: Recorded, guesses: Any) -> bool:
        with np.errstate(invalid="ignore", over="ignore"):
            total = losses.sum(dtype=np.float64, keepdims=True)
        return not Batches(ids, losses, np.array([ids.size]), total, guesses).bad(self.samples).any()
