"""Samples held out: delivered in every epoch, never trained on, and what makes the figure of a run without one."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata import Adapter, Pruner, Schedule
from prunedata.errors import PrunedataError, SkippedSamples, UnweighedWarning
from prunedata.policies import Random
from prunedata.policies.selection import draw_holdout
from tests.common.programs import FEWER

pytestmark = pytest.mark.filterwarnings("ignore::prunedata.errors.UnweighedWarning")  # nothing is trained here
SAMPLES, EPOCHS = 200, 20
SCHEDULE = Schedule.steady(EPOCHS, 4)


def losses(ids, epoch, turn):
    """Wrong labels, each third, are learnt by heart after the onset; all others are believed more till then."""
    held_out_right = 40 + 10 * min(epoch, 2 * turn - epoch)
    believed = ids * 37 % SAMPLES < held_out_right
    return np.where(ids % 3 == 0, 3.0, np.where(believed, 0.1, 1.0))


def start(**options):
    return Pruner(SAMPLES, SCHEDULE, **{"policy": "auto", "prune": 0.4, "holdout": 0.2, **options})


def train(run, turn=6, until=None):
    for epoch in run.epochs():
        for ids in epoch.batches(32):
            run.observe(losses(ids, epoch.number, turn), ids)
        if epoch.number + 1 == until:
            run.end_epoch()
            break
    return run


@FEWER
@given(st.integers(2, 500), st.floats(0.001, 0.999), st.integers(0, 2**40))
def test_what_is_drawn_is_a_share_rounded_up_and_the_same_for_a_seed(samples, share, seed):
    holdout = draw_holdout(samples, share, seed)
    assert holdout.sum() == min(samples - 1, math.ceil(round(samples * share, 9)))
    assert np.array_equal(holdout, draw_holdout(samples, share, seed))


def test_they_are_delivered_in_every_epoch_with_no_weight_and_leave_no_trace():
    run = train(start())
    holdout = draw_holdout(SAMPLES, 0.2, 0)
    assert run.visits[holdout].max() == 0
    assert run.arrays["mean_excess"][holdout].tolist() == [0.0] * 40
    assert run.visits[~holdout].max() == EPOCHS
    assert {record["held_out"] for record in run.history} == {40}
    assert not any("by_weight" in record for record in run.history)
    epoch = start().begin_epoch()
    assert (epoch.kept, epoch.trained_on) == (SAMPLES, 160)
    assert np.array_equal(epoch.factors(np.flatnonzero(holdout)), np.zeros(40, np.float32))
    mixed = np.append(np.flatnonzero(holdout)[:2], np.flatnonzero(~holdout)[:6])
    assert epoch.factors(mixed).mean() == pytest.approx(1.0)  # the mean is over those that count


def test_the_trust_in_their_labels_is_the_figure_and_its_turn_begins_the_pruning():
    run = train(start())
    holdout = np.flatnonzero(draw_holdout(SAMPLES, 0.2, 0))
    trust = [np.mean(np.exp(-losses(holdout, epoch, 6) / 4)) for epoch in range(EPOCHS)]
    assert [record["validation"] for record in run.history] == pytest.approx(trust, abs=1e-6)
    assert run.advice.verdict == "prune"
    kept = [record["kept"] for record in run.history]
    pruned = [record["pruned"] for record in run.history]
    assert kept == [SAMPLES - run.advice.prune * one for one in pruned]
    assert [run.kept_in(epoch) for epoch in range(EPOCHS)] == kept
    assert 0 < run.advice.prune <= 80  # prune=0.4 of all


def test_by_weight_all_are_delivered_and_the_run_counts_the_same():
    out, weighed = train(start()), train(start(leave_out="weight"))
    assert {record["kept"] for record in weighed.history} == {SAMPLES}
    assert weighed.history[-1]["by_weight"] == weighed.advice.prune
    assert np.array_equal(out.visits, weighed.visits)


def test_with_samples_left_out_for_good():
    without = np.arange(50)
    run = train(start(without=without, prune=0.2))
    holdout = draw_holdout(SAMPLES, 0.2, 0)
    assert run.visits[:50].max() == 0
    assert run.history[0]["kept"] == 150
    assert run.history[0]["held_out"] == holdout[50:].sum()
    assert run.history[0]["without"] == 50


def test_they_have_to_be_observed():
    run = start()
    epoch = run.begin_epoch()
    ids = np.flatnonzero(epoch.trained)
    run.observe(np.ones(ids.size), ids)
    with pytest.raises(SkippedSamples, match="Got 40 that were not"):
        run.end_epoch()


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5, "5%", math.nan, True])
def test_what_is_no_share_is_refused(share):
    with pytest.raises(PrunedataError, match="Expected holdout to be a"):
        start(holdout=share)


def test_what_makes_no_sense_beside_it_is_refused():
    with pytest.raises(PrunedataError, match="Got 40 that are not held out: hold fewer out, or prune less"):
        start(holdout=0.8)
    run = start()
    run.begin_epoch()
    with pytest.raises(PrunedataError, match="Expected no validation figure in a run that holds samples out"):
        run.validated(0.5)
    with pytest.raises(PrunedataError, match="build the Pruner without holdout"):
        run.attach(Adapter())


@pytest.mark.filterwarnings("error::prunedata.errors.UnweighedWarning")
@pytest.mark.parametrize("options", [{"holdout": 0.2}, {"holdout": None, "policy": Random(), "leave_out": "weight"}])
def test_a_loop_of_ones_own_that_asks_for_no_factors_is_warned_once(options):
    def train_with(asks):
        run = Pruner(SAMPLES, Schedule(4, window=4, start=1, block=1, pruned_per_block=1), **{"prune": 0.2} | options)
        for epoch in run.epochs():
            for ids in epoch.batches(32):
                losses = np.arange(len(ids), dtype=float)
                run.observe(losses, ids)
                (asks(epoch, ids) * losses).mean()
        return run

    train_with(lambda epoch, ids: epoch.factors(ids))
    with pytest.warns(UnweighedWarning, match=" 40 ") as caught:
        run = train_with(lambda epoch, ids: 1)
    assert len(caught) == 1
    assert len(run.history) == 4


@pytest.mark.parametrize("labels", ["numbers", "names", "some"])
@pytest.mark.parametrize("stop", [None, 3])
def test_with_logits_and_labels_they_have_an_accuracy(labels, stop):
    """Also in an epoch that goes on from a state; a sample without a label, -100, has no part in it."""
    classes = np.arange(SAMPLES) % 5
    given = {
        "numbers": classes,
        "names": np.array(list("abcde"))[classes],
        "some": np.where(np.arange(SAMPLES) % 7, classes, -100),
    }[labels]
    run, judged = start(labels=given), draw_holdout(SAMPLES, 0.2, 0)
    judged &= (np.arange(SAMPLES) % 7 > 0) if labels == "some" else True
    for number in range(4):
        right = np.random.default_rng(number).random(SAMPLES) < 0.2 + 0.2 * number
        for at, ids in enumerate(run.begin_epoch().batches(32)):
            if (number, at) == (1, stop):
                again = start(labels=given)
                again.load_state_dict(run.state_dict())
                run = again
                run.begin_epoch()
            taken = np.where(right, classes, (classes + 1) % 5)[ids]
            run.observe(losses(ids, number, 6), ids, logits=np.eye(5)[taken])
        run.end_epoch()
        assert run.history[-1]["accuracy"] == pytest.approx(right[judged].mean())


def test_without_labels_or_logits_they_have_none():
    run = start()
    for ids in run.begin_epoch().batches(32):
        run.observe(losses(ids, 0, 6), ids, logits=np.eye(5)[ids % 5])
    run.end_epoch()
    assert "accuracy" not in run.history[0]
    assert "accuracy" not in train(start(labels=np.arange(SAMPLES) % 5), until=1).history[0]


@pytest.mark.parametrize(("unit", "warned"), [(0.01, 0), (1, 0), (15, 0), (25, 1), (1e6, 1)])
@pytest.mark.parametrize("holdout", [None, 0.1])
def test_losses_that_are_far_larger_than_cross_entropies_are_told_of_once(unit, warned, holdout):
    pruner = Pruner(100, epochs=6, holdout=holdout)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for epoch in pruner.epochs():
            for ids in epoch.batches(10):
                epoch.factors(ids)
                pruner.observe(np.full(len(ids), unit / (1 + epoch.number)), ids)
    assert sum("exp(-loss / 4)" in str(each.message) for each in told) == (warned if holdout else 0)
