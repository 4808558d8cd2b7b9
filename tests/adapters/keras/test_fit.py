"""``fit`` of real models over pruned datasets, against a loop by hand."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn.datasets import load_digits

from prunedata import Pruner
from prunedata.adapters.keras import PruneCallback, PruneMixin, prune
from prunedata.adapters.keras import model as adapter
from prunedata.errors import LossError, NotInEpoch, PrunedataError, SkippedSamples
from prunedata.policies.dropping_count import DroppingCount
from tests.adapters.tensorflow_helpers import make_pruner

SAMPLES = 203
KEPT = [203, 143, 203, 143, 203]
BATCH = 32
IMAGES, DIGITS = load_digits(return_X_y=True)
IMAGES, DIGITS = (IMAGES[:SAMPLES] / 16).astype(np.float32), DIGITS[:SAMPLES].astype(np.int64)
WEIGHTS = (np.arange(SAMPLES) % 4 / 2).astype(np.float32)


class Model(PruneMixin, keras.Model):
    """Built from inputs and outputs."""


class Unbuilt(PruneMixin, keras.Model):
    """Knows the shape of its input with the first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(10)

    def call(self, x: Any) -> Any:
        return self.dense(x)


class Sequence(PruneMixin, keras.Sequential):
    """One layer after the other."""


def make_model(kind: type = Model, **options: Any) -> Any:
    inputs = keras.Input((64,))
    model = kind(inputs, keras.layers.Dense(10, kernel_initializer="zeros")(inputs))
    options = {"metrics": ["accuracy"], "jit_compile": False, **options}
    model.compile(keras.optimizers.SGD(0.5), cross_entropy(), **options)
    return model


def cross_entropy(**options: Any) -> Any:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, **options)


def data(pruner: Pruner, arrays: Any = (IMAGES, DIGITS), **options: Any) -> tf.data.Dataset:
    return prune(tf.data.Dataset.from_tensor_slices(arrays), pruner).batch(BATCH, **options)


def fit(model: Any, pruner: Pruner, dataset: Any = None, **options: Any) -> Any:
    options = {"epochs": 5, "initial_epoch": pruner.next_epoch, "verbose": 0, **options}
    options["callbacks"] = [PruneCallback(pruner), *options.get("callbacks", [])]
    return model.fit(data(pruner) if dataset is None else dataset, **options)


def by_hand(*, weights: Any = None, samples: int = SAMPLES, **options: Any) -> tuple[Pruner, Any]:
    """The same run without ``fit`` and without any adapter: a plain model, and the core fed with its losses."""
    pruner, model, optimizer = make_pruner(samples, **options), make_model(keras.Model), keras.optimizers.SGD(0.5)
    each = cross_entropy(reduction=None)
    for epoch in pruner.epochs():
        for ids in epoch.batches(BATCH, shuffle=False):
            with tf.GradientTape() as tape:
                losses = each(DIGITS[ids], model(IMAGES[ids]), None if weights is None else weights[ids])
                trained = losses if epoch.weights is None else losses * epoch.weights[ids]
                loss = tf.reduce_mean(trained)
            variables = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            pruner.observe(ids, losses)
    return pruner, model.get_weights()


@pytest.fixture(scope="module")
def reference() -> tuple[Pruner, Any]:
    return by_hand()


def assert_same_run(pruner: Pruner, model: Any, reference: tuple[Pruner, Any]) -> None:
    told, weights = reference
    assert [record["observed"] for record in pruner.history] == [record["observed"] for record in told.history]
    assert np.array_equal(pruner.visits, told.visits), "the masks of all epochs"
    assert np.array_equal(pruner.hits, told.hits), "each loss beside its id, in its own batch"
    for ours, theirs in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"jit_compile": False},
        {"jit_compile": True},
        {"run_eagerly": True},
        {"jit_compile": False, "steps_per_execution": 4},
    ],
    ids=str,
)
def test_a_fit_is_the_run_that_a_loop_by_hand_is(options, reference):
    model, pruner = make_model(**options), make_pruner(SAMPLES)
    history = fit(model, pruner, validation_data=(IMAGES, DIGITS)).history
    assert_same_run(pruner, model, reference)
    assert [record["observed"] for record in pruner.history] == KEPT
    assert history["val_accuracy"][-1] > 0.9
    assert history["loss"] == pytest.approx([record["mean_loss"] for record in pruner.history], abs=1e-5)


def test_sample_weights_are_honoured():
    model, pruner = make_model(), make_pruner(SAMPLES)
    history = fit(model, pruner, data(pruner, (IMAGES, DIGITS, WEIGHTS))).history
    assert_same_run(pruner, model, by_hand(weights=WEIGHTS))
    assert history["loss"] == pytest.approx([record["mean_loss"] for record in pruner.history], abs=1e-5)


class Weighing(DroppingCount):
    """Prunes as ever, and lets the kept samples of high number count more."""

    def weights(self, keep: Any, known: Any) -> Any:
        return np.where(keep, np.linspace(0, 3, keep.size), 0)


@pytest.mark.parametrize("arrays", [(IMAGES, DIGITS), (IMAGES, DIGITS, np.ones(SAMPLES))], ids=["none", "ones"])
def test_the_weights_of_a_policy_are_honoured(arrays):
    model, pruner = make_model(), make_pruner(SAMPLES, policy=Weighing())
    fit(model, pruner, data(pruner, arrays))
    assert_same_run(pruner, model, by_hand(policy=Weighing()))


def two_outputs() -> Any:
    inputs = keras.Input((64,))
    outputs = {"digit": keras.layers.Dense(10)(inputs), "pixels": keras.layers.Dense(64)(inputs)}
    model = Model(inputs, outputs)
    model.compile("sgd", {"digit": cross_entropy(), "pixels": "mse"}, loss_weights={"digit": 1.0, "pixels": 0.5})
    return model, (IMAGES, {"digit": DIGITS, "pixels": IMAGES})


def list_of_outputs() -> Any:
    inputs = keras.Input((64,))
    model = Model(inputs, [keras.layers.Dense(10)(inputs), keras.layers.Dense(64)(inputs)])
    model.compile("sgd", [cross_entropy(), "mae"])
    return model, (IMAGES, (DIGITS, IMAGES))


def steps_of_a_sequence() -> Any:
    model = Sequence([keras.layers.Reshape((8, 8)), keras.layers.Dense(10)])
    model.compile("sgd", cross_entropy())
    return model, (IMAGES, np.repeat(DIGITS[:, np.newaxis], 8, axis=1))


def a_function_as_loss() -> Any:
    model = Unbuilt()
    model.compile("sgd", lambda y, guess: keras.ops.mean((keras.ops.one_hot(y, 10) - guess) ** 2, axis=-1))
    return model, (IMAGES, DIGITS)


@pytest.mark.parametrize("make", [two_outputs, list_of_outputs, steps_of_a_sequence, a_function_as_loss])
def test_the_losses_of_samples_are_what_the_loss_is_the_mean_of(make):
    (model, arrays), pruner = make(), make_pruner(SAMPLES)
    history = fit(model, pruner, data(pruner, arrays)).history
    assert history["loss"] == pytest.approx([record["mean_loss"] for record in pruner.history], rel=1e-5)
    assert [record["observed"] for record in pruner.history] == KEPT


# -- where Keras would end an epoch too early


def stopped(number: int, batches: int) -> tuple[Any, dict[str, Any]]:
    """A model and the pruner's state, from a run that was stopped within an epoch."""
    model, pruner = make_model(), make_pruner(SAMPLES)

    class Stop(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = (self.epoch, batch) == (number, batches - 1)

    fit(model, pruner, callbacks=[Stop()])
    assert pruner.next_epoch == number, "the epoch stays open"
    assert int(pruner.begin_epoch().remaining.sum()) == KEPT[number] - batches * BATCH
    return model, pruner.state_dict()


@pytest.mark.parametrize("again", [True, False], ids=["same pruner", "restored"])
def test_a_run_goes_on_in_the_middle_of_an_epoch(again, reference):
    """The rest of a pruned epoch is short, and the next epoch long: Keras would cut it off."""
    model, state = stopped(1, 3)
    pruner = make_pruner(SAMPLES)
    pruner.load_state_dict(state)
    fit(model, pruner, epochs=3 if again else 5)
    if again:
        fit(model, pruner)
    assert_same_run(pruner, model, reference)


def test_an_epoch_that_keras_cuts_off_is_noticed(monkeypatch):
    model, state = stopped(1, 3)
    pruner = make_pruner(SAMPLES)
    pruner.load_state_dict(state)
    monkeypatch.setattr(adapter, "sized", lambda dataset, samples: dataset)
    with pytest.raises(SkippedSamples, match=r"Got \d+ that were not"):
        fit(model, pruner)


def test_a_number_of_steps_is_refused_before_the_first_and_training_can_follow(reference):
    model, pruner = make_model(), make_pruner(SAMPLES)
    with pytest.raises(PrunedataError, match=r"Expected no steps_per_epoch\. Got 2: .*Leave it out"):
        fit(model, pruner, steps_per_epoch=2)
    assert not pruner.history
    fit(model, pruner)
    assert_same_run(pruner, model, reference)


def test_batches_that_are_left_out_are_noticed_and_the_rest_can_follow(reference):
    model, pruner = make_model(), make_pruner(SAMPLES)
    with pytest.raises(SkippedSamples, match=f"Got {SAMPLES - 2 * BATCH} that were not"):
        fit(model, pruner, data(pruner).take(2))
    fit(model, pruner)
    assert_same_run(pruner, model, reference)


def test_a_state_saved_before_the_epoch_was_ended(reference):
    """By a callback that stands before ours: the epoch is open, and nothing of it is left."""
    model, pruner, states = make_model(), make_pruner(SAMPLES), []
    save = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: states.append(pruner.state_dict()))
    dataset = data(pruner)
    model.fit(dataset, epochs=2, callbacks=[save, PruneCallback(pruner)], verbose=0)
    pruner = make_pruner(SAMPLES)
    pruner.load_state_dict(states[1])
    assert pruner.next_epoch == 1
    fit(model, pruner)
    assert_same_run(pruner, model, reference)


@pytest.mark.parametrize("steps", [1, 4])
def test_a_remainder_that_the_user_drops_is_excused(steps):
    model, pruner = make_model(steps_per_execution=steps), make_pruner(SAMPLES)
    fit(model, pruner, data(pruner, drop_remainder=True))
    assert [record["observed"] for record in pruner.history] == [kept // BATCH * BATCH for kept in KEPT]


def test_a_remainder_that_is_all_there_is_cannot_be_dropped():
    pruner = make_pruner(SAMPLES)
    dataset = prune(tf.data.Dataset.from_tensor_slices((IMAGES, DIGITS)), pruner).batch(150, drop_remainder=True)
    with pytest.raises(PrunedataError, match=r"at least one batch of 150 .*Got 143 samples in epoch 1"):
        fit(make_model(), pruner, dataset)


def test_a_run_has_one_recorder_and_one_gate(monkeypatch):
    """Also after a cell of a notebook was run again: nothing piles up, and the model need not be traced again."""
    pruner, handed = make_pruner(SAMPLES), []
    callbacks = [PruneCallback(pruner) for _ in range(3)]
    assert len({id(callback.recorder) for callback in callbacks}) == 1
    kind = type(callbacks[0].recorder)
    hand_over = kind.hand_over
    monkeypatch.setattr(kind, "hand_over", lambda recorder: (handed.append(recorder), hand_over(recorder)))
    pruner.begin_epoch()
    handed.clear()
    pruner.state_dict()
    assert len({id(each) for each in handed}) == 1


# -- beside other things that people do


class Own(PruneMixin, keras.Model):
    """Reckons its losses itself."""

    def train_step(self, data: Any) -> Any:
        ids, (x, y) = data
        with tf.GradientTape() as tape:
            losses = cross_entropy(reduction=None)(y, self(x, training=True))
            loss = tf.reduce_mean(losses)
        self.optimizer.apply_gradients(
            zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables, strict=True)
        )
        self.observe(ids, losses)
        return {"loss": loss}


class Halved(PruneMixin, keras.Model):
    """Adds to what Keras reckons."""

    def compute_loss(self, *args: Any, **options: Any) -> Any:
        return super().compute_loss(*args, **options) + 0.0


@pytest.mark.parametrize("kind", [Own, Halved])
def test_steps_and_losses_of_ones_own(kind, reference):
    model, pruner = make_model(kind, metrics=None), make_pruner(SAMPLES)
    fit(model, pruner)
    assert_same_run(pruner, model, reference)


@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")  # Keras's save
def test_a_model_may_be_fitted_again_pruned_or_not(tmp_path, reference):
    model = make_model()
    begin = model.get_weights()
    for _ in range(2):
        model.set_weights(begin)
        fit(model, pruner := make_pruner(SAMPLES))
        assert_same_run(pruner, model, reference)
    model.fit(IMAGES, DIGITS, verbose=0)
    model.evaluate(IMAGES, DIGITS, verbose=0)
    assert len(model.weights) == len(make_model(keras.Model).weights), "what is recorded is no part of the model"
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras", custom_objects={"Model": Model})
    np.testing.assert_array_equal(loaded.predict(IMAGES, verbose=0), model.predict(IMAGES, verbose=0))


# -- refused, with the reason


def drop_ids(pruner):
    return prune(tf.data.Dataset.from_tensor_slices((IMAGES, DIGITS)), pruner).map(lambda number, pair: pair).batch(8)


def unbatched(pruner):
    return prune(tf.data.Dataset.from_tensor_slices((IMAGES, DIGITS)), pruner)


@pytest.mark.parametrize(
    ("dataset", "options", "why"),
    [
        (drop_ids, {}, r"Expected batches of \(ids, data\)"),
        (unbatched, {}, r"use batch\(\)"),
        (lambda pruner: data(pruner).repeat(), {}, "repeat"),
        (lambda pruner: data(make_pruner(SAMPLES)), {}, "of one pruner"),
        (lambda pruner: tf.data.Dataset.from_tensor_slices((IMAGES, DIGITS)).batch(8), {}, "no pruned dataset"),
        (data, {"class_weight": {0: 1.0}}, "sample weights"),
        (data, {"initial_epoch": 1}, "Expected epoch 0, where the pruner stands"),
    ],
)
def test_what_fit_cannot_do(dataset, options, why):
    pruner = make_pruner(SAMPLES)
    with pytest.raises(PrunedataError, match=why):
        fit(make_model(), pruner, dataset(pruner), **options)


def test_a_pruned_dataset_needs_the_callback():
    with pytest.raises(PrunedataError, match="PruneCallback"):
        make_model().fit(data(make_pruner(SAMPLES)), verbose=0)


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


def test_a_cache_behind_prune_is_noticed():
    pruner = make_pruner(SAMPLES)
    with pytest.raises(LossError, match="cache"):
        fit(make_model(), pruner, data(pruner).cache())


@pytest.mark.parametrize("jit", [False, True])
def test_samples_twice_are_noticed(jit):
    pruner = make_pruner(SAMPLES)
    with pytest.raises(LossError, match="repeat"):
        fit(make_model(jit_compile=jit), pruner, data(pruner).repeat(2))
