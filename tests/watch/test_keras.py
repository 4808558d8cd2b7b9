"""Scripts with ``fit`` of Keras, unchanged, on its three backends: same weights, each loss with its row."""

import numpy as np
import pytest

from prunedata.store.reading import read_run
from tests.watch.watched import plain, rows_told, run_both, watched

pytestmark = pytest.mark.slow  # each test runs whole programs, with their imports
SCRIPT = """
import warnings
warnings.simplefilter("ignore")
import numpy as np, torch
import keras

keras.utils.set_random_seed(0)
random = np.random.default_rng(0)
labels = random.integers(0, 3, 240)
points = (random.normal(size=(240, 3)) + 4 * np.eye(3)[labels]).astype("float32")
wrong = random.random(240) < 0.1
labels[wrong] = (labels[wrong] + 1) % 3
inputs = keras.Input((3,))
hidden = keras.layers.Dropout(0.1)(keras.layers.Dense(16, "relu", kernel_regularizer="l2")(inputs))
{model}
model.compile("adam", {loss}, metrics=["accuracy"])
model.optimizer.learning_rate = 0.02
history = model.fit({given}, batch_size=16, epochs=6, verbose=0, {more})
weights = np.concatenate([np.ravel(each) for each in model.get_weights()])
torch.save(torch.from_numpy(weights), "weights.pt")
np.save("wrong.npy", np.flatnonzero(wrong))
print(type(model).__mro__, list(history.history))
"""
FUNCTIONAL = "model = keras.Model(inputs, keras.layers.Dense(3, 'softmax')(hidden))"
OWN = """
class Model(keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return keras.ops.mean(keras.losses.sparse_categorical_crossentropy(y, y_pred))

model = Model(inputs, keras.layers.Dense(3, 'softmax')(hidden))
"""


def script(model=FUNCTIONAL, loss="'sparse_categorical_crossentropy'", given="points, labels", more=""):
    return SCRIPT.format(model=model, loss=loss, given=given, more=more)


@pytest.mark.parametrize(("backend", "given"), [
    ("tensorflow", {"more": "validation_split=0.2, class_weight={0: 1, 1: 2, 2: 1}"}),
    ("torch", {"more": "validation_data=(points, labels), callbacks=[keras.callbacks.EarlyStopping('loss')]"}),
    ("jax", {}),
])  # fmt: skip
def test_weights_are_the_unwatched_ones_and_the_rows_those_of_the_users_data(backend, given, tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", backend)
    done, same = run_both(tmp_path, script(**given))
    assert same, done.stderr
    assert "watched no longer" not in done.stderr
    wrong, told = np.load(tmp_path / "wrong.npy"), rows_told(done.stderr)
    assert np.isin(told[:8], wrong).sum() >= 7
    run = read_run(tmp_path / "train.zarr").state
    assert run.samples == (192 if "split" in given.get("more", "") else 240)
    assert (run.visits == len(run.history)).all()


def test_what_cannot_be_watched_is_said_once_and_trains_on(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    loader = (
        "torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.tensor(points), torch.tensor(labels)), 16)"
    )
    own = script(given=loader).replace("batch_size=16, ", "")
    (tmp_path / "train.py").write_text(own)
    assert plain("train.py", cwd=tmp_path).returncode == 0
    done = watched("train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "not watched: fit() trains on a DataLoader" in done.stderr
    done, same = run_both(tmp_path, script(model=OWN))
    assert same
    assert len(rows_told(done.stderr)) == 20
