"""Pruned training of LeNet by Keras on a tf.data stream."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
import torch
from keras import layers

from benchmarks.common.shards import Shards, record_features, write_records
from benchmarks.demo.stream_loaders import BUFFER
from benchmarks.demo.training import MOMENTUM, RATE_DROP, WEIGHT_DECAY, Setting, new_pruner
from prunedata import Pruner
from prunedata.adapters.keras import PruneCallback, PruneMixin
from prunedata.adapters.tensorflow import wrap
from prunedata.policies import DroppingCount

__all__ = ["lenet", "train"]

FEATURES = record_features()


class Model(PruneMixin, keras.Model):  # type: ignore[misc]
    """A model that records the losses of its samples."""


def lenet(channels: int, classes: int) -> Any:
    """Return LeNet for images of shape (32, 32, channels), initialised and regularised as torch does it."""
    images = hidden = keras.Input((32, 32, channels))
    inputs = 25 * channels
    for width in (6, 16):
        hidden = layers.Conv2D(width, 5, activation="relu", **_as_torch(inputs))(hidden)
        hidden = layers.MaxPooling2D(2)(hidden)
        inputs = 25 * width
    hidden, inputs = layers.Flatten()(hidden), 16 * 5 * 5
    for width in (120, 84):
        hidden = layers.Dense(width, activation="relu", **_as_torch(inputs))(hidden)
        inputs = width
    return Model(images, layers.Dense(classes, **_as_torch(inputs))(hidden))


def _as_torch(inputs: int) -> dict[str, Any]:
    """Weights and biases uniform within the inverse root of the inputs; their squares in the loss, as its decay."""
    bound = inputs**-0.5
    options: dict[str, Any] = {}
    for name in ("kernel", "bias"):
        options[f"{name}_initializer"] = keras.initializers.RandomUniform(-bound, bound)
        options[f"{name}_regularizer"] = keras.regularizers.L2(WEIGHT_DECAY / 2)
    return options


def train(setting: Setting, shards: Shards, tick: Callable[[], object]) -> tuple[list[float], Pruner]:
    """Train to the end and return the test accuracy (0 to 1) after each epoch, and the pruner."""
    keras.utils.set_random_seed(setting.seed)
    pruner = new_pruner(setting, DroppingCount())
    images, labels = setting.data.test.batch(torch.arange(len(setting.data.test)))
    model = lenet(setting.data.channels, setting.data.classes)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.SGD(setting.learning_rate, momentum=MOMENTUM)
    model.compile(optimizer, loss, metrics=["accuracy"], jit_compile=False)
    drops = [first for first, _ in setting.schedule.windows if first > 0]

    def rate(epoch: int, _: float) -> float:
        return float(setting.learning_rate * RATE_DROP ** sum(epoch >= drop for drop in drops))

    history = model.fit(
        _dataset(setting, shards, pruner),
        epochs=setting.schedule.epochs,
        validation_data=(images.permute(0, 2, 3, 1).numpy(), labels.numpy()),
        validation_batch_size=500,
        callbacks=[
            PruneCallback(pruner),
            keras.callbacks.LearningRateScheduler(rate),
            keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: tick()),
        ],
        verbose=0,
    )
    return [float(accuracy) for accuracy in history.history["val_accuracy"]], pruner


def _dataset(setting: Setting, shards: Shards, pruner: Pruner) -> Any:
    images, channels = setting.data.train, setting.data.channels
    mean, deviation = (tf.constant(part.reshape(-1).numpy()) for part in (images.mean, images.std))

    def decode(number: Any, record: Any) -> Any:
        found = tf.io.parse_single_example(record, FEATURES)
        image = tf.ensure_shape(tf.io.decode_png(found["image"], channels=channels), (32, 32, channels))
        return number, ((tf.cast(image, tf.float32) - mean) / deviation, found["label"])

    records = wrap(tf.data.TFRecordDataset(write_records(shards)), pruner)
    return records.shuffle(BUFFER, seed=setting.seed).map(decode).batch(setting.batch_size).prefetch(2)
