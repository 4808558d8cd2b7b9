"""A server that waits for all but the slowest: what it averages, drops, and doesn't wait for."""

import asyncio

import numpy as np
import pytest

from benchmarks.distributed.training.rmsprop import RMSProp
from benchmarks.distributed.training.serving.quorum import QuorumServer
from benchmarks.distributed.training.task import Training


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


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="Expected fewer backups than replicas"):
        Training(mode="sync", workers=2, backup=2)
    with pytest.raises(ValueError, match="Expected fewer backups than replicas, and mode sync"):
        Training(mode="async", backup=1)
    with pytest.raises(ValueError, match="Expected overlap in async or mixed"):
        Training(mode="sync", overlap=True)
