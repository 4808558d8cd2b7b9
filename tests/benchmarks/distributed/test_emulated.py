"""Emulated devices: their time is slept, their weights are moved, and every run says what was emulated."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks.common.arguments import program
from benchmarks.common.data import digits
from benchmarks.common.records import Runs
from benchmarks.distributed.arguments import add_task, task_of
from benchmarks.distributed.cluster import STUDY, Configuration
from benchmarks.distributed.emulated import runs
from benchmarks.distributed.emulated.__main__ import UNABLE, main
from benchmarks.distributed.emulated.measure import as_arguments, measure
from benchmarks.distributed.hosts import unable
from benchmarks.distributed.measured.results import read
from benchmarks.distributed.training.in_step import train_as_rank
from benchmarks.distributed.training.replica import Replica
from benchmarks.distributed.training.task import Training, fewer

FEW = fewer(digits(), 64, 16)
EVERY = runs.runs_to_make(tuple(runs.RUNS))


@pytest.mark.parametrize("stretch", [1.0, 2.0, 4.0])
def test_a_device_never_takes_less_than_it_says_times_the_stretch(stretch):
    task = Training(mode="sync", workers=1, epochs=1, batch=32, device_time=0.001, stretch=stretch)
    found = train_as_rank(task, FEW, None)
    assert found["updates"] == 2
    assert found["parts"]["device"] > 0
    assert found["images_per_second"] * stretch <= 1 / 0.001
    assert found["load"] >= 0


def test_an_emulated_device_trains_the_weights_that_the_real_one_trains():
    task = Training(mode="sync", workers=1, epochs=1, batch=32)
    losses = [
        [loss for _, loss in train_as_rank(one, FEW, None)["curve"]]
        for one in (task, replace(task, device_time=0.0001, stretch=2.0, parameters=100_000))
    ]
    assert losses[0] == losses[1]


def test_ballast_is_moved_and_updated_and_the_network_does_not_see_it():
    replica = Replica(Training(parameters=100_000), FEW)
    weights = replica.weights()
    assert weights.shape == (100_000,)
    replica.load_weights(weights + np.float32(1))
    own = replica.weights()[:61_706]
    assert np.allclose(own, weights[:61_706] + 1)
    gradient, losses = replica.gradient(replica.batch(np.arange(4)), 4, None)
    assert (gradient.shape, losses.shape) == ((100_000,), (4,))
    assert np.count_nonzero(gradient[61_706:]) > 38_000
    with pytest.raises(ValueError, match=r"Expected at least the 61,706 weights of lenet\. Got 9"):
        Replica(Training(parameters=9), FEW)


@pytest.mark.parametrize("wrong", [{"device_time": -1.0}, {"stretch": 0.0}])
def test_devices_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match="Expected a device time of 0 or more, and a stretch above 0"):
        Training(**wrong)


def test_a_device_and_its_links_are_slowed_alike():
    for run in EVERY:
        batch = run.training.batch * run.training.device_time
        if run.group != "loss":
            assert batch == pytest.approx(STUDY.compute_seconds, rel=0.005)
        bits = 8 * STUDY.step_bytes / run.shrink / float(run.rate.removesuffix("bit"))
        assert bits / run.training.stretch == pytest.approx(STUDY.step_bytes / run.gigabytes / 1e9, rel=1e-6)


def test_the_command_that_is_run_gives_the_task_that_was_planned():
    parser = program("train", "")
    add_task(parser, "async")
    for run in EVERY:
        assert task_of(parser.parse_args(as_arguments(run.training))) == run.training


def test_all_rows_of_the_study_are_planned():
    found = runs.runs_to_make(["tables"])
    rows = {(one.training.workers, one.training.servers, one.training.placement) for one in found}
    assert rows == {(1, 1, "shared"), (2, 1, "shared"), (4, 1, "shared"), (4, 3, "shared"), (8, 7, "shared"),
                    (4, 3, "dedicated")}  # fmt: skip


def test_what_is_not_planned_or_cannot_be_run_is_said(monkeypatch, capsys):
    assert main(["run", "--groups", "tables,none"]) == 2
    assert "Got none." in capsys.readouterr().err
    monkeypatch.setattr("benchmarks.distributed.emulated.__main__.unable", lambda: "no ip: install iproute2")
    assert main(["run", "--groups", "loss"]) == UNABLE
    assert main(["list", "--groups", "loss"]) == 0
    assert capsys.readouterr().out.startswith("loss 7.5 GB/s as ")


@pytest.mark.slow
def test_a_cluster_of_namespaces_trains_in_local_steps_and_moves_the_models_bytes(tmp_path):
    if why := unable():
        pytest.skip(f"no network namespaces: {why}")
    pytest.importorskip("ray")
    run = runs.whole(
        "local", Configuration(2, 1), mode="local", local_steps=4, epochs=1, batch=16, device_time=0.001, stretch=1.0
    )
    run = replace(run, samples=256)
    recorded = Runs(tmp_path / "runs.jsonl.gz")
    assert measure([run], recorded, None) == 0
    (facts,) = read(recorded, "emulated")
    assert facts["visits"] == [256]
    assert 2 <= facts["updates"] <= 4  # a worker that is late leaves its share to the other, which then goes on alone
    assert facts["workers_lost"] == []
    # The server is on the first host: the second pulls and pushes all of the weights in each update.
    model = facts["updates"] * 4 * runs.PARAMETERS
    assert facts["sent"][1] > model
    assert "tbf limits to" in facts["emulated"]
    assert measure([run], recorded, None) == 0  # and is not made again
    assert read(recorded, "emulated") == [facts]
