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
    Each row then has what it has in a run that had this data from the start.
    """
    number = count()

    def train(rows, epochs, **options):
        run = new_run(rows, **options)
        batches = wrapped(run, rows)
        for _ in range(epochs):
            epoch = run.begin_epoch()
            for ids, values in batches():
                assert [rows[at] for at in ids] == list(values)
                run.observe(1 + np.cos(np.asarray(values) * 1.7 + epoch.number), np.asarray(ids))
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
        store = folder / str(next(number))
        train(ROWS, 2, store=store)
        with pytest.raises(OtherData, match="or pass follow=True"):
            train(rows, 1, store=store)
        run, whole = train(rows, 1, store=store, follow=True), train(rows, 3)
        known = np.isin(rows, ROWS)
        for name, array in run.arrays.items():
            if name != "mean_excess":  # over the means of batches, which each of the two cuts otherwise
                assert np.array_equal(array[known], whole.arrays[name][known]), name
        assert np.array_equal(run.visits, np.where(known, whole.visits, 1))

    check()


def new_run(rows, *, store=None, **options):
    keys = [f"row {row}" for row in rows]
    return Pruner(
        len(rows), epochs=5, keys=keys, policy=BoundedLoss(), leave_out="nothing", store=store,
        resume=store is not None, **options,
    )  # fmt: skip
