"""Batches of ids and losses: converted to arrays, and checked."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prunedata.counting.counts import batch_means, hit_limits
from prunedata.errors import LossError
from prunedata.types import Array, Counts, Guesses, Ids, Means, Recorded, Sizes

NO_NUMBER, NOTHING = -1, -2
"""In the place of a guess: for a visit with a logit that is NaN, and for one without logits."""


class Batches(NamedTuple):
    """Checked batches, one after the other."""

    ids: Ids  # shape (visits,)
    losses: Recorded  # in the dtype in which they came, shape (visits,)
    sizes: Sizes  # samples in each batch, shape (batches,); their sum is the number of visits
    means: Means  # the mean loss of each batch, shape (batches,)
    guesses: Guesses | None = None  # see prunedata.counting.guess.two_likeliest: shape (visits,); None without logits

    def hits(self, tolerance: float) -> npt.NDArray[np.bool_]:
        """Return which visits are hits (Algorithm 1, line 5), shape (visits,), without the care of ``find_hits``."""
        return np.asarray(self.losses > np.repeat(hit_limits(self.means, tolerance), self.sizes))

    def of(self, which: npt.NDArray[np.bool_]) -> "Batches":
        """Return the visits in a mask of shape (visits,), with the means over these; empty batches are dropped."""
        sizes = np.add.reduceat(which, np.cumsum(self.sizes) - self.sizes, dtype=np.int64)
        losses, sizes = self.losses[which], sizes[sizes > 0]
        means = batch_means(losses.astype(np.float64), sizes) if sizes.size else np.zeros(0)
        return Batches(self.ids[which], losses, sizes, means, None if self.guesses is None else self.guesses[which])

    def bad(self, samples: int) -> npt.NDArray[np.bool_]:
        """Return which batches cannot be recorded, shape (batches,): a mean is finite exactly if all losses are."""
        ids, _, sizes, means, guesses = self
        bad = ~np.isfinite(means)
        if guesses is not None:
            bad |= np.logical_or.reduceat(guesses == NO_NUMBER, np.cumsum(sizes) - sizes)
        # One pass finds ids that are too large, and negative ones, which are huge as unsigned numbers.
        if int(ids.view(np.uint64).max()) >= samples:
            bad |= np.logical_or.reduceat(_unknown(ids, samples), np.cumsum(sizes) - sizes)
        return bad

    def complaint(self, first: int, samples: int) -> str:
        """Return the error message for these batches, of which the first is number ``first`` of its epoch."""
        ids, losses, sizes, means, guesses = self
        batch = np.repeat(np.arange(first, first + len(sizes)), sizes)
        unknown, wild = _unknown(ids, samples), ~np.isfinite(losses)
        # A sum of finite losses may be infinite.
        overflown = np.repeat(~np.isfinite(means) & (np.add.reduceat(wild, np.cumsum(sizes) - sizes) == 0), sizes)
        cure, messages = "leave the batch out, and call pruner.skip(n) for it", []

        def at(which: npt.NDArray[np.bool_]) -> str:
            numbers = np.unique(batch[which])
            return f"in {f'batch {numbers[0]}' if numbers.size == 1 else f'batches {_few(numbers)}'} of this epoch"

        if unknown.any():
            messages.append(f"Expected ids from 0 to {samples - 1}. Got {_few(ids[unknown])} {at(unknown)}.")
        if wild.any():
            got = f"{_few(losses[wild])} for the samples {_few(ids[wild])} {at(wild)}"
            messages.append(
                f"Expected finite losses. Got {got}. The mean of such a batch finds no hits: {cure}, or lower the "
                "learning rate."
            )
        if overflown.any():
            got = f"a sum too large for float64 {at(overflown)}, from losses as {_few(losses[overflown])}"
            messages.append(f"Expected losses whose sum is finite. Got {got}: {cure}.")
        if guesses is not None and (lacking := guesses == NO_NUMBER).any():
            got = f"NaN for the samples {_few(ids[lacking])} {at(lacking)}"
            messages.append(
                f"Expected logits that are numbers. Got {got}: {cure}, or observe its losses without logits."
            )
        return " ".join(messages)


def _unknown(ids: Ids, samples: int) -> npt.NDArray[np.bool_]:
    return (ids < 0) | (ids >= samples)


def filled(losses: Recorded, sizes: Sizes) -> Recorded:
    """Return the losses of batches, shape (n,), with the mean of its batch in the place of each that is no number.

    So such a sample is neither suspect nor clean by this batch. A batch without any number is 0.
    """
    fine, batch = np.isfinite(losses), np.repeat(np.arange(len(sizes)), sizes)
    means = np.bincount(batch, np.where(fine, losses, 0)) / np.maximum(np.bincount(batch, fine), 1)
    found: Recorded = losses.copy()
    found[~fine] = means[batch[~fine]]
    return found


def _few(values: npt.NDArray[Any], most: int = 5) -> str:
    shown = ", ".join(str(value) for value in values[:most].tolist())
    return f"[{shown}, ... {values.size} in all]" if values.size > most else f"[{shown}]"


def _as_array(name: str, given: Any) -> Array:
    """Return losses or ids as an array, or raise LossError if they are only traced."""
    try:
        return np.asarray(given)
    except (TypeError, NotImplementedError) as error:  # of JAX and TensorFlow
        raise LossError(
            f"Expected {name} that are numbers. Got a {type(given).__name__} that has none yet, as within jax.jit and "
            "tf.function: let the step return its losses, and observe these after it."
        ) from error


def plain_ids(ids: Any) -> Ids:
    """Return ids of shape (n,) as int64, or raise LossError."""
    array = _as_array("ids", ids)
    if array.size == 0 and array.ndim == 1:
        return np.empty(0, dtype=np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        hint = ": an id is the place of a sample; its name belongs in Pruner(keys=...)" * (array.dtype.kind in "US")
        raise LossError(
            f"Expected ids of shape (n,) and an integer dtype. Got shape {array.shape}, {array.dtype}{hint}."
        )
    if array.dtype == np.uint64 and (most := int(array.max())) >= 1 << 63:
        raise LossError(f"Expected ids from 0 to one less than the samples. Got {most}.")
    return array.astype(np.int64, copy=False)


def shape_hint(shape: Sequence[int], samples: int | None = None) -> str:
    """Return what to do about losses of a wrong shape, of a batch of so many samples, in brackets."""
    if samples == 1 and not shape:
        return " (losses.reshape(1), as the batch is one sample)"
    if len(shape) < 2:
        return " (reduction='none')"
    if tuple(shape[1:]) == (1,):
        return " (losses.squeeze(1))"
    # Void pixels have the loss 0: they would lower a mean over all pixels.
    return (
        " (the mean over the pixels or tokens of a sample that have a label: "
        "losses.flatten(1).sum(1) / (labels != ignore_index).flatten(1).sum(1).clamp(min=1))"
    )


def plain_losses(losses: Any, samples: int | None = None) -> Recorded:
    """Return losses of shape (n,) as float32 if they are float32, otherwise as float64, or raise LossError.

    ``samples`` is for its message.
    """
    if isinstance(losses, np.ma.MaskedArray):
        raise LossError("Expected a loss for each id. Got a masked array: leave the masked samples and their ids out.")
    if hasattr(losses, "detach"):  # a Tensor, from a loop that has no adapter
        losses = losses.detach().cpu()
        losses = losses.double() if losses.is_floating_point() else losses.numpy()
    array = _as_array("losses", losses)
    if array.dtype.name == "bfloat16":  # TensorFlow's and JAX's, which numpy doesn't know as a number
        array = array.astype(np.float32)
    if array.ndim != 1 or array.dtype.kind not in "fiu":
        hint = shape_hint(array.shape, samples)
        raise LossError(
            f"Expected losses of shape (n,) and a floating dtype, one for each sample{hint}. "
            f"Got shape {array.shape}, {array.dtype}."
        )
    return array if array.dtype == np.float32 else array.astype(np.float64, copy=False)


def rounds(ids: Ids, visits: Counts) -> Iterator[slice | Ids]:
    """Yield the places where each id comes for the first time in a buffer, for the second time, and so on.

    So a policy gets each sample's visits in their order, one at a time, however they were divided between buffers. If
    every sample of the buffer was visited once in the whole epoch, which is usual, there is one round.
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
    for number in range(int(nth.max()) + 1):
        yield order[nth == number]
