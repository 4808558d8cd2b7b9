"""Compare the suspects of two runs: the overlap of the most suspect, and the correlation of all ranks."""

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

    ``compared`` of ``samples`` were observed in both runs; ``top`` of them are the most suspect of each. ``jaccard``:
    samples in both tops over samples in either, 0 to 1; ``jaccard_by_chance``: the same for two unrelated orders.
    ``rank_correlation``: Spearman's of the scores, -1 to 1; None if all scores of a run are equal.
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
        Of each run: ``mean_excess``, and the visits.
    top : int or float
        How many samples are the most suspect of a run, or what fraction of those compared.

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
    """Return how far each sample belongs to the `top` highest, shape (samples,), sum `top`: 1, 0, or a share for ties.

    Ties at the edge share the remaining places. Deciding them by index would make unrelated runs agree.
    """
    edge = np.partition(scores, scores.size - top)[scores.size - top]
    above, ties = scores > edge, scores == edge
    part = (top - np.count_nonzero(above)) / np.count_nonzero(ties)
    return np.asarray(above + ties * part, dtype=np.float64)


def overlap(first: Floats, second: Floats) -> tuple[float, float]:
    """Return the Jaccard index of two memberships, and its value by chance.

    Samples in both over samples in either, each as far as it belongs: the sum of the lesser over that of the greater.
    By chance: the same sums over all pairs of samples, as in unrelated orders.
    """
    both = float(np.minimum(first, second).sum())
    (a, n), (b, m) = (np.unique(one, return_counts=True) for one in (first, second))
    by_chance = float((np.minimum.outer(a, b) * np.outer(n, m)).sum()) / first.size
    total = float(first.sum() + second.sum())
    return min(1.0, both / (total - both)), min(1.0, by_chance / (total - by_chance))


def average_ranks(values: Array) -> Floats:
    """Return ranks from 1, the lowest first, of the shape of `values`; ties share the mean of their ranks."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[which], dtype=np.float64)


def rank_correlation(first: Array, second: Array) -> float | None:
    """Return Spearman's rank correlation of two arrays of shape (samples,); None if either is constant."""
    a, b = (average_ranks(values) for values in (first, second))
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt(a @ a) * np.sqrt(b @ b))
    return None if scale == 0 else float(np.clip((a @ b) / scale, -1, 1))
