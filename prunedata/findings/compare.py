"""Do two runs suspect the same samples? Overlap of their tops, and the correlation of all ranks."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from prunedata.errors import PrunedataError
from prunedata.findings.suspects import suspicion
from prunedata.findings.top import count_top
from prunedata.types import Array, Floats

__all__ = ["Comparison", "average_ranks", "compare", "membership", "overlap", "rank_correlation"]


@dataclass(frozen=True)
class Comparison:
    """How far two runs agree.

    ``compared`` samples have visits enough in both, of ``samples``; ``top`` of them are the most suspect. ``jaccard``:
    samples in both tops over samples in either, 0 to 1, and ``jaccard_by_chance`` what two orders that have nothing to
    do with each other would give. ``rank_correlation``: Spearman's of the rates, -1 to 1; None where one run's
    rates are all equal.
    """

    samples: int
    compared: int
    top: int
    jaccard: float
    jaccard_by_chance: float
    rank_correlation: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dict that JSON can hold."""
        return asdict(self)


def compare(first: tuple[Array, Array], second: tuple[Array, Array], top: int | float = 0.1) -> Comparison:
    """Compare two runs on the same data set.

    Parameters
    ----------
    first, second : (scores, visits), arrays of shape (samples,)
        Of each run: from :func:`prunedata.findings.suspects.scores_of_both`; and the visits.
    top : int or float
        How many samples are a run's top, or what fraction of those compared.

    Raises
    ------
    PrunedataError
        If the runs have other numbers of samples, none has visits in both, or `top` makes no sense.
    """
    rates = first[0], second[0]
    if rates[0].size != rates[1].size:
        raise PrunedataError(
            f"Expected two runs on the same samples. Got one with {rates[0].size} samples and one with {rates[1].size}."
        )
    places = [suspicion(*run) for run in (first, second)]
    both = (places[0] >= 0) & (places[1] >= 0)
    compared = int(np.count_nonzero(both))
    if not compared:
        raise PrunedataError("Expected samples that were visited in both runs. Got none.")
    number = count_top(top, compared)
    a, b = (membership(place[both], number) for place in places)
    jaccard, chance = overlap(a, b)
    correlation = rank_correlation(rates[0][both], rates[1][both])
    return Comparison(rates[0].size, compared, number, jaccard, chance, correlation)


def membership(scores: Array, top: int) -> Floats:
    """How far each sample belongs to the `top` highest: 1, 0, or at the edge the places left over those that tie.

    So no tie is decided by index, which would make runs agree that have nothing in common. Shape (samples,), sum `top`.
    """
    edge = np.partition(scores, scores.size - top)[scores.size - top]
    above, ties = scores > edge, scores == edge
    part = (top - np.count_nonzero(above)) / np.count_nonzero(ties)
    return np.asarray(above + ties * part, dtype=np.float64)


def overlap(first: Floats, second: Floats) -> tuple[float, float]:
    """Jaccard of two memberships, and what it would be by chance: 1 where they are the same.

    Samples in both over samples in either, each as far as it belongs: the sum of the lesser over that of the greater.
    By chance: the same sums over all pairs of samples, as in orders that have nothing to do with each other.
    """
    both = float(np.minimum(first, second).sum())
    (a, n), (b, m) = (np.unique(one, return_counts=True) for one in (first, second))
    by_chance = float((np.minimum.outer(a, b) * np.outer(n, m)).sum()) / first.size
    total = float(first.sum() + second.sum())
    return min(1.0, both / (total - both)), min(1.0, by_chance / (total - by_chance))


def average_ranks(values: Array) -> Floats:
    """Ranks from 1, the lowest first; values that tie share the mean of their ranks. Shape as `values`."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[which], dtype=np.float64)


def rank_correlation(first: Array, second: Array) -> float | None:
    """Spearman's rank correlation of two arrays of shape (samples,); None if either is constant."""
    a, b = (average_ranks(values) for values in (first, second))
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt(a @ a) * np.sqrt(b @ b))
    return None if scale == 0 else float(np.clip((a @ b) / scale, -1, 1))
