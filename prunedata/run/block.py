"""Losses wait in a block until there are enough of them to be worked on at once.

They come in batch by batch, and recording a batch is two copies into a preallocated block. A block that is full is
checked, its batches' means are taken, and it is handed on.
"""

from collections.abc import Callable
from threading import get_ident
from typing import Any

import numpy as np
import numpy.typing as npt

from prunedata.errors import LossError
from prunedata.run.counts import batch_means
from prunedata.run.whole import Whole
from prunedata.types import Ids, Means, Recorded, Sizes

__all__ = ["Block", "plain_losses"]

CAPACITY = 1 << 16
"""Losses a block holds: enough to spread the cost of a call, few enough to stay in a cache."""


class Block:
    """Losses waiting to be worked on.

    Parameters
    ----------
    samples : int
        Ids must lie in ``0 <= id < samples``.
    work : callable
        Called as ``work(ids, losses, sizes, means)`` with checked arrays, valid during the call only. The losses are
        of the dtype in which they came.
    refuse : callable
        Called, to raise, when a batch comes while the block is closed.
    whole : context manager, optional
        What is within must happen whole: taking batches out and working on them.
    """

    def __init__(
        self,
        samples: int,
        work: Callable[[Ids, Recorded, Sizes, Means], None],
        refuse: Callable[[], None],
        whole: Whole | None = None,
    ) -> None:
        self.samples = samples
        self.batches = 0
        """Batches worked on in this epoch."""
        self.thread: int | None = None
        """The thread that fills the block, as ``threading.get_ident``."""
        self._work, self._refuse = work, refuse
        self._whole = Whole() if whole is None else whole
        self._ids = np.empty(CAPACITY, dtype=np.int64)
        self._narrow = np.empty(CAPACITY, dtype=np.float32)
        self._wide = np.empty(CAPACITY, dtype=np.float64)
        self._ends = np.zeros(CAPACITY + 1, dtype=np.int64)
        self._ids_view, self._ends_view = self._ids.data, self._ends.data
        self._use(self._narrow)
        self.close()

    def open(self) -> None:
        """Begin an epoch: forget what waits, and check the next batch at once, as loops err from the start."""
        self._empty()
        self.batches = self._room = 0
        self._is_open = True

    def close(self) -> None:
        """Forget what waits, and refuse batches from now on."""
        self._empty()
        self.batches = self._room = 0
        self._is_open = False

    def _empty(self) -> None:
        """Fill from the front again. Batch number n lies from ``ends[n]`` to ``ends[n + 1]``."""
        self._fill = 0  # where the next batch begins
        self._added = self._worked_on = 0  # batches in the block

    def add(self, ids: Any, losses: Any) -> None:
        """Record one batch: ``ids`` of an integer and ``losses`` of a floating dtype, both of shape (n,)."""
        # This runs once a batch for the whole run. A memoryview copies in a third of the time of an array, and by
        # itself rejects what is not of its own dtype, shape and length; that falls through to the slow path, which
        # converts it or says what is wrong with it. The line before `return` puts the batch there, and as it calls
        # nothing, no signal comes in its middle. A handler that flushes before that line changes nothing it reads.
        fill = self._fill
        try:
            end = fill + len(ids)
            if fill < end <= self._room:
                self._ids_view[fill:end] = ids
                self._losses_view[fill:end] = losses
                self._added, self._fill, self._ends_view[self._added] = self._added + 1, end, end
                return
        except (TypeError, ValueError, BufferError, NotImplementedError):
            pass
        self._add_slowly(ids, losses)

    def _add_slowly(self, ids: Any, losses: Any) -> None:
        if not self._is_open:
            self._refuse()
        arrays = isinstance(ids, np.ndarray) and isinstance(losses, np.ndarray)
        ids, losses = _checked_ids(ids), plain_losses(losses)
        if ids.shape != losses.shape:
            raise LossError(f"Expected one loss for each id. Got {ids.size} ids and {losses.size} losses.")
        if not ids.size:
            return
        first = self._room == 0
        alone = ids.size > CAPACITY or not ((arrays and not first) or self._is_good(ids, losses))
        # The first batch of an epoch says how wide the losses are; should wider ones come, so is the block from then.
        narrow = losses.dtype == np.float32 and (first or self._losses is self._narrow)
        block = self._narrow if narrow else self._wide
        self.thread = get_ident()
        with self._whole:
            full = alone or self._fill + ids.size > CAPACITY or block is not self._losses
            try:
                if full:
                    self.flush()
            finally:  # a bad batch among those that waited does not take this one with it
                if full:
                    self._empty()
                self._use(block)
                if alone:
                    self._consume(ids, losses, np.array([ids.size]))
                else:
                    fill = self._fill
                    end = fill + ids.size
                    self._ids[fill:end], self._losses[fill:end] = ids, losses
                    self._added, self._fill, self._ends_view[self._added] = self._added + 1, end, end
                self._room = CAPACITY

    def _use(self, losses: Recorded) -> None:
        self._losses, self._losses_view = losses, losses.data

    def flush(self) -> None:
        """Work on everything that waits.

        Raises
        ------
        LossError
            If batches have ids out of range or losses that are not finite. It names these batches and samples;
            they are left out and all others are recorded.
        """
        if self._worked_on == self._added:
            return
        with self._whole:
            ends = self._ends[self._worked_on : self._added + 1]
            self._worked_on = self._added  # and nothing else: a signal's handler may have come in the middle of add()
            first, last = int(ends[0]), int(ends[-1])
            if first < last:
                sizes = ends[1:] - ends[:-1]  # np.diff takes longer
                self._consume(self._ids[first:last], self._losses[first:last], sizes)

    def _consume(self, ids: Ids, losses: Recorded, sizes: Sizes) -> None:
        first, self.batches = self.batches, self.batches + len(sizes)
        means = self._means(losses, sizes)
        bad = self._bad(ids, sizes, means)
        if not bad.any():
            self._work(ids, losses, sizes, means)
            return
        good = np.repeat(~bad, sizes)
        if good.any():
            self._work(ids[good], losses[good], sizes[~bad], means[~bad])
        raise LossError(self._complaint(first, ids, losses, sizes, means))

    def _means(self, losses: Recorded, sizes: Sizes) -> Means:
        # A ufunc that casts does so part by part, and a batch's sum would depend on where it is cut: so all at once,
        # into memory that is kept. New memory for every block would cost the system more than the sums cost us.
        if losses.base is self._wide:
            wide = np.asarray(losses, dtype=np.float64)  # itself
        else:
            wide = (self._wide if losses.size <= CAPACITY else np.empty(losses.size))[: losses.size]
            np.copyto(wide, losses)
        with np.errstate(invalid="ignore", over="ignore"):
            return batch_means(wide, sizes)

    def _is_good(self, ids: Ids, losses: Recorded) -> bool:
        with np.errstate(invalid="ignore", over="ignore"):
            total = losses.sum(dtype=np.float64, keepdims=True)
        return not self._bad(ids, np.array([ids.size]), total).any()

    def _bad(self, ids: Ids, sizes: Sizes, means: Means) -> npt.NDArray[np.bool_]:
        """Which batches cannot be recorded, shape (batches,). A mean is finite exactly if all losses are."""
        bad = ~np.isfinite(means)
        # One pass finds ids that are too large and, as huge unsigned numbers, those that are negative.
        if int(ids.view(np.uint64).max()) >= self.samples:
            bad |= np.logical_or.reduceat(self._unknown(ids), np.cumsum(sizes) - sizes)
        return bad

    def _unknown(self, ids: Ids) -> npt.NDArray[np.bool_]:
        return (ids < 0) | (ids >= self.samples)

    def _complaint(self, first: int, ids: Ids, losses: Recorded, sizes: Sizes, means: Means) -> str:
        batch = np.repeat(np.arange(first, first + len(sizes)), sizes)
        unknown, wild = self._unknown(ids), ~np.isfinite(losses)
        # Losses may be finite, but their sum not.
        overflown = np.repeat(~np.isfinite(means) & (np.add.reduceat(wild, np.cumsum(sizes) - sizes) == 0), sizes)
        told = []
        if unknown.any():
            told.append(
                f"Expected ids from 0 to {self.samples - 1}. "
                f"Got {_few(ids[unknown])} in {_batches(batch[unknown])} of this epoch."
            )
        if wild.any():
            told.append(
                f"Expected finite losses. Got {_few(losses[wild])} for the samples {_few(ids[wild])} in "
                f"{_batches(batch[wild])} of this epoch. A mean with such a loss finds no hits, "
                "so leave the batch out, and say so by pruner.excuse(n), or lower the learning rate."
            )
        if overflown.any():
            told.append(
                f"Expected losses whose sum is finite. Got a sum too large for float64 in {_batches(batch[overflown])} "
                f"of this epoch, from losses as {_few(losses[overflown])}: leave the batch out, and say so by "
                "pruner.excuse(n)."
            )
        return " ".join(told)


def _batches(numbers: npt.NDArray[np.intp]) -> str:
    """Name batches by their numbers in the epoch, from 0."""
    which = np.unique(numbers)
    return f"batch {which[0]}" if which.size == 1 else f"batches {_few(which)}"


def _few(values: npt.NDArray[Any], most: int = 5) -> str:
    shown = ", ".join(str(value) for value in values[:most].tolist())
    return f"[{shown}, ... {values.size} in all]" if values.size > most else f"[{shown}]"


def _checked_ids(ids: Any) -> Ids:
    array = np.asarray(ids)
    if array.size == 0 and array.ndim == 1:
        return np.empty(0, dtype=np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise LossError(f"Expected ids of shape (n,) and an integer dtype. Got shape {array.shape}, {array.dtype}.")
    return array.astype(np.int64, copy=False)


def plain_losses(losses: Any) -> Recorded:
    """Return losses of shape (n,) as float32 if they are that, and all else as float64, or raise LossError."""
    if isinstance(losses, np.ma.MaskedArray):
        raise LossError("Expected a loss for each id. Got a masked array: leave the masked samples and their ids out.")
    if hasattr(losses, "detach"):  # a Tensor, from a loop that has no adapter
        losses = losses.detach().cpu()
        losses = losses.double() if losses.is_floating_point() else losses.numpy()
    array = np.asarray(losses)
    if array.dtype.name == "bfloat16":  # TensorFlow's and JAX's, which numpy doesn't know as a number
        array = array.astype(np.float32)
    if array.ndim != 1 or array.dtype.kind not in "fiu":
        raise LossError(
            f"Expected losses of shape (n,) and a floating dtype, one for each sample (reduction='none'). "
            f"Got shape {array.shape}, {array.dtype}."
        )
    return array if array.dtype == np.float32 else array.astype(np.float64, copy=False)
