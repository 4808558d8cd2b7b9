"""Samples that are left out by weight: delivered, of no weight, and without a trace in what the run knows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata import Pruner, Schedule
from prunedata.cli.main import main
from prunedata.errors import ForeignStore, NeverPrunesWarning, PrunedataError, SkippedSamples
from prunedata.findings.inspection import inspect
from prunedata.policies import DroppingCount, LossRanked
from prunedata.reporting.facts import facts_of
from prunedata.run.adapter import Adapter
from tests.common.strategies import SEEDS, feeds, policies, pruner, schedules
from tests.run.alike import assert_alike

pytestmark = pytest.mark.filterwarnings("ignore::prunedata.errors.UnweighedWarning")  # nothing is trained here
SCHEDULE = Schedule(6, window=6, start=1, block=3, pruned_per_block=2)


def start(samples=60, **options):
    return Pruner(samples, SCHEDULE, **{"prune": 20, "seed": 3, "leave_out": "weight", **options})


def batches_of(epoch, which, size=8):
    """All ids in fixed batches, of each what is in a mask: as a batch sampler gives them."""
    for ids in np.array_split(np.random.default_rng(epoch.number).permutation(which.size), -(-which.size // size)):
        if which[ids].any():
            yield ids[which[ids]]


def train(run, feed=None, epochs=None, which="remaining"):
    """Observe the batches, and give each epoch with the losses that its factors make of them."""
    for epoch in run.epochs():
        for ids in batches_of(epoch, getattr(epoch, which)):
            run.observe(np.cos(ids * 1.7 + epoch.number) if feed is None else feed.losses(ids, epoch.number), ids)
        yield epoch
        if epoch.number + 1 == epochs:
            run.end_epoch()
            return


@given(
    schedules(),
    policies() | st.just(LossRanked()),
    st.integers(1, 40),
    st.none() | st.integers(1, 9),
    SEEDS,
    st.booleans(),
    st.data(),
)
def test_the_run_knows_and_leaves_out_what_it_does_by_leaving_out(
    schedule, policy, samples, batch_size, seed, some_without, data
):
    prune, feed = data.draw(st.integers(0, samples - 1)), data.draw(feeds(samples))
    without = np.arange(samples) < min(3, samples - prune - 1) if some_without else None
    options = {"prune": prune, "policy": policy, "seed": seed, "batch_size": batch_size, "classes": 3}
    options["without"] = without
    shorter, run = (pruner(samples, schedule, leave_out=leave_out, **options) for leave_out in ("delivery", "weight"))
    for one, other in zip(train(shorter, feed), train(run, feed), strict=True):
        trained = other.trained
        np.testing.assert_array_equal(trained, one.keep)
        np.testing.assert_array_equal(other.keep, np.ones(samples, bool) if without is None else ~without)
        assert (other.pruned, other.trained_on, other.kept) == (one.pruned, one.kept, np.count_nonzero(other.keep))
        if one.kept < other.kept:
            weights = one.keep.astype(np.float32) if one.weights is None else one.weights
            np.testing.assert_array_equal(other.weights, weights)
    assert_alike(run, shorter, "kept", "by_weight")
    assert run.saved["visits_saved"] == 0
    assert run.saved["visits_by_weight"] == shorter.saved["visits_saved"]
    assert run.saved["pruned_epochs"] == shorter.saved["pruned_epochs"]
    assert run.total_batches(4) == -(-run.kept_in(0) // 4) * schedule.epochs


@given(st.integers(1, 58), st.integers(1, 60), st.sampled_from([DroppingCount(), LossRanked()]), st.data())
def test_the_mean_is_over_what_counts(prune, size, policy, data):
    run, losses = start(prune=prune, policy=policy), np.random.default_rng(size).normal(size=60)
    for epoch in run.epochs():
        ids = np.array(data.draw(st.lists(st.integers(0, 59), min_size=size, max_size=size)))
        trained = epoch.trained
        own = ids[trained[ids]]
        weights = np.ones(60) if epoch.weights is None else epoch.weights
        expected = (weights[own] * losses[own]).sum() / own.size if own.size else 0.0
        assert (epoch.factors(ids) * losses[ids]).mean() == pytest.approx(expected, abs=1e-5)
        run.observe(losses, np.arange(60))


def test_what_is_left_out_has_to_be_observed_and_a_loss_that_is_none_is_an_error():
    run = start()
    list(train(run, epochs=1))
    epoch = run.begin_epoch()
    ids = np.flatnonzero(epoch.trained)
    run.observe(np.cos(ids), ids)
    with pytest.raises(SkippedSamples, match="Got 20 that were not"):
        run.end_epoch()
    assert not run.begin_epoch().remaining[ids].any()
    out = np.flatnonzero(~epoch.trained)
    run.observe(np.cos(out), out)
    before = run.visits
    run.end_epoch()
    assert run.history[-1]["observed"] == 40
    assert (run.visits - before)[out].sum() == 0


def test_a_run_never_changes_its_way_unasked_and_the_store_says_it(tmp_path, capsys):
    list(train(start(store=tmp_path)))
    assert inspect(tmp_path)["leave_out"] == "weight"
    assert main(["inspect", str(tmp_path)]) == 0
    assert "nothing in 6 epochs; 80 visits had no weight" in capsys.readouterr().out
    facts = facts_of(tmp_path)
    assert (facts.pruned.tolist(), facts.saved["visits_saved"]) == ([False, True, True] * 2, 0)
    with pytest.raises(ForeignStore, match="leave_out: the stored run has 'weight', you gave 'delivery'"):
        start(store=tmp_path, resume=True, leave_out="delivery")
    assert "leave_out" not in start(leave_out="delivery").standing()
    assert start().standing()["leave_out"] == "weight"
    for wrong in ("weights", 1, True, None):
        with pytest.raises(PrunedataError, match="Expected leave_out to be 'delivery' or 'weight' or 'nothing'"):
            start(leave_out=wrong)


def test_nothing_of_it_is_there_where_nothing_is_left_out():
    for options in ({"leave_out": "nothing"}, {"prune": 0}):
        with pytest.warns(NeverPrunesWarning) if "prune" in options else pytest.MonkeyPatch.context():
            run = start(**options)
        for epoch in train(run):
            assert (epoch.zero_weights, epoch.weights, epoch.trained_on) == (False, None, 60)
        assert not any("by_weight" in record for record in run.history)


def test_an_adapter_that_cannot_is_refused():
    class Cannot(Adapter):
        pass

    class Can(Adapter):
        by_weight = True

    with pytest.raises(PrunedataError, match=r"can leave samples out by weight\. Got Cannot"):
        start().attach(Cannot())
    start().attach(Can())
    start(leave_out="delivery").attach(Cannot())
