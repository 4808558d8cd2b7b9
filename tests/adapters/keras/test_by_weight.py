"""``fit`` by weight: every epoch has all samples, and trains as a loop by hand over those that count."""

import keras
import numpy as np
import pytest

from prunedata.errors import UnweighedWarning
from tests.adapters.helpers.keras import BATCH, DIGITS, IMAGES, SAMPLES, WEIGHTS, Model, data, fit, make_model
from tests.adapters.helpers.tensorflow import make_pruner
from tests.adapters.keras.test_fit import Own, Weighing

# Keras's own, wherever it copies weights.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")

LEFT_OUT = [0, 60, 0, 60, 0]


def by_hand(weights=None, reduction="sum_over_batch_size", **options):
    """The same run without Keras: the mean over what counts, written down once more."""
    pruner, kernel, bias = make_pruner(SAMPLES, leave_out="weight", **options), np.zeros((64, 10)), np.zeros(10)
    for epoch in pruner.epochs():
        for ids in epoch.batches(BATCH, shuffle=False):
            guess = np.exp(IMAGES[ids] @ kernel + bias)
            guess /= guess.sum(axis=1, keepdims=True)
            own = np.ones(ids.size) if weights is None else weights[ids]
            pruner.observe(own * -np.log(guess[np.arange(ids.size), DIGITS[ids]]), ids)
            counted = np.ones(ids.size, bool) if not epoch.zero_weights else epoch.trained[ids]
            epoch.apply_weights()
            factor = own * counted * (1 if epoch.weights is None else epoch.weights[ids])
            over = factor.sum() if reduction == "mean_with_sample_weight" else counted.sum()
            gradient = (guess - np.eye(10)[DIGITS[ids]]) * factor[:, np.newaxis] / over
            kernel, bias = kernel - 0.5 * IMAGES[ids].T @ gradient, bias - 0.5 * gradient.sum(axis=0)
    return pruner, [kernel, bias]


def assert_same_run(pruner, model, expected):
    told, weights = expected
    assert [record.get("by_weight", 0) for record in pruner.history] == LEFT_OUT
    assert [record["kept"] for record in pruner.history] == [SAMPLES] * 5
    assert np.array_equal(pruner.visits, told.visits)
    assert np.array_equal(pruner.hits, told.hits)
    for ours, theirs in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize(
    "options",
    [{"jit_compile": False}, {"jit_compile": True}, {"jit_compile": False, "steps_per_execution": 4}],
    ids=str,
)
@pytest.mark.parametrize("weigh", [False, True], ids=["plain", "weighs"])
def test_a_fit_is_the_run_that_a_loop_by_hand_is(options, weigh):
    policy = {"policy": Weighing()} if weigh else {}
    model, pruner = make_model(**options), make_pruner(SAMPLES, leave_out="weight", **policy)
    fit(model, pruner)
    assert_same_run(pruner, model, by_hand(**policy))


@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "mean_with_sample_weight"])
def test_sample_weights_are_honoured(reduction):
    inputs = keras.Input((64,))
    model = Model(inputs, keras.layers.Dense(10, kernel_initializer="zeros")(inputs))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=reduction)
    model.compile(keras.optimizers.SGD(0.5), loss, jit_compile=False)
    pruner, own = make_pruner(SAMPLES, leave_out="weight"), WEIGHTS + 0.5
    fit(model, pruner, data(pruner, (IMAGES, DIGITS, own)))
    assert_same_run(pruner, model, by_hand(own, reduction))


class Unaware(Own):
    """Trains on the mean of all, as it did before."""

    def factors(self, ids):
        return 1.0


def test_a_step_of_ones_own_is_warned_unless_it_asks_for_factors():
    model, pruner = make_model(Own, metrics=None), make_pruner(SAMPLES, leave_out="weight")
    fit(model, pruner)
    assert_same_run(pruner, model, by_hand())
    with pytest.warns(UnweighedWarning, match="60 delivered samples"):
        fit(make_model(Unaware, metrics=None), make_pruner(SAMPLES, leave_out="weight"))


class Stop(keras.callbacks.Callback):
    def __init__(self, steps):
        super().__init__()
        self.left = steps

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        self.model.stop_training = not self.left


def test_a_run_goes_on_in_the_middle_of_an_epoch():
    model, first = make_model(), make_pruner(SAMPLES, leave_out="weight")
    fit(model, first, callbacks=[Stop(10)])  # an epoch has 7 batches
    assert first.next_epoch == 1
    pruner = make_pruner(SAMPLES, leave_out="weight")
    pruner.load_state_dict(first.state_dict())
    fit(model, pruner)
    assert_same_run(pruner, model, by_hand())
