"""Several runs beside each other: how far two suspect the same samples, and all joined by key into one list."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from prunedata.checks import count_top
from prunedata.errors import PrunedataError
from prunedata.findings.searched import searched_visits
from prunedata.findings.suspects import suspicion
from prunedata.keys import key_text, places_of
from prunedata.store.state import RunState
from prunedata.types import Array, Arrays, Floats, Ids

__all__ = [
    "Comparison", "average_ranks", "compare", "compare_runs", "joined_table", "membership", "overlap",
    "rank_correlation", "shared_rows",
]  # fmt: skip


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
    samples, others = first[0].size, second[0].size
    if samples != others:
        raise PrunedataError(
            f"Expected two runs on the same samples. Got one with {samples} samples and one with {others}."
        )
    places = [suspicion(*run) for run in (first, second)]
    both = (places[0] >= 0) & (places[1] >= 0)
    compared = int(np.count_nonzero(both))
    if not compared:
        raise PrunedataError("Expected samples that were visited in both runs. Got none.")
    number = count_top(top, compared)
    jaccard, chance = overlap(*(membership(place[both], number) for place in places))
    return Comparison(samples, compared, number, jaccard, chance, rank_correlation(first[0][both], second[0][both]))


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


def compare_runs(first: RunState, second: RunState, top: int | float = 0.1) -> Comparison:
    """Compare two runs on the rows that both have, see :func:`shared_rows` and :func:`compare`."""
    runs = first, second
    if not (first.arrays and second.arrays):
        raise PrunedataError("Expected samples that were visited in both runs. Got none.")
    places = shared_rows(runs)
    both = places[:, (places >= 0).all(axis=0)]
    if not both.size:
        raise PrunedataError("Expected rows that are in both runs, by their keys. Got none.")
    one, other = ((run.mean_excess[ids], searched_visits(run)[ids]) for run, ids in zip(runs, both, strict=True))
    return compare(one, other, top)


def shared_rows(runs: Sequence[RunState]) -> Ids:
    """Return the id of each row in each run, int64 of shape (runs, rows), each row once; -1 where a run lacks it.

    Rows are the same by keys; or by id, if a run has no keys and all have as many samples. Raises
    :class:`PrunedataError` if neither is known.
    """
    found = [run.keys for run in runs if run.keys is not None]
    if len(found) == len(runs):
        keys = np.concatenate(found)
        _, first = np.unique(keys, return_index=True)
        rows = keys[np.sort(first)]  # those of the first run in their order, then what others have besides
        return np.stack([places_of(rows, one) for one in found])
    many = [run.samples for run in runs]
    if len(set(many)) > 1:
        told = " and ".join(f"one of {samples:,}" for samples in many)
        raise PrunedataError(
            f"Expected runs on the same samples, or runs with keys. Got {told}, and not all of them "
            "have keys: train with Pruner(..., keys=...)."
        )
    return np.broadcast_to(np.arange(many[0]), (len(runs), many[0]))


def joined_table(runs: Sequence[RunState], top: int | float) -> Arrays:
    """Return the most suspect rows of several runs as a table, the worst first.

    Each run ranks the rows that it trained on by mean excess. The score of a row is the mean of its ranks, from 0 to 1,
    in the runs that trained on it: with k folds, in all but the one that held it back.

    Parameters
    ----------
    runs : sequence of RunState
    top : int or float
        How many rows, or what fraction of them.

    Returns
    -------
    dict of ndarray, shape (n,)
        ``run``, the number of the first run that has the row, from 0, and ``id``, its id there; ``runs``, how many
        runs have trained on it; ``visits`` in all of them; ``score``; and ``key``, if the runs have keys.

    Raises
    ------
    PrunedataError
        If rows cannot be joined, nothing was observed, or `top` makes no sense.
    """
    rows = shared_rows(runs)
    samples = rows.shape[1]
    sums, known, visits = np.zeros(samples), np.zeros(samples, np.int64), np.zeros(samples, np.int64)
    for run, places in zip(runs, rows, strict=True):
        run.check_size()
        seen, ranks = searched_visits(run), np.zeros(run.samples)
        which = seen > 0
        ranks[which] = (average_ranks(run.mean_excess[which]) - 0.5) / max(1, int(np.count_nonzero(which)))
        here = np.flatnonzero((places >= 0) & (seen[places] > 0))
        sums[here] += ranks[places[here]]
        known[here] += 1
        visits[here] += seen[places[here]]
    if not known.any():
        raise PrunedataError("Expected samples that were observed. Got none in any of the runs.")
    scores = np.where(known > 0, sums / np.maximum(known, 1), -np.inf)
    worst = np.lexsort((visits, -scores))[: count_top(top, samples)]
    worst = worst[known[worst] > 0]
    first = np.argmax(rows[:, worst] >= 0, axis=0)
    ids = rows[first, worst]
    columns = {"run": first, "id": ids, "runs": known[worst], "visits": visits[worst], "score": scores[worst]}
    keys = [run.keys for run in runs if run.keys is not None]
    if len(keys) < len(runs):
        return columns
    named = [key_text(int(keys[run][sample])) for run, sample in zip(first, ids, strict=True)]
    return columns | {"key": np.array(named, dtype="U16")}
