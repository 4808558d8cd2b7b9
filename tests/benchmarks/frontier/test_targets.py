"""Numbers and several labels as targets: how they are made, a run of each, and the page's table."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks.common.commands import fill
from benchmarks.common.records import Runs
from benchmarks.frontier.questions import targets
from benchmarks.frontier.questions.targets import ARMS, BEGIN, KINDS, measure, table, task_of

ROOT = Path(__file__).parents[3]
RANDOM = np.random.default_rng(0)
ROWS = (RANDOM.normal(size=(500, 3)) @ RANDOM.normal(size=(3, 12))).astype(np.float32)
"""Of twelve columns nine are told by the others."""


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_targets_are_those_of_other_samples(kind):
    right, noisy = (task_of(ROWS[:400], ROWS[400:], kind, share, seed=1) for share in (0, 20))
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


@pytest.mark.parametrize("kind", KINDS)
def test_every_arm_is_measured_and_in_the_table(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(targets, "EPOCHS", 9)
    runs = Runs(tmp_path / "targets.jsonl.bz2")
    for arm in ARMS:
        facts = measure(task_of(ROWS[:400], ROWS[400:], kind, 20, seed=0), kind, arm, 0)
        assert len(facts["curve"]) == (3 if arm == "short" else 9)
        assert facts["left_out"][1] <= facts["left_out"][0] <= facts["samples"]
        assert (facts["left_out"][0] > 0) == (facts["begins"] is not None)
        assert (facts["auc"] is not None) == (arm == "regular")
        runs.add(arm, {"table": "made", "share": 20} | facts)
    assert f"| {KINDS[kind]}" in table(runs)
    assert "| 20 %  |" in table(runs)


@pytest.mark.docs
def test_the_page_has_what_was_recorded():
    page = ROOT / "docs/evidence/late.md"
    assert fill(page, BEGIN, table()) == page.read_text("utf-8")
