"""``async``, ``mixed`` and ``local``: workers at their own pace learn and prune, also when one of them is killed."""

import asyncio
import resource
from pathlib import Path

import numpy as np
import pytest
import ray

from benchmarks.common.data import digits
from benchmarks.common.processes.on_ray import on_ray
from benchmarks.distributed.training import train
from benchmarks.distributed.training.replica import Checkpoint, Replica, RMSProp
from benchmarks.distributed.training.servers import AveragingServer, ServerDied, ServerOutOfMemory, Servers
from benchmarks.distributed.training.task import Training, fewer
from prunedata import Dealer, Wait
from prunedata.errors import DealerDied
from tests.benchmarks.distributed.test_sync import killing

FEW = fewer(digits(), 1000, 200)
TASK = Training(mode="mixed", replicas=2, epochs=4, prune=0.2, learning_rate=0.03, batch=16)
VISITS = [1000, 800, 800, 800]


@pytest.fixture(scope="module", autouse=True)
def _ray():
    with on_ray():
        yield


@pytest.mark.slow
def test_async_learns_and_prunes_and_after_a_server_was_killed_it_goes_on(tmp_path):
    # Gradients are staler with overlap: at 0.05 one run in three learns nothing.
    task = Training(epochs=6, prune=0.2, servers=2, learning_rate=0.02, overlap=True)
    file = tmp_path / "file"
    with pytest.raises(ServerDied, match="Expected parameter server 1 of 2 to answer"):
        train(task, FEW, file, killing("server 1", file))
    found = train(task, FEW, file)
    assert found["visits"] == [*VISITS, 800, 800]
    assert found["updates"] <= 5 * 25  # at least the first epoch was saved
    assert found["accuracy"] > 0.2
    assert found["workers_lost"] == []
    assert [sum(counts.values()) for counts in found["staleness"]] == [found["updates"]] * 2
    mean = [sum(k * n for k, n in counts.items()) / sum(counts.values()) for counts in found["staleness"]]
    assert all(0.5 < one < 3 for one in mean)  # of two workers, whose gradients are staler by their own update


@pytest.mark.slow
def test_in_async_the_other_gets_what_a_killed_worker_had(tmp_path):
    task, file = Training(epochs=3, prune=0.2, learning_rate=0.03), tmp_path / "file"
    found = train(task, FEW, file, killing("worker 1 replica 0", file))
    assert found["workers_lost"] == [1]
    assert found["visits"] == VISITS[:3]
    dealer = Dealer(task.pruner(1000, 10), 32, auto_end=False)
    dealer.load_state_dict(Checkpoint.load(file).run)
    assert sum(dealer.staleness.values()) == 32 + 25 + 25  # each batch was recorded once
    visits = dealer.pruner.visits  # the last epoch, which was saved before its end, included
    assert (visits.sum(), visits.max()) == (2600, 3)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read as Linux tells it")
def test_a_server_out_of_memory_is_named():
    def limit(_):
        """Leave the process memory for half of the weights; an update makes copies."""
        most = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + 18_000_000
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    weights = np.zeros(9_000_000, np.float32)  # so large an array is not put into memory that was freed before
    servers = Servers(weights, 1)
    ray.get(servers.actors[0].__ray_call__.remote(limit))
    with pytest.raises(ServerOutOfMemory, match="Expected parameter server 0 of 1 to have the memory"):
        servers.push(weights, [0], 1).wait()
    ray.kill(servers.actors[0])


@pytest.mark.slow
def test_in_mixed_the_death_of_a_replica_is_that_of_its_worker(tmp_path):
    file = tmp_path / "file"
    found = train(TASK, FEW, file, killing("worker 0 replica 1", file))
    assert found["workers_lost"] == [0]
    assert found["visits"] == VISITS


@pytest.mark.slow
def test_with_a_backup_the_slow_replica_is_not_waited_for_and_its_losses_count(tmp_path):
    task = Training(mode="sync", backup=1, slow=(1, 0.05), epochs=2, prune=0.2)
    found = train(task, FEW)
    assert found["visits"] == VISITS[:2]
    assert found["dropped"] > 0
    assert found["updates"] + found["dropped"] == 32 + 25
    assert set(found["staleness"][0]) == {0}  # what is applied was made by the newest weights


@pytest.mark.slow
def test_a_killed_dealer_is_a_clear_error(tmp_path):
    task, file = Training(workers=1, epochs=6, prune=0.2, placement="dedicated"), tmp_path / "file"
    with pytest.raises(DealerDied, match="its process or node died"):
        train(task, FEW, file, killing("dealer", file))


# ``local``: workers that average after some steps of their own train as a plain loop does.


SMALL = fewer(digits(), 200, 50)
LOCAL = Training(mode="local", local_steps=3, epochs=3, prune=0.2, learning_rate=0.03, batch=16)


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


def test_two_workers_train_and_count_what_a_plain_loop_does(tmp_path):
    found = train(LOCAL, SMALL, tmp_path / "file")
    assert found["visits"] == [200, 160, 160]
    weights, pruner = plain_loop(LOCAL, SMALL, found["rounds"])
    held = Checkpoint.load(tmp_path / "file")
    assert np.array_equal(held.weights, weights)
    dealer = Dealer(LOCAL.pruner(200, 10), LOCAL.batch, auto_end=False)
    dealer.load_state_dict(held.run)  # it was saved before its last epoch ended
    assert isinstance(dealer.deal("nobody"), Wait)
    dealer.end_epoch()
    for name in ("counts", "hits", "visits"):
        assert np.array_equal(getattr(dealer.pruner, name), getattr(pruner, name)), name
    batches = [place for worker in found["rounds"] for _, made in worker for place in made]
    assert sorted(batches) == [(epoch, number) for epoch, size in enumerate((13, 10, 10)) for number in range(size)]
    assert max(len(made) for worker in found["rounds"] for _, made in worker) == LOCAL.local_steps
    assert found["updates"] == 1 + max(version for worker in found["rounds"] for version, _ in worker)


@pytest.mark.slow
def test_what_a_killed_worker_had_is_trained_by_others_and_counted_once(tmp_path):
    file = tmp_path / "file"
    found = train(LOCAL, SMALL, file, killing("worker 1 replica 0", file))
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
