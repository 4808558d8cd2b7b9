"""How well wrong labels are found: what is judged, and the table of it."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks.common.markdown import fill
from benchmarks.common.records import Runs
from benchmarks.frontier import __main__ as program
from benchmarks.frontier.__main__ import RESULTS
from benchmarks.frontier.subjects import SUBJECTS
from benchmarks.frontier.suspects import BEGIN, BY_LOSSES, SHOWN, UNSEEN, judge, table
from benchmarks.frontier.training.train import Settings
from tests.common.programs import ROOT

SETTINGS = Settings(hidden=(64,), batch_size=50, rate=0.1)
PAGE = ROOT / "docs" / "evidence" / "suspects.md"


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


def test_clean_labels_are_refused(task):
    with pytest.raises(ValueError, match="some are wrong"):
        judge(replace(task, wrong=np.zeros_like(task.wrong)), SETTINGS, seed=0)


def test_the_table_has_means_and_the_least(tmp_path, capsys):
    results = Runs(tmp_path / "runs.jsonl.gz")
    for seed, tenth in enumerate((0.5, 0.75)):
        facts = {"precision_at_tenth": tenth, "auc": 0.9}
        run = {
            "name": f"worse-seed{seed}",
            "kind": "worse",
            "wrong_percent": 40.2,
            "found": dict.fromkeys(SHOWN, facts),
        }
        (results / "suspects" / "head").add(f"{run['kind']}/{run['name']}", run)
    assert program.main(["suspects", "--results", str(results.file)]) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    assert len(lines) == 2 + len(SHOWN)
    cells = [cell.strip() for cell in lines[2].strip("|").split("|")]
    assert cells == ["`head`", "`worse`", "40 %", "2", BY_LOSSES, "62.5 % (50.0 %)", "0.900 (0.900)"]


@pytest.mark.docs
def test_the_page_shows_what_was_recorded():
    results = {subject: of for subject in SUBJECTS if (of := (RESULTS / "suspects" / subject).read())}
    assert fill(PAGE, BEGIN, table(results)) == PAGE.read_text(encoding="utf-8")
