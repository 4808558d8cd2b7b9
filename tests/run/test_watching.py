"""A run that only observes: it prunes nothing, counts everything, and says what pruning would have saved."""

import json
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata import CostModel, Pruner, Schedule
from prunedata.cli.main import main
from prunedata.errors import ForeignStore
from prunedata.findings.inspection import inspect
from prunedata.policies import EasyPruning, LossRanked, Random
from prunedata.store.run_store import RunStore
from tests.common.strategies import SEEDS, feeds, policies, pruner, schedules

SCHEDULE = Schedule(6, window=3, start=1, block=1, pruned_per_block=1)


def watch(run, epochs=None, feed=None):
    for epoch in run.epochs():
        for ids in epoch.batches(8):
            losses = np.cos(ids + epoch.number) + 1 if feed is None else feed.losses(ids, epoch.number)
            run.observe(losses, ids)
        if epoch.number + 1 == epochs:
            run.end_epoch()
            break
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
    watch(Pruner(200, SCHEDULE, prune=0.3, leave_out="nothing", store=tmp_path / "run.zarr"))
    predicted = CostModel(200, 8, 1.0).predict(SCHEDULE, 0.3).visits_saved_percent
    found = inspect(tmp_path / "run.zarr")
    assert (found["leave_out"], found["classes"]) == ("nothing", None)
    assert found["would_save_percent"] == pytest.approx(predicted)
    assert found["most_pruned"] == []
    assert main(["inspect", str(tmp_path / "run.zarr")]) == 0
    assert f"would have saved {predicted:.2f} % of visits" in capsys.readouterr().out
    assert main(["inspect", "--json", str(tmp_path / "run.zarr")]) == 0
    assert [record["would_prune"] for record in json.loads(capsys.readouterr().out)["history"]] == [0, 60, 60] * 2


def test_a_run_that_prunes_says_nothing_of_it(tmp_path, capsys):
    watch(Pruner(20, SCHEDULE, prune=0.3, store=tmp_path / "run.zarr"))
    found = inspect(tmp_path / "run.zarr")
    assert (found["leave_out"], found["would_save_percent"]) == ("delivery", None)
    assert main(["inspect", str(tmp_path / "run.zarr")]) == 0
    assert "only watches" not in capsys.readouterr().out


def test_that_it_never_prunes_is_no_surprise():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Pruner(20, SCHEDULE, prune=0, leave_out="nothing")


@pytest.mark.parametrize("before", ["delivery", "nothing"])
@pytest.mark.parametrize("epochs", [0, 2])
def test_a_run_never_changes_its_mode_unasked(tmp_path, before, epochs):
    def make(leave_out, **more):
        return Pruner(20, SCHEDULE, prune=5, leave_out=leave_out, **more)

    there, other = make(before, store=tmp_path), "delivery" if before == "nothing" else "nothing"
    if epochs:
        watch(there, epochs)
    with pytest.raises(ForeignStore, match="leave_out: the stored run has"):
        make(other, store=tmp_path, resume=True)
    with pytest.raises(ForeignStore, match="leave_out: the stored run has"):
        make(other).load_state_dict(there.state_dict())
    assert make(before, store=tmp_path, resume=True).next_epoch == epochs


def test_it_goes_on_from_its_store(tmp_path):
    def make(**more):
        return Pruner(20, SCHEDULE, prune=5, policy=LossRanked(), leave_out="nothing", classes=4, **more)

    whole = watch(make())
    run = watch(make(store=tmp_path), epochs=2)
    epoch = run.begin_epoch()
    ids = next(epoch.batches(8))
    run.observe(np.cos(ids + epoch.number) + 1, ids)
    run.commit()
    run = watch(make(store=tmp_path, resume=True))
    assert [record["would_prune"] for record in run.history] == [0, 5, 5, 0, 5, 5]
    for name in ("counts", "hits", "visits"):
        assert np.array_equal(getattr(run, name), getattr(whole, name))
    for name, array in whole.arrays.items():
        assert np.array_equal(run.arrays[name], array)


def test_the_share_of_samples_that_are_nearly_always_high_can_be_read_from_a_store(tmp_path):
    run = Pruner(10, SCHEDULE, prune=2, policy=Random(), leave_out="nothing", classes=10, store=tmp_path)
    for epoch in run.epochs():
        run.observe(np.where(np.arange(10) < 3, 9.0, 0.1 if epoch.number else 9.0), np.arange(10))
    _, arrays = RunStore(tmp_path, mode="r").read()
    assert np.mean(arrays["high"] / arrays["visits"] >= 0.9) == 0.3
    assert {array["name"] for array in inspect(tmp_path)["arrays"]} == {
        "counts", "hits", "visits", "high", "mean_excess",
    }  # fmt: skip
