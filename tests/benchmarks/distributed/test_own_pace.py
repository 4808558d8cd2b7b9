"""``async`` and ``mixed``: workers at their own pace learn and prune, and what happens when one of them is killed."""

import os
import resource
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import ray

from benchmarks.common.data import digits
from benchmarks.common.processes.on_ray import on_ray
from benchmarks.distributed.training.modes import train
from benchmarks.distributed.training.replica import Checkpoint
from benchmarks.distributed.training.servers import ServerDied, ServerOutOfMemory, Servers
from benchmarks.distributed.training.task import Training, fewer
from prunedata import Dealer
from prunedata.errors import DealerDied

FEW = fewer(digits(), 1000, 200)
TASK = Training(mode="mixed", replicas=2, epochs=4, prune=0.2, learning_rate=0.03, batch=16)
VISITS = [1000, 800, 800, 800]


@pytest.fixture(scope="module", autouse=True)
def _ray():
    with on_ray():
        yield


def killing(name, checkpoint):
    """What kills a process when the first epoch has been saved."""

    def started(processes):
        def wait():
            while not checkpoint.exists():
                time.sleep(0.001)
            os.kill(processes[name], signal.SIGKILL)

        threading.Thread(target=wait, daemon=True).start()

    return started


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
