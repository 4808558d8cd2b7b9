"""The study's figures: the points are those of its tables, of the model and of the recorded runs."""

import json
from dataclasses import asdict

import pytest

pytest.importorskip("matplotlib")

from matplotlib.image import imread

from benchmarks.common.records import Runs
from benchmarks.distributed.__main__ import main
from benchmarks.distributed.cluster import STUDY, Configuration
from benchmarks.distributed.measured import figures, results
from benchmarks.distributed.measured.page import PAGE
from benchmarks.distributed.training.task import Training

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
    made = Runs(tmp_path / "runs.jsonl.gz")
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


@pytest.mark.docs
def test_the_page_has_the_picture():
    assert f"({figures.PICTURE.name})" in PAGE.read_text(encoding="utf-8")
    assert imread(figures.PICTURE).std() > 0.01
