"""Correcting a run's own suspects: what is put right, what is run, and the table."""

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks.common.markdown import fill
from benchmarks.common.records import Runs
from benchmarks.frontier import __main__ as program
from benchmarks.frontier.__main__ import CORRECTED, RESULTS
from benchmarks.frontier.corrected import BEGIN, LOOKED_AT, WAYS, corrected, run, table
from benchmarks.frontier.data.material import Material, Part
from benchmarks.frontier.subjects import SUBJECTS
from benchmarks.frontier.training.train import Settings
from tests.common.programs import ROOT

SETTINGS = Settings(hidden=(64,), batch_size=50, rate=0.1)


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


def test_the_table_has_a_row_for_each_way(tmp_path, capsys):
    results = Runs(tmp_path / "runs.jsonl.gz")
    for percent in LOOKED_AT:
        for way in WAYS:
            if percent or way != "chance":
                facts = {"name": f"worse-{percent}-{way}", "kind": "worse", "seed": 0, "percent": percent, "way": way,
                         "accuracy": 50 + percent / 10, "left_wrong_percent": 40 - percent}  # fmt: skip
                (results / CORRECTED / "head").add(f"{facts['kind']}/{facts['name']}", facts)
    assert program.main(["corrected", "--results", str(results.file)]) == 0
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 2 + len(WAYS)
    assert all(
        row[4:] == ["50.0 (40 %)", "50.5 (35 %)", "51.0 (30 %)", "52.0 (20 %)", "53.0 (10 %)"] for row in rows[2:]
    )


@pytest.mark.docs
def test_the_page_shows_what_was_recorded():
    page = ROOT / "docs" / "evidence" / "turn.md"
    results = {subject: of for subject in SUBJECTS if (of := (RESULTS / CORRECTED / subject).read())}
    assert fill(page, BEGIN, table(results)) == page.read_text(encoding="utf-8")
