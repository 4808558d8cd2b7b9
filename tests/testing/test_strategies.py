"""The kit's strategies: what they draw is what they say, and hypothesis is asked for by them alone."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from prunedata import Pruner
from prunedata.errors import NeverPrunesWarning, PrunedataError
from prunedata.findings.inspection import inspect
from prunedata.testing import strategies


@given(st.integers(1, 30), st.data())
def test_ids_and_losses_are_those_of_a_batch(samples, data):
    for ids, losses in data.draw(strategies.batches(samples)):
        assert 1 <= ids.size == losses.size <= 10
        assert (ids.dtype, losses.dtype) == (np.int64, np.float64)
        assert 0 <= ids.min() <= ids.max() < samples
        assert np.isfinite(losses).all()


@given(strategies.runs())
def test_runs_go_on(pruner):
    for epoch in pruner.epochs() if pruner.next_epoch < pruner.schedule.epochs else ():
        kept = np.flatnonzero(epoch.keep)
        pruner.observe(np.ones(kept.size), kept)
    assert [record["number"] for record in pruner.history] == list(range(pruner.schedule.epochs))


@given(strategies.stores())
def test_stores_hold_their_runs(stored):
    store, pruner = stored
    assert inspect(store)["history"] == pruner.history
    options = {"policy": pruner.policy, "seed": pruner.seed, "batch_size": pruner.batch_size, "prune": pruner.prune}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NeverPrunesWarning)
        again = Pruner(pruner.samples, pruner.schedule, store=store, resume=True, **options)
    assert again.next_epoch == pruner.next_epoch
    assert np.array_equal(again.counts, pruner.counts)


@pytest.mark.parametrize("place", ["before", "between", "within", "done"])
def test_runs_are_drawn_at_every_place(place):
    def is_there(pruner):
        done, epochs = len(pruner.history), pruner.schedule.epochs
        open_ = done < epochs and pruner.next_epoch == done and pruner.state_dict() and is_open(pruner)
        return place == ("within" if open_ else "done" if done == epochs else "between" if done else "before")

    find(strategies.runs(), is_there, settings=settings(max_examples=1000, database=None, phases=[Phase.generate]))


def is_open(pruner):
    try:
        return pruner.current is not None
    except PrunedataError:
        return False


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import prunedata, prunedata.testing; print('hypothesis' in sys.modules)", "False"),
        ("sys.modules['hypothesis'] = None; import prunedata.testing.strategies", "pip install hypothesis"),
    ],
    ids=["not imported", "not installed"],
)
def test_hypothesis_is_asked_for_by_the_strategies_alone(code, said):
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}"], capture_output=True, encoding="utf-8", check=False
    )
    assert (done.stdout + done.stderr).strip().splitlines()[-1].endswith(said)
