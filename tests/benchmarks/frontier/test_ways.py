"""Other ways to train on what a run suspects: by weight, corrected, judged, and what holds it back after its onset."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.common.records import Runs
from benchmarks.frontier import __main__ as program
from benchmarks.frontier import corrected
from benchmarks.frontier.arms import Plan
from benchmarks.frontier.by_weight import Counting
from benchmarks.frontier.by_weight import measure as measure_by_weight
from benchmarks.frontier.data.material import HeadTask, Material, Part
from benchmarks.frontier.questions.limits import WAYS, FromTheTurn, run
from benchmarks.frontier.subjects import SUBJECTS
from benchmarks.frontier.suspects import BY_LOSSES, UNSEEN, judge
from benchmarks.frontier.training.selection import selection_of
from benchmarks.frontier.training.train import Settings

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


def test_labels_that_are_looked_at_are_right(task):
    which = np.arange(0, 500, 2)
    after = corrected.corrected(task, which)
    assert np.array_equal(after.train.labels.numpy()[which], task.truth[which])
    assert np.array_equal(after.train.labels.numpy() != task.truth, after.wrong)
    assert after.wrong.sum() == task.wrong[1::2].sum()
    assert after.held_out is task.held_out


@pytest.mark.slow
def test_runs_are_recorded_once_and_suspects_are_wrong_more_often_than_others(task, tmp_path, monkeypatch):
    material = Material(task.train.features, task.train.labels, {}, Part(*_all(task.test)), 0)
    monkeypatch.setattr(Material, "task", lambda self, kind: task)
    results = Runs(tmp_path / "runs.jsonl.bz2")
    assert corrected.run(material, ["clean", "random40"], results, SETTINGS, (0,)) == 1
    found = {(facts["way"], facts["percent"]): facts for facts in results.read()}
    assert set(found) == {(way, at) for way in corrected.WAYS for at in corrected.LOOKED_AT if at or way != "chance"}
    for percent in corrected.LOOKED_AT[1:]:
        left = [found[way, percent]["left_wrong_percent"] for way in ("turn", "chance")]
        assert left[0] < left[1] < found["turn", 0]["wrong_percent"]
    assert corrected.run(material, ["clean", "random40"], results, SETTINGS, (0,)) == 0


def _all(part):
    return part.features, part.labels


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


SAMPLES, WRONG, EPOCHS = 200, 40, 16


FIGURES = (0.1, 0.3, 0.5, 0.6, 0.5, 0.4)
"""The first figures of a run, that stays at the last. Their fall is more than chance explains in epoch TURNED."""


TURNED = 7


@pytest.fixture
def short():
    part = Part(torch.zeros(SAMPLES, 2), torch.zeros(SAMPLES, dtype=torch.int64))
    wrong = np.arange(SAMPLES) < WRONG
    return HeadTask("worse", part, part, part, wrong, np.zeros(SAMPLES, np.int64), 2)


def go(short, way, losses, epochs=EPOCHS):
    """Run one way on made losses, shape (samples,), the same in every epoch; return it and what each epoch kept."""
    chosen = FromTheTurn(short, way, epochs, 0, 32)
    kept = []
    for number, batches in enumerate(chosen.epochs()):
        ids = np.concatenate(batches)
        assert np.unique(ids).size == ids.size
        assert all(len(batch) == 32 for batch in batches[:-1])
        kept.append(set(ids.tolist()))
        for batch in batches:
            chosen.observe(batch, losses[batch])
        chosen.validated((*FIGURES, *[FIGURES[-1]] * epochs)[number])
    return chosen, kept


@pytest.fixture
def losses(short):
    """Of the wrong labels 3, but for ten that the network believes; of the others 0.1."""
    return np.where(short.wrong & (np.arange(SAMPLES) >= 10), 3.0, 0.1)


@pytest.mark.parametrize("way", WAYS)
def test_all_samples_are_kept_up_to_the_turn(short, losses, way):
    chosen, kept = go(short, way, losses)
    assert chosen.turned == TURNED
    assert all(len(some) == SAMPLES for some in kept[: chosen.turned + 1])


def test_once_leaves_out_as_many_as_are_doubted_and_the_same_to_the_end(short, losses):
    chosen, kept = go(short, "once", losses)
    doubted = round(float((1 - np.exp(-losses / 2)).sum()))
    assert {len(some) for some in kept[chosen.turned + 1 :]} == {SAMPLES - doubted}
    assert kept[chosen.turned + 1] == kept[-1]
    assert not (set(range(10, WRONG)) & kept[-1])


def test_again_leaves_out_fewer_at_first_and_more_every_three_epochs(short, losses):
    chosen, kept = go(short, "again", losses)
    numbers = [SAMPLES - len(some) for some in kept[chosen.turned + 1 :]]
    first = round(float((1 - np.exp(-losses / 3)).sum()))
    assert numbers[:3] == [first] * 3
    assert numbers[3] > first
    assert numbers[3:6] == [numbers[3]] * 3
    assert all(later <= before for before, later in pairwise(kept))


def test_no_way_leaves_out_more_than_it_may(short):
    for way in ("once", "again"):
        _, kept = go(short, way, np.full(SAMPLES, 9.0))
        assert min(map(len, kept)) == SAMPLES - int(0.45 * SAMPLES)


def test_what_is_told_keeps_no_wrong_label(short, losses):
    right = set(range(WRONG, SAMPLES))
    assert go(short, "known", losses)[1][-1] == right
    assert go(short, "once-right", losses)[1][-1] == go(short, "once", losses)[1][-1] & right


def test_weighed_keeps_all_and_weighs_by_the_fourth_power_of_the_probability(short, losses):
    chosen, kept = go(short, "weighed", losses)
    assert len(kept[-1]) == SAMPLES
    ids = torch.tensor([0, 20])
    both = chosen(torch.tensor([1.0, 0.0]), None, None, ids, 13)
    weights = np.exp(-4 * losses[[0, 20]])
    assert float(both) == pytest.approx(weights[0] / weights.sum(), rel=1e-5)


def test_runs_are_recorded_once_and_the_table_shows_kinds_that_went_every_way(tmp_path, monkeypatch, capsys):
    subject = SUBJECTS["conv-digits"]
    material = subject.load(Path(), None, tmp_path / "digits.npz")
    monkeypatch.setattr("benchmarks.frontier.questions.limits.USUAL", 2)
    results = Runs(tmp_path / "runs.jsonl.bz2")
    recorded = results / "limits" / "conv-digits"
    assert run(material, ["clean", "random40"], recorded, subject.settings, seeds=(0,)) == len(WAYS)
    assert run(material, ["clean", "random40"], recorded, subject.settings, seeds=(0,)) == 0
    recorded.add("pairs20/half", {"name": "half", "kind": "pairs20", "seed": 0, "way": "once", "accuracy": 1.0})
    assert program.main(["limits", "--results", str(results.file)]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| `")]
    assert len(rows) == 1
    assert rows[0].split()[3] == "`random40`"
