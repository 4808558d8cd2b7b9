"""cleanlab's Datalab takes what a run has seen as an issue of its own."""

import importlib

import numpy as np
import pytest

from prunedata import Pruner, Schedule
from prunedata.errors import PrunedataError
from prunedata.policies import RunningLoss
from prunedata.policies.selection import draw_holdout

SAMPLES = 60
ISSUE = "training_dynamics"


@pytest.fixture(scope="module")
def Datalab():
    found = pytest.importorskip("cleanlab").Datalab
    importlib.import_module("prunedata.adapters.cleanlab")
    return found


def watched(classes=None, epochs=8, store=None):
    schedule = Schedule(8, 8, 2, 2, 1)
    pruner = Pruner(SAMPLES, schedule, prune=15, leave_out="nothing", classes=classes, store=store)
    ids = np.arange(SAMPLES)
    for number in range(epochs):
        pruner.begin_epoch()
        pruner.observe(np.where(ids % 5 == 0, 4.0, 2.5 / (1 + number)), ids)
        pruner.end_epoch()
    return pruner


def lab_of(kind, samples=SAMPLES, **options):
    return kind({"label": [place % 3 for place in range(samples)]}, verbosity=0, **{"label_name": "label", **options})


@pytest.mark.parametrize("classes", [None, 10])
def test_the_samples_that_stayed_high_are_issues(Datalab, classes, tmp_path, capsys):
    pruner, lab = watched(classes, store=tmp_path / "run.zarr"), lab_of(Datalab)
    lab.find_issues(issue_types={ISSUE: {"run": str(tmp_path / "run.zarr")}})
    issues = lab.get_issues(ISSUE)
    assert issues[f"is_{ISSUE}_issue"].tolist() == [place % 5 == 0 for place in range(SAMPLES)]
    assert issues[f"{ISSUE}_score"].between(0, 1).all()
    assert lab.get_issue_summary(ISSUE)["num_issues"].tolist() == [12]
    again = lab_of(Datalab)
    again.find_issues(issue_types={ISSUE: {"run": pruner}})
    assert again.get_issues(ISSUE).equals(issues)
    lab.report(verbosity=1)
    assert "Samples whose losses stayed above" in capsys.readouterr().out


@pytest.mark.parametrize("task", ["regression", "multilabel"])
def test_every_task_knows_the_issue(Datalab, task):
    labels = [0.1 * place for place in range(SAMPLES)] if task == "regression" else [[place % 3] for place in range(60)]
    lab = Datalab({"label": labels}, label_name="label", task=task, verbosity=0)
    lab.find_issues(issue_types={ISSUE: {"run": watched()}})
    assert lab.get_issues(ISSUE)[f"is_{ISSUE}_issue"].sum() == 12


def test_it_is_registered_once_and_in_silence(Datalab, capsys):
    importlib.reload(importlib.import_module("prunedata.adapters.cleanlab"))
    assert capsys.readouterr().out == ""


def test_a_run_that_says_nothing_is_an_error(Datalab, tmp_path):
    from prunedata.adapters.cleanlab import TrainingDynamics

    for run, told in (
        (None, "find_issues"),
        (watched(epochs=0), "Got none in 0 epochs"),
        (tmp_path / "none.zarr", "Got nothing"),
    ):
        with pytest.raises(PrunedataError, match=told):
            TrainingDynamics(lab_of(Datalab)).find_issues(run)
    with pytest.raises(PrunedataError, match="Expected a run of 30 samples, as the Datalab"):
        TrainingDynamics(lab_of(Datalab, 30)).find_issues(watched())


def test_samples_that_are_not_searched_have_no_score_and_are_no_issue(Datalab, tmp_path, capsys):
    pruner = Pruner(
        SAMPLES, Schedule.steady(8), leave_out="nothing", holdout=0.2, without=[0, 5], store=tmp_path / "run.zarr"
    )
    for epoch in pruner.epochs():
        epoch.apply_weights()
        ids = np.flatnonzero(epoch.remaining)
        pruner.observe(np.where(ids % 5 == 0, 4.0, 2.5 / (1 + epoch.number)), ids)
    searched = ~draw_holdout(SAMPLES, 0.2, 0)
    searched[[0, 5]] = False
    for run in (pruner, tmp_path / "run.zarr"):
        lab = lab_of(Datalab)
        lab.find_issues(issue_types={ISSUE: {"run": run}})
        issues = lab.get_issues(ISSUE)
        assert issues[f"{ISSUE}_score"].notna().tolist() == searched.tolist()
        assert set(np.flatnonzero(issues[f"is_{ISSUE}_issue"])) <= set(np.flatnonzero(searched))
        assert issues[f"is_{ISSUE}_issue"].any()
        assert 0 < lab.get_issue_summary(ISSUE)["score"][0] < 1  # the mean of those that have one
        lab.report(verbosity=1)
        assert "Samples whose losses" in capsys.readouterr().out


def test_with_keys_scores_are_those_of_the_same_rows(Datalab):
    """In a Datalab of another split, in another order."""
    from prunedata.adapters.cleanlab import TrainingDynamics

    rows = np.random.default_rng(0).permutation(80)[:50]
    run = Pruner(epochs=8, policy=RunningLoss(), leave_out="nothing", keys=[f"row {row}" for row in range(SAMPLES)])
    run.begin_epoch()
    run.observe(np.where(np.arange(SAMPLES) % 5 == 0, 4.0, 0.5), np.arange(SAMPLES))
    run.end_epoch()
    whole, part = lab_of(Datalab), lab_of(Datalab, rows.size)
    whole.find_issues(issue_types={ISSUE: {"run": run}})
    keys = [f"row {row}" for row in rows]
    part.find_issues(issue_types={ISSUE: {"run": run, "keys": keys}})
    expected, found = whole.get_issues(ISSUE), part.get_issues(ISSUE)
    here = rows < SAMPLES
    for name in expected:
        assert found[name][here].tolist() == expected[name].to_numpy()[rows[here]].tolist()
    assert found[f"{ISSUE}_score"][~here].isna().all()
    assert not found[f"is_{ISSUE}_issue"][~here].any()
    assert found[f"is_{ISSUE}_issue"].sum() == np.count_nonzero(here & (rows % 5 == 0))
    for given, told in ((keys[:-1], "Got 49 keys"), ([f"other {row}" for row in rows], "are they other names")):
        with pytest.raises(PrunedataError, match=told):
            TrainingDynamics(part).find_issues(run, given)
    with pytest.raises(PrunedataError, match="Got one without"):
        TrainingDynamics(part).find_issues(watched(), keys)
