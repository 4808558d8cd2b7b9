"""The study of late beginnings: what an epoch leaves out, when it looks, and the page of its runs."""

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from benchmarks.frontier.data.tables import RARE, table_of, thinned, with_errors, with_uniform_errors
from benchmarks.frontier.late import __main__ as program
from benchmarks.frontier.late.class_aware import ClassAware
from benchmarks.frontier.late.measure import LateSelection, measure
from benchmarks.frontier.late.rules import RULES, MovingAverages

SAMPLES, WRONG, EPOCHS = 200, 40, 12
LOSSES = np.where(np.arange(SAMPLES) < WRONG, 4.0, np.linspace(0, 0.5, SAMPLES)).astype(np.float32)
FALLING = (0.1, 0.3, 0.5, 0.6, 0.5, 0.3, 0.1)
"""Figures of which the sixth shows an onset."""


def go(arm, figures=(0.5,) * EPOCHS):
    """Run one arm on made losses, the same in every epoch; return it and what each epoch delivered and trained on."""
    chosen = LateSelection(np.ones(SAMPLES, bool), RULES.get(arm), EPOCHS, 0, 32)
    delivered, trained = [], []
    for batches, figure in zip(chosen.epochs(), figures, strict=False):
        delivered.append(sum(len(batch) for batch in batches))
        trained.append(chosen.keep.copy())
        for batch in batches:
            chosen.observe(batch, LOSSES[batch])
        chosen.validated(figure)
    return chosen, delivered, trained


def test_from_two_thirds_on_it_leaves_out_what_is_doubted_and_looks_at_it_every_third_epoch():
    _, delivered, trained = go("late")
    assert delivered == [SAMPLES] * 8 + [SAMPLES - WRONG] * 2 + [SAMPLES] + [SAMPLES - WRONG]
    assert all(keep.all() for keep in trained[:8])
    assert all((keep == (np.arange(SAMPLES) >= WRONG)).all() for keep in trained[8:])


def test_without_looking_no_epoch_delivers_what_is_left_out():
    assert go("late-blind")[1] == [SAMPLES] * 8 + [SAMPLES - WRONG] * 4


def test_a_figure_that_turns_begins_it_sooner_if_the_rule_goes_by_it():
    sooner, _, _ = go("late-turn", (*FALLING, *[FALLING[-1]] * EPOCHS))
    assert sooner.begins < 8
    assert sooner.first.sum() == WRONG
    assert go("late", (*FALLING, *[FALLING[-1]] * EPOCHS))[0].begins == 8


def test_regular_training_delivers_all_samples():
    assert go("regular")[1] == [SAMPLES] * EPOCHS


def test_the_loss_is_the_mean_over_what_is_trained_on():
    chosen, _, _ = go("late")
    ids, losses = torch.tensor([0, 1, 198, 199]), torch.tensor([9.0, 9.0, 1.0, 3.0])
    assert chosen(losses, losses, losses, ids, 9) == 2
    assert chosen(losses[:2], losses, losses, ids[:2], 9) == 0


def test_an_average_fades_by_the_epoch_though_its_sample_is_not_observed():
    averages, ids = MovingAverages(2), np.arange(2)
    averages.add(ids, np.array([4.0, 4.0], np.float32), 0)
    assert averages.now == pytest.approx([4, 4])
    averages.add(ids[:1], np.array([0.0], np.float32), 1)
    averages.add(ids[1:], np.array([0.0], np.float32), 2)
    assert averages.now[1] < averages.now[0] < 4
    assert averages.means == [4, 0, 0]


def test_a_table_is_read_scaled_and_split(tmp_path):
    rows = [f"{number}.5, {number % 7}, {'ab'[number % 2]}" for number in range(60)]
    (tmp_path / "made.dat").write_text("\n".join(rows))
    made = table_of("made", 40, tmp_path)
    assert made["features"].shape == (40, 2)
    assert made["features"].mean(0) == pytest.approx([0, 0], abs=1e-5)
    assert sorted(set(made["truth"].tolist())) == [0, 1]
    assert len(made["test_labels"]) == 20
    with pytest.raises(ValueError, match="Expected more than 60 rows"):
        table_of("made", 60, tmp_path)


def test_errors_are_as_many_as_asked_for_and_the_near_ones_say_the_nearest_class():
    truth = np.repeat(np.arange(4), 50)
    features = (truth[:, None] + np.array([0.0, 0.1])).astype(np.float32)
    labels = with_errors(truth, features, 0.2, 1.0, 0)
    wrong = labels != truth
    assert wrong.sum() == 40
    assert set(np.abs(labels - truth)[wrong].tolist()) == {1}
    assert (with_errors(truth, features, 0.4, 0.0, 0) != truth).sum() == 80


def test_uniform_errors_name_every_other_class_as_often():
    truth = np.repeat(np.arange(4), (900, 900, 900, 30))
    labels = with_uniform_errors(truth, 0.4, 0)
    wrong = labels != truth
    assert wrong.sum() == round(0.4 * len(truth))
    assert (labels[wrong] == 3).mean() == pytest.approx(1 / 3, abs=0.05)
    assert wrong[labels == 3].mean() > 0.9  # a flood


def test_with_labels_a_rare_class_is_held_against_its_own():
    labels, epochs = np.where(np.arange(SAMPLES) % 10 == 9, 1, 0), 12
    losses = np.where(labels == 1, LOSSES + 4, LOSSES).astype(np.float32)
    kept = {}
    for arm in ("onset-blind", "onset-labels"):
        chosen = LateSelection(np.ones(SAMPLES, bool), RULES[arm], epochs, 0, 32, labels)
        for batches in chosen.epochs():
            for batch in batches:
                chosen.observe(batch, losses[batch])
        kept[arm] = chosen.keep
    assert not kept["onset-blind"][(labels == 1)].any()
    assert (kept["onset-labels"] == (np.arange(SAMPLES) >= WRONG)).all()


def test_a_class_aware_rule_draws_all_of_a_rare_class_and_more_of_what_has_a_high_loss():
    labels = np.repeat([0, 1, 2], (800, 800, 20))
    chosen = ClassAware(labels, 20, 0, 64)
    drawn = np.zeros(labels.size)
    for batches in chosen.epochs():
        ids = np.concatenate(batches)
        assert np.unique(ids).size == ids.size == pytest.approx(0.7 * labels.size, abs=3)
        drawn[ids] += 1
        chosen.observe(ids, np.where(ids % 2, 1.0, 0.1).astype(np.float32))
    assert (drawn[labels == 2] == 20).all()
    odd = np.arange(800) % 2 == 1
    assert drawn[:800][odd].mean() > drawn[:800][~odd].mean() + 1


def test_how_wrong_labels_are_ranked_is_measured_on_a_run_that_only_watches():
    found = measure("digits", "random40-thinned", "ranks", 0, {})
    assert found["arm"] == "ranks"
    assert set(found["auc"]) == {"mean of all", "recent", "lowest tenth", "median"}
    assert all(0.9 < auc < 1 for auc in found["auc"].values())
    assert 0.8 < found["guess"] < 1


def test_every_third_class_is_thinned_to_about_a_tenth():
    truth = np.arange(9000) % 6
    left = np.bincount(truth[thinned(truth, 0)], minlength=6)
    assert (left[np.arange(6) % RARE != 0] == 1500).all()
    assert (abs(left[::RARE] - 150) < 40).all()


def test_what_is_recorded_is_not_run_again(tmp_path, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(program, "measure", lambda *given: asked.append(given[:4]) or {"curve": [1.0]})
    where = ["--results", str(tmp_path / "runs.jsonl.bz2")]
    command = ["run", "--subjects", "digits", "--kinds", "clean", "--seeds", "0", *where]
    assert program.main([*command, "--arms", "regular", "oracle"]) == 0
    assert program.main([*command, "--arms", "regular", "late"]) == 0
    assert asked == [("digits", "clean", "regular", 0), ("digits", "clean", "late", 0)]
