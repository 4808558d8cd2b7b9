"""The class that the network takes each sample for, other than its own label: by its logits, epoch after epoch.

Each visit votes for the most likely class but the label. A sample keeps one class and how strongly it is held: a vote
for it makes it stronger, another weaker, and at nothing the other takes its place. So recent epochs decide, and a
network that learns a wrong label by heart, whose second choice says little, needs many epochs to overrule what it said
before (docs/evidence/late.md). That is 2 bytes a sample, or 4 where there are many classes.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from prunedata.counting.batches import NO_NUMBER, Batches, rounds
from prunedata.errors import LossError
from prunedata.store.state import GUESS, NARROW, span_of
from prunedata.types import Array, Arrays, Counts, Floats, Guesses

__all__ = ["MOST_CLASSES", "Guess", "classes_in", "two_likeliest", "wanted_guess"]

MOST_CLASSES = PAIR = 1 << 15
"""The most likely class times this, plus the second, is what a visit says: int32."""
STRONGEST = 15


def two_likeliest(logits: Any) -> tuple[Guesses, int]:
    """Return what visits say by their logits, shape (n,), and of how many classes.

    Parameters
    ----------
    logits : array of float, shape (n, classes), or (n,)
        Or probabilities. Of two classes one number may do, above 0 for class 1.

    Raises
    ------
    LossError
        If they are of another shape or dtype.
    """
    if hasattr(logits, "detach"):  # a Tensor, from a loop that has no adapter
        logits = logits.detach().cpu()
        logits = logits.float().numpy() if logits.is_floating_point() else logits.numpy()
    array = np.asarray(logits)
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    classes = classes_in(array.shape, is_floating=array.dtype.kind == "f", dtype=array.dtype)
    if array.ndim == 1:
        array = np.stack([np.zeros_like(array), array], axis=1)
    if not len(array):
        return np.empty(0, np.int32), classes
    first = array.argmax(1)
    rest = array.copy()
    rest[np.arange(len(array)), first] = -np.inf
    said = (first * PAIR + rest.argmax(1)).astype(np.int32)
    said[np.isnan(array).any(1)] = NO_NUMBER
    return said, classes


def classes_in(shape: tuple[int, ...], *, is_floating: bool, dtype: object) -> int:
    """Return how many classes logits of a shape are of, or raise :class:`LossError`."""
    classes = 2 if len(shape) == 1 else shape[-1]
    if len(shape) not in (1, 2) or not 2 <= classes <= MOST_CLASSES or not is_floating:
        hint = " (logits.squeeze(1))" if len(shape) == 2 and shape[1] == 1 else ""
        raise LossError(
            f"Expected logits of shape (n, classes), of 2 to {MOST_CLASSES:,} classes, or of shape (n,) for two of "
            f"them, and a floating dtype{hint}. Got shape {tuple(shape)}, {dtype}: give one number for each class of "
            "each sample."
        )
    return classes


def wanted_guess(arrays: Mapping[str, Array], name: str) -> dict[str, np.dtype[Any]]:
    """The dtype that a state must have of guesses by this name, by its arrays; empty if it has none."""
    found = arrays.get(name)
    return {} if found is None else {name: np.dtype(np.uint32 if found.dtype.itemsize == 4 else np.uint16)}


class Guess:
    """Watches what the network takes each sample for. Nothing is kept before the first logits.

    Parameters
    ----------
    classes : int, optional
        How many there are, if it is known before.
    labels : tuple of ndarray, optional
        Of each sample the number of its label, shape (samples,), and by that number its place in the logits, -1 for
        none.

    Attributes
    ----------
    classes : int
        Of the logits that came; 0 if none did.
    """

    def __init__(self, classes: int | None = None, labels: tuple[Array, Array] | None = None) -> None:
        self._wanted, self._labels = classes, labels
        self.classes = 0

    def check(self, classes: int) -> None:
        """Raise :class:`LossError` if logits of so many classes are not those of this run."""
        if classes == self.classes:
            return
        wanted = self.classes or self._wanted or classes
        if classes != wanted:
            raise LossError(
                f"Expected logits of {wanted:,} classes, as the run has them. Got {classes:,}: give what one head "
                "returns, and labels as places in it, where not every class has a label."
            )
        places = None if self._labels is None else self._labels[1]
        if places is not None and not -1 <= places.min() <= places.max() < classes:
            wrong = places[(places < -1) | (places >= classes)]
            raise LossError(
                f"Expected labels from 0 to {classes - 1}, which are places in logits of {classes:,} classes, or -100 "
                f"for none. Got {wrong[0]}: pass labels= as the places of their classes in the logits."
            )
        self.classes = classes

    def begin(self, finished: Arrays) -> Arrays:
        """A copy of them, as an epoch begins."""
        return {GUESS: finished[GUESS].copy()} if GUESS in finished else {}

    def add(self, arrays: Arrays, batches: Batches, visits: Counts) -> None:
        """Let visits vote, in place. ``visits`` as :meth:`SampleArrays.add` has it."""
        if batches.guesses is None:
            return
        self._open(arrays, visits.size, wide=self.classes > NARROW)
        kept = arrays[GUESS]
        span = span_of(kept.dtype)
        for now in rounds(batches.ids, visits):
            said, ids = batches.guesses[now], batches.ids[now]
            first, second = np.divmod(said, PAIR)
            label = np.int32(-1) if self._labels is None else self._labels[1][self._labels[0][ids]]
            vote = np.where(first == label, second, first)
            votes = (said >= 0) & (vote != label)
            ids, vote = ids[votes], vote[votes]
            held, strength = np.divmod(kept[ids].astype(np.int64), span)[::-1]
            same = (held == vote) & (strength > 0)
            strength = np.where(same, np.minimum(strength + 1, STRONGEST), strength - 1)
            taken = strength <= 0
            kept[ids] = np.where(taken, span + vote, strength * span + held)

    @staticmethod
    def _open(arrays: Arrays, samples: int, *, wide: bool) -> None:
        """Let an epoch have the array."""
        if GUESS not in arrays:
            arrays[GUESS] = np.zeros(samples, np.uint32 if wide else np.uint16)

    def level(self, arrays: Arrays, samples: int, add_up: Callable[[Floats], Floats]) -> None:
        """Let all processes have the array, as one of them has: called in each, before they merge.

        Raises
        ------
        LossError
            In each of them, if their logits are not of as many classes.
        """
        own = self.classes
        wide = own > NARROW or (GUESS in arrays and arrays[GUESS].dtype.itemsize == 4)
        known, total, squares, any_wide = add_up(np.array([own > 0, own, own * own, wide], dtype=np.float64))
        if known * squares != total * total:
            raise LossError(
                f"Expected logits of as many classes on all ranks. Got {own:,} on this one, and {total / known:g} in "
                "the mean of all: give what one head returns on each rank."
            )
        self.classes = int(total / known) if known else 0
        self._open(arrays, samples, wide=any_wide > 0)

    def end(self, finished: Arrays, arrays: Arrays, visits: Counts, visited: Counts) -> Arrays:
        """It is as the epoch left it."""
        return {GUESS: arrays[GUESS]} if GUESS in arrays else {}
