"""Batches of ids and losses: turned plain, and checked."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prunedata.counting.counts import batch_means, hit_limits
from prunedata.errors import LossError
from prunedata.types import Counts, Guesses, Ids, Means, Recorded, Sizes

__all__ = [
    "NOTHING",
    "NO_NUMBER",
    "Batches",
    "Taken",
    "bad_batches",
    "complaint",
    "plain_ids",
    "plain_losses",
    "rounds",
    "shape_hint",
]

NO_NUMBER, NOTHING = -1, -2
"""Among guesses: of a visit with a logit that is NaN, and of one without logits."""


class Batches(NamedTuple):
    """Checked batches, one after the other.

    Attributes
    ----------
    ids : ndarray of int64, shape (visits,)
    losses : ndarray of float32 or float64, shape (visits,)
        Of the dtype in which they came.
    sizes : ndarray of int, shape (batches,)
        Samples in each batch; their sum is ``visits``.
    means : ndarray of float64, shape (batches,)
        The mean loss of each batch.
    guesses : ndarray of int32, shape (visits,), or None
        What each visit says by its logits, see :func:`prunedata.counting.guess.two_likeliest`. None without logits.
    """

    ids: Ids
    losses: Recorded
    sizes: Sizes
    means: Means
    guesses: Guesses | None = None

    def hits(self, tolerance: float) -> npt.NDArray[np.bool_]:
        """Algorithm 1, line 5, shape (visits,), with the means as they are: see ``find_hits`` for rounding."""
        return np.asarray(self.losses > np.repeat(hit_limits(self.means, tolerance), self.sizes))

    def of(self, which: npt.NDArray[np.bool_]) -> "Batches":
        """Those of these visits, shape (visits,), with the means of what is left; without batches that are empty."""
        sizes = np.add.reduceat(which, np.cumsum(self.sizes) - self.sizes, dtype=np.int64)
        losses, sizes = self.losses[which], sizes[sizes > 0]
        means = batch_means(losses.astype(np.float64), sizes) if sizes.size else np.zeros(0)
        return Batches(self.ids[which], losses, sizes, means, None if self.guesses is None else self.guesses[which])


class Taken(NamedTuple):
    """What was taken out of a buffer. The arrays are valid until the next batch is put in."""

    good: Batches | None
    """What can be recorded, if anything."""
    complaint: str
    """What is wrong with the other batches; empty if there are none."""


def bad_batches(batches: Batches, samples: int) -> npt.NDArray[np.bool_]:
    """Which batches cannot be recorded, shape (batches,). A mean is finite exactly if all losses are."""
    ids, _, sizes, means, guesses = batches
    bad = ~np.isfinite(means)
    if guesses is not None:
        bad |= np.logical_or.reduceat(guesses == NO_NUMBER, np.cumsum(sizes) - sizes)
    # One pass finds ids that are too large and, as huge unsigned numbers, those that are negative.
    if int(ids.view(np.uint64).max()) >= samples:
        bad |= np.logical_or.reduceat(_unknown(ids, samples), np.cumsum(sizes) - sizes)
    return bad


def _unknown(ids: Ids, samples: int) -> npt.NDArray[np.bool_]:
    return (ids < 0) | (ids >= samples)


def complaint(batches: Batches, first: int, samples: int) -> str:
    """What is wrong with bad batches, of which the first is number ``first`` of its epoch."""
    ids, losses, sizes, means, guesses = batches
    batch = np.repeat(np.arange(first, first + len(sizes)), sizes)
    unknown, wild = _unknown(ids, samples), ~np.isfinite(losses)
    # Losses may be finite, but their sum not.
    overflown = np.repeat(~np.isfinite(means) & (np.add.reduceat(wild, np.cumsum(sizes) - sizes) == 0), sizes)
    told = []
    if unknown.any():
        told.append(
            f"Expected ids from 0 to {samples - 1}. "
            f"Got {_few(ids[unknown])} in {_batches(batch[unknown])} of this epoch."
        )
    if wild.any():
        told.append(
            f"Expected finite losses. Got {_few(losses[wild])} for the samples {_few(ids[wild])} in "
            f"{_batches(batch[wild])} of this epoch. A mean with such a loss finds no hits, "
            "so leave the batch out, and say so by pruner.skip(n), or lower the learning rate."
        )
    if overflown.any():
        told.append(
            f"Expected losses whose sum is finite. Got a sum too large for float64 in {_batches(batch[overflown])} "
            f"of this epoch, from losses as {_few(losses[overflown])}: leave the batch out, and say so by "
            "pruner.skip(n)."
        )
    lacking = None if guesses is None else guesses == NO_NUMBER
    if lacking is not None and lacking.any():
        told.append(
            f"Expected logits that are numbers. Got NaN for the samples {_few(ids[lacking])} in "
            f"{_batches(batch[lacking])} of this epoch: leave the batch out, and say so by pruner.skip(n), or observe "
            "its losses without logits."
        )
    return " ".join(told)


def _batches(numbers: npt.NDArray[np.intp]) -> str:
    """Name batches by their numbers in the epoch, from 0."""
    which = np.unique(numbers)
    return f"batch {which[0]}" if which.size == 1 else f"batches {_few(which)}"


def _few(values: npt.NDArray[Any], most: int = 5) -> str:
    shown = ", ".join(str(value) for value in values[:most].tolist())
    return f"[{shown}, ... {values.size} in all]" if values.size > most else f"[{shown}]"


def plain_ids(ids: Any) -> Ids:
    """Return ids of shape (n,) as int64, or raise LossError."""
    array = np.asarray(ids)
    if array.size == 0 and array.ndim == 1:
        return np.empty(0, dtype=np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        names = ": an id is the place of a sample, and its name one of Pruner(keys=...)" * (array.dtype.kind in "US")
        raise LossError(
            f"Expected ids of shape (n,) and an integer dtype. Got shape {array.shape}, {array.dtype}{names}."
        )
    if array.dtype == np.uint64 and (most := int(array.max())) >= 1 << 63:
        raise LossError(f"Expected ids from 0 to one less than the samples. Got {most}.")
    return array.astype(np.int64, copy=False)


def shape_hint(shape: Sequence[int]) -> str:
    """What to do about losses of a wrong shape, in brackets."""
    if len(shape) < 2:
        return " (reduction='none')"
    if tuple(shape[1:]) == (1,):
        return " (losses.squeeze(1))"
    # What has no label has the loss 0, as void pixels: a mean over all would be the lower the more of them there are.
    return (
        " (the mean over what has a label of it, as its pixels or tokens: "
        "losses.flatten(1).sum(1) / (labels != ignore_index).flatten(1).sum(1).clamp(min=1))"
    )


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
            f"Expected losses of shape (n,) and a floating dtype, one for each sample{shape_hint(array.shape)}. "
            f"Got shape {array.shape}, {array.dtype}."
        )
    return array if array.dtype == np.float32 else array.astype(np.float64, copy=False)


def rounds(ids: Ids, visits: Counts) -> Iterator[slice | Ids]:
    """Yield where each id stands for the first time in a buffer, for the second time, and so on.

    So a policy sees each sample's visits in their order, one at a time, wherever a buffer was full. Where every sample
    of the buffer was visited once in the whole epoch, which is the rule, there is one round.
    """
    if (visits[ids] == 1).all():
        yield slice(None)
        return
    order = np.argsort(ids, kind="stable")
    new = np.append(True, np.diff(ids[order]) != 0)
    if new.all():
        yield slice(None)
        return
    starts = np.flatnonzero(new)
    nth = np.arange(ids.size) - np.repeat(starts, np.diff(np.append(starts, ids.size)))
    for turn in range(int(nth.max()) + 1):
        yield order[nth == turn]
