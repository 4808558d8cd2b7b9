"""Questions beside the frontier: one run of each, and what it shows."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cleanlab")

import torch

from benchmarks.common.records import Runs
from benchmarks.frontier.data.material import HeadTask, Part
from benchmarks.frontier.late import subjects
from benchmarks.frontier.questions import early, slow, targets
from benchmarks.frontier.questions.folds import measure as measure_folds
from benchmarks.frontier.questions.mixed import measure as measure_mixed
from benchmarks.frontier.questions.worst_tokens import RULED, WORDS, answers
from benchmarks.frontier.questions.worst_tokens import measure as measure_tokens
from benchmarks.frontier.subjects import SUBJECTS
from benchmarks.frontier.training.train import Settings


def test_excess_is_over_the_mean_of_each_batch():
    watching = early.Watching(0, 2, 10, 4)
    for batches in watching.epochs():
        for ids in batches:
            watching.observe(ids, ids.astype(np.float32))
    assert len(watching.excess) == 2
    for batches, excess in zip(early.Watching(0, 2, 10, 4).epochs(), watching.excess, strict=True):
        for ids in batches:
            np.testing.assert_allclose(excess[ids], ids - ids.mean())


def test_every_way_ranks_after_every_epoch():
    torch.manual_seed(0)
    truth = torch.randint(0, 2, (400,))
    features, wrong = torch.randn(400, 4) + 4 * truth[:, None], np.arange(400) < 80
    labels = torch.where(torch.from_numpy(wrong), 1 - truth, truth)
    part = Part(features, labels)
    task = HeadTask("random20", part, part, part, wrong, truth.numpy(), 2)
    facts = early.measure(task, Settings(hidden=(8,), batch_size=20, rate=0.05), 0, 3)
    assert [set(found) for found in facts["found"]] == [set(early.RANKED)] * 3
    assert facts["found"][-1]["mean excess"]["auc"] > 0.9
    assert facts["found"][-1]["mean excess"]["first"] > 0.9


def test_of_a_trace_too():
    wrong = np.arange(100) < 20
    found = early.of_trace(np.stack([wrong * 1.0, wrong * 2.0]), wrong)
    assert [one["mean excess"]["auc"] for one in found] == [1.0, 1.0]
    assert len(found[0]) == len(early.RANKED) - 1, "no network that could look once more"


def made(_):
    """Three classes that lie apart."""
    random, truth = np.random.default_rng(0), np.arange(900) % 3
    features = random.normal(size=(900, 8)) + 2 * np.eye(3, 8)[truth]
    return {
        "features": features[:700], "truth": truth[:700],
        "test_features": features[700:], "test_labels": truth[700:].astype(np.int64),
    }  # fmt: skip


def test_every_arm_is_measured_at_its_rate_and_in_the_table(tmp_path, monkeypatch):
    small = subjects.LateSubject("made", "tables", made, subjects.ADAM, epochs=9)
    monkeypatch.setitem(subjects.SUBJECTS, "letter", small)
    subjects._made.cache_clear()
    runs = Runs(tmp_path / "slow.jsonl.bz2")
    slow.run(runs, tmp_path, [("letter", slower, "clean", arm) for slower in (10, 1000) for arm in slow.ARMS])
    subjects._made.cache_clear()
    found = {(one["slower"], one["arm"]): one for one in runs.read()}
    assert set(found) == {(slower, arm) for slower in (10, 1000) for arm in slow.ARMS}
    assert found[10, "regular"]["curve"][-1] > found[1000, "regular"]["curve"][-1] + 5
    assert found[1000, "before-blind"]["left_out"][0] >= found[1000, "onset-blind"]["left_out"][0]
    assert "| a 1000th | `clean`" in slow.table(runs)


RANDOM = np.random.default_rng(0)


ROWS = (RANDOM.normal(size=(500, 3)) @ RANDOM.normal(size=(3, 12))).astype(np.float32)
"""Of twelve columns nine are told by the others."""


@pytest.mark.parametrize("kind", targets.KINDS)
def test_wrong_targets_are_those_of_other_samples(kind):
    right, noisy = (targets.task_of(ROWS[:400], ROWS[400:], kind, share, seed=1) for share in (0, 20))
    assert (len(noisy.train[0]), len(noisy.held_out[0]), len(noisy.test[0])) == (360, 40, 100)
    assert not right.wrong.any()
    assert 40 < noisy.wrong.sum() <= 80
    for place in (0, 2):  # features, and everything that tests, are the same
        np.testing.assert_array_equal(right[place][0], noisy[place][0])
    np.testing.assert_array_equal(right.test[1], noisy.test[1])
    differ = (right.train[1] != noisy.train[1]).any(1).numpy()
    assert not (differ & ~noisy.wrong).any()
    assert differ.sum() > 30
    assert noisy.train[1].shape[1] == (1 if kind == "number" else 6)
    assert noisy.train[0].shape[1] == 12 - noisy.train[1].shape[1]


@pytest.mark.parametrize("kind", targets.KINDS)
def test_every_arm_is_measured_and_in_the_table(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(targets, "EPOCHS", 9)
    runs = Runs(tmp_path / "targets.jsonl.bz2")
    for arm in targets.ARMS:
        facts = targets.measure(targets.task_of(ROWS[:400], ROWS[400:], kind, 20, seed=0), kind, arm, 0)
        assert len(facts["curve"]) == (3 if arm == "short" else 9)
        assert facts["left_out"][1] <= facts["left_out"][0] <= facts["samples"]
        assert (facts["left_out"][0] > 0) == (facts["begins"] is not None)
        assert (facts["auc"] is not None) == (arm == "regular")
        runs.add(arm, {"table": "made", "share": 20} | facts)
    assert f"| {targets.KINDS[kind]}" in targets.table(runs)
    assert "| 20 %  |" in targets.table(runs)


@pytest.mark.slow
def test_folds_joined_are_as_good_as_one_run_and_no_worse_than_unseen_rows():
    found = measure_folds(64, 15, 0)
    assert found["the four, joined"] == pytest.approx(found["one run on all"], abs=1e-3)
    assert 0.99 < found["the fifth: cleanlab"] < found["the four, joined"] < 1
    assert 0.99 < found["the fifth: its losses"] < found["the four, joined"]


@pytest.mark.slow
def test_both_owners_find_more_than_the_first_alone(tmp_path):
    subject = SUBJECTS["conv-digits"]
    task = subject.load(Path(), None, tmp_path / "digits.npz").task("random40")
    both, first = (measure_mixed(task, subject.settings, 1.0, recorded, 0) for recorded in ("both", "first"))
    assert both[0] > 0.97 > first[0] > 0.9
    assert both[1] > first[1] + 5
    assert min(both[2], first[2]) > 85


def test_so_many_tokens_are_wrong_and_no_others():
    tokens, bad = (each if isinstance(each, np.ndarray) else each.numpy() for each in answers(2, 0))
    begin, step = tokens[:, 0], tokens[:, 1] - WORDS
    right = (begin[:, None] + step[:, None] * (RULED + 1)) % WORDS
    assert (((tokens[:, 2:][:, RULED] != right).sum(1)) == 2 * bad).all()
    assert 0.2 < bad.mean() < 0.3


def test_the_mean_finds_more():
    found = measure_tokens(len(RULED), 0, epochs=4)
    assert found["mean"] > found["worst two"] > found["worst"] > 0.5
