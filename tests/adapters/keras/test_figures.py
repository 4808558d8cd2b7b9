"""The validation figure of ``fit``: which way is better, and that none is lost where a run is stopped."""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

from prunedata import Pruner, Schedule
from prunedata.adapters.keras import PruneCallback
from prunedata.errors import PrunedataError
from prunedata.findings.monitor import is_lower_better
from tests.adapters.helpers.keras import BATCH, DIGITS, IMAGES, SAMPLES, data, make_model

# Keras's own, wherever it copies weights.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")

FIGURES = [2, 6, 8, 9, 9, 9, 6, 4, 2, 1]
"""Tenths of the figure of each epoch."""
EPOCHS = len(FIGURES)
CLASS = tf.Variable(0, dtype=tf.int64)
"""What the samples to validate on are labelled with: the figure of the epoch."""


def accuracy(y, guess):
    return keras.ops.cast(y, "float32") / 10 + 0 * keras.ops.max(guess, -1)


def validation():
    return tf.data.Dataset.from_tensor_slices(IMAGES[:BATCH]).map(lambda image: (image, CLASS)).batch(BATCH)


class Killed(Exception):
    pass


class Stop(keras.callbacks.Callback):
    """Saves the model and the pruner at one moment, and ends the process there."""

    def __init__(self, pruner, moment=None):
        super().__init__()
        self.pruner, self.moment, self.saved = pruner, moment, None

    def _at(self, *moment):
        if self.moment == moment:
            self.saved = self.model.get_weights(), self.pruner.state_dict()
            raise Killed

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
        CLASS.assign(FIGURES[epoch])

    def on_train_batch_end(self, batch, logs=None):
        last = batch + 1 == -(-self.pruner.current.kept // BATCH)
        self._at(self.epoch, "last batch" if last else f"batch {batch}")

    def on_test_begin(self, logs=None):
        self._at(self.epoch, "validation begins")

    def on_test_end(self, logs=None):
        self._at(self.epoch, "validation ends")

    def on_epoch_end(self, epoch, logs=None):
        self._at(epoch, "epoch ends")


def start():
    return Pruner(SAMPLES, Schedule.steady(EPOCHS), prune="30%", policy="auto", seed=3, classes=10)


def made(saved=None):
    model = make_model(metrics=[accuracy])
    if saved is not None:
        model.set_weights(saved)
    return model


def train(model, pruner, moment=None):
    stop = Stop(pruner, moment)
    callbacks = [stop, PruneCallback(pruner, monitor="val_accuracy")]
    options = {"epochs": EPOCHS, "initial_epoch": pruner.next_epoch, "verbose": 0}
    try:
        model.fit(data(pruner), validation_data=validation(), callbacks=callbacks, **options)
    except Killed:
        return stop.saved
    return model.get_weights(), [
        {name: record.get(name) for name in ("kept", "observed", "mean_loss", "validation")}
        for record in pruner.history
    ]


@pytest.fixture(scope="module")
def whole():
    return train(made(), start())


MOMENTS = [(6, moment) for moment in ("batch 2", "last batch", "validation begins", "validation ends", "epoch ends")]
ENDS = [pytest.param(*end, marks=pytest.mark.slow) for end in ((0, "epoch ends"), (EPOCHS - 1, "last batch"))]


@pytest.mark.parametrize(("epoch", "moment"), [*MOMENTS, *ENDS])
def test_a_run_that_was_stopped_is_as_one_that_was_not(epoch, moment, whole):
    weights, history = whole
    assert any(record["kept"] < SAMPLES for record in history), "it turns and prunes"
    model, state = train(made(), start(), (epoch, moment))
    pruner = start()
    pruner.load_state_dict(state)
    assert pruner.next_epoch == epoch
    assert pruner.awaits_figure == (moment != "batch 2")
    ours, told = train(made(model), pruner)
    assert told == history
    assert [record["validation"] for record in told] == pytest.approx(np.array(FIGURES) / 10)
    for one, other in zip(ours, weights, strict=True):
        assert np.array_equal(one, other)


# -- which way is better


def monitored(monitor, **options):
    pruner = Pruner(SAMPLES, Schedule.steady(8), policy="auto", seed=3, classes=10)
    callbacks = [PruneCallback(pruner, monitor=monitor, **options)]
    made().fit(data(pruner), epochs=8, verbose=0, callbacks=callbacks, validation_data=(IMAGES[:BATCH], DIGITS[:BATCH]))
    return pruner


def test_a_loss_that_falls_is_no_turn():
    pruner = monitored("val_loss")
    figures = [record["validation"] for record in pruner.history]
    assert figures == sorted(figures, reverse=True)
    assert all(record["lower_is_better"] for record in pruner.history)
    assert [record["kept"] for record in pruner.history] == [SAMPLES] * 8


def test_a_mode_against_the_name_or_none_where_the_name_shows_nothing_is_refused():
    for monitor, mode in (("val_loss", "max"), ("val_accuracy", "min")):
        with pytest.raises(PrunedataError, match=monitor):
            PruneCallback(start(), monitor=monitor, mode=mode)
        PruneCallback(start(), monitor=f"negative_{monitor}", mode=mode)
    with pytest.raises(PrunedataError, match='pass mode="max" or mode="min"'):
        PruneCallback(start(), monitor="val_quality")
    PruneCallback(start(), monitor="val_quality", mode="max")


def directions():
    """Keras's own metrics: how each is named, and which way Keras has it."""
    made_by = [{}, {"num_classes": 3}, {"num_classes": 3, "target_class_ids": [0]}]
    made_by += [{name: 0.5} for name in ("recall", "precision", "specificity", "sensitivity")]
    for kind in vars(keras.metrics).values():
        if inspect.isclass(kind) and issubclass(kind, keras.metrics.Metric):
            for options in made_by:
                try:
                    metric = kind(**options)
                except TypeError:
                    continue
                if getattr(metric, "_direction", None) is not None:
                    yield metric.name, metric._direction
                break


def test_what_a_name_tells_is_what_keras_has():
    told = 0
    for name, direction in directions():
        try:
            lower = is_lower_better(f"val_{name}", "auto")
        except PrunedataError:
            continue
        assert lower == (direction == "down"), name
        told += 1
    assert told > 15
