"""The optimiser, and parameter servers: what they count, average and wait for."""

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.distributed.training.rmsprop import RMSProp
from benchmarks.distributed.training.serving.quorum import QuorumServer
from benchmarks.distributed.training.serving.servers import WeightServer

# The optimiser, and what a parameter server counts.


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
