"""Recorded runs and their tables; the page shows what was recorded."""

import json

import pytest

from benchmarks.common.records import Runs
from benchmarks.distributed.__main__ import main
from benchmarks.distributed.measured import measured_tables as made
from benchmarks.distributed.measured import results
from benchmarks.distributed.measured.page import PAGE, fill
from benchmarks.distributed.measured.runs import with_nodes
from benchmarks.distributed.training.curve import reached
from benchmarks.distributed.training.parts import PARTS
from benchmarks.distributed.training.task import Training


def facts(**other):
    known = {
        **vars(Training(mode="mixed", replicas=4)), "visits": [100, 50], "images_per_second": 80.0, "accuracy": 0.5,
        "staleness": [{"0": 1, "2": 3}], "parts": dict.fromkeys(PARTS, 0.002), "updates": 4, "dropped": 0,
        "seconds_to_target": 8.0,
    }  # fmt: skip
    return known | other


def rows(table):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


ONE = facts(mode="sync", workers=1, staleness=[], images_per_second=100.0, seconds_to_target=12.0)


def test_speedups_are_over_one_node_and_efficiency_over_the_nodes_used():
    two = facts(images_per_second=150.0)
    own = facts(images_per_second=180.0, placement="dedicated")
    other = facts(images_per_second=999.0, replicas=1)
    found = rows(made.throughput([ONE, two, own, other, facts(mode="sync", images_per_second=999.0)]))
    assert ["2", "2 Nodes (2 Workers + 1 PS)", "195.60", "1.58", "0.79", "150", "1.50", "0.75", "1"] in found
    assert found[-1] == ["-", "3 Nodes (2 Workers + 1 PS), of their own", "-", "-", "-", "180", "1.80", "0.60", "1"]
    assert ["1", "4 Nodes (4 Workers + 1 PS)", "292.22", "2.35", "0.59", "-", "-", "-", "0"] in found


def test_the_time_to_a_loss_beside_the_studys():
    never = facts(seconds_to_target=None, staleness=[{"1": 1}])
    found = rows(made.convergence([ONE, facts(), never]))
    assert found[0] == ["1", "0.228", "106.43 h", "1.00", "0.500", "12.0 s", "1.00", "-", "1 of 1"]
    assert found[1] == ["2", "0.217", "62.78 h", "1.69", "0.500", "8.0 s", "1.50", "1.25", "1 of 2"]
    assert found[3][4:] == ["-"] * 5


def test_a_loss_is_reached_when_ten_updates_in_a_row_are_as_low_on_average():
    curve = [[float(number), 2.0 if number < 10 else 1.0] for number in range(30)]
    assert reached(curve, 1.5) == 14.0
    assert reached(curve, 0.9) is None
    assert reached(curve[:9], 9.9) is None


def test_learning_and_parts_have_a_row_for_each_kind():
    runs = [facts(), facts(accuracy=0.7), facts(prune=0.25)]
    assert rows(made.learning(runs)) == [
        ["mixed", "2 x 4", "nothing", "0.600", "0.500 - 0.700", "150", "1.50", "2"],
        ["mixed", "2 x 4", "25 %, DroppingCount", "0.500", "0.500 - 0.500", "150", "1.50", "1"],
    ]
    assert rows(made.where_time_goes(runs))[0] == ["mixed", "2 x 4", "1 shared", "nothing", *["2.00"] * len(PARTS), "2"]


def test_backups_show_what_was_dropped():
    slow = facts(mode="sync", workers=3, replicas=1, backup=1, slow=[2, 0.1], visits=[160, 100], dropped=2)
    assert rows(made.backups([slow])) == [["3", "1", "100 ms", "80", "4", "22 %", "0.500", "1"]]


def test_kills_show_who_was_killed_and_what_came_of_it():
    search = facts(mode="async", replicas=1, cases=3, killed={"server 0": 1, "dealer": 2}, ends={"DealerDied": 2})
    found = rows(made.killings([search | {"slowest": 0.25, "wrong": ["case 1"]}]))
    assert found == [["async", "2 x 1", "3", "dealer 2, server 0 1", "DealerDied 2", "0.2 s", "1"]]


@pytest.mark.parametrize("points", [0, 1, 50, 51, 333])
def test_thinned_curves_keep_their_end_and_are_short(points):
    curve = [[float(number), 1.0] for number in range(points)]
    thin = results.thinned(curve)
    assert len(thin) <= 50
    assert points == 0 or thin[-1] == [points - 1.0, 1.0]


def test_nodes_are_the_studys_best_configuration():
    one, four = (with_nodes(Training(mode="mixed", replicas=2), nodes) for nodes in (1, 4))
    assert (one.mode, one.team) == ("sync", 2)
    assert (four.mode, four.workers, four.servers) == ("mixed", 4, 3)
    assert with_nodes(Training(), 2).mode == "async"


def test_a_run_is_recorded_with_its_seed_and_hardware(tmp_path, capsys):
    given = ["--mode", "sync", "--workers", "1", "--epochs", "1", "--samples", "200", "--seed", "3"]
    runs = Runs(tmp_path / "runs.jsonl.gz")
    assert main(["throughput", *given, "--results", str(runs.file)]) == 0
    told = json.loads(capsys.readouterr().out)
    (recorded,) = results.read(runs, "throughput")
    assert recorded == told | {name: recorded[name] for name in ("kind", "name")}
    assert recorded["seed"] == 3
    assert "cores" in recorded["hardware"]
    assert main(["tables", "--results", str(runs.file)]) == 0
    assert "Nothing was recorded yet" in capsys.readouterr().out


def test_a_run_takes_the_place_of_one_of_its_task_and_seed(tmp_path):
    slow = {"mode": "sync", "slow": (2, 0.1), "prune": 0.25}
    runs = [facts(**slow), facts(seed=1), facts(), facts(accuracy=0.9), facts(**slow | {"slow": [2, 0.1]})]
    recorded = Runs(tmp_path / "runs.jsonl.gz")
    for run in runs:
        results.add(recorded, "trained", run)
    found = results.read(recorded, "trained")
    assert [(run["mode"], run["seed"], run["accuracy"]) for run in found] == [
        ("mixed", 0, 0.9),
        ("mixed", 1, 0.5),
        ("sync", 0, 0.5),
    ]


@pytest.mark.docs
def test_the_page_shows_what_was_recorded():
    page = PAGE.read_text(encoding="utf-8")
    assert fill(page) == page, "python -m benchmarks.distributed tables --write"
    assert page.count("<!-- table:") == 10
    assert "| - " in page
