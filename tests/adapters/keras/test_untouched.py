"""With nothing pruned, ``fit`` trains the weights that it trains without us, bit for bit."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from prunedata import Pruner
from tests.adapters.helpers.keras import BATCH, DIGITS, IMAGES, SAMPLES, Model, cross_entropy, fit
from tests.adapters.helpers.tensorflow import make_pruner

# Keras's own, wherever it copies weights.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


def made(kind: type, accumulate: int | None, **options: Any) -> Any:
    """A model with dropout and batch norm, and a learning rate that falls by step."""
    keras.utils.set_random_seed(3)
    inputs = keras.Input((64,))
    hidden = keras.layers.BatchNormalization()(keras.layers.Dense(16, "relu")(inputs))
    model = kind(inputs, keras.layers.Dense(10)(keras.layers.Dropout(0.3)(hidden)))
    rate = keras.optimizers.schedules.CosineDecay(0.5, 3 * -(-SAMPLES // BATCH))
    optimizer = keras.optimizers.SGD(rate, momentum=0.9, gradient_accumulation_steps=accumulate)
    model.compile(optimizer, cross_entropy(), metrics=["accuracy"], **options)
    return model


def watching() -> Pruner:
    return make_pruner(SAMPLES, observe_only=True)


@pytest.mark.parametrize(
    ("options", "accumulate"),
    [
        ({"jit_compile": False}, None),
        ({"jit_compile": False}, 2),
        ({"jit_compile": True}, None),
        ({"jit_compile": False, "steps_per_execution": 4}, None),
    ],
    ids=str,
)
def test_a_fit(options: dict[str, Any], accumulate: int | None) -> None:
    ours, theirs, pruner = made(Model, accumulate, **options), made(keras.Model, accumulate, **options), watching()
    keras.utils.set_random_seed(4)
    ours_told = fit(ours, pruner, epochs=3, validation_data=(IMAGES, DIGITS)).history
    keras.utils.set_random_seed(4)
    plain = tf.data.Dataset.from_tensor_slices((IMAGES, DIGITS)).batch(BATCH)
    theirs_told = theirs.fit(plain, epochs=3, shuffle=False, validation_data=(IMAGES, DIGITS), verbose=0).history
    assert [record["observed"] for record in pruner.history] == [SAMPLES] * 3
    assert ours_told == theirs_told
    for one, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        assert np.array_equal(one, other)
