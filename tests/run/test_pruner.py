"""A run: its epochs are what the schedule says, and stopping it anywhere changes nothing."""

import copy
import math
import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata import Adapter, Delivery, Schedule
from prunedata.errors import ForeignStore, PrunedataError
from prunedata.policies import DroppingCount, LossRanked, Random
from tests.common.strategies import SEEDS, PlainRun, feeds, policies, pruner, schedules

SCHEDULE = Schedule(6, window=3, start=1, block=1, pruned_per_block=1)


def by_pickle(state):
    return pickle.loads(pickle.dumps(state))


@given(schedules(), policies(), st.integers(1, 60), st.none() | st.integers(1, 70), SEEDS, st.data())
def test_epochs_are_what_the_schedule_and_the_amount_say(schedule, policy, samples, batch_size, seed, data):
    prune, feed = data.draw(st.integers(0, samples - 1)), data.draw(feeds(samples, max_extra=0))
    run = pruner(samples, schedule, prune=prune, policy=policy, batch_size=batch_size, seed=seed)
    size = batch_size or 1
    kept = min(samples, math.ceil((samples - prune) / size) * size)
    model = PlainRun(samples, schedule, policy, kept, seed)
    numbers = []
    for epoch in run.epochs():
        model.begin()
        numbers.append(epoch.number)
        assert (epoch.pruned, epoch.keep.tolist()) == (schedule.prunes(epoch.number), model.keep)
        assert epoch.kept == np.count_nonzero(epoch.keep) == run.kept_in(epoch.number)
        assert epoch.kept == (kept if epoch.pruned else samples)
        assert (epoch.keep.dtype, epoch.keep.shape) == (np.bool_, (samples,))
        assert run.current is epoch
        assert run.next_epoch == epoch.number == len(run.history)
        for ids in epoch.batches(8):
            run.observe(feed.losses(ids, epoch.number), ids)
            model.observe(ids, feed.losses(ids, epoch.number).tolist())
        assert run.counts.tolist() == model.counts_now()
        model.end()
    assert numbers == list(range(schedule.epochs))
    for record in run.history:
        pruned = record["number"] in schedule.pruned_epochs
        assert (record["pruned"], record["kept"]) == (pruned, kept if pruned else samples)
        assert record["observed"] == record["kept"]
        assert record["seconds"] >= 0
        assert record["overhead"] > 0


@pytest.mark.parametrize("epoch", [-1, SCHEDULE.epochs, 0.5, None])
def test_what_an_epoch_keeps_that_the_schedule_does_not_have_is_refused(epoch):
    with pytest.raises(PrunedataError, match="epoch"):
        pruner(5, SCHEDULE, prune=2).kept_in(epoch)


def test_an_epoch_cannot_be_changed():
    epoch = next(pruner(5, SCHEDULE, prune=2).epochs())
    with pytest.raises(ValueError, match="read-only"):
        epoch.keep[0] = False
    with pytest.raises(FrozenInstanceError):
        epoch.kept = 3


def test_counts_hits_and_visits_are_copies():
    run = pruner(5, SCHEDULE, prune=2)
    next(run.epochs())
    run.observe(np.arange(5.0), np.arange(5))
    for array in (run.counts, run.hits, run.visits):
        np.add(array, 7, out=array)
    assert run.counts.tolist() == [0, 0, 0, 1, 1]
    run.end_epoch()
    for array in (run.counts, run.hits, run.visits):
        np.add(array, 7, out=array)
    assert (run.counts.tolist(), run.hits.tolist(), run.visits.tolist()) == ([0, 0, 0, 1, 1], [0, 0, 0, 1, 1], [1] * 5)


def test_the_mean_loss_and_the_visits_are_recorded():
    run = pruner(4, SCHEDULE, prune=2)
    next(run.epochs())
    run.observe([1.0, 2.0, 6.0], [0, 1, 2])
    run.observe([10.0, 0.5], [3, 3])
    run.end_epoch()
    assert (run.history[0]["mean_loss"], run.history[0]["observed"]) == (pytest.approx(19.5 / 5), 5)


def resumed(run, make):
    """Another run that goes on from where this one stands; it has to know of changed windows from the state alone."""
    other = make()
    other.load_state_dict(by_pickle(run.state_dict()))
    return other


def test_a_state_stays_as_it_was_while_the_run_goes_on():
    run = pruner(20, SCHEDULE, prune=5)
    epochs = run.epochs()
    next(epochs)
    run.observe(np.arange(20.0), np.arange(20))
    state = run.state_dict()
    kept = copy.deepcopy(state)
    next(epochs)
    run.observe(np.arange(20.0), np.arange(20))
    run.end_epoch()
    assert state == kept
    other = pruner(20, SCHEDULE, prune=5)
    other.load_state_dict(state)
    other.history.append({})
    assert state == kept


@pytest.mark.parametrize("twice", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_run_is_not_copied_but_by_its_state(twice):
    with pytest.raises(TypeError, match=r"state_dict\(\)"):
        twice(pruner(20, SCHEDULE, prune=5))


def delivered(run, samples):
    """Let a loader say what it delivered of the open epoch."""
    loader = run.attach(Adapter())
    loader.delivery = Delivery(run.current.number, delivered=samples)
    return loader.delivery


@pytest.mark.parametrize("policy", [DroppingCount(), Random()])
def test_what_a_loader_was_said_to_skip_stays_skipped_after_a_stop(policy):
    run = pruner(20, SCHEDULE, prune=5, policy=policy)
    run.begin_epoch()
    run.observe(np.arange(16.0), np.arange(16))
    run.skip(4)
    delivered(run, 16).end()
    other = resumed(run, lambda: pruner(20, SCHEDULE, prune=5, policy=policy))
    assert next(other.epochs()).number == 1


def test_what_a_loader_delivered_is_done_where_no_losses_are_needed():
    run = pruner(20, SCHEDULE, prune=5, policy=Random())
    run.begin_epoch()
    delivered(run, 20).end()
    other = resumed(run, lambda: pruner(20, SCHEDULE, prune=5, policy=Random()))
    assert next(other.epochs()).number == 1


def test_a_skip_does_not_outlive_an_epoch_that_was_left_early():
    run = pruner(20, SCHEDULE, prune=5)
    run.begin_epoch()
    run.observe(np.arange(8.0), np.arange(8))
    run.skip(4)
    delivered(run, 8)
    other = resumed(run, lambda: pruner(20, SCHEDULE, prune=5))
    epoch = next(other.epochs())
    assert (epoch.number, int(epoch.remaining.sum())) == (0, 12)
    other.observe(np.ones(8), np.arange(8, 16))
    with pytest.raises(PrunedataError, match="Got 4 that were not"):
        other.end_epoch()


def arguments():
    return {"samples": 20, "schedule": SCHEDULE, "prune": 5, "policy": DroppingCount(), "seed": 3, "batch_size": 4}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("samples", 21),
        ("schedule", Schedule(6, window=3, start=2, block=1, pruned_per_block=1)),
        ("schedule", Schedule(6, window=3, start=1, block=1, pruned_per_block=1, reading="printed")),
        ("prune", 6),
        ("policy", Random()),
        ("policy", DroppingCount(tolerance=0.5)),
        ("policy", DroppingCount(by="run")),
        ("seed", 4),
        ("batch_size", 5),
        ("batch_size", None),
        ("schedule", Schedule(6, window=3, start=1, block=1, pruned_per_block=1, anneal=1)),
        ("policy", LossRanked()),
        ("leave_out", "nothing"),
        ("classes", 10),
        ("holdout", 0.2),
    ],
)
def test_the_state_of_another_run_is_refused_and_changes_nothing(name, value):
    there = pruner(**(arguments() | {name: value}))
    next(there.epochs())
    there.observe(np.arange(float(there.samples)), np.arange(there.samples))
    here = pruner(**arguments())
    next(here.epochs())
    here.observe(np.arange(20.0)[::-1], np.arange(20))
    before = comparable(here)
    with pytest.raises(ForeignStore, match=f"{name}: the stored run has .*, you gave "):
        here.load_state_dict(there.state_dict())
    assert comparable(here) == before
    here.end_epoch()


def comparable(run):
    state = run.state_dict()
    state["state"].pop("meter")
    return state


def test_what_was_delivered_of_the_last_epoch_means_nothing_in_the_next():
    run = pruner(20, SCHEDULE, prune=5)
    for epoch in run.epochs():
        run.observe(np.arange(20.0), np.arange(20))
        delivered(run, 20).end()
        if epoch.number == 1:
            break
    assert run.next_epoch == 2
    assert next(run.epochs()).number == 2
    assert run.current.remaining.sum() == run.current.kept
    assert next(run.epochs()).number == 2
