"""Join several runs by the keys of their rows, into one list of suspects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from prunedata.errors import PrunedataError
from prunedata.findings.compare import average_ranks
from prunedata.findings.searched import searched_visits
from prunedata.findings.table import key_column
from prunedata.findings.top import count_top
from prunedata.keys import places_of
from prunedata.store.state import RunState
from prunedata.types import Array, Arrays, Floats, Ids

__all__ = ["SharedRows", "joined_table", "shared_rows"]


@dataclass(frozen=True, eq=False)
class SharedRows:
    """The rows of several runs, each row once.

    Attributes
    ----------
    places : ndarray of int64, shape (runs, rows)
        The id of each row in each run; -1 where a run has not that row.
    """

    places: Array

    @property
    def first(self) -> Ids:
        """The first run that has each row, shape (rows,)."""
        return np.asarray(np.argmax(self.places >= 0, axis=0))

    @property
    def ids(self) -> Ids:
        """The id of each row in that run, shape (rows,)."""
        return np.asarray(np.take_along_axis(self.places, self.first[np.newaxis], axis=0)[0])


def shared_rows(runs: Sequence[RunState]) -> SharedRows:
    """Find the same rows in several runs: by keys; or by id, if a run has no keys.

    Raises
    ------
    PrunedataError
        If a run has no keys, and the runs are not all of as many samples.
    """
    found = [run.keys for run in runs if run.keys is not None]
    if len(found) == len(runs):
        keys = np.concatenate(found)
        _, first = np.unique(keys, return_index=True)
        rows = keys[np.sort(first)]  # those of the first run in their order, then what others have besides
        return SharedRows(np.stack([places_of(rows, one) for one in found]))
    many = [run.samples for run in runs]
    if len(set(many)) > 1:
        told = " and ".join(f"one of {samples:,}" for samples in many)
        raise PrunedataError(
            f"Expected runs on the same samples, or runs with keys. Got {told}, and not all of them "
            "have keys: train with Pruner(..., keys=...)."
        )
    return SharedRows(np.broadcast_to(np.arange(many[0]), (len(runs), many[0])))


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
    samples = rows.places.shape[1]
    sums, known, visits = np.zeros(samples), np.zeros(samples, np.int64), np.zeros(samples, np.int64)
    for run, places in zip(runs, rows.places, strict=True):
        ranks, seen = _ranks(run)
        here = np.flatnonzero((places >= 0) & (seen[places] > 0))
        sums[here] += ranks[places[here]]
        known[here] += 1
        visits[here] += seen[places[here]]
    if not known.any():
        raise PrunedataError("Expected samples that were observed. Got none in any of the runs.")
    scores = np.where(known > 0, sums / np.maximum(known, 1), -np.inf)
    worst = np.lexsort((visits, -scores))[: count_top(top, samples)]
    worst = worst[known[worst] > 0]
    first, ids = rows.first[worst], rows.ids[worst]
    columns = {"run": first, "id": ids, "runs": known[worst], "visits": visits[worst], "score": scores[worst]}
    if any(run.keys is None for run in runs):
        return columns
    named = np.empty(worst.size, dtype="U16")
    for number, run in enumerate(runs):
        of_it = first == number
        named[of_it] = key_column(run, ids[of_it])["key"]
    return columns | {"key": named}


def _ranks(run: RunState) -> tuple[Floats, Array]:
    """Return the rank of each sample that a run trained on, from 0 to 1, and its visits."""
    run.check_size()
    seen, ranks = searched_visits(run), np.zeros(run.samples)
    which = seen > 0
    if which.any():
        ranks[which] = (average_ranks(run.mean_excess[which]) - 0.5) / np.count_nonzero(which)
    return ranks, seen
