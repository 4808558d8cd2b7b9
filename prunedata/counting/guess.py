"""What batches say of a sample beside its loss: its label, and the guess of the network, by recent epochs.

The guess is the class that the network takes it for, other than its label.

Each visit votes for the most likely class other than the label. A sample keeps one class and its strength: a vote for
that class adds to the strength, a vote for another takes from it, and at 0 the other class replaces it. So recent
epochs decide; but a network that memorizes a wrong label, whose second choice means little, needs many epochs to
overrule its earlier guess (docs/evidence/late.md). That takes 2 bytes a sample, or 4 where there are many classes.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from prunedata.checks import warn
from prunedata.counting.batches import NO_NUMBER, Batches, plain_losses, rounds
from prunedata.errors import LossError
from prunedata.store.state import GUESS, LABEL, NARROW, span_of
from prunedata.types import Array, Arrays, Counts, Floats, Guesses, Ids, Mask

MOST_CLASSES = PAIR = 1 << 15
"""A visit's guess is one int32: the most likely class times this, plus the second most likely one."""
IGNORED = -100
"""The label of a sample that has none, as PyTorch's losses have it."""
SMALLEST_ENTROPY, ALIKE = 0.1, 0.02
"""Cross entropies below the first are too small to tell by which number they were multiplied. Ratios are equal up to
this share of them, as losses and logits may come in float16."""
CHANGED = (
    "Expected each sample to have the same label in every epoch. Got batches whose second part, or whose entry label "
    "or labels, is another number than in the first epoch, by which the run compares the losses. If it is no label, "
    "pass the labels to the Pruner, or labels=np.zeros(samples, int) to compare all samples with each other."
)
ORDERED = (
    "Expected names of classes that are in the order of the logits once they are sorted, as labels= has names. Got "
    "batches with other numbers, so guesses would have wrong names: pass labels= as the numbers of the classes."
)
STRONGEST = 15
"""Largest strength of a guess."""


def two_likeliest(logits: Any) -> tuple[Guesses, int]:
    """Return the two most likely classes of each sample as one number, int32 of shape (n,), and the number of classes.

    ``logits`` are of float, shape (n, classes), or probabilities; with two classes one number is enough, shape (n,),
    above 0 for class 1. Others raise :class:`LossError`.
    """
    array = _plain_logits(logits)
    classes = array.shape[1]
    if not len(array):
        return np.empty(0, np.int32), classes
    first = array.argmax(1)
    rest = array.copy()
    rest[np.arange(len(array)), first] = -np.inf
    guesses = (first * PAIR + rest.argmax(1)).astype(np.int32)
    guesses[np.isnan(array).any(1)] = NO_NUMBER
    return guesses, classes


def _plain_logits(logits: Any) -> npt.NDArray[np.floating[Any]]:
    """Return logits of shape (n, classes), or raise :class:`LossError`."""
    if hasattr(logits, "detach"):  # a Tensor, from a loop that has no adapter
        logits = logits.detach().cpu()
        logits = logits.float().numpy() if logits.is_floating_point() else logits.numpy()
    array = np.asarray(logits)
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    classes_in(array.shape, is_floating=array.dtype.kind == "f", dtype=array.dtype)
    return np.stack([np.zeros_like(array), array], axis=1) if array.ndim == 1 else array


def are_multiples(losses: Any, logits: Any, labels: npt.NDArray[np.int64]) -> bool | None:
    """Return whether losses are cross entropies times a number of each label's own, as PyTorch's ``weight=`` has it.

    ``losses`` and ``logits`` may be arrays or tensors, as :func:`plain_losses` and :func:`two_likeliest` take them;
    ``labels`` is int64, shape (n,), -100 for none. None if the batch has too few samples of a label to tell.
    """
    scores, found = _plain_logits(logits).astype(np.float64), plain_losses(losses).astype(np.float64)
    known = (labels >= 0) & (labels < scores.shape[1]) if labels.shape == found.shape == scores.shape[:1] else None
    if known is None or not known.any():
        return None
    scores, found, labels = scores[known], found[known], labels[known]
    with np.errstate(all="ignore"):  # of logits that are infinite, or NaN: recording them says so
        entropies = np.logaddexp.reduce(scores, axis=1) - scores[np.arange(labels.size), labels]
    large = entropies > SMALLEST_ENTROPY  # the ratio of small ones is that of their rounding
    ratios = {label: found[large & (labels == label)] / entropies[large & (labels == label)] for label in set(labels)}
    several = [ratio for ratio in ratios.values() if ratio.size > 1]
    if len(several) < 2 or not np.isfinite(np.concatenate(several)).all():
        return None
    if any(np.ptp(ratio) > ALIKE * abs(ratio.mean()) for ratio in several):
        return False
    means = np.array([ratio.mean() for ratio in several])
    return bool(np.ptp(means) > 2 * ALIKE * np.abs(means).max())


def classes_in(shape: tuple[int, ...], *, is_floating: bool, dtype: object) -> int:
    """Return the number of classes of logits by their shape, or raise :class:`LossError`."""
    classes = 2 if len(shape) == 1 else shape[-1]
    if len(shape) not in (1, 2) or not 2 <= classes <= MOST_CLASSES or not is_floating:
        hint = " (logits.squeeze(1))" if len(shape) == 2 and shape[1] == 1 else ""
        raise LossError(
            f"Expected logits of shape (n, classes), of 2 to {MOST_CLASSES:,} classes, or of shape (n,) for two of "
            f"them, and a floating dtype{hint}. Got shape {tuple(shape)}, {dtype}: pass one number for each class of "
            "each sample."
        )
    return classes


def plain_labels(labels: Any, samples: int) -> npt.NDArray[np.int64]:
    """Return the labels of a batch of so many samples, int64 of shape (n,), or raise :class:`LossError`."""
    if hasattr(labels, "detach"):
        labels = labels.detach().cpu().numpy()
    array = np.asarray(labels)
    right = array.shape == (samples,) and array.dtype.kind in "iub"
    numbers = array.astype(np.int64) if right else np.empty(0, np.int64)
    if not right or ((numbers < 0) & (numbers != IGNORED)).any() or (numbers >= MOST_CLASSES).any():
        got = f"shape {array.shape}, {array.dtype}"
        got += f", from {numbers.min()} to {numbers.max()}" if numbers.size else ""
        raise LossError(
            f"Expected labels of shape ({samples},), whole numbers from 0 to {MOST_CLASSES - 1:,}, or -100 for none. "
            f"Got {got}: pass the class of each sample, and no labels where targets are no classes."
        )
    return numbers


class Guess:
    """Updates the guess and the label of each sample, the arrays ``guess`` and ``label``, once logits or labels come.

    ``classes`` is the number of classes, if it is known before. ``labels`` are, if they were given, the number of each
    sample's label, shape (samples,), and the place of each such number in the logits, -1 for none.
    """

    def __init__(self, classes: int | None = None, labels: tuple[Array, Array] | None = None) -> None:
        self._expected, self._labels = classes, labels
        self.classes = 0  # in the logits that came
        self.passes_changes: Callable[[], object] | None = None
        """Called in the place of an error if the label of a sample is another than before."""
        self.wants_labels = True
        """Whether labels are to be kept, as they have not changed so far."""

    def check(self, classes: int) -> None:
        """Raise :class:`LossError` if the run does not have this number of classes."""
        if classes == self.classes:
            return
        expected = self.classes or self._expected or classes
        if classes != expected:
            raise LossError(
                f"Expected logits of {expected:,} classes, as the run has them. Got {classes:,}: give what one head "
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

    def has_labels(self, finished: Arrays) -> bool:
        """Return whether the labels of all samples were given, or came in earlier epochs."""
        return self._labels is not None or (LABEL in finished and bool(finished[LABEL].all()))

    def see(
        self, arrays: Arrays, samples: int, ids: Ids, labels: npt.NDArray[np.int64], *, known: bool, sure: bool
    ) -> None:
        """Keep the labels of some samples, in place.

        If they were given, or are ``known``, raise :class:`LossError` unless they are the same; warn if it is not
        ``sure`` that they are labels; or forget those that were seen, if changes are passed.
        """
        if known or self._labels is not None:
            other = np.maximum(labels, -1) != self._of(ids, arrays)
            if other.any() and not sure:
                if self._labels is None or self.classes:  # without logits names need no order
                    warn(CHANGED if self._labels is None else ORDERED, UserWarning)
            elif other.any() and self.passes_changes is not None:
                self.passes_changes()
                self.wants_labels = False
                arrays.pop(LABEL, None)
            elif other.any():
                which = ids[other]
                raise LossError(
                    "Expected the labels that the run was given, took from the data set, or saw in earlier epochs. Got "
                    f"others for {which.size} of {ids.size} samples (ids {', '.join(map(str, which[:5]))}): pass "
                    "labels= to the Pruner, as they are trained on; or look whether ids and labels belong together."
                )
            return
        if LABEL not in arrays:
            arrays[LABEL] = np.zeros(samples, np.uint16)
        arrays[LABEL][ids] = np.where(labels == IGNORED, 1, labels + 2)

    def add(self, arrays: Arrays, batches: Batches, visits: Counts) -> None:
        """Let visits vote, in place. ``visits`` are as for :meth:`SampleArrays.add`."""
        if batches.guesses is None:
            return
        self._make(arrays, visits.size, wide=self.classes > NARROW)
        kept = arrays[GUESS]
        span = span_of(kept.dtype)
        for places in rounds(batches.ids, visits):
            guesses, ids = batches.guesses[places], batches.ids[places]
            first, second = np.divmod(guesses, PAIR)
            label = self._of(ids, arrays)
            vote = np.where(first == label, second, first)
            votes = (guesses >= 0) & (vote != label)
            ids, vote = ids[votes], vote[votes]
            strength, held = np.divmod(kept[ids].astype(np.int64), span)
            same = (held == vote) & (strength > 0)
            strength = np.where(same, np.minimum(strength + 1, STRONGEST), strength - 1)
            kept[ids] = np.where(strength <= 0, span + vote, strength * span + held)

    @staticmethod
    def _make(arrays: Arrays, samples: int, *, wide: bool) -> None:
        """Add the array to those of an epoch, unless it is there."""
        if GUESS not in arrays:
            arrays[GUESS] = np.zeros(samples, np.uint32 if wide else np.uint16)

    def _of(self, ids: Ids, arrays: Arrays) -> npt.NDArray[np.int32]:
        """The places of the samples' labels in logits, shape (n,); -1 where a label is unknown, or none."""
        if self._labels is not None:
            return np.asarray(self._labels[1][self._labels[0][ids]])
        if LABEL not in arrays:
            return np.full(ids.size, -1, np.int32)
        return np.maximum(arrays[LABEL][ids].astype(np.int32) - 2, -1)

    def level(self, arrays: Arrays, samples: int, add_up: Callable[[Floats], Floats]) -> None:
        """Make the arrays in all processes if one of them has them. Called in each, before they merge.

        Raises :class:`LossError` in each of them, if their logits have different numbers of classes.
        """
        own = self.classes
        wide = own > NARROW or (GUESS in arrays and arrays[GUESS].dtype.itemsize == 4)
        numbers = np.array([own > 0, own, own * own, wide, GUESS in arrays, LABEL in arrays], dtype=np.float64)
        known, total, squares, any_wide, guessed, labeled = add_up(numbers)
        if known * squares != total * total:
            raise LossError(
                f"Expected logits of as many classes on all ranks. Got {own:,} on this one, and {total / known:g} in "
                "the mean of all: pass what one head returns on each rank."
            )
        self.classes = int(total / known) if known else 0
        if guessed:
            self._make(arrays, samples, wide=any_wide > 0)
        if labeled:
            arrays.setdefault(LABEL, np.zeros(samples, np.uint16))

    def judge(self, arrays: Arrays, batches: Batches, which: Mask) -> tuple[int, int]:
        """Return how many of some visits have their label as likeliest class, and how many have label and logits."""
        if batches.guesses is None:
            return 0, 0
        guesses, ids = batches.guesses[which], batches.ids[which]
        labels = self._of(ids, arrays)
        known = (guesses >= 0) & (labels >= 0)
        return int(np.count_nonzero(known & (guesses // PAIR == labels))), int(np.count_nonzero(known))
