"""Sync: ranks that train together are one process in everything; the optimiser and parameter servers."""

import asyncio
import json
import os
import signal
import threading
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.common.data import digits
from benchmarks.common.processes.ranks import RankFailed, in_ranks
from benchmarks.distributed.__main__ import main
from benchmarks.distributed.training import train
from benchmarks.distributed.training.in_step import train_as_rank
from benchmarks.distributed.training.replica import RMSProp
from benchmarks.distributed.training.servers import QuorumServer, WeightServer
from benchmarks.distributed.training.task import Training, fewer
from tests.common.programs import run_module

FEW = fewer(digits(), 500, 100)
TASK = Training(mode="sync", epochs=4, prune=0.3, learning_rate=0.02)


def saved(file):
    held = torch.load(file, weights_only=True)
    return held["weights"], held["average"], held["run"]


def standing(run):
    """The checksums of what a run counted, among others."""
    pruner = TASK.pruner(500, 10)
    pruner.load_state_dict(run)
    return pruner.standing()


def killing(name, checkpoint, by=signal.SIGKILL):
    """What kills a process when the first epoch has been saved."""

    def started(processes):
        def wait():
            while not checkpoint.exists():
                time.sleep(0.001)
            os.kill(processes[name], by)

        threading.Thread(target=wait, daemon=True).start()

    return started


@pytest.mark.slow
def test_three_ranks_train_as_one_process_does_also_on_uneven_batches(tmp_path):
    # A policy that weighs losses.
    weighed = replace(TASK, policy="LossRanked")
    one = train(replace(weighed, workers=1, batch=48, epochs=3), FEW, tmp_path / "one")
    three = train(replace(weighed, workers=3, batch=16, epochs=3), FEW, tmp_path / "three")
    assert three["visits"] == one["visits"] == [500, 350, 350]
    assert 500 % 48 % 3
    losses = [[loss for _, loss in facts["curve"]] for facts in (one, three)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
    (weights, average, _), (others, other_average, _) = saved(tmp_path / "one"), saved(tmp_path / "three")
    assert torch.allclose(weights, others, atol=1e-4)
    assert torch.allclose(average, other_average, atol=1e-4)


@pytest.mark.slow
def test_two_replicas_count_what_one_counts_with_twice_the_batch(tmp_path):
    """A loss is hit if it is above the mean of the whole batch, and not of the part that its replica has."""
    counted = []
    for workers in (1, 2):
        task = replace(TASK, workers=workers, batch=64 // workers, epochs=3)
        train(task, FEW, tmp_path / str(workers))
        pruner = task.pruner(500, 10)
        pruner.load_state_dict(saved(tmp_path / str(workers))[2])
        counted.append((pruner.counts.tolist(), pruner.hits.tolist(), pruner.visits.tolist()))
    assert counted[0] == counted[1]


@pytest.mark.slow
def test_a_killed_rank_is_named_and_the_run_goes_on_exactly(tmp_path):
    train(TASK, FEW, tmp_path / "whole")
    with pytest.raises(RankFailed, match=r"rank 1 was killed by SIGKILL\. Run the same command again"):
        train(TASK, FEW, tmp_path / "file", killing("rank 1", tmp_path / "file"))
    again = train(TASK, FEW, tmp_path / "file")
    assert len(again["curve"]) < sum(-(-kept // 64) for kept in again["visits"])
    (weights, average, run), (others, other_average, other_run) = saved(tmp_path / "whole"), saved(tmp_path / "file")
    assert torch.equal(weights, others)
    assert torch.equal(average, other_average)
    assert standing(run) == standing(other_run)


@pytest.mark.slow
def test_a_rank_that_hangs_is_named(tmp_path):
    stopped = killing("rank 1", tmp_path / "file", signal.SIGSTOP)
    with pytest.raises(RankFailed, match="Got fewer: rank 1 does not answer"):
        train(replace(TASK, within=8.0), FEW, tmp_path / "file", stopped)


def test_a_run_that_is_done_already_says_so_by_no_updates(tmp_path, capsys):
    given = ["train", "--mode", "sync", "--workers", "1", "--epochs", "1", "--samples", "300"]
    found = []
    for _ in range(2):
        assert main([*given, "--checkpoint", str(tmp_path / "file")]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["accuracy"] == found[1]["accuracy"]
    assert [facts["updates"] for facts in found] == [10, 0]
    assert found[0]["visits"] == found[1]["visits"] == [300]


def test_the_network_of_the_study_has_its_outputs_and_starts_from_given_weights(tmp_path):
    model = Training(outputs=1200, seed=1).build(FEW)
    assert model.fc3.out_features == 1200
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    again = Training(outputs=1200, seed=2, weights=str(tmp_path / "weights.pt")).build(FEW)
    assert all(torch.equal(one, other) for one, other in zip(model.parameters(), again.parameters(), strict=True))
    with pytest.raises(ValueError, match="Expected at least 10 outputs"):
        Training(outputs=9).build(FEW)


@pytest.mark.slow
def test_resnet50_with_the_outputs_of_the_study_takes_a_step():
    task = Training(mode="sync", workers=1, epochs=1, batch=4, network="resnet50", outputs=1200)
    found = train_as_rank(task, fewer(FEW, 4, 4), None)
    assert (found["updates"], found["visits"]) == (1, [4])
    assert 5 < found["curve"][0][1] < 10  # log(1200) is 7.1


# ``sync`` under a launcher: torchrun's ranks train as those that the trainer starts itself.


GIVEN = ("--mode", "sync", "--epochs", "2", "--samples", "200", "--prune", "0.3")


@pytest.mark.slow
def test_torchruns_ranks_make_the_same_weights_and_one_of_them_prints(tmp_path, capsys):
    torchrun = partial(run_module, "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m")
    given = ("train", *GIVEN, "--checkpoint")
    told = torchrun("benchmarks.distributed", *given, str(tmp_path / "torchrun"), cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert main([*given, str(tmp_path / "own")]) == 0
    ours, theirs = json.loads(capsys.readouterr().out), json.loads(told.stdout)
    assert theirs["visits"] == ours["visits"] == [200, 140]
    assert [loss for _, loss in theirs["curve"]] == [loss for _, loss in ours["curve"]]
    held, other = (torch.load(tmp_path / name, weights_only=True) for name in ("torchrun", "own"))
    assert torch.equal(held["weights"], other["weights"])
    assert torch.equal(held["average"], other["average"])


def launch(monkeypatch, size):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", str(size))


def test_as_many_processes_as_replicas_are_expected(monkeypatch):
    launch(monkeypatch, 3)
    with pytest.raises(ValueError, match=r"Expected 2 processes: 2 workers times 1 replicas\. Got 3 from the launcher"):
        main(["train", *GIVEN])


@pytest.mark.parametrize("given", [["train", "--mode", "async"], ["kills", "--mode", "sync"]])
def test_what_starts_its_own_processes_is_refused_under_a_launcher(monkeypatch, given):
    launch(monkeypatch, 2)
    with pytest.raises(ValueError, match="Expected train or throughput with --mode sync under torchrun"):
        main(given)


def differ():
    """A rank of a run in which each rank was given another learning rate."""
    train_as_rank(Training(mode="sync", learning_rate=0.1 * (1 + dist.get_rank())), fewer(digits(), 100, 50), None)


@pytest.mark.slow
def test_ranks_that_disagree_say_in_what():
    with pytest.raises(RankFailed, match=r"ranks that differ \(learning_rate: rank 0 has 0.1, rank 1 has 0.2\)"):
        in_ranks(2, differ)


# The optimiser, and parameter servers: what they count, average and wait for.


NUMBERS = st.floats(-3, 3, width=32)


@given(weight=NUMBERS, gradients=st.lists(NUMBERS, max_size=5), epsilon=st.sampled_from([1.0, 1e-10]))
def test_rmsprop_is_that_of_tensorflow_1(weight, gradients, epsilon):
    """As its documentation has it: the average starts at one, and epsilon is inside of the root."""
    optimiser, average, expected = RMSProp(np.array([weight]), epsilon=epsilon), 1.0, float(weight)
    for gradient in gradients:
        whole = gradient + 1e-4 * expected
        average = 0.9 * average + 0.1 * whole**2
        expected -= 0.1 * whole / (average + epsilon) ** 0.5
        optimiser.step(np.array([gradient], dtype=np.float32))
    assert optimiser.weights[0] == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_a_server_counts_staleness():
    server = WeightServer(np.zeros(2))
    _, version = server.pull()
    assert [server.push(np.ones(2, np.float32), version) for _ in range(3)] == [0, 1, 2]
    pulled, version = server.pull()
    before = pulled.copy()
    assert server.push(np.ones(2, np.float32), version) == 3
    assert np.array_equal(pulled, before)
    assert server.staleness() == {0: 2, 1: 1, 2: 1}


# A server that waits for all but the slowest: what it averages, drops, and doesn't wait for.


def server(workers, backup):
    return QuorumServer(np.zeros(2, np.float32), None, 0.1, workers, backup)


def gradient(number):
    return np.full(2, number, np.float32)


def test_an_update_is_the_mean_over_the_samples_of_the_first_and_the_slowest_is_dropped():
    async def run():
        one = server(3, 1)
        await one.push(gradient(1), 0, size=32)
        assert (await one.pull())[1] == 0
        assert await one.push(gradient(4), 0, size=16) == 0
        weights, version = await one.pull(after=0)
        assert version == 1
        assert await one.push(gradient(100), 0, size=32) == 1
        assert await one.dropped() == 1
        return weights, (await one.pull())[0]

    weights, later = asyncio.run(run())
    alone = RMSProp(np.zeros(2, np.float32))
    alone.step(gradient(2))  # of 32 samples with 1, and 16 with 4
    assert weights == pytest.approx(alone.weights)
    assert np.array_equal(later, weights)


def test_it_does_not_wait_for_workers_without_a_batch():
    async def run():
        one = server(3, 0)
        await one.push(gradient(1), 0)
        await one.rest(1, True)
        assert (await one.pull())[1] == 0
        await one.rest(2, True)
        assert (await one.pull())[1] == 1
        await one.rest(2, False)
        await one.push(gradient(1), 1)
        waiting = asyncio.create_task(one.pull(after=1))
        await asyncio.sleep(0)
        assert not waiting.done()
        await one.push(gradient(1), 1)
        return await waiting

    assert asyncio.run(run())[1] == 2
