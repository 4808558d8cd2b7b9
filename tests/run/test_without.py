"""Samples that are left out for good, and runs that only watch."""

import json
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata import CostModel, Pruner, Schedule
from prunedata.cli.main import main
from prunedata.errors import ForeignStore, PrunedataError
from prunedata.findings.inspection import inspect
from prunedata.findings.table import suspect_table
from prunedata.policies import DroppingCount, EasyPruning, LossRanked, Random, RunningLoss
from tests.common.strategies import SEEDS, feeds, policies, pruner, schedules

# Samples that are left out for good: a run over them is one over a smaller data set, whatever happens to it.


pytestmark = pytest.mark.filterwarnings("ignore::prunedata.errors.UnweighedWarning")  # nothing is trained here

SAMPLES = 100
SCHEDULE = Schedule(6, window=6, start=1, block=3, pruned_per_block=2)
BAD = np.arange(SAMPLES) % 10 == 3
POLICIES = [DroppingCount(), DroppingCount(1.0, "run"), Random(), RunningLoss(), LossRanked(), EasyPruning()]


def start(**options):
    return Pruner(SAMPLES, SCHEDULE, **{"prune": 20, "seed": 3, "without": BAD, **options})


def train(pruner, epochs=6, numbers=None):
    """Observe each epoch in batches of about ten; with `numbers`, a sample's loss is that of the number."""
    numbers = np.arange(pruner.samples) if numbers is None else numbers
    while pruner.next_epoch < epochs:
        epoch = pruner.begin_epoch()
        for ids in np.array_split(np.flatnonzero(epoch.remaining), 9):
            pruner.observe(np.cos(numbers[ids] * 1.7 + epoch.number), ids)
        yield epoch
        pruner.end_epoch()


@given(st.sampled_from(POLICIES), st.lists(st.booleans(), min_size=SAMPLES, max_size=SAMPLES), st.integers(1, 40))
def test_the_run_is_that_of_a_data_set_without_them(policy, bad, prune):
    bad = np.array(bad)
    rest = np.flatnonzero(~bad)
    if rest.size <= prune:
        with pytest.raises(PrunedataError, match=f"Got {rest.size} that are not left out for good"):
            start(without=bad, prune=prune, policy=policy)
        return
    pruner = start(without=bad, prune=prune, policy=policy)
    alone = Pruner(rest.size, SCHEDULE, prune=prune, seed=3, policy=policy)
    assert pruner.total_batches(7) == alone.total_batches(7)
    for ours, theirs in zip(train(pruner), train(alone, numbers=rest), strict=True):
        assert np.flatnonzero(ours.keep).tolist() == rest[theirs.keep].tolist()
        assert (ours.weights is None) == (theirs.weights is None)
        if ours.weights is not None:
            np.testing.assert_array_equal(ours.weights[rest], theirs.weights)
            assert not ours.weights[bad].any()
    for name in ("counts", "hits", "visits"):
        np.testing.assert_array_equal(getattr(pruner, name)[rest], getattr(alone, name))
    assert not pruner.visits[bad].any()
    same = ("visits", "visits_saved", "visits_saved_percent", "pruned_epochs")
    assert [pruner.saved[name] for name in same] == [alone.saved[name] for name in same]
    assert [record.get("without", 0) for record in pruner.history] == [bad.sum()] * 6


def test_ids_say_the_same_as_a_mask_and_the_arguments_stay_as_they_are():
    bad = BAD.copy()
    by_mask, by_ids = start(without=bad), start(without=np.flatnonzero(BAD).tolist())
    bad[:] = True
    assert by_mask.without.tolist() == by_ids.without.tolist() == BAD.tolist()
    by_mask.without[:] = True
    assert by_mask.without.tolist() == BAD.tolist()
    assert not start(without=[]).without.any()
    assert not start(without=None).without.any()


@pytest.mark.parametrize(
    "wrong", [np.ones(7, bool), [0, 100], [-1], np.ones((2, 2), int), ["a"], [0.5], 3, BAD.astype(int)]
)
def test_what_is_neither_is_refused(wrong):
    with pytest.raises(PrunedataError, match=r"Expected without to be a mask of shape \(100,\)"):
        start(without=wrong)


def test_batch_size_and_leaving_out_nothing():
    pruner = start(batch_size=16)
    assert [epoch.kept for epoch in train(pruner)] == [90, 80, 80, 90, 80, 80]
    pruner = start(leave_out="nothing")
    assert [epoch.kept for epoch in train(pruner)] == [90] * 6
    assert [record["would_prune"] for record in pruner.history] == [0, 20, 20, 0, 20, 20]


def test_the_store_keeps_them_and_a_resumed_run_need_not_name_them(tmp_path):
    place = tmp_path / "run.zarr"
    whole = [epoch.keep.tolist() for epoch in train(start())]
    first = [epoch.keep.tolist() for epoch in train(start(store=place), 2)]
    assert inspect(place)["without"] == 10
    resumed = start(store=place, resume=True, without=None)
    assert resumed.without.tolist() == BAD.tolist()
    assert first + [epoch.keep.tolist() for epoch in train(resumed)] == whole


def test_more_can_be_left_out_of_a_run_that_goes_on(tmp_path):
    place, more = tmp_path / "run.zarr", np.arange(5)
    list(train(start(store=place), 2))
    start(store=place, resume=True, without=more)  # and stopped at once
    resumed = start(store=place, resume=True, without=None)
    both = BAD.copy()
    both[more] = True
    assert resumed.without.tolist() == both.tolist()
    assert [epoch.kept for epoch in train(resumed)] == [66, 86, 66, 66]
    assert not resumed.visits[more].max() > 2
    assert [record["without"] for record in resumed.history] == [10, 10, 14, 14, 14, 14]
    assert resumed.saved["visits"] + resumed.saved["visits_saved"] == 2 * 90 + 4 * 86


def test_a_checkpoint_within_an_epoch(tmp_path):
    pruner = start()
    list(train(pruner, 1))
    epoch = pruner.begin_epoch()
    ids = np.flatnonzero(epoch.keep)[:30]
    pruner.observe(np.cos(ids), ids)
    state = pruner.state_dict()
    for without in (None, BAD):
        resumed = start(without=without)
        resumed.load_state_dict(state)
        again = resumed.begin_epoch()
        assert again.keep.tolist() == epoch.keep.tolist()
        assert int(again.remaining.sum()) == 40
    with pytest.raises(PrunedataError, match=r"Expected epoch 1 to go on as it began\. Got more samples"):
        start(without=[0]).load_state_dict(state)
    few = start(without=np.arange(75))
    with pytest.raises(PrunedataError, match="prune less"):
        few.load_state_dict(start(without=np.arange(75, 95), prune=20).state_dict())
    assert few.without.sum() == 75


def test_a_run_that_is_stopped_before_its_first_epoch_has_not_forgotten_them(tmp_path):
    start(store=tmp_path / "run.zarr")
    assert start(store=tmp_path / "run.zarr", resume=True, without=None).without.tolist() == BAD.tolist()


def test_a_damaged_mask_is_refused():
    state = start().state_dict()
    state["arrays"]["without"]["dtype"] = "<u2"
    state["arrays"]["without"]["data"] *= 2
    with pytest.raises((PrunedataError, ForeignStore), match="array without"):
        start().load_state_dict(state)


def test_what_was_cleaned_is_no_suspect_and_not_pruned_most(tmp_path):
    place = tmp_path / "run.zarr"
    options = {"prune": 5, "store": place, "classes": 10, "leave_out": "nothing"}
    pruner = Pruner(SAMPLES, Schedule(6, 6, 3, 1, 1), **options)
    for epoch in pruner.epochs():
        ids = np.flatnonzero(epoch.keep)
        pruner.observe(np.where(BAD[ids], 4.0, 0.1), ids)
    assert set(suspect_table(place, top=10)["id"]) == set(np.flatnonzero(BAD))
    longer = Schedule(8, 8, 3, 1, 1)
    resumed = Pruner(SAMPLES, longer, **options, resume=True, without=suspect_table(place, top=10)["id"])
    for epoch in resumed.epochs():
        ids = np.flatnonzero(epoch.keep)
        assert not BAD[ids].any()
        resumed.observe(np.cos(ids) + 1, ids)
    assert not set(suspect_table(place, top=10)["id"]) & set(np.flatnonzero(BAD))
    found = inspect(place)
    assert not {one["id"] for one in found["most_pruned"]} & set(np.flatnonzero(BAD))
    assert found["without"] == 10


# A run that only observes: it prunes nothing, counts everything, and says what pruning would have saved.


WATCHED = Schedule(6, window=3, start=1, block=1, pruned_per_block=1)


def watch(run, feed=None):
    for epoch in run.epochs():
        for ids in epoch.batches(8):
            losses = np.cos(ids + epoch.number) + 1 if feed is None else feed.losses(ids, epoch.number)
            run.observe(losses, ids)
    return run


@given(
    schedules(),
    policies() | st.just(LossRanked()) | st.just(EasyPruning()),
    st.integers(1, 40),
    st.none() | st.integers(1, 50),
    SEEDS,
    st.data(),
)
def test_nothing_is_pruned_and_all_is_counted(schedule, policy, samples, batch_size, seed, data):
    prune, feed = data.draw(st.integers(0, samples - 1)), data.draw(feeds(samples))
    options = {"policy": policy, "seed": seed, "batch_size": batch_size}
    run = pruner(samples, schedule, prune=prune, leave_out="nothing", **options)
    other = pruner(samples, schedule, prune=prune, **options)
    regular = watch(pruner(samples, schedule, prune=0, **options), feed=feed)
    for epoch in run.epochs():
        assert (epoch.pruned, epoch.kept, epoch.weights) == (False, samples, None)
        assert epoch.keep.all()
        assert run.kept_in(epoch.number) == samples
        for ids in epoch.batches(8):
            run.observe(feed.losses(ids, epoch.number), ids)
    for name in ("counts", "hits", "visits"):
        assert np.array_equal(getattr(run, name), getattr(regular, name))
    would = [samples - other.kept_in(number) for number in range(schedule.epochs)]
    assert [record["would_prune"] for record in run.history] == would
    assert {(record["pruned"], record["kept"]) for record in run.history} == {(False, samples)}
    assert not any("would_prune" in record for record in regular.history)


def test_what_it_says_is_what_the_plan_says(tmp_path, capsys):
    watch(Pruner(200, WATCHED, prune=0.3, leave_out="nothing", store=tmp_path / "run.zarr"))
    predicted = CostModel(200, 8, 1.0).predict(WATCHED, 0.3).visits_saved_percent
    found = inspect(tmp_path / "run.zarr")
    assert (found["leave_out"], found["classes"]) == ("nothing", None)
    assert found["would_save_percent"] == pytest.approx(predicted)
    assert found["most_pruned"] == []
    assert main(["inspect", str(tmp_path / "run.zarr")]) == 0
    assert f"would have saved {predicted:.2f} % of visits" in capsys.readouterr().out
    assert main(["inspect", "--json", str(tmp_path / "run.zarr")]) == 0
    assert [record["would_prune"] for record in json.loads(capsys.readouterr().out)["history"]] == [0, 60, 60] * 2


def test_that_it_never_prunes_is_no_surprise():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Pruner(20, WATCHED, prune=0, leave_out="nothing")
