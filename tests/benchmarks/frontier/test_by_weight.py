"""Leaving out by weight beside leaving out: what one run records, what is run, and the table."""

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from benchmarks.common.markdown import fill
from benchmarks.common.records import Runs
from benchmarks.frontier import __main__ as program
from benchmarks.frontier.__main__ import BY_WEIGHT, RESULTS
from benchmarks.frontier.arms import Plan
from benchmarks.frontier.by_weight import BEGIN, Counting, measure, table
from benchmarks.frontier.subjects import SUBJECTS
from benchmarks.frontier.training.selection import selection_of
from benchmarks.frontier.training.train import Settings
from tests.common.programs import ROOT

SETTINGS = Settings(hidden=(64,), batch_size=50, rate=0.1)


def test_both_ways_keep_the_network_from_the_wrong_labels(task):
    runs = [measure(Plan("random40", arm, 15), way, task, SETTINGS)
            for arm, way in (("regular", "out"), ("known-wrong", "out"), ("known-wrong", "weight"))]  # fmt: skip
    regular, out, weight = (run["accuracy"] for run in runs)
    assert min(out, weight) > regular + 10
    assert [run["delivered"] for run in runs] == [15 * 500, 3 * 500 + 12 * 300, 15 * 500]
    again = measure(Plan("random40", "known-wrong", 15), "weight", task, SETTINGS)
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


def test_the_table_pairs_runs_of_a_seed(tmp_path, capsys):
    results = Runs(tmp_path / "runs.jsonl.gz")
    figures = {("regular", 30, "out"): (50, 3), ("bounded", 30, "out"): (60, 2), ("bounded", 30, "weight"): (61, 3),
               ("bounded", 20, "out"): (0, 1), ("bounded", 20, "weight"): (62, 2)}  # fmt: skip
    for (arm, epochs, way), (accuracy, seconds) in figures.items():
        for seed in range(2):
            name = f"worse-{arm}-{epochs}-seed{seed}-{way}"
            run = {"name": name, "kind": "worse", "arm": arm, "epochs": epochs, "seed": seed, "way": way,
                   "accuracy": accuracy + seed * (way == "out"), "seconds": seconds, "hardware": "H",
                   "versions": {"torch": "2"}}  # fmt: skip
            (results / "by-weight" / "head").add(f"{run['kind']}/{run['name']}", run)
    assert program.main(["by-weight", "--results", str(results.file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    cells = [cell.strip() for cell in lines[2].strip("|").split("|")]
    assert cells == ["`head`", "`worse`", "`bounded`", "2", "50.5", "60.5", "61.0", "+0.5 (+0.0 to +1.0)",
                     "+1.5 (+1.0 to +2.0)", "1.50", "1.00"]  # fmt: skip
    assert len(results.read("by-weight/head")) == 10
    assert lines[-1] == "On H, with torch 2."


@pytest.mark.docs
def test_the_page_shows_what_was_recorded():
    page = ROOT / "docs" / "evidence" / "frontier.md"
    results = {subject: of for subject in SUBJECTS if (of := (RESULTS / BY_WEIGHT / subject).read())}
    assert fill(page, BEGIN, table(results)) == page.read_text(encoding="utf-8")
