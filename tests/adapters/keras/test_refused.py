"""What ``fit`` cannot do with a pruned dataset: each is refused with the reason."""

import importlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import prunedata.adapters.keras
from prunedata.adapters.keras import PruneCallback, PruneMixin, wrap
from prunedata.errors import LossError, NotInEpoch, PrunedataError
from tests.adapters.helpers.keras import DIGITS, IMAGES, SAMPLES, Model, data, fit, make_model
from tests.adapters.helpers.tensorflow import make_pruner


def drop_ids(pruner):
    return wrap(tf.data.Dataset.from_tensor_slices((IMAGES, DIGITS)), pruner).map(lambda number, pair: pair).batch(8)


def unbatched(pruner):
    return wrap(tf.data.Dataset.from_tensor_slices((IMAGES, DIGITS)), pruner)


@pytest.mark.parametrize(
    ("dataset", "options", "why"),
    [
        (drop_ids, {}, r"Expected batches of \(ids, data\)"),
        (unbatched, {}, r"use batch\(\)"),
        (lambda pruner: data(pruner).repeat(), {}, "repeat"),
        (lambda pruner: data(make_pruner(SAMPLES)), {}, "of one pruner"),
        (lambda pruner: tf.data.Dataset.from_tensor_slices((IMAGES, DIGITS)).batch(8), {}, "no pruned dataset"),
        (data, {"class_weight": {0: 1.0}}, "sample weights"),
        (data, {"initial_epoch": 1}, "Expected epoch 0, the pruner's epoch"),
    ],
)
def test_what_fit_cannot_do(dataset, options, why):
    pruner = make_pruner(SAMPLES)
    with pytest.raises(PrunedataError, match=why):
        fit(make_model(), pruner, dataset(pruner), **options)


def test_a_pruned_dataset_needs_the_callback():
    with pytest.raises(PrunedataError, match="PruneCallback"):
        make_model().fit(data(make_pruner(SAMPLES)), verbose=0)


@pytest.mark.parametrize("method", ["evaluate", "predict"])
def test_a_pruned_dataset_is_trained_on_alone(method):
    with pytest.raises(PrunedataError, match=f"Expected a dataset that isn't pruned to {method} on"):
        getattr(make_model(), method)(data(make_pruner(SAMPLES)), verbose=0)


def test_a_pruned_dataset_to_validate_on():
    pruner = make_pruner(SAMPLES)
    with pytest.raises(PrunedataError, match="isn't pruned to validate on"):
        fit(make_model(), pruner, validation_data=data(make_pruner(SAMPLES)))
    assert pruner.next_epoch == 0


def test_the_callback_needs_the_mixin():
    with pytest.raises(PrunedataError, match="Expected a model with PruneMixin"):
        make_model(keras.Model).fit(IMAGES, DIGITS, callbacks=[PruneCallback(make_pruner(SAMPLES))], verbose=0)


def test_the_mixin_stands_first():
    with pytest.raises(PrunedataError, match="hides the mixin"):
        type("Model", (keras.Model, PruneMixin), {})


def test_more_epochs_than_the_schedule_has():
    pruner = make_pruner(SAMPLES)
    with pytest.raises(NotInEpoch, match="Expected one of 5 epochs"):
        fit(make_model(), pruner, epochs=6)
    assert len(pruner.history) == 5


@pytest.mark.parametrize(
    ("loss", "error", "why"),
    [
        (lambda y, guess: keras.ops.mean(guess), LossError, "Expected a loss for each sample"),
        (None, PrunedataError, "compiled with a loss"),
    ],
)
def test_a_loss_that_is_not_of_samples(loss, error, why):
    inputs = keras.Input((64,))
    model = Model(inputs, keras.layers.Dense(10, activity_regularizer="l2")(inputs))
    model.compile("sgd", loss)
    with pytest.raises(error, match=why):
        fit(model, make_pruner(SAMPLES))


def test_losses_that_are_not_finite_are_named():
    images = IMAGES.copy()
    images[40] = np.nan
    pruner = make_pruner(SAMPLES)
    with pytest.raises(LossError, match="Expected finite losses"):
        fit(make_model(), pruner, data(pruner, (images, DIGITS)))


def test_samples_twice_are_noticed():
    """Also where XLA would leave out what does not fit, in silence."""
    pruner = make_pruner(SAMPLES)
    with pytest.raises(LossError, match="repeat"):
        fit(make_model(jit_compile=True), pruner, data(pruner).repeat(2))


def test_several_devices_are_refused(monkeypatch):
    monkeypatch.setattr(keras.distribution, "distribution", lambda: "two devices")
    with pytest.raises(PrunedataError, match=r"Expected one device.*several devices with PyTorch"):
        fit(make_model(), make_pruner(SAMPLES))


def test_an_older_keras(monkeypatch):
    monkeypatch.setattr(keras, "__version__", "3.6.0")
    with pytest.raises(ImportError, match=r"needs Keras 3\.7 or newer\. Got 3\.6\.0"):
        importlib.reload(prunedata.adapters.keras)
