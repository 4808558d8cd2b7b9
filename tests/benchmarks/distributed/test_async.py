"""Asynchronous training: the optimiser, the servers, and workers that are killed."""

import json
import os
import signal
import time

import numpy as np
import pytest
import ray
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.common.on_ray import on_ray
from benchmarks.distributed.asynchronous import AsyncRun, AsyncWorker, initial_weights
from benchmarks.distributed.rmsprop import RMSProp
from benchmarks.distributed.servers import ServerDied, Servers, WeightServer
from prunedata import Pruner, Schedule
from prunedata.adapters.ray import serve
from tests.programs import run_module

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


def test_a_gradient_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"Expected a gradient of shape \(3,\). Got \(2,\)"):
        RMSProp(np.zeros(3)).step(np.zeros(2, np.float32))


def test_a_server_counts_staleness():
    server = WeightServer(np.zeros(2))
    _, version = server.pull()
    assert [server.push(np.ones(2, np.float32), version) for _ in range(3)] == [0, 1, 2]
    pulled, version = server.pull()
    before = pulled.copy()
    assert server.push(np.ones(2, np.float32), version) == 3
    assert np.array_equal(pulled, before)
    assert server.staleness() == {0: 2, 1: 1, 2: 1}


@pytest.mark.slow
def test_workers_learn_and_prune_without_waiting_for_one_another(tmp_path):
    given = ("--workers", "2", "--servers", "2", "--epochs", "4", "--prune", "0.2")
    told = run_module("benchmarks.distributed", "train", *given, cwd=tmp_path, options=("-W", "error"))
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)
    assert found["visits"] == [1437, 1150, 1150, 1150]
    assert sum(found["batches"]) == 45 + 3 * 36
    assert found["accuracy"] > 0.7
    assert len(found["staleness"]) == 2
    assert all(0 <= mean < 2 for mean in found["staleness"])


@pytest.mark.slow
def test_a_killed_worker_is_done_without_and_a_killed_server_is_a_clear_error():
    run, schedule = AsyncRun(), Schedule(3, 3, 1, 1, 1)
    with on_ray():
        servers, dealer = Servers(initial_weights(run), 2), serve(lambda: Pruner(1437, schedule, prune=0.2), 32)
        workers = [ray.remote(AsyncWorker).options(num_cpus=0).remote(run) for _ in range(2)]
        pid, _ = ray.get([worker.pid.remote() for worker in workers])
        ends = [worker.train.remote(dealer, servers, name) for name, worker in enumerate(workers)]
        while 0 not in dealer.outstanding:
            time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
        assert ray.get(ends[1]) > 0
        visits = dealer.ask(lambda pruner: [record["observed"] for record in pruner.history])
        assert visits == [1437, 1150, 1150]

        ray.kill(servers._actors[1])
        with pytest.raises(ServerDied, match="Expected parameter server 1 of 2 to answer"):
            servers.pull()
