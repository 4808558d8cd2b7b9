"""Arrays that a policy keeps, and visits with a high loss: counted, saved and refused with the run."""

import copy
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata import LossRanked, PrunedataError, Pruner, Schedule
from tests.strategies import SEEDS, pruner

SCHEDULE = Schedule(6, window=3, start=1, block=1, pruned_per_block=1)


def standing(run):
    """All of a run but its seconds."""
    state = run.state_dict()
    del state["state"]["meter"]
    return state


def arrays_of_a_state(spoil):
    run = Pruner(20, SCHEDULE, prune=5, policy=LossRanked(), classes=10)
    run.begin_epoch()
    run.observe(np.arange(15), np.arange(15.0))
    state = copy.deepcopy(run.state_dict())
    spoil(state["arrays"])
    return run, state


@pytest.mark.parametrize("name", ["loss", "high", "open-loss", "open-high"])
@pytest.mark.parametrize("how", ["missing", "short", "of another dtype"])
def test_a_state_without_the_policys_arrays_is_refused_and_changes_nothing(name, how):
    def spoil(arrays):
        if how == "missing":
            del arrays[name]
        elif how == "short":
            arrays[name]["data"] = arrays[name]["data"][:-4]
        else:
            arrays[name] = {"dtype": "<f8", "data": bytes(160)}

    run, state = arrays_of_a_state(spoil)
    before = standing(run)
    with pytest.raises(PrunedataError, match=rf"Expected an array {name} of shape \(20,\)"):
        run.load_state_dict(state)
    assert standing(run) == before


def test_an_open_epoch_leaves_the_arrays_alone():
    """What was selected by them must be selected again when the epoch is resumed."""
    run = Pruner(4, SCHEDULE, prune=2, policy=LossRanked(), classes=2)
    run.begin_epoch()
    run.observe(np.arange(4), np.arange(4.0))
    assert np.isnan(run.arrays["loss"]).all()
    assert run.arrays["high"].tolist() == [0, 0, 0, 0]
    run.end_epoch()
    assert (run.arrays["loss"].tolist(), run.arrays["high"].tolist()) == ([0.0, 1.0, 2.0, 3.0], [0, 1, 1, 1])
    run.arrays["loss"][:] = 7
    assert run.arrays["loss"].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert Pruner(4, SCHEDULE, prune=2).arrays == {}


@given(st.integers(1, 30), st.integers(2, 1000), SEEDS)
def test_high_counts_the_visits_with_a_loss_above_a_blind_guess(samples, classes, seed):
    run = pruner(samples, SCHEDULE, prune=0, classes=classes)
    feed, expected = np.random.default_rng(seed), [0] * samples
    for epoch in run.epochs():
        for batch in epoch.batches(7):
            ids = np.append(batch, feed.integers(0, samples, 3))
            losses = feed.uniform(0, 2 * math.log(classes), ids.size)
            losses[0] = math.log(classes)
            run.observe(ids, losses)
            for x, loss in zip(ids, losses, strict=True):
                expected[x] += loss > math.log(classes)
    assert run.arrays["high"].tolist() == expected
    assert run.arrays["high"].dtype == np.uint16
    assert (run.arrays["high"] <= run.visits).all()


def test_high_saturates():
    run = pruner(2, SCHEDULE, prune=0, classes=2)
    for _ in run.epochs():
        run.observe(np.zeros(40_000, dtype=int), np.ones(40_000))
        run.observe([1], [0.0])
    assert (run.arrays["high"].tolist(), run.visits.tolist()) == ([65_535, 0], [240000, 6])


@pytest.mark.parametrize("classes", [1, 0, -1, 2.5, "10", True])
def test_classes_that_make_no_sense_are_refused(classes):
    with pytest.raises(PrunedataError, match=r"Expected classes to be .* Got"):
        Pruner(5, SCHEDULE, prune=2, classes=classes)
