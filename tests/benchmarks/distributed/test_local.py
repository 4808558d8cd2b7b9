"""``local``: workers that average after some steps of their own train as a plain loop does, and prune exactly."""

import asyncio
import os
import signal
import threading
import time

import numpy as np
import pytest

pytest.importorskip("ray")

from benchmarks.common.data import digits
from benchmarks.common.processes.on_ray import on_ray
from benchmarks.distributed.training.modes import train
from benchmarks.distributed.training.replica import Checkpoint, Replica, RMSProp
from benchmarks.distributed.training.servers import AveragingServer
from benchmarks.distributed.training.task import Training, fewer
from prunedata import Dealer, Wait

FEW = fewer(digits(), 200, 50)
TASK = Training(mode="local", local_steps=3, epochs=3, prune=0.2, learning_rate=0.03, batch=16)


@pytest.fixture(scope="module")
def _ray():
    with on_ray():
        yield


def plain_loop(task, data, rounds):
    """The same training in one process: who made which batches in which round is taken from the run."""
    replica, pruner = Replica(task, data), task.pruner(len(data.train), data.classes)
    weights = replica.weights()
    optimisers = [RMSProp(weights, task.learning_rate) for _ in rounds]
    epochs, at_hand = [], {}

    def batch_of(epoch, number):
        while len(epochs) <= epoch:
            if epochs:
                pruner.end_epoch()
            epochs.append(list(pruner.begin_epoch().batches(task.batch)))
        return epochs[epoch][number]

    for worker, made in enumerate(rounds):
        for version, batches in made:
            at_hand.setdefault(version, []).append((worker, batches))
    for version in sorted(at_hand):
        changed, sizes, observed = [], [], []
        for worker, batches in at_hand[version]:
            own = optimisers[worker]
            own.weights = weights
            size = 0
            for place in batches:
                ids = batch_of(*place)
                replica.load_weights(own.weights)
                gradient, losses = replica.gradient(replica.batch(ids), len(ids), None)
                own.step(gradient)
                observed.append((ids, losses))
                size += len(ids)
            changed.append(own.weights - weights)
            sizes.append(size)
        for ids, losses in observed:
            pruner.observe(losses, ids)
        weights = weights + np.average(changed, axis=0, weights=np.array(sizes, np.float32)).astype(np.float32)
    pruner.end_epoch()
    return weights, pruner


@pytest.mark.usefixtures("_ray")
def test_two_workers_train_and_count_what_a_plain_loop_does(tmp_path):
    found = train(TASK, FEW, tmp_path / "file")
    assert found["visits"] == [200, 160, 160]
    weights, pruner = plain_loop(TASK, FEW, found["rounds"])
    held = Checkpoint.load(tmp_path / "file")
    assert np.array_equal(held.weights, weights)
    dealer = Dealer(TASK.pruner(200, 10), TASK.batch, auto_end=False)
    dealer.load_state_dict(held.run)  # it was saved before its last epoch ended
    assert isinstance(dealer.deal("nobody"), Wait)
    dealer.end_epoch()
    for name in ("counts", "hits", "visits"):
        assert np.array_equal(getattr(dealer.pruner, name), getattr(pruner, name)), name
    batches = [place for worker in found["rounds"] for _, made in worker for place in made]
    assert sorted(batches) == [(epoch, number) for epoch, size in enumerate((13, 10, 10)) for number in range(size)]
    assert max(len(made) for worker in found["rounds"] for _, made in worker) == TASK.local_steps
    assert found["updates"] == 1 + max(version for worker in found["rounds"] for version, _ in worker)


@pytest.mark.slow
@pytest.mark.usefixtures("_ray")
def test_what_a_killed_worker_had_is_trained_by_others_and_counted_once(tmp_path):
    file = tmp_path / "file"

    def started(processes):
        def wait():
            while not file.exists():
                time.sleep(0.001)
            os.kill(processes["worker 1 replica 0"], signal.SIGKILL)

        threading.Thread(target=wait, daemon=True).start()

    found = train(TASK, FEW, file, started)
    assert found["visits"] == [200, 160, 160]
    assert found["workers_lost"] in ([], [1])  # it may have been done


def test_an_update_waits_for_all_who_have_a_batch_and_none_is_dropped():
    async def run():
        one = AveragingServer(np.zeros(2, np.float32), None, 0.1, workers=3)
        await one.push(np.full(2, 1, np.float32), 0, 32, 0)
        await one.rest(0, True)  # the end of the epoch, for it
        assert await one.push(np.full(2, 4, np.float32), 0, 16, 1) == 0
        assert one._version == 0  # the third is in its round
        await one.rest(2, True)
        return await one.pull(after=0), await one.dropped()

    (weights, version), dropped = asyncio.run(run())
    assert (version, dropped) == (1, 0)
    assert weights == pytest.approx([2, 2])  # of 32 samples with 1, and 16 with 4
