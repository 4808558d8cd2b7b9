"""Tables of the emulated cluster: times over the stretch, speedups over one node, and what was emulated."""

import json
from dataclasses import asdict

import pytest

pytest.importorskip("torch")

from benchmarks.common.records import Runs
from benchmarks.distributed.cluster import Configuration
from benchmarks.distributed.emulated import other_tables, runs, study_tables
from benchmarks.distributed.emulated.found import runs_of
from benchmarks.distributed.measured import results
from benchmarks.distributed.training.parts import PARTS

FOUR = Configuration(4, 3)


def record(recorded, run, rate, **other):
    """A run that trained at a rate of the emulated cluster."""
    by = run.training.stretch
    served = run.training.served
    results.add(
        recorded,
        "emulated",
        json.loads(json.dumps(asdict(run.training)))
        | {
            "group": run.group, "gigabytes": run.gigabytes, "shrink": run.shrink, "samples": run.samples,
            "data": "digits", "images_per_second": rate / by, "seconds": 10.0 * by,
            "parts": dict.fromkeys(PARTS, 0.001 * by), "curve": [],
            "staleness": [{"3": 2}] if served else [], "updates": 5, "dropped": 0, "accuracy": 0.5,
            "visits": [run.samples], "load": 7.0, "hardware": "a machine", "versions": {"torch": "2"},
        }
        | other,
    )  # fmt: skip


def rows(table):
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:] if line.startswith("|")
    ]


@pytest.fixture
def empty(tmp_path):
    return Runs(tmp_path / "runs.jsonl.gz")


@pytest.fixture
def recorded(empty):
    record(empty, runs.mixed("tables", runs.ONE), 100.0)
    for seed, rate in enumerate((380.0, 400.0, 390.0)):
        record(empty, runs.mixed("spread" if seed else "tables", FOUR, seed=seed), rate)
    return empty


def test_a_row_has_the_study_the_model_and_the_emulated_cluster(recorded):
    table = study_tables.throughput(recorded)
    (row,) = [row for row in rows(table) if row[:2] == ["2", "4 Nodes (4 Workers + 3 PS)"]]
    assert row[2:5] == ["383.09", "3.08", "0.77"]
    assert row[6] == "390.0"
    assert row[8:] == ["3.90", "3.80 - 4.00", "0.97", "3.00", "3"]
    assert "times the stretch of 4" in table
    assert "1,298,342 weights stand for 25,966,832" in table
    assert "load average 7 to 7" in table


def test_times_are_those_of_the_cluster_that_is_emulated(recorded):
    (one,) = [run for run in runs_of(recorded, "tables") if run["mode"] == "sync"]
    assert one["seconds"] == pytest.approx(10)
    assert one["parts"]["device"] == pytest.approx(0.001)
    parts = {row[0]: row for row in rows(study_tables.parts(recorded))}
    assert parts["1 Node"][1:4] == ["-", "3.0", "1.0"]  # forward and backward are the device's


def test_stretches_are_compared_with_the_longest(empty):
    for by, rate in ((1.0, 95.0), (4.0, 100.0)):
        record(empty, runs.whole("stretch", runs.ONE, stretch=by), rate)
        record(empty, runs.whole("stretch", FOUR, stretch=by), 4 * rate)
    found = rows(study_tables.stretches(empty))
    assert found[0] == ["1 Node", "95.0 (-5.0 %)", "100.0 (+0.0 %)", "1.00", "1.00"]
    assert found[1][3:] == ["4.00", "4.00"]


def test_other_ways_are_over_one_node(empty):
    record(empty, runs.whole("stretch", runs.ONE), 100.0)
    record(empty, runs.whole("local", FOUR, mode="local", local_steps=4), 395.0)
    (row,) = rows(other_tables.ways(empty))
    assert row[:5] == ["4 Nodes (4 Workers + 3 PS)", "local, 4 steps", "7.5 GB/s", "395.0", "3.95"]


def test_what_pruning_saves_is_beside_how_many_images_are_fewer(empty):
    for prune, seconds, visits in ((0.0, 20.0, [100, 100, 100]), (0.3, 16.0, [100, 70, 70])):
        run = runs.whole("pruned", FOUR, stretch=2.0, prune=prune)
        record(empty, run, 300.0, seconds=2 * seconds, visits=visits)
    (row,) = rows(other_tables.pruned(empty))
    assert row[3:7] == ["20.0 s", "16.0 s", "20.0 %", "20.0 %"]


def test_a_straggler_and_who_waits_for_it(empty):
    run = runs.whole("straggler", FOUR, mode="sync", backup=1, slow=(3, 0.5))
    record(empty, run, 300.0, dropped=8)
    (row,) = rows(other_tables.straggler(empty))
    assert row == ["sync, 1 backup", "500 ms", "300.0", "5", "25 %", "100%"]


def test_the_time_to_a_loss_is_over_the_stretch(empty):
    for nodes, last in ((1, 60.0), (4, 20.0)):
        run = runs.whole("loss", Configuration(nodes, nodes - 1), stretch=2.0)
        record(empty, run, 100.0 * nodes, curve=[[2 * last, 0.5]] * 10)
    found = {row[0]: row for row in rows(other_tables.loss(empty))}
    assert found["1"][4:8] == ["1.00", "60.0 s", "1.00", "0.500"]
    assert found["4"][4:7] == ["4.00", "20.0 s", "3.00"]
    assert found["8"][4:] == ["-", "-", "-", "-", "-", "0 of 0"]


def test_nothing_recorded_makes_empty_tables(empty):
    for table in (study_tables.throughput, study_tables.software, other_tables.ways, other_tables.loss):
        assert "Nothing was recorded yet." in table(empty)
