"""The optimiser, and what a parameter server counts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.distributed.training.rmsprop import RMSProp
from benchmarks.distributed.training.serving.servers import WeightServer

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
