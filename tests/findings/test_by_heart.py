"""How many epochs a run had before it learnt wrong labels by heart, by what each epoch showed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata import Pruner, Schedule
from prunedata.findings.advice import Advice, advise
from prunedata.findings.by_heart import (
    FALLEN,
    FAST,
    FIRST,
    STILL_LEARNING,
    above_guess,
    epochs_before,
    fall_per_epoch,
    learns_fast,
)

SHARES = st.lists(st.floats(0.001, 1), min_size=1, max_size=40)
SCHEDULE = Schedule(30, 30, 29, 1, 1)


@given(SHARES, st.floats(0.01, 0.6))
def test_it_is_the_first_epoch_that_has_lost_a_third(shares, wrong):
    found = epochs_before(shares, wrong)
    if len(shares) <= FIRST or shares[FIRST] > STILL_LEARNING * wrong:
        assert found is None
        return
    level = FALLEN * shares[FIRST]
    if found is None:
        assert min(shares[FIRST:]) > level
    else:
        assert found > FIRST
        assert shares[found] <= level < min(shares[FIRST:found])


@given(SHARES, st.floats(0.01, 0.6), st.integers(0, 39))
def test_what_was_seen_stays_seen(shares, wrong, first):
    early = epochs_before(shares[:first], wrong)
    assert early is None or epochs_before(shares, wrong) == early


@given(SHARES, st.floats(0.01, 0.6))
def test_the_fall_of_an_epoch_is_a_part_of_what_was_there(shares, wrong):
    fall = fall_per_epoch(shares, wrong)
    assert 0 <= fall <= 1
    assert learns_fast(shares, wrong) == (fall >= FAST)
    if fall:
        assert min(shares[FIRST:]) < shares[FIRST]


@pytest.mark.parametrize(
    ("shares", "fall"),
    [
        ([], 0.0),
        ([0.4, 0.3, 0.2], 0.0),
        ([0.4, 0.3, 0.2, 0.3], 0.0),
        ([0.4, 0.3, 0.0, 0.0], 0.0),
        ([0.4, 0.3, 0.2, 0.19, 0.18], 0.05),
        # From the epoch that has lost a third nothing is learnt by heart any more that would say how fast it went.
        ([0.4, 0.3, 0.2, 0.17, 0.15, 0.13, *[0.12] * 20], 0.35 / 3),
    ],
)
def test_the_fall_of_an_epoch_counts_from_the_third_to_that_which_has_lost_a_third(shares, fall):
    assert fall_per_epoch(shares, 0.3) == pytest.approx(fall)


# What each epoch of 30 showed, rounded, and the length at which regular training was best (one seed).
MEASURED = {
    "head, 40% random": ([0.37, 0.35, 0.34, 0.32, 0.31, 0.29, 0.28, 0.26, 0.24, 0.23, 0.216], 0.30, 10, 9),
    "head, 20% random": ([0.26, 0.23, 0.221, 0.21, 0.20, 0.19, 0.18, 0.17, 0.15, 0.146], 0.17, 9, 9),
    "head, people's": ([0.27, 0.24, 0.232, 0.22, 0.21, 0.20, 0.19, 0.18, 0.17, 0.158, 0.148], 0.18, 10, 7),
}


@pytest.mark.parametrize("name", MEASURED)
def test_runs_that_were_measured(name):
    shares, wrong, found, best = MEASURED[name]
    assert epochs_before(shares, wrong) == found
    assert abs(found - best) <= 3


@pytest.mark.parametrize(
    ("shares", "wrong", "fast"),
    [
        pytest.param([0.406, 0.267, 0.270, 0.263, 0.257], 0.20, True, id="a convolutional network, people's errors"),
        pytest.param([0.424, 0.281, 0.270, 0.258, 0.251], 0.20, True, id="the same, 20% wrong at random"),
        pytest.param(MEASURED["head, 20% random"][0][:5], 0.20, True, id="a head"),
        pytest.param([0.214, 0.187, 0.184, 0.180, 0.178], 0.19, False, id="a table"),
    ],
)
def test_runs_that_were_measured_learn_wrong_labels_fast_or_slowly(shares, wrong, fast):
    assert learns_fast(shares, wrong) is fast


def record(observed=100, high=30, *, pruned=False):
    return {"pruned": pruned, "observed": observed, "high": high}


def test_only_what_came_before_the_first_pruned_epoch_counts():
    history = [record(), record(high=20), record(50, 20, pruned=True), record()]
    assert above_guess(history) == [0.3, 0.2]
    assert above_guess([record(), {"pruned": False, "observed": 100}]) == [0.3]
    assert above_guess([record(observed=0, high=0)]) == []


def test_a_run_writes_down_how_many_losses_of_an_epoch_were_above_a_blind_guess():
    run = Pruner(8, Schedule(3, 3, 2, 1, 1), prune=2, classes=4)
    for number, epoch in enumerate(run.epochs()):
        losses = np.where(np.arange(8) < 4 - number, 2.0, 1.0)  # ln(4) is 1.39
        for ids in epoch.batches(4):
            run.observe(ids, losses[ids])
    assert [one["high"] for one in run.history[:2]] == [4, 3]
    other = Pruner(8, SCHEDULE, prune=2)
    other.begin_epoch()
    other.observe(np.arange(8), np.ones(8))
    other.end_epoch()
    assert "high" not in other.history[0]


def watched(shares):
    """Counts of 1,000 samples after 12 epochs, of which 30% look wrong, and a history that shows these shares."""
    visits, high = np.full(1000, 12, np.uint8), np.zeros(1000, np.uint8)
    high[:300] = 12
    history = [record(1000, round(1000 * share)) for share in shares]
    return advise(high, visits, high, 12, SCHEDULE, 1000, history=history)


def test_advice_to_prune_says_when_to_train_shorter_instead():
    falls = watched([0.4, 0.36, 0.33, *np.linspace(0.33, 0.2, 9)])
    assert (falls.verdict, falls.shorter) == ("prune", 10)
    assert "fell from 33% of the visits in epoch 2 to 22% in epoch 10" in falls.evidence[-1]
    assert "train shorter, about 10 epochs" in falls.evidence[-1]
    stays = watched([0.4, 0.36, *[0.33] * 10])
    assert (stays.verdict, stays.shorter) == ("prune", None)
    assert len(stays.evidence) == len(falls.evidence) - 1
    assert watched([]).shorter is None
    assert Advice.from_dict(falls.to_dict()) == falls


def test_advice_that_was_written_before_can_be_read():
    plain = watched([]).to_dict()
    del plain["shorter"]
    assert Advice.from_dict(plain).shorter is None
