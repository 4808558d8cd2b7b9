"""The most suspect samples of a run, and the classes in which they gather.

The score is ``mean_excess``: how far a sample's losses lay above the means of its batches, averaged over its visits; or
how far its recent losses lie above those of all samples, if these fall into two groups more clearly. Of equal scores,
fewer visits come first: a run that prunes visits the worst samples least.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prunedata.errors import PrunedataError
from prunedata.findings.advice import losses_of
from prunedata.findings.searched import searched_visits
from prunedata.plan.doubts import lie_clearer
from prunedata.policies.rules import RecentLoss
from prunedata.store.state import RunState
from prunedata.types import Array, Ids

__all__ = ["ClassShare", "concentration", "most_suspect", "scores_of", "suspicion"]


@dataclass(frozen=True)
class ClassShare:
    """How many of the suspects belong to one class.

    ``share``: its share of all suspects; ``expected``: its share of all samples; ``lift``: the first over the second, 1
    if suspects are spread evenly, None without suspects.
    """

    label: int | str
    samples: int
    suspects: int
    share: float
    expected: float
    lift: float | None


def scores_of(run: RunState) -> npt.NDArray[np.float64]:
    """Return the score of each sample, float64 of shape (samples,), by which suspects are ranked."""
    means, among = run.mean_excess, searched_visits(run) > 0
    if RecentLoss.array not in run.arrays or not among.any():
        return means
    recent = np.asarray(losses_of(run.arrays, run.history), dtype=np.float64)
    if not lie_clearer(recent[among], means[among]):
        return means
    return np.asarray(recent - recent[among].mean())


def suspicion(scores: npt.NDArray[np.float64], visits: Array) -> Ids:
    """Return a place for each sample, int64, shape (samples,): the higher, the more suspect; -1 if never observed.

    By scores, see :func:`scores_of`, and then visits of the whole run, both of shape (samples,). Places are equal if
    both are. Samples with few visits take part: a run that prunes visits the worst samples least.
    """
    visits = np.asarray(visits, dtype=np.int64)
    order = np.lexsort((-visits, scores))
    differs = (np.diff(scores[order]) != 0) | (np.diff(visits[order]) != 0)
    places = np.empty(scores.size, dtype=np.int64)
    places[order] = np.concatenate(([0], np.cumsum(differs)))[: scores.size]
    return np.where(visits > 0, places, -1)


def most_suspect(scores: npt.NDArray[np.float64], visits: Array, top: int) -> Ids:
    """Return the ids of the `top` most suspect samples, shape (n,), the worst first; fewer if fewer were observed."""
    places = suspicion(scores, visits)
    order = np.argsort(-places, kind="stable")[: max(0, top)]
    return order[places[order] >= 0]


def checked_labels(given: npt.ArrayLike, samples: int | None = None) -> Array:
    """Return labels as an array of shape (samples,).

    Raises :class:`PrunedataError` if they are not whole numbers or text, or not of this shape.
    """
    labels = np.asarray(given)
    if labels.ndim != 1 or labels.size != (samples or labels.size) or labels.dtype.kind not in "iuU":
        raise PrunedataError(
            f"Expected labels of shape ({samples or 'samples'},), integers or text. Got shape {labels.shape}, "
            f"{labels.dtype}."
        )
    return labels


def concentration(
    labels: npt.ArrayLike, suspects: npt.ArrayLike, searched: npt.NDArray[np.bool_] | None = None
) -> list[ClassShare]:
    """Return how many suspects each class has, the highest lift first.

    Parameters
    ----------
    labels : array of int or str, shape (samples,)
        The class of each sample, as it was trained on: a number or a name.
    suspects : array of int, shape (n,)
        Ids of the suspects.
    searched : array of bool, shape (samples,), optional
        The samples among which they were found; all, if not given.

    Raises
    ------
    PrunedataError
        If labels are not whole numbers or text of shape (samples,), or an id is out of range.
    """
    labels, ids = checked_labels(labels), np.asarray(suspects, dtype=np.int64)
    if ids.size and not (ids.min() >= 0 and ids.max() < labels.size):
        raise PrunedataError(f"Expected ids of {labels.size} samples. Got {ids.min()} to {ids.max()}.")
    classes, which = np.unique(labels, return_inverse=True)
    among = which if searched is None else which[searched]
    samples = np.bincount(among, minlength=classes.size)
    found = np.bincount(which[ids], minlength=classes.size)
    shares = [
        ClassShare(
            label=label,
            samples=int(n),
            suspects=int(k),
            share=k / ids.size if ids.size else 0.0,
            expected=n / max(1, among.size),
            lift=(k * among.size) / (n * ids.size) if n and ids.size else None,
        )
        for label, n, k in zip(classes.tolist(), samples.tolist(), found.tolist(), strict=True)
    ]
    return sorted(shares, key=lambda one: (-(one.lift or 0.0), one.label))
