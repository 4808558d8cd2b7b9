"""Stale gradients: what the model of a cluster says, and training on them."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.common.records import Runs
from benchmarks.distributed import stale_training as training
from benchmarks.distributed import staleness as runs
from benchmarks.distributed.__main__ import main
from benchmarks.distributed.cluster import STUDY, Configuration, Linked
from benchmarks.distributed.stale_training import task_of, train_stale
from benchmarks.distributed.staleness import ARMS, SUBJECTS, StaleRun, runs_to_make
from benchmarks.distributed.tables import PruningCost, saving
from benchmarks.study.choosers import auc
from prunedata import Schedule
from tests.common.programs import run_module

# The model of the study's cluster: it gives the study's tables, and behaves as a cluster does.


PRINTED = [
    (1, "1 Node", 124.18),
    (1, "7 Nodes (4 Workers + 3 PS)", 396.62),
    (1, "4 Nodes (4 Workers + 3 PS)", 374.73),
    (1, "4 Nodes (4 Workers + 1 PS)", 292.22),
    (2, "1 Node", 124.18),
    (2, "2 Nodes (2 Workers + 1 PS)", 195.60),
    (2, "4 Nodes (4 Workers + 3 PS)", 383.09),
    (2, "8 Nodes (8 Workers + 7 PS)", 809.10),
]
COUNTS = st.integers(1, 40)


def test_the_command_prints_every_row_of_the_study_within_ten_percent(tmp_path):
    told = run_module("benchmarks.distributed", "model", "--json", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    rows = json.loads(told.stdout)
    assert [(row["table"], row["configuration"], row["study"]) for row in rows] == PRINTED
    for row in rows:
        assert set(row) == {"table", "configuration", "study", "model"}
        assert row["model"] == pytest.approx(row["study"], rel=0.10), row


def test_a_server_that_is_always_busy_is_the_limit():
    """So slow a link that workers do nothing but wait: the bytes of a step, one worker after the other."""
    slow = replace(STUDY, bandwidth=1e6, contention=0.0)
    rate = slow.images_per_second(Configuration(8, 1))
    assert rate == pytest.approx(128 / (2 * slow.gradient_bytes / slow.bandwidth), rel=1e-3)


@given(workers=COUNTS, servers=COUNTS)
def test_more_servers_and_nodes_of_their_own_never_harm(workers, servers):
    own = STUDY.images_per_second(Configuration(workers, servers, "dedicated"))
    assert own <= workers * STUDY.batch / STUDY.compute_seconds
    assert own <= STUDY.images_per_second(Configuration(workers, servers + 1, "dedicated")) * (1 + 1e-9)
    assert own <= STUDY.images_per_second(Configuration(workers + 1, servers, "dedicated")) * (1 + 1e-9)
    if servers <= workers:
        assert STUDY.images_per_second(Configuration(workers, servers)) < own


@given(workers=COUNTS, servers=COUNTS)
def test_links_alone_cost_no_more_than_their_bytes_and_no_less_than_one_after_the_other(workers, servers):
    links = Linked(**asdict(STUDY))
    own = Configuration(workers, servers, "dedicated")
    way = links.gradient_bytes / links.bandwidth
    busiest = way * max(1.0, workers / servers)
    step = links.step_seconds(own)
    assert links.compute_seconds + 2 * way <= step * (1 + 1e-9)
    assert max(links.compute_seconds, way * workers / servers) <= step * (1 + 1e-9)
    assert step <= (links.compute_seconds + 2 * (way + busiest)) * (1 + 1e-9)
    if servers <= workers:  # a worker needs no link to the server on its node
        assert links.step_seconds(Configuration(workers, servers)) <= step * (1 + 1e-9)
    assert links.step_seconds(Configuration(1, 1)) == links.compute_seconds


def test_pruning_costs_nothing_where_it_costs_nothing():
    free = PruningCost(0, 0, 0, 0)
    regular, pruned, spent = saving(STUDY, 1, free, samples=128_000, prune=0.25)
    assert pruned == pytest.approx(0.75 * regular)
    assert spent == pytest.approx(0)


def test_workers_wait_at_the_end_of_a_pruned_epoch():
    regular, pruned, _ = saving(STUDY, 8, PruningCost(0, 0, 0, 0), samples=128 * 8, prune=0.5)
    assert pruned == pytest.approx(regular)  # half of the workers have nothing to do


def test_a_dealer_deals_no_more_than_it_can():
    slow = PruningCost(round_trips=0, dealing=1.0, sample=0, commit=0)
    _, pruned, _ = saving(STUDY, 64, slow, samples=128 * 640, prune=0)
    assert pruned == pytest.approx(640.0)


# Training with stale gradients: as stale as it says, the same in every repeat, and told as it was recorded.


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


def test_what_is_recorded_is_not_run_again(brief, tmp_path, capsys):
    results = Runs(tmp_path / "runs.jsonl.bz2")
    for _ in range(2):
        assert main(["staleness", "--run", "digits", "--most", "1", "--results", str(results.file)]) == 0
    assert [run["name"] for run in results.read("staleness")] == sorted(
        run.name for run in runs_to_make("digits", 1)[:2]
    )
    capsys.readouterr()
    assert main(["staleness", "--results", str(results.file)]) == 0
    assert "| 40% wrong | 0         |" in capsys.readouterr().out
