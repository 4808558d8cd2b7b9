"""Data that changes between two runs, and what has to become of what is known of each row."""

from itertools import count

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prunedata import Pruner
from prunedata.errors import OtherData
from prunedata.policies import BoundedLoss
from tests.common.programs import FEWER

__all__ = ["check_rows_are_followed"]

ROWS = list(range(40))
FRESH = [40, 41, 42]
CHANGES = st.permutations(ROWS + FRESH).flatmap(lambda rows: st.integers(8, len(rows)).map(lambda most: rows[:most]))


def check_rows_are_followed(wrapped, folder):
    """Check that changed data is noticed and followed, and that the loader goes on with it.

    ``wrapped(pruner, rows)`` returns a function that yields the ``(ids, values)`` of an epoch; values are the rows.
    Each row then has what it has in a run that had this data from the start, all of it: hits and excess too, as both
    runs observe the rows that stay in the same batches.
    """
    number = count()

    def train(rows, epochs, stay, **options):
        run = new_run(rows, **options)
        batches = wrapped(run, rows)
        for _ in range(epochs):
            epoch, place = run.begin_epoch(), {}
            for ids, values in batches():
                assert [rows[at] for at in ids] == list(values)
                place |= dict(zip(map(int, values), map(int, ids), strict=True))
            for some in (stay, sorted(set(place) - set(stay))):
                for batch in (some[first : first + 6] for first in range(0, len(some), 6)):
                    ids = np.array([place[row] for row in batch])
                    run.observe(1 + np.cos(np.array(batch) * 1.7 + epoch.number), ids)
            run.end_epoch()
        return run

    @FEWER
    @given(CHANGES)
    @example([1, 0, *ROWS[2:]])
    @example(np.random.default_rng(0).permutation(ROWS).tolist())
    @example([row for row in ROWS if row % 3])
    @example(ROWS + FRESH)
    @example([42, *ROWS[:9:-2], 40, *ROWS[4:9:2]])  # split again
    def check(rows):
        if rows == ROWS:
            return
        store, stay = folder / str(next(number)), sorted(set(rows) & set(ROWS))
        train(ROWS, 2, stay, store=store)
        with pytest.raises(OtherData, match="or pass follow=True"):
            train(rows, 1, stay, store=store)
        run, whole = train(rows, 1, stay, store=store, follow=True), train(rows, 3, stay)
        known = np.isin(rows, ROWS)
        for name, array in known_of(run).items():
            assert np.array_equal(array[known], known_of(whole)[name][known]), name
        assert run.hits.any()
        assert np.array_equal(run.visits, np.where(known, 3, 1))

    check()


def new_run(rows, *, store=None, **options):
    keys = [f"row {row}" for row in rows]
    return Pruner(
        len(rows), epochs=5, keys=keys, policy=BoundedLoss(), leave_out="nothing", store=store,
        resume=store is not None, **options,
    )  # fmt: skip


def known_of(run):
    return {"counts": run.counts, "hits": run.hits, "visits": run.visits, **run.arrays}
