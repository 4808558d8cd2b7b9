"""policy="auto": a run that watches, is advised by what it saw, follows the advice, and remembers why."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunedata import ForeignStore, NeverPrunesWarning, PrunedataError, Pruner, Schedule, advise
from prunedata.cli.main import main
from prunedata.findings.advice import ADVISED_POLICY
from prunedata.findings.inspection import inspect
from tests.common.marks import FEWER

SAMPLES, CLASSES = 400, 10
SCHEDULE = Schedule(60, 60, 20, 5, 4)
FIRST = 10
"""Epochs that are watched: a sixth of the run."""


def losses(ids, epoch, wrong):
    """Those of the first `wrong` samples stay above a blind guess; all others fall below it."""
    return np.where(ids < wrong, 3.0, 1.0 / (1 + epoch)) + 0.001 * np.cos(ids + epoch)


def run_with(wrong=120, *, epochs=None, run=None, quiet=True, **options):
    if run is None:
        run = Pruner(SAMPLES, SCHEDULE, policy="auto", classes=CLASSES, **{"prune": 0.5, **options})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if quiet else "default", NeverPrunesWarning)
        for epoch in run.epochs():
            for ids in epoch.batches(50):
                run.observe(ids, losses(ids, epoch.number, wrong))
            if epoch.number + 1 == epochs:
                run.end_epoch()
                break
    return run


@FEWER
@given(st.integers(0, SAMPLES // 2), st.sampled_from([0, 0.1, 0.5]))
def test_it_does_what_the_advice_says_but_never_more_than_it_may(wrong, most):
    run = run_with(wrong, prune=most) if most else run_with(wrong, prune=0, observe_only=True)
    watched = run_with(wrong, epochs=FIRST, prune=most, observe_only=True)
    advice = advise(watched.hits, watched.visits, watched.arrays["high"], FIRST, SCHEDULE, SAMPLES, prune=run.prune)
    if 0 < run.prune < advice.prune:
        saving = advice.saving_percent * run.prune / advice.prune
        assert run.advice == replace(advice, prune=run.prune, saving_percent=saving)
        assert run.saved["visits_saved_percent"] == pytest.approx(saving)
    else:
        assert run.advice == advice
    assert advice.verdict == ("prune" if advice.prune else "fewer epochs")
    pruned = SAMPLES - min(advice.prune, run.prune)
    kept = [record["kept"] for record in run.history]
    assert kept[:FIRST] == [SAMPLES] * FIRST
    assert kept[FIRST:] == [pruned if most else SAMPLES] * (SCHEDULE.epochs - FIRST)


def test_labels_wrong_at_random_are_what_it_leaves_out():
    run = run_with(120)
    assert run.advice.verdict == "prune"
    assert run.advice.policy == ADVISED_POLICY == run.policy
    left_out = np.argsort(run.visits, kind="stable")[: run.advice.prune]
    assert set(range(120)) <= set(left_out.tolist())


def test_where_it_would_not_help_it_prunes_nothing_and_says_so_once():
    run = Pruner(SAMPLES, SCHEDULE, prune=0.3, policy="auto", classes=CLASSES)
    with pytest.warns(NeverPrunesWarning, match=r"saves better by fewer epochs: Seen after 10 of 60") as told:
        run_with(0, run=run, quiet=False)
    assert len(told) == 1
    assert run.advice.verdict == "fewer epochs"
    assert not any(record["pruned"] for record in run.history)


@FEWER
@given(stop=st.integers(1, SCHEDULE.epochs - 1), batches=st.integers(0, 3), seed=st.integers(0, 5))
def test_resumed_anywhere_it_is_the_run_that_was_not_stopped(stop, batches, seed):
    whole, begun = run_with(seed=seed), run_with(seed=seed, epochs=stop)
    epoch = begun.begin_epoch()
    for ids in list(epoch.batches(50))[:batches]:
        begun.observe(ids, losses(ids, epoch.number, 120))
    other = Pruner(SAMPLES, SCHEDULE, prune=0.5, policy="auto", classes=CLASSES, seed=seed)
    other.load_state_dict(json.loads(json.dumps(begun.state_dict(), default=list), object_hook=_bytes))
    run_with(run=other)
    assert other.advice == whole.advice
    assert other.schedule == whole.schedule
    for name in ("counts", "hits", "visits"):
        assert np.array_equal(getattr(other, name), getattr(whole, name))
    for name, array in whole.arrays.items():
        assert np.array_equal(other.arrays[name], array)


def _bytes(found):
    return found | {"data": bytes(found["data"])} if isinstance(found.get("data"), list) else found


def test_a_state_from_before_the_advice_takes_it_back():
    run = run_with(epochs=FIRST - 1)
    early = run.state_dict()
    run_with(run=run, epochs=FIRST + 2)
    assert run.advice is not None
    run.load_state_dict(early)
    assert run.advice is None
    assert run.kept_in(SCHEDULE.epochs - 1) == SAMPLES
    run_with(run=run)
    assert np.array_equal(run.visits, run_with().visits)


def test_the_store_says_why_and_inspect_shows_it(tmp_path, capsys):
    run = run_with(epochs=FIRST + 1, store=tmp_path / "run.zarr")
    assert inspect(tmp_path / "run.zarr")["advice"] == json.loads(json.dumps(run.advice.to_dict()))
    assert main(["inspect", str(tmp_path / "run.zarr")]) == 0
    shown = capsys.readouterr().out
    assert f"prune {run.advice.prune:,} of {SAMPLES:,} samples from epoch {FIRST}" in " ".join(shown.split())
    resumed = Pruner(
        SAMPLES, SCHEDULE, prune=0.5, policy="auto", classes=CLASSES, store=tmp_path / "run.zarr", resume=True
    )
    assert resumed.advice == run.advice
    with pytest.raises(ForeignStore, match="policy"):
        Pruner(SAMPLES, SCHEDULE, prune=0.5, classes=CLASSES, store=tmp_path / "run.zarr", resume=True)


def test_it_needs_the_number_of_classes_and_no_other_word():
    with pytest.raises(PrunedataError, match='Expected classes, the number of classes, with policy="auto"'):
        Pruner(10, SCHEDULE, prune=0.5, policy="auto")
    with pytest.raises(PrunedataError, match=r"Expected a policy such as DroppingCount\(\), or \"auto\". Got 'best'"):
        Pruner(10, SCHEDULE, prune=0.5, policy="best")


def test_watching_only_it_says_what_it_would_have_done():
    run = run_with(observe_only=True)
    assert run.advice.verdict == "prune"
    assert not any(record["pruned"] for record in run.history)
    would = [record["would_prune"] for record in run.history]
    assert would == [0] * FIRST + [run.advice.prune] * (SCHEDULE.epochs - FIRST)


@pytest.mark.parametrize("advice", [{}, {"verdict": "prune"}, ["prune"], "prune", 3])
def test_a_state_whose_advice_is_damaged_is_refused_and_changes_nothing(advice):
    run = run_with(epochs=FIRST + 1)
    state, before = run.state_dict(), run.visits
    state["state"]["advice"] = advice
    with pytest.raises(PrunedataError, match=r"Expected advice as|Expected the state of a run, advice being a dict"):
        run.load_state_dict(state)
    assert run.advice.verdict == "prune"
    assert np.array_equal(run.visits, before)
