"""Labels that are made wrong: at random, into one similar class, or as a weak model errs."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from benchmarks.common.data import with_wrong_labels
from benchmarks.study.data import SEED

__all__ = ["noisy_labels"]

Labels = NDArray[np.int64]
WEAK_SAMPLES = 500
"""As many samples teach the weak model: few enough that it errs on a fifth of the others."""


def noisy_labels(
    kinds: Sequence[str], truth: Labels, features: NDArray[np.float32], others: NDArray[np.float32], theirs: Labels
) -> dict[str, Labels]:
    """Return the labels of each kind, shape (samples,), by the kind's name, such as ``random40``.

    Parameters
    ----------
    kinds : sequence of str
        ``clean``, or how labels are made wrong, ``random``, ``pairs`` or ``confusable``, and how many percent.
    truth, features : ndarray, shapes (samples,) and (samples, width)
        True labels and what a model sees.
    others, theirs : ndarray
        Features and labels of other samples, of which the weak model learns.
    """
    classes = int(truth.max()) + 1
    made, guesses = {}, truth
    if any(kind.startswith(("pairs", "confusable")) for kind in kinds):
        guesses = _guesses(features, others[:WEAK_SAMPLES], theirs[:WEAK_SAMPLES])
    for kind in kinds:
        way, share = kind.rstrip("0123456789"), int(kind[len(kind.rstrip("0123456789")) :] or 0) / 100
        if way == "clean":
            made[kind] = truth
        elif way == "random":
            made[kind] = with_wrong_labels(truth, classes, share)
        elif way == "pairs":
            made[kind] = _into_similar(truth, guesses, classes, share)
        elif way == "confusable":
            made[kind] = _as_guessed(truth, guesses, share)
        else:
            raise ValueError(f"Expected clean, or random, pairs or confusable and how many percent. Got {kind!r}.")
    return made


def _guesses(features: NDArray[np.float32], others: NDArray[np.float32], theirs: Labels) -> Labels:
    """What a linear model says that has seen few samples."""
    torch.manual_seed(SEED)
    weak = LogisticRegression(max_iter=300).fit(others, theirs)
    return np.asarray(weak.predict(features)).astype(np.int64)


def _as_guessed(truth: Labels, guesses: Labels, share: float) -> Labels:
    """Some of the weak model's errors in the place of the truth."""
    errors, wanted = np.flatnonzero(guesses != truth), round(share * len(truth))
    if len(errors) < wanted:
        raise ValueError(f"Expected at least {wanted} errors of the weak model. Got {len(errors)}: lower the share.")
    noisy, chosen = truth.copy(), np.random.default_rng(SEED + 1).permutation(errors)[:wanted]
    noisy[chosen] = guesses[chosen]
    return noisy


def _into_similar(truth: Labels, guesses: Labels, classes: int, share: float) -> Labels:
    """A share of each class under the name of the class that it is most often taken for."""
    confused = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(confused, (truth, guesses), 1)
    np.fill_diagonal(confused, -1)
    similar = confused.argmax(1)
    wrong = np.random.default_rng(SEED + 2).permutation(len(truth))[: round(share * len(truth))]
    noisy = truth.copy()
    noisy[wrong] = similar[truth[wrong]]
    return noisy
