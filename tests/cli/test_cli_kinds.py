"""Every command on every kind of run: none fails, and their numbers agree with each other."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

import prunedata
from prunedata.findings.inspection import inspect
from prunedata.policies import Random
from prunedata.policies.selection import draw_holdout
from prunedata.reporting.facts import facts_of
from tests.reporting.runs import KINDS, SAMPLES, WRONG
from tests.run.test_holdout import losses, start

pytestmark = pytest.mark.filterwarnings("ignore::prunedata.errors.NeverPrunesWarning")

DATA = f"""
class Texts(list):
    targets = [i % 3 for i in range({SAMPLES})]

data = Texts((f"text {{i}}", i % 3) for i in range({SAMPLES}))
"""
UNSEEN = {
    "never_begun",
    "random_without_losses",
    "stopped_in_its_first_epoch",
    "one_of_two_ranks",
    "held_out_before_its_first_figure",
}
"""Kinds of runs whose finished epochs have observed nothing."""
ASIDE = {one for one in KINDS if one.startswith("held_out")}
CLEANED = {one for one in KINDS if "left_out_for_good" in one}


@pytest.fixture(params=KINDS)
def kind(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.py").write_text(DATA, encoding="utf-8")
    np.save(tmp_path / "labels.npy", np.arange(SAMPLES) % 3)
    KINDS[request.param](tmp_path / "run.zarr")
    return request.param


def searched_in(kind):
    """Which samples a run of this kind may train on."""
    found = np.ones(SAMPLES, bool)
    if kind in ASIDE:
        found &= ~draw_holdout(SAMPLES, 0.2, 0)
    if kind in CLEANED:
        found[WRONG[:5]] = False
    return found


def test_no_command_fails_and_what_they_say_agrees(say, kind):
    searched, about, counted = searched_in(kind), inspect("run.zarr"), kind not in UNSEEN
    held_out = int((draw_holdout(SAMPLES, 0.2, 0) & ~np.isin(np.arange(SAMPLES), WRONG[:5] * (kind in CLEANED))).sum())
    held_out *= kind in ASIDE
    assert (about["held_out"], about["without"]) == (held_out, 5 * (kind in CLEANED))
    assert SAMPLES - about["held_out"] - about["without"] == searched.sum()
    assert sum(about["counts_histogram"].values()) == searched.sum()
    assert searched[[one["id"] for one in about["most_pruned"]]].all()
    assert about["saved"]["visits"] == sum(record["kept"] for record in about["history"])

    for command in ("inspect", "doctor", "advise", "report"):
        status, out, err = say(f"{command} run.zarr")
        assert (status, err) == (0, ""), command
        if held_out and command in ("inspect", "doctor"):
            assert re.search(rf"{held_out} held out|held out +{held_out}, never trained on and not searched", out)
        assert "never observed" not in out or kind == "random_without_losses"
    for command in ("suspects run.zarr --json", "compare run.zarr run.zarr", "suspects run.zarr --labels labels.npy"):
        assert say(command)[0] == (0 if counted else 2), command
    review = f"report run.zarr --review --dataset texts.py:data -o review.html --top {SAMPLES}"
    assert say(review)[0] == (0 if counted else 2)
    assert say("report run.zarr --compare run.zarr --dataset texts.py:data")[0] == 0
    if not counted:
        return

    found = json.loads(say(f"suspects run.zarr --top {SAMPLES} --json")[1])
    suspects = [row["id"] for row in found["suspects"]]
    said = json.loads(say(f"report run.zarr --top {SAMPLES} --json")[1])["runs"][0]
    assert [row["id"] for row in said["suspects"]] == suspects
    assert said["advice"] == json.loads(say("advise run.zarr --json")[1])
    assert about["advice"] in (None, said["advice"])
    assert say("advise run.zarr")[1].startswith(said["outcome"])
    assert (found["held_out"], found["without"]) == (about["held_out"], about["without"])
    assert searched[suspects].all()
    page = Path("review.html").read_text(encoding="utf-8")
    written = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])
    assert [one["id"] for one in written["items"]] == suspects
    assert say("suspects run.zarr -o scores.csv --to cleanlab")[0] == 0
    with Path("scores.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["training_dynamics_score"] != "" for row in rows] == np.isin(np.arange(SAMPLES), suspects).tolist()
    assert not any(row["is_training_dynamics_issue"] == "True" for row in rows if int(row["id"]) not in suspects)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_page_says_is_what_the_records_say(kind, tmp_path):
    run, searched = KINDS[kind](tmp_path / "run.zarr"), searched_in(kind)
    found = facts_of(tmp_path / "run.zarr")
    trained = [one["kept"] - one.get("by_weight", 0) - one.get("held_out", 0) for one in run.history]
    assert found.pruned.tolist() == [one < searched.sum() for one in trained]
    assert found.saved["pruned_epochs"] == found.pruned.sum()
    assert found.trainable == searched.sum()
    assert searched[[one["id"] for one in found.suspects(SAMPLES)]].all()
    told = " ".join(found.advice.evidence)
    assert "validated" not in told or run.holdout is None


def test_doubted_labels_are_those_of_samples_that_are_trained_on(tmp_path):
    """Held-out samples have no visits, and so would look like the mean of all."""
    run = start(leave_out="nothing", policy=Random(), without=np.arange(50), prune=0.2, store=tmp_path / "run.zarr")
    for epoch in run.epochs():
        epoch.apply_weights()
        for ids in epoch.batches(32):
            run.observe(losses(ids, epoch.number, 6), ids)
    live, stored = run.advice, facts_of(tmp_path / "run.zarr").advice
    trained_on = int((~draw_holdout(200, 0.2, 0) & (np.arange(200) >= 50)).sum())
    assert live.verdict == stored.verdict == "prune"
    assert f"of {trained_on} labels look wrong" in " ".join(stored.evidence)
    assert (stored.prune, stored.saving_percent, stored.doubted) == (live.prune, live.saving_percent, live.doubted)
    assert prunedata.report(run).runs[0]["outcome"].startswith(f"{live.doubted} of {trained_on} labels look wrong.")
