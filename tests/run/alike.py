"""What two runs have in common if one is to be as the other."""

import numpy as np

__all__ = ["assert_alike", "known", "records"]


def known(run):
    """All that a run knows of its samples, by name."""
    return {"counts": run.counts, "hits": run.hits, "visits": run.visits, **run.arrays}


def records(run, *but):
    """The records of a run's epochs, without what measures time, and without the keys in `but`."""
    left = {"seconds", "overhead", *but}
    return [{name: value for name, value in record.items() if name not in left} for record in run.history]


def assert_alike(one, other, *but):
    """Two runs know the same, bit for bit, and have the same records, except for the keys in `but`."""
    assert records(one, *but) == records(other, *but)
    found, expected = known(one), known(other)
    assert found.keys() == expected.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name], name)
