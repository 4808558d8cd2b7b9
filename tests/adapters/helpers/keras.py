"""Models, data and a ``fit`` of both, small enough to train in a second."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

from prunedata import Pruner
from prunedata.adapters.keras import PruneCallback, PruneMixin, wrap

SAMPLES = 203
KEPT = [203, 143, 203, 143, 203]
BATCH = 32
IMAGES, DIGITS = load_digits(return_X_y=True)
IMAGES, DIGITS = (IMAGES[:SAMPLES] / 16).astype(np.float32), DIGITS[:SAMPLES].astype(np.int64)
COMPILES = keras.backend.backend() == "jax"
"""JAX takes long over each operation alone."""


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
    options = {"metrics": ["accuracy"], "jit_compile": COMPILES, **options}
    model.compile(keras.optimizers.SGD(0.5), cross_entropy(), **options)
    return model


def cross_entropy(**options: Any) -> Any:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, **options)


def data(pruner: Pruner, arrays: Any = (IMAGES, DIGITS), **options: Any) -> tf.data.Dataset:
    return wrap(tf.data.Dataset.from_tensor_slices(arrays), pruner).batch(BATCH, **options)


def fit(model: Any, pruner: Pruner, dataset: Any = None, **options: Any) -> Any:
    options = {"epochs": 5, "initial_epoch": pruner.next_epoch, "verbose": 0, **options}
    options["callbacks"] = [PruneCallback(pruner), *options.get("callbacks", [])]
    return model.fit(data(pruner) if dataset is None else dataset, **options)
