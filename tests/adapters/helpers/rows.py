"""Data that changes between two runs, and what has to become of what is known of each row."""

import numpy as np
import pytest

from prunedata import Pruner
from prunedata.errors import OtherData

__all__ = ["check_rows_are_followed"]

ROWS = list(range(40))
CHANGES = {
    "swapped": [1, 0, *ROWS[2:]],
    "shuffled": np.random.default_rng(0).permutation(ROWS).tolist(),
    "filtered": [row for row in ROWS if row % 3],
    "appended": [*ROWS, 40, 41, 42],
    "split again": [45, *ROWS[:9:-2], 44, *ROWS[4:9:2]],
}


def check_rows_are_followed(wrapped, folder):
    """Check that changed data is noticed and followed, and that the loader goes on with it.

    ``wrapped(pruner, rows)`` returns a function that yields the ``(ids, values)`` of an epoch; values are the rows.
    """

    def train(rows, **options):
        run = Pruner(
            len(rows), epochs=5, keys=[f"row {row}" for row in rows], leave_out="nothing", resume=True, **options
        )
        batches = wrapped(run, rows)
        run.begin_epoch()
        for ids, values in batches():
            assert [rows[at] for at in ids] == list(values)
            run.observe(np.cos(np.asarray(values) * 1.7), np.asarray(ids))
        run.end_epoch()
        return run

    for name, rows in CHANGES.items():
        store = folder / name
        known = train(ROWS, store=store).arrays["mean_excess"]
        with pytest.raises(OtherData, match="or pass follow=True"):
            train(rows, store=store)
        run = Pruner(len(rows), epochs=5, keys=[f"row {row}" for row in rows], leave_out="nothing", store=store,
                     resume=True, follow=True)  # fmt: skip
        expected = [known[row] if row in ROWS else 0 for row in rows]
        assert run.arrays["mean_excess"].tolist() == expected, name
        del run
        run = train(rows, store=store)
        assert run.visits.tolist() == [1 + (row in ROWS) for row in rows], name
