"""Keras over other backends than TensorFlow, and none at all."""

import os
import subprocess
import sys

import keras
import pytest

from prunedata.adapters.keras import PruneCallback
from prunedata.errors import PrunedataError
from tests.adapters.keras_helpers import KEPT, SAMPLES
from tests.adapters.tensorflow_helpers import make_pruner


def test_another_backend_is_refused(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(PrunedataError, match="Got 'jax'"):
        PruneCallback(make_pruner(SAMPLES))


def test_without_keras_the_extra_is_named():
    code = "import sys; sys.modules['keras'] = None\nimport prunedata.adapters.keras"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'prunedata[tensorflow]'" in done.stderr


def test_keras_over_torch():
    """In a process of its own, as the backend is chosen once."""
    code = f"""
import warnings; warnings.simplefilter("error")
import numpy as np, torch
torch.set_num_threads(1)
from tests.adapters import keras_helpers as here
from tests.adapters.tensorflow_helpers import make_pruner
kept = {KEPT}
for model in (here.make_model(), here.Unbuilt()):
    model.compile(here.keras.optimizers.SGD(0.5), here.cross_entropy(), metrics=["accuracy"])
    pruner = make_pruner(here.SAMPLES)
    weighed = (here.IMAGES, here.DIGITS, here.WEIGHTS)
    history = here.fit(model, pruner, here.data(pruner, weighed), validation_data=(here.IMAGES, here.DIGITS)).history
    assert here.keras.backend.backend() == "torch"
    assert [record["observed"] for record in pruner.history] == kept
    means = [record["mean_loss"] for record in pruner.history]
    np.testing.assert_allclose([float(loss) for loss in history["loss"]], means, rtol=1e-5)
"""
    environment = {**os.environ, "KERAS_BACKEND": "torch"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
