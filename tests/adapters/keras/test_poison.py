"""``fit`` learns nothing of what doesn't count: other labels of it move no weight, and the rest trains as alone."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from prunedata import Pruner, Schedule
from prunedata.adapters.keras import PruneCallback, wrap
from prunedata.policies import DroppingCount
from tests.adapters.helpers.keras import COMPILES, Model, cross_entropy

# Keras's own, wherever it copies weights.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")

SAMPLES, STEPS, BATCH = 41, 5, 8
NUMBERS = np.random.default_rng(3)
INPUTS = NUMBERS.normal(size=(SAMPLES, STEPS, 4)).astype(np.float32)
INPUTS[np.arange(SAMPLES) % 3 == 0, 3:] = 0  # short ones, whose end is masked
LABELS = NUMBERS.integers(0, 3, (SAMPLES, STEPS))
OWN = NUMBERS.uniform(0.5, 2, SAMPLES).astype(np.float32)
OTHER = {"jit_compile": COMPILES}


class Weighing(DroppingCount):
    """Prunes as ever, and lets the kept samples of high number count more."""

    def weights(self, keep, known):
        return np.where(keep, np.linspace(0.5, 2, keep.size), 0)


RUNS = {
    "held out": {"holdout": 0.25},
    "left out by weight": {"leave_out": "weight"},
    "held out and left out by weight": {"leave_out": "weight", "holdout": 0.25},
    "left out for good": {"leave_out": "weight", "without": np.arange(SAMPLES) % 5 == 0},
    "weighed": {"leave_out": "weight", "policy": Weighing()},
    "weighed and held out": {"holdout": 0.25, "policy": Weighing()},
}


def sequence(kind, masked=False, **options):
    """A loss for each step, and none for what is masked."""
    inputs = keras.Input((STEPS, 4))
    hidden = keras.layers.Masking()(inputs) if masked else inputs
    model = kind(inputs, keras.layers.Dense(3)(hidden))
    model.compile(keras.optimizers.SGD(0.5), cross_entropy(**options), **OTHER)
    return model, LABELS


def one_label(kind, reduction="sum_over_batch_size", **options):
    inputs = keras.Input((STEPS, 4))
    model = kind(inputs, keras.layers.Dense(3)(keras.layers.Flatten()(inputs)))
    model.compile(keras.optimizers.SGD(0.2), cross_entropy(reduction=reduction), **{**OTHER, **options})
    return model, LABELS[:, 0]


def two_outputs(kind):
    inputs = keras.Input((STEPS, 4))
    flat = keras.layers.Flatten()(inputs)
    model = kind(inputs, {"class": keras.layers.Dense(3)(flat), "map": keras.layers.Dense(3)(inputs)})
    losses = {"class": cross_entropy(), "map": cross_entropy(reduction="sum")}
    model.compile(keras.optimizers.SGD(0.1), losses, loss_weights={"class": 1.0, "map": 0.5}, **OTHER)
    return model, {"class": LABELS[:, 0], "map": LABELS}


class Poison(keras.callbacks.Callback):
    """Notes each epoch; gives the samples that must not be learnt in it other labels, where it is to poison."""

    def __init__(self, pruner, labels, by, stop):
        super().__init__()
        self.pruner, self.epochs, self.by, self.left = pruner, [], by, stop
        self.clean, self.labels = labels, keras.tree.map_structure(tf.Variable, labels)

    def on_epoch_begin(self, epoch, logs=None):
        epoch = self.pruner.current.detached()
        self.epochs.append(epoch)
        poison = np.flatnonzero(epoch.loss_weights(np.arange(SAMPLES)) == 0)
        for variable, clean in zip(keras.tree.flatten(self.labels), keras.tree.flatten(self.clean), strict=True):
            bad = clean.copy()
            bad[poison] = (bad[poison] + self.by) % 3
            variable.assign(bad)

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if not self.left:
            self.model.stop_training = True


def start(**run):
    return Pruner(SAMPLES, Schedule(3, window=3, start=1, block=2, pruned_per_block=1), prune=0.3, seed=4, **run)


def fit(make, run, *, by=0, batch=BATCH, drop=False, own=False, stop=0, **options):
    """Train, poisoned by so much; return the model, and the epochs as they were."""
    keras.utils.set_random_seed(7)
    model, labels = make(Model, **options)
    pruner, epochs = start(**run), []
    while pruner.next_epoch < 3:
        poison = Poison(pruner, labels, by, stop)

        def given(number, inputs, poison=poison):
            y = keras.tree.map_structure(lambda part: tf.gather(part, number), poison.labels)
            return number, (inputs, y, tf.gather(OWN, number)) if own else (inputs, y)

        dataset = wrap(tf.data.Dataset.from_tensor_slices(INPUTS), pruner).map(given)
        callbacks = [PruneCallback(pruner), poison]
        dataset = dataset.batch(batch, drop_remainder=drop)
        model.fit(dataset, epochs=3, initial_epoch=pruner.next_epoch, callbacks=callbacks, verbose=0)
        epochs, before, stop = epochs + poison.epochs, pruner, 0
        pruner = start(**run)
        pruner.load_state_dict(before.state_dict())
    return model, epochs


def alone(make, epochs, *, batch=BATCH, drop=False, own=False, stop=0, **options):
    """Keras itself, on what counts of each batch and on nothing else."""
    keras.utils.set_random_seed(7)
    model, labels = make(keras.Model, **options)
    for number, epoch in enumerate(epochs):
        batches = list(epoch.batches(batch, shuffle=False, drop_last=drop))
        last = number + 1 < len(epochs) and epochs[number + 1].number == epoch.number
        for ids in batches[: stop % -(-SAMPLES // batch)] if last else batches:
            weights = epoch.loss_weights(ids)
            left, weights = ids[weights > 0], weights[weights > 0]
            weights = weights * OWN[left] if own else None if (weights == 1).all() else weights
            if left.size:
                y = keras.tree.map_structure(lambda part, left=left: part[left], labels)
                model.train_on_batch(INPUTS[left], y, weights)
    return model


def assert_learns_no_more(make, run, **options):
    model, epochs = fit(make, run, **options)
    poisoned, _ = fit(make, run, by=1, **options)
    assert any((epoch.loss_weights(np.flatnonzero(epoch.keep)) != 1).any() for epoch in epochs)
    expected = alone(make, epochs, **options).get_weights()
    for ours, moved, plain in zip(model.get_weights(), poisoned.get_weights(), expected, strict=True):
        assert np.array_equal(ours, moved)
        np.testing.assert_allclose(ours, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("run", RUNS)
def test_nothing_is_learnt_of_what_does_not_count(run):
    assert_learns_no_more(one_label, RUNS[run])


MODES = {
    "batches of one": {"batch": 1},
    "without a remainder": {"drop": True},
    "resumed": {"stop": 9},
    "reduced to a sum": {"reduction": "sum"},
    "sample weights": {"own": True},
    "sample weights by their sum": {"own": True, "reduction": "mean_with_sample_weight"},
    "the mean with weights without any": {"reduction": "mean_with_sample_weight"},
    "compiled": {"jit_compile": True},
    "eager": {"run_eagerly": True, "jit_compile": False},
    "in fours": {"steps_per_execution": 4},
}


SLOW = ["sample weights", "compiled", "eager", "the sum of steps with a mask"]


def some(names):
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in names]


@pytest.mark.filterwarnings("ignore::prunedata.errors.RandomPruningWarning")  # batches of one
@pytest.mark.parametrize("mode", some(MODES))
def test_nothing_is_learnt_in_any_mode(mode):
    assert_learns_no_more(one_label, RUNS["held out and left out by weight"], **MODES[mode])


HEADS = {
    "steps": (sequence, {}),
    "steps with a mask": (sequence, {"masked": True}),
    "the sum of steps with a mask": (sequence, {"masked": True, "reduction": "sum"}),
    "the mean with weights of steps": (sequence, {"reduction": "mean_with_sample_weight"}),
    "two outputs": (two_outputs, {}),
}


@pytest.mark.parametrize("head", some(HEADS))
def test_nothing_is_learnt_by_any_head(head):
    make, options = HEADS[head]
    assert_learns_no_more(make, RUNS["held out and left out by weight"], **options)
