"""Questions beside the frontier: one run of each, and what it shows."""

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.common.records import Runs
from benchmarks.frontier.arms import Plan
from benchmarks.frontier.by_weight import Counting
from benchmarks.frontier.by_weight import measure as measure_by_weight
from benchmarks.frontier.corrected import LOOKED_AT, WAYS, corrected, run
from benchmarks.frontier.data.material import Material, Part
from benchmarks.frontier.questions.mixed import measure as measure_mixed
from benchmarks.frontier.questions.worst_tokens import RULED, WORDS, answers
from benchmarks.frontier.questions.worst_tokens import measure as measure_tokens
from benchmarks.frontier.subjects import SUBJECTS
from benchmarks.frontier.suspects import BY_LOSSES, UNSEEN, judge
from benchmarks.frontier.training.selection import selection_of
from benchmarks.frontier.training.train import Settings

# Leaving out by weight beside leaving out: what one run records, what is run, and the table.


pytest.importorskip("torch")


SETTINGS = Settings(hidden=(64,), batch_size=50, rate=0.1)


def test_both_ways_keep_the_network_from_the_wrong_labels(task):
    runs = [measure_by_weight(Plan("random40", arm, 15), way, task, SETTINGS)
            for arm, way in (("regular", "out"), ("known-wrong", "out"), ("known-wrong", "weight"))]  # fmt: skip
    regular, out, weight = (run["accuracy"] for run in runs)
    assert min(out, weight) > regular + 10
    assert [run["delivered"] for run in runs] == [15 * 500, 3 * 500 + 12 * 300, 15 * 500]
    again = measure_by_weight(Plan("random40", "known-wrong", 15), "weight", task, SETTINGS)
    assert (again["accuracy"], again["name"]) == (weight, "random40-known-wrong-15-seed0-weight")


def test_the_mean_is_over_what_counts(task):
    selection = selection_of(Plan("random40", "known-wrong", 15), task, 50, leave_out="weight")
    for number, batches in enumerate(selection.epochs()):
        ids = batches[0]
        losses = torch.arange(50.0)
        mean = Counting(selection.pruner)(losses, losses, losses, torch.from_numpy(ids), number)
        counted = np.ones(50, bool) if selection.left_out is None else ~selection.left_out[ids]
        assert mean.item() == pytest.approx(losses.numpy()[counted].mean())
        for ids in batches:
            selection.observe(ids, np.ones(len(ids), np.float32))
        if number == 4:
            assert counted.sum() < 50
            break


# Correcting a run's own suspects: what is put right, what is run, and the table.


pytest.importorskip("torch")


def test_labels_that_are_looked_at_are_right(task):
    which = np.arange(0, 500, 2)
    after = corrected(task, which)
    assert np.array_equal(after.train.labels.numpy()[which], task.truth[which])
    assert np.array_equal(after.train.labels.numpy() != task.truth, after.wrong)
    assert after.wrong.sum() == task.wrong[1::2].sum()
    assert after.held_out is task.held_out


@pytest.mark.slow
def test_runs_are_recorded_once_and_suspects_are_wrong_more_often_than_others(task, tmp_path, monkeypatch):
    material = Material(task.train.features, task.train.labels, {}, Part(*_all(task.test)), 0)
    monkeypatch.setattr(Material, "task", lambda self, kind: task)
    results = Runs(tmp_path / "runs.jsonl.gz")
    assert run(material, ["clean", "random40"], results, SETTINGS, (0,)) == 1
    found = {(facts["way"], facts["percent"]): facts for facts in results.read()}
    assert set(found) == {(way, at) for way in WAYS for at in LOOKED_AT if at or way != "chance"}
    for percent in LOOKED_AT[1:]:
        left = [found[way, percent]["left_wrong_percent"] for way in ("turn", "chance")]
        assert left[0] < left[1] < found["turn", 0]["wrong_percent"]
    assert run(material, ["clean", "random40"], results, SETTINGS, (0,)) == 0


def _all(part):
    return part.features, part.labels


# How well wrong labels are found: what is judged, and the table of it.


pytest.importorskip("torch")


def test_each_way_to_rank_is_judged_on_one_run(task):
    facts = judge(task, SETTINGS, seed=1, epochs=12)
    assert set(facts["found"]) == {
        "hits over visits", "hits and high over visits", "loss of the final network", "cleanlab", BY_LOSSES, UNSEEN
    }  # fmt: skip
    # Chance is .5; the tenth most suspect would hold 40 % wrong ones.
    assert facts["found"]["hits and high over visits"]["auc"] > 0.7
    assert facts["found"][UNSEEN]["auc"] > 0.7
    assert all(found["precision_at_tenth"] > 0.6 for found in facts["found"].values())
    assert facts == judge(task, SETTINGS, seed=1, epochs=12)


# Mixup: what is recorded of it finds wrong labels, and whose loss it is matters where all batches are mixed.


@pytest.mark.slow
def test_both_owners_find_more_than_the_first_alone(tmp_path):
    subject = SUBJECTS["conv-digits"]
    task = subject.load(Path(), None, tmp_path / "digits.npz").task("random40")
    both, first = (measure_mixed(task, subject.settings, 1.0, recorded, 0) for recorded in ("both", "first"))
    assert both[0] > 0.97 > first[0] > 0.9
    assert both[1] > first[1] + 5
    assert min(both[2], first[2]) > 85


# Where some tokens cannot be foreseen, the mean over a sample's tokens finds wrong ones better than its worst.


def test_so_many_tokens_are_wrong_and_no_others():
    tokens, bad = (each if isinstance(each, np.ndarray) else each.numpy() for each in answers(2, 0))
    begin, step = tokens[:, 0], tokens[:, 1] - WORDS
    right = (begin[:, None] + step[:, None] * (RULED + 1)) % WORDS
    assert (((tokens[:, 2:][:, RULED] != right).sum(1)) == 2 * bad).all()
    assert 0.2 < bad.mean() < 0.3


def test_the_mean_finds_more():
    found = measure_tokens(len(RULED), 0, epochs=4)
    assert found["mean"] > found["worst two"] > found["worst"] > 0.5
