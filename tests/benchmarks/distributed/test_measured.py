"""Recorded runs: what is kept of them, and the figures drawn of them."""

import json
from dataclasses import asdict

import pytest
from matplotlib.image import imread

from benchmarks.common.records import Runs
from benchmarks.distributed.__main__ import main
from benchmarks.distributed.cluster import STUDY, Configuration
from benchmarks.distributed.measured import figures, results
from benchmarks.distributed.measured.runs import with_nodes
from benchmarks.distributed.training.task import PARTS, Training, reached


def facts(**other):
    known = {
        **vars(Training(mode="mixed", replicas=4)), "visits": [100, 50], "images_per_second": 80.0, "accuracy": 0.5,
        "staleness": [{"0": 1, "2": 3}], "parts": dict.fromkeys(PARTS, 0.002), "updates": 4, "dropped": 0,
        "seconds_to_target": 8.0,
    }  # fmt: skip
    return known | other


def test_a_loss_is_reached_when_ten_updates_in_a_row_are_as_low_on_average():
    curve = [[float(number), 2.0 if number < 10 else 1.0] for number in range(30)]
    assert reached(curve, 1.5) == 14.0
    assert reached(curve, 0.9) is None
    assert reached(curve[:9], 9.9) is None


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
    runs = Runs(tmp_path / "runs.jsonl.bz2")
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
    recorded = Runs(tmp_path / "runs.jsonl.bz2")
    for run in runs:
        results.add(recorded, "trained", run)
    found = results.read(recorded, "trained")
    assert [(run["mode"], run["seed"], run["accuracy"]) for run in found] == [
        ("mixed", 0, 0.9),
        ("mixed", 1, 0.5),
        ("sync", 0, 0.5),
    ]


# The study's figures: the points are those of its tables, of the model and of the recorded runs.


RUN = {**asdict(Training(mode="sync", workers=1, replicas=4)), "images_per_second": 100.0}
RUNS = [
    RUN,
    RUN | {"replicas": 1, "images_per_second": 60.0},
    RUN | {"replicas": 2, "images_per_second": 150.0},
    RUN | {"mode": "mixed", "workers": 2, "images_per_second": 170.0},
    RUN | {"mode": "mixed", "workers": 2, "placement": "dedicated", "images_per_second": 180.0},
    RUN | {"mode": "sync", "workers": 2, "images_per_second": 999.0},
    RUN | {"mode": "mixed", "workers": 2, "overlap": True, "images_per_second": 999.0},
]
CURVES = [
    RUN | {"curve": [[1.0, 2.3], [2.0, 2.1]]},
    RUN | {"mode": "mixed", "workers": 4, "servers": 3, "curve": [[1.0, 2.2], [9.0, 1.1]]},
]


@pytest.fixture
def recorded(tmp_path):
    made = Runs(tmp_path / "runs.jsonl.bz2")
    for kind, runs in (("throughput", RUNS), ("converge", CURVES)):
        for number, run in enumerate(runs):
            results.add(made, kind, run | {"seed": number})
    return made


def points(recorded, figure, source):
    return {one.name: one.points for one in figures.series(recorded) if (one.figure, one.source) == (figure, source)}


def test_what_was_recorded_is_shown_over_one_node(recorded):
    found = points(recorded, "1", "here")
    assert found == {figures.MOST: ((1, 1.0), (2, 1.7)), figures.OWN: ((3, 1.8),)}
    assert points(recorded, "2b", "here") == {figures.MOST: ((1, 1.0), (2, 1.7))}
    assert points(recorded, "2a", "here") == {"replicas": ((1, 1.0), (2, 2.5), (4, 100 / 60))}
    assert points(recorded, "3", "here") == {
        "1 node": ((1.0, 2.3), (2.0, 2.1)),
        "4 nodes": ((1.0, 2.2), (9.0, 1.1)),
    }


def test_the_studys_rows_and_the_model_are_beside_it(recorded):
    study = points(recorded, "2b", "study")[figures.MOST]
    assert study == ((1, 1.0), (2, 195.60 / 124.18), (4, 383.09 / 124.18), (8, 809.10 / 124.18))
    both = points(recorded, "1", "study")
    assert (4, 374.73 / 124.18) in both[figures.MOST]
    assert both[figures.OWN] == ((7, 396.62 / 124.18),)
    assert both[figures.ONE] == ((4, 292.22 / 124.18),)
    model = dict(points(recorded, "2b", "model")[figures.MOST])
    alone = STUDY.images_per_second(Configuration(1))
    assert model[8] == pytest.approx(STUDY.images_per_second(Configuration(8, 7)) / alone)


def test_the_picture_is_drawn_also_of_nothing_recorded(recorded, tmp_path):
    nothing = Runs(tmp_path / "nothing")
    for runs in (recorded, nothing):
        pixels = imread(figures.draw(tmp_path / "figures.png", runs))
        assert min(pixels.shape[:2]) > 500
        assert pixels.std() > 0.01
    assert not points(nothing, "1", "here")


def test_the_command_prints_every_point(recorded, capsys):
    assert main(["figures", "--results", str(recorded.file)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {one["figure"] for one in told} == {"1", "2a", "2b", "3"}
    assert {"figure": "2a", "name": "replicas", "source": "here", "points": [[1, 1.0], [2, 2.5], [4, 100 / 60]]} in told
