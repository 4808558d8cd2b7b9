"""``fit`` of real models over pruned datasets, against a loop by hand."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from prunedata import Pruner
from prunedata.adapters.keras import PruneCallback, PruneMixin, wrap
from prunedata.adapters.keras import callback as adapter
from prunedata.errors import FinishedWarning, PrunedataError, SkippedSamples, UnweighedWarning
from prunedata.policies.rules import DroppingCount
from tests.adapters.helpers.keras import (
    BATCH,
    DIGITS,
    IMAGES,
    KEPT,
    SAMPLES,
    Model,
    Sequence,
    Unbuilt,
    cross_entropy,
    data,
    fit,
    make_model,
)
from tests.adapters.helpers.tensorflow import make_pruner

# Keras's own, wherever it copies weights.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


class Weighing(DroppingCount):
    """Prunes as ever, and lets the kept samples of high number count more."""

    def weights(self, keep: Any, known: Any) -> Any:
        return np.where(keep, np.linspace(0, 3, keep.size), 0)


WEIGHTS = (np.arange(SAMPLES) % 4 / 2).astype(np.float32)
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "compiled": {"model": {"jit_compile": True}},
    "eager": {"model": {"run_eagerly": True}},
    "in fours": {"model": {"steps_per_execution": 4}},
    "own weights": {"own": WEIGHTS},
    "weights of a policy": {"run": {"policy": Weighing()}},
    "both weights": {"run": {"policy": Weighing()}, "own": np.ones(SAMPLES, np.float32)},
    "by weight": {"run": {"leave_out": "weight"}},
    "by weights of a policy": {"run": {"leave_out": "weight", "policy": Weighing()}},
}
"""How a model is compiled, how its run leaves samples out, and the samples' own weights."""


def by_hand(own: Any = None, **run: Any) -> tuple[Pruner, Any]:
    """The same run without Keras and without any adapter: the model's equations, and the core fed with its losses."""
    pruner, kernel, bias = make_pruner(SAMPLES, **run), np.zeros((64, 10)), np.zeros(10)
    own = np.ones(SAMPLES) if own is None else own
    for epoch in pruner.epochs():
        epoch.apply_weights()
        for ids in epoch.batches(BATCH, shuffle=False):
            logits = IMAGES[ids] @ kernel + bias
            guess = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
            pruner.observe(own[ids] * -np.log(guess[np.arange(ids.size), DIGITS[ids]]), ids, logits=logits)
            counted = epoch.trained[ids]
            factor = own[ids] * counted * (1 if epoch.weights is None else epoch.weights[ids])
            gradient = (guess - np.eye(10)[DIGITS[ids]]) * factor[:, np.newaxis] / counted.sum()
            kernel, bias = kernel - 0.5 * IMAGES[ids].T @ gradient, bias - 0.5 * gradient.sum(axis=0)
    return pruner, [kernel, bias]


@pytest.fixture(scope="module")
def reference() -> tuple[Pruner, Any]:
    return by_hand()


def amounts(pruner: Pruner) -> list[tuple[int, ...]]:
    return [(record["kept"], record["observed"], record.get("by_weight", 0)) for record in pruner.history]


def test_the_reference_prunes(reference):
    assert amounts(reference[0]) == [(kept, kept, 0) for kept in KEPT]
    assert amounts(by_hand(leave_out="weight")[0]) == [(SAMPLES, kept, SAMPLES - kept) for kept in KEPT]


def assert_same_run(pruner: Pruner, model: Any, reference: tuple[Pruner, Any]) -> None:
    told, weights = reference
    assert amounts(pruner) == amounts(told)
    assert np.array_equal(pruner.visits, told.visits), "the masks of all epochs"
    assert np.array_equal(pruner.hits, told.hits), "each loss beside its id, in its own batch"
    for ours, theirs in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_is_the_run_that_a_loop_by_hand_is(kind):
    options = KINDS[kind]
    run, own = options.get("run", {}), options.get("own")
    model, pruner = make_model(**options.get("model", {})), make_pruner(SAMPLES, **run)
    arrays = (IMAGES, DIGITS) if own is None else (IMAGES, DIGITS, own)
    history = fit(model, pruner, data(pruner, arrays), validation_data=(IMAGES, DIGITS)).history
    assert_same_run(pruner, model, by_hand(own, **run))
    assert history["val_accuracy"][-1] > 0.8
    if not run:
        assert history["loss"] == pytest.approx([record["mean_loss"] for record in pruner.history], abs=1e-5)


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
    model.compile(
        "sgd",
        lambda y, guess: keras.ops.mean((keras.ops.one_hot(keras.ops.cast(y, "int32"), 10) - guess) ** 2, axis=-1),
    )
    return model, (IMAGES, DIGITS)


@pytest.mark.parametrize("make", [two_outputs, list_of_outputs, steps_of_a_sequence, a_function_as_loss])
def test_the_losses_of_samples_are_what_the_loss_is_the_mean_of(make):
    (model, arrays), pruner = make(), make_pruner(SAMPLES)
    history = fit(model, pruner, data(pruner, arrays)).history
    assert history["loss"] == pytest.approx([record["mean_loss"] for record in pruner.history], rel=1e-5)
    assert [record["observed"] for record in pruner.history] == KEPT


# -- where Keras would end an epoch too early


def stopped(number: int, batches: int, **run: Any) -> tuple[Any, dict[str, Any]]:
    """A model and the pruner's state, from a run that was stopped within an epoch."""
    model, pruner = make_model(), make_pruner(SAMPLES, **run)

    class Stop(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = (self.epoch, batch) == (number, batches - 1)

    fit(model, pruner, callbacks=[Stop()])
    assert pruner.next_epoch == number, "the epoch stays open"
    assert int(pruner.begin_epoch().remaining.sum()) == pruner.current.kept - batches * BATCH
    return model, pruner.state_dict()


@pytest.mark.parametrize("run", [{}, {"leave_out": "weight"}], ids=["left out", "by weight"])
def test_a_run_goes_on_in_the_middle_of_an_epoch(run):
    """The rest of a pruned epoch is short, and the next epoch long: Keras would cut it off."""
    model, state = stopped(1, 3, **run)
    pruner = make_pruner(SAMPLES, **run)
    pruner.load_state_dict(state)
    fit(model, pruner, epochs=3)
    fit(model, pruner)
    assert_same_run(pruner, model, by_hand(**run))


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


def test_a_run_that_has_finished_says_so_where_keras_trains_nothing(reference):
    pruner, model = make_pruner(SAMPLES), make_model()
    pruner.load_state_dict(reference[0].state_dict())
    with pytest.warns(FinishedWarning, match="has finished its 5 epochs"):
        fit(model, pruner)


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
def test_a_remainder_that_the_user_drops_is_skipped(steps):
    model, pruner = make_model(steps_per_execution=steps), make_pruner(SAMPLES)
    fit(model, pruner, data(pruner, drop_remainder=True))
    assert [record["observed"] for record in pruner.history] == [kept // BATCH * BATCH for kept in KEPT]


@pytest.mark.filterwarnings("ignore::prunedata.errors.RandomPruningWarning")  # not one batch was full
def test_a_remainder_that_is_all_there_is_cannot_be_dropped():
    pruner = make_pruner(SAMPLES)
    dataset = wrap(tf.data.Dataset.from_tensor_slices((IMAGES, DIGITS)), pruner).batch(150, drop_remainder=True)
    with pytest.raises(PrunedataError, match=r"at least one batch of 150 .*Got 143 samples in epoch 1"):
        fit(make_model(), pruner, dataset)


def test_a_run_has_one_recorder_and_one_gate(monkeypatch):
    """Also after a cell of a notebook was run again: nothing piles up, and the model need not be traced again."""
    pruner, handed = make_pruner(SAMPLES), []
    callbacks = [PruneCallback(pruner) for _ in range(3)]
    assert len({id(callback.recorder) for callback in callbacks}) == 1
    kind = type(callbacks[0].recorder)
    held_back = kind.held_back
    monkeypatch.setattr(kind, "held_back", lambda recorder: (handed.append(recorder), held_back(recorder))[1])
    pruner.begin_epoch()
    handed.clear()
    pruner.state_dict()
    assert len({id(each) for each in handed}) == 1


# -- beside other things that people do


class Own(PruneMixin, keras.Model):
    """Computes its losses itself."""

    def train_step(self, *arguments: Any) -> Any:
        *state, (ids, (x, y)) = arguments
        return STEPS[keras.backend.backend()](self, ids, x, y, *state, factors=self.factors(ids))


def tensorflow_step(model: Any, ids: Any, x: Any, y: Any, *, factors: Any) -> Any:
    with tf.GradientTape() as tape:
        losses = cross_entropy(reduction=None)(y, model(x, training=True))
        loss = tf.reduce_mean(factors * losses)
    model.optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    model.observe(losses, ids)
    return {"loss": loss}


def torch_step(model: Any, ids: Any, x: Any, y: Any, *, factors: Any) -> Any:
    model.zero_grad()
    losses = cross_entropy(reduction=None)(y, model(x, training=True))
    (factors * losses).mean().backward()
    model.optimizer.apply([each.value.grad for each in model.trainable_weights], model.trainable_weights)
    model.observe(losses, ids)
    return {"loss": losses.detach().mean()}


def jax_step(model: Any, ids: Any, x: Any, y: Any, state: Any, *, factors: Any) -> Any:
    import jax

    trainable, fixed, optimizer, metrics = state

    def loss_of(trainable: Any) -> Any:
        losses = cross_entropy(reduction=None)(y, model.stateless_call(trainable, fixed, x, training=True)[0])
        return (factors * losses).mean(), losses

    gradient, losses = jax.grad(loss_of, has_aux=True)(trainable)
    trainable, optimizer = model.optimizer.stateless_apply(optimizer, gradient, trainable)
    model.observe(losses, ids)
    return {"loss": losses.mean()}, (trainable, fixed, optimizer, metrics)


STEPS = {"tensorflow": tensorflow_step, "torch": torch_step, "jax": jax_step}


class Halved(PruneMixin, keras.Model):
    """Adds to what Keras computes."""

    def compute_loss(self, *args: Any, **options: Any) -> Any:
        return super().compute_loss(*args, **options) + 0.0


class Unprepared(keras.Model):
    """Has a step that knows of no ids."""

    def train_step(self, *arguments: Any) -> Any:
        *_, (x, y) = arguments
        assert (x.shape[1:], y.shape[1:]) == ((64,), ())
        return super().train_step(*arguments)


class Prepared(PruneMixin, Unprepared):
    """With the mixin before it."""


@pytest.mark.parametrize("kind", [Own, Halved, Prepared])
def test_steps_and_losses_of_ones_own(kind, reference):
    model, pruner = make_model(kind, metrics=None), make_pruner(SAMPLES)
    fit(model, pruner)
    assert_same_run(pruner, model, reference)


class Unaware(Own):
    """Trains on the mean of all."""

    def factors(self, ids):
        return 1.0


def test_a_step_of_ones_own_is_warned_unless_it_asks_for_factors():
    model, pruner = make_model(Own, metrics=None), make_pruner(SAMPLES, leave_out="weight")
    fit(model, pruner)
    assert_same_run(pruner, model, by_hand(leave_out="weight"))
    with pytest.warns(UnweighedWarning, match="60 delivered samples"):
        fit(make_model(Unaware, metrics=None), make_pruner(SAMPLES, leave_out="weight"))


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


def test_the_monitored_figure_is_handed_over_in_each_epoch_that_is_validated() -> None:
    pruner = make_pruner(SAMPLES)
    model, seen = make_model(metrics=["accuracy"]), []
    model.fit(
        data(pruner),
        epochs=5,
        verbose=0,
        validation_data=(IMAGES[:64], DIGITS[:64]),
        validation_freq=2,
        callbacks=[
            PruneCallback(pruner, monitor="val_accuracy"),
            keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(logs.get("val_accuracy"))),
        ],
    )
    assert [record.get("validation") for record in pruner.history] == seen
    assert [figure is None for figure in seen] == [True, False, True, False, True]
    callback = PruneCallback(make_pruner(SAMPLES), monitor="val_acc")
    callback.on_test_begin()
    with pytest.raises(PrunedataError, match="Expected 'val_acc'"):
        callback.on_epoch_end(0, {"val_accuracy": 0.5})


@pytest.mark.parametrize("jit", [False, True])
def test_what_samples_look_like_is_kept_by_itself(jit):
    """As in a loop by hand that observes the logits; a step of one's own may pass them."""
    jit = jit and keras.backend.backend() != "torch"
    model, pruner = make_model(jit_compile=jit), make_pruner(SAMPLES, labels=DIGITS)
    fit(model, pruner)
    told, _ = by_hand(labels=DIGITS)
    same = pruner.arrays["guess"] == told.arrays["guess"]
    assert same.mean() > 0.98  # but for what lies within rounding
    assert (pruner.arrays["guess"] != DIGITS).all()


@pytest.mark.parametrize("columns", [(), (1,)])
def test_the_labels_of_a_sparse_cross_entropy_are_known(columns):
    wrong = np.random.default_rng(0).random(SAMPLES) < 0.2
    labels = np.where(wrong, (DIGITS + 1) % 10, DIGITS)
    labels[7] = -100
    loss, runs = cross_entropy(ignore_class=-100), [Pruner(SAMPLES, epochs=9, labels=given) for given in (labels, None)]
    for run in runs:
        model = make_model()
        model.compile(keras.optimizers.SGD(0.5), loss, jit_compile=model.jit_compile)
        fit(model, run, data(run, (IMAGES, labels.reshape(-1, *columns))), epochs=9)
    assert (runs[1].arrays["label"] == np.where(labels < 0, 1, labels + 2)).all()
    assert runs[0].history[-1]["kept"] == runs[1].history[-1]["kept"]
    assert runs[0].advice == runs[1].advice


def test_of_what_are_no_classes_nothing_is_kept():
    inputs = keras.Input((64,))
    model, pruner = Model(inputs, keras.layers.Dense(10)(inputs)), make_pruner(SAMPLES)
    model.compile("sgd", "mse")
    fit(model, pruner, data(pruner, (IMAGES, np.eye(10, dtype=np.float32)[DIGITS])))
    assert "guess" not in pruner.arrays
