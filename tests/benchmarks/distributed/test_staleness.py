"""Training with stale gradients: as stale as it says, the same in every repeat, and told as it was recorded."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from benchmarks.common.records import Runs
from benchmarks.distributed.__main__ import main
from benchmarks.distributed.staleness import runs
from benchmarks.distributed.staleness import train as training
from benchmarks.distributed.staleness.command import RESULTS
from benchmarks.distributed.staleness.runs import ARMS, SUBJECTS, StaleRun, runs_to_make
from benchmarks.distributed.staleness.table import markdown_staleness
from benchmarks.distributed.staleness.train import StaleTask, task_of, train_stale
from benchmarks.study.judging import auc
from prunedata import Schedule
from tests.common.programs import ROOT

PAGE = ROOT / "docs" / "evidence" / "staleness.md"


@pytest.fixture
def brief(monkeypatch):
    """Digits for 6 epochs, 320 of them."""
    torch.set_num_threads(1)
    short = replace(SUBJECTS["digits"], epochs=6, samples=320, noises=(0.4,))
    monkeypatch.setitem(runs.SUBJECTS, "digits", short)
    return task_of(StaleRun("digits", "regular", 0.4, 0, 0))


def test_no_staleness_is_plain_training(brief):
    """Beside a loop that knows neither dealer nor versions."""
    run = StaleRun("digits", "regular", 0.4, 0, 0)
    facts = train_stale(run, brief)
    torch.manual_seed(run.seed)
    model = training.network_of("mlp", brief)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, weight_decay=training.WEIGHT_DECAY)
    pruner = training.Pruner(320, Schedule.steady(6), prune=0.3, seed=0, leave_out="nothing")
    right = []
    for epoch in pruner.epochs():
        optimizer.param_groups[0]["lr"] = run.subject.rate * (1 + np.cos(np.pi * epoch.number / 6)) / 2
        for ids in epoch.batches(32):
            images, labels = brief.train.batch(torch.from_numpy(np.array(ids)))
            losses = torch.nn.functional.cross_entropy(model(images), labels, reduction="none")
            optimizer.zero_grad()
            losses.mean().backward()
            optimizer.step()
            pruner.observe(losses.detach().numpy(), ids)
        images, labels = brief.test.batch(torch.arange(len(brief.test)))
        right.append(float((model(images).argmax(1) == labels).float().mean()))
    assert facts["accuracy"] == pytest.approx(100 * np.mean(right[-3:]), abs=0.2)
    assert facts["found"]["end"]["counts"] == pytest.approx(auc(pruner.hits / pruner.visits, brief.wrong), abs=0.002)


@pytest.mark.parametrize("staleness", [1, 3])
def test_gradients_are_as_stale_as_it_says(brief, staleness):
    """10 batches in an unpruned epoch, 7 in a pruned one: the first are 0, 1, 2 ... versions old, as all began anew."""
    run = StaleRun("digits", "random", 0.4, staleness, 0)
    facts = train_stale(run, brief)
    assert facts == train_stale(run, brief) | {"seconds": facts["seconds"]}
    epochs = [10, 7, 7, 7, 7, 7]
    ages = [min(number, staleness) for batches in epochs for number in range(batches)]
    assert facts["mean_staleness"] == pytest.approx(np.mean(ages), abs=1e-4)


def test_all_ways_to_prune_visit_as_many_samples(brief):
    visits = {arm: train_stale(StaleRun("digits", arm, 0.4, 0, 0), brief)["visits"] for arm in ARMS}
    assert visits.pop("regular") == 6 * 320
    assert max(visits.values()) - min(visits.values()) <= 320 / 2


def test_clean_labels_have_nothing_to_find(brief):
    clean = StaleTask(brief.train, np.zeros(320, dtype=bool), brief.test, 1, 10)
    assert train_stale(StaleRun("digits", "regular", 0.0, 0, 0), clean)["found"] == {}


def test_what_is_recorded_is_not_run_again(brief, tmp_path, capsys):
    results = Runs(tmp_path / "runs.jsonl.gz")
    for _ in range(2):
        assert main(["staleness", "--run", "digits", "--most", "1", "--results", str(results.file)]) == 0
    assert [run["name"] for run in results.read("staleness")] == sorted(
        run.name for run in runs_to_make("digits", 1)[:2]
    )
    capsys.readouterr()
    assert main(["staleness", "--results", str(results.file)]) == 0
    assert "| 40% wrong | 0         |" in capsys.readouterr().out


@pytest.mark.docs
def test_the_page_shows_the_recorded_runs():
    page = PAGE.read_text("utf-8")
    assert markdown_staleness(RESULTS.read("staleness")) in page
