"""What holds a run back after its onset: which samples each way leaves out, and the table of the recorded runs."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from benchmarks.common.records import Runs
from benchmarks.frontier import __main__ as program
from benchmarks.frontier.data.material import HeadTask, Part
from benchmarks.frontier.questions.limits import WAYS, FromTheTurn, run
from benchmarks.frontier.subjects import SUBJECTS

SAMPLES, WRONG, EPOCHS = 200, 40, 16
FIGURES = (0.1, 0.3, 0.5, 0.6, 0.5, 0.4)
"""The first figures of a run, that stays at the last. Their fall is more than chance explains in epoch TURNED."""
TURNED = 7


@pytest.fixture
def task():
    part = Part(torch.zeros(SAMPLES, 2), torch.zeros(SAMPLES, dtype=torch.int64))
    wrong = np.arange(SAMPLES) < WRONG
    return HeadTask("worse", part, part, part, wrong, np.zeros(SAMPLES, np.int64), 2)


def go(task, way, losses, epochs=EPOCHS):
    """Run one way on made losses, shape (samples,), the same in every epoch; return it and what each epoch kept."""
    chosen = FromTheTurn(task, way, epochs, 0, 32)
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
def losses(task):
    """Of the wrong labels 3, but for ten that the network believes; of the others 0.1."""
    return np.where(task.wrong & (np.arange(SAMPLES) >= 10), 3.0, 0.1)


@pytest.mark.parametrize("way", WAYS)
def test_all_samples_are_kept_up_to_the_turn(task, losses, way):
    chosen, kept = go(task, way, losses)
    assert chosen.turned == TURNED
    assert all(len(some) == SAMPLES for some in kept[: chosen.turned + 1])


def test_once_leaves_out_as_many_as_are_doubted_and_the_same_to_the_end(task, losses):
    chosen, kept = go(task, "once", losses)
    doubted = round(float((1 - np.exp(-losses / 2)).sum()))
    assert {len(some) for some in kept[chosen.turned + 1 :]} == {SAMPLES - doubted}
    assert kept[chosen.turned + 1] == kept[-1]
    assert not (set(range(10, WRONG)) & kept[-1])


def test_again_leaves_out_fewer_at_first_and_more_every_three_epochs(task, losses):
    chosen, kept = go(task, "again", losses)
    numbers = [SAMPLES - len(some) for some in kept[chosen.turned + 1 :]]
    first = round(float((1 - np.exp(-losses / 3)).sum()))
    assert numbers[:3] == [first] * 3
    assert numbers[3] > first
    assert numbers[3:6] == [numbers[3]] * 3
    assert all(later <= before for before, later in pairwise(kept))


def test_no_way_leaves_out_more_than_it_may(task):
    for way in ("once", "again"):
        _, kept = go(task, way, np.full(SAMPLES, 9.0))
        assert min(map(len, kept)) == SAMPLES - int(0.45 * SAMPLES)


def test_what_is_told_keeps_no_wrong_label(task, losses):
    right = set(range(WRONG, SAMPLES))
    assert go(task, "known", losses)[1][-1] == right
    assert go(task, "once-right", losses)[1][-1] == go(task, "once", losses)[1][-1] & right


def test_weighed_keeps_all_and_weighs_by_the_fourth_power_of_the_probability(task, losses):
    chosen, kept = go(task, "weighed", losses)
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
