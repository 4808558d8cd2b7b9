"""With nothing pruned, ``fit`` trains the weights that it trains without us, bit for bit."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from prunedata.adapters.keras import wrap
from tests.adapters.helpers.keras import BATCH, COMPILES, DIGITS, IMAGES, SAMPLES, Sequence, cross_entropy, fit
from tests.adapters.helpers.tensorflow import make_pruner

# Keras's own, wherever it copies weights.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "accumulated": {"accumulate": 2},
    "compiled": {"jit_compile": True},
    "in_fours": {"steps_per_execution": 4},
    "bfloat16": {"policy": "mixed_bfloat16"},
    "float16": {"policy": "mixed_float16", "accumulate": 2},
    # Each pass has another order, so Keras must make as many as it makes without us.
    "shuffled": {"shuffle": True},
    "without_a_remainder": {"drop_remainder": True},
}
"""``test_backends.py`` says which of them other backends do."""
SLOW = ["bfloat16", "shuffled", "compiled"]


def made(kind: type, accumulate: int | None, policy: str, **options: Any) -> Any:
    """A model with dropout and batch norm, and a learning rate that falls by step. It knows no shape of its input."""
    keras.utils.set_random_seed(3)
    keras.config.set_dtype_policy(policy)
    try:
        layers = keras.layers
        hidden = [layers.Dense(16, "relu"), layers.BatchNormalization(), layers.Dropout(0.3)]
        model = kind([*hidden, layers.Dense(10, dtype="float32")])
    finally:
        keras.config.set_dtype_policy("float32")
    rate = keras.optimizers.schedules.CosineDecay(0.5, 3 * -(-SAMPLES // BATCH))
    optimizer = keras.optimizers.SGD(rate, momentum=0.9, gradient_accumulation_steps=accumulate)
    if policy == "mixed_float16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    model.compile(optimizer, cross_entropy(), metrics=["accuracy"], **{"jit_compile": COMPILES, **options})
    return model


def batched(dataset: Any, shuffle: bool, drop_remainder: bool) -> Any:
    dataset = dataset.shuffle(SAMPLES) if shuffle else dataset
    return dataset.batch(BATCH, drop_remainder=drop_remainder).prefetch(2)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in CASES])
def test_a_fit(name: str) -> None:
    options = {"accumulate": None, "policy": "float32", **CASES[name]}
    shaped = options.pop("shuffle", False), options.pop("drop_remainder", False)
    arrays = tf.data.Dataset.from_tensor_slices((IMAGES, DIGITS))
    ours, theirs, pruner = (
        made(Sequence, **options),
        made(keras.Sequential, **options),
        make_pruner(SAMPLES, leave_out="nothing"),
    )
    keras.utils.set_random_seed(4)
    watched = batched(wrap(arrays, pruner), *shaped)
    ours_told = fit(ours, pruner, watched, epochs=3, validation_data=(IMAGES, DIGITS)).history
    keras.utils.set_random_seed(4)
    plain = batched(arrays, *shaped)
    theirs_told = theirs.fit(plain, epochs=3, shuffle=False, validation_data=(IMAGES, DIGITS), verbose=0).history
    seen = SAMPLES - SAMPLES % BATCH * shaped[1]
    assert [record["observed"] for record in pruner.history] == [seen] * 3
    assert ours_told == theirs_told
    for one, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        assert np.array_equal(one, other)
