"""Scripts with ``fit`` of Keras, unchanged, on its three backends: same weights, each loss with its row."""

import numpy as np
import pytest
import torch

from prunedata.store.run_store import read_run
from tests.watch.watched import plain, rows_told, run_both, same_by_hand, watched

pytestmark = pytest.mark.slow  # each test runs whole programs, with their imports
BACKENDS = ("tensorflow", "torch", "jax")

FITS = """
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
OWN_LOSS = """
class Model(keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return keras.ops.mean(keras.losses.sparse_categorical_crossentropy(y, y_pred))

model = Model(inputs, keras.layers.Dense(3, 'softmax')(hidden))
"""
OWN_STEP = """
class Model(keras.Model):
    def train_step(self, data):
        x, y = data
        self.zero_grad()
        loss = keras.ops.mean(keras.losses.sparse_categorical_crossentropy(y, self(x, training=True)))
        loss.backward()
        self.optimizer.apply([each.value.grad for each in self.trainable_weights], self.trainable_weights)
        return {"loss": loss}

model = Model(inputs, keras.layers.Dense(3, 'softmax')(hidden))
"""
"""On torch."""


def fits(model=FUNCTIONAL, loss="'sparse_categorical_crossentropy'", given="points, labels", more=""):
    return FITS.format(model=model, loss=loss, given=given, more=more)


@pytest.mark.parametrize(("backend", "given"), [
    ("tensorflow", {"more": "validation_split=0.2, class_weight={0: 1, 1: 2, 2: 1}"}),
    ("torch", {"more": "validation_data=(points, labels), callbacks=[keras.callbacks.EarlyStopping('loss')]"}),
    ("jax", {}),
])  # fmt: skip
def test_fit_trains_the_unwatched_weights_and_the_rows_are_the_users(backend, given, tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", backend)
    script = fits(**given)
    if backend != "tensorflow":  # as where it is not installed
        script = f"import sys\nsys.modules['tensorflow'] = None\n{script}"
    if backend == "jax":  # a compiled step that calls the host takes longer than all of the training step
        script = f"import jax.experimental\njax.experimental.io_callback = None\n{script}"
    done, same = run_both(tmp_path, script)
    assert same, done.stderr
    assert "watched no longer" not in done.stderr
    wrong, told = np.load(tmp_path / "wrong.npy"), rows_told(done.stderr)
    assert np.isin(told[:8], wrong).sum() >= 7
    run = read_run(tmp_path / "train.zarr").state
    assert run.samples == (192 if "split" in given.get("more", "") else 240)
    assert (run.visits == len(run.history)).all()


KINDS = """
import numpy as np
import keras

points, labels = np.random.rand(60, 3).astype("float32"), np.arange(60) % 3
for y, outputs, loss in (
    (labels[:, None].astype("uint8"), 3, "sparse_categorical_crossentropy"),
    (np.eye(3, dtype="float32")[labels], 3, "categorical_crossentropy"),
    ((labels > 0).astype("float32"), 1, "binary_crossentropy"),
    (points[:, :1], 1, "mse"),
):
    model = keras.Sequential([keras.layers.Dense(outputs, "softmax" if outputs > 1 else "sigmoid")])
    model.compile("adam", loss)
    model.fit(points, y, verbose=0)
inputs = keras.Input((3,))
model = keras.Model(inputs, {name: keras.layers.Dense(1, name=name)(inputs) for name in "ab"})
model.compile("adam", "mse")
model.fit(points, {"a": labels, "b": labels}, verbose=0)
"""


def test_labels_are_known_one_hot_in_a_column_and_as_floats(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    (tmp_path / "train.py").write_text(KINDS)
    done = watched("train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    column, one_hot, two, none, both = (
        read_run(tmp_path / f"train{number}.zarr").state.labels for number in ("", "-2", "-3", "-4", "-5")
    )
    labels = np.arange(60) % 3
    assert np.array_equal(column, labels)
    assert np.array_equal(one_hot, labels)
    assert np.array_equal(two, labels > 0)
    assert none is None
    assert both is None


def test_a_fit_that_cannot_be_watched_is_said_once_and_trains_on(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    loader = (
        "torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.tensor(points), torch.tensor(labels)), 16)"
    )
    own = fits(given=loader).replace("batch_size=16, ", "")
    (tmp_path / "train.py").write_text(own)
    assert plain("train.py", cwd=tmp_path).returncode == 0
    done = watched("train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "not watched: fit() trains on a DataLoader" in done.stderr
    squares = OWN_LOSS.replace("keras.losses.sparse_categorical_crossentropy(y, y_pred)", "y_pred**2")
    own = fits(model=squares, loss="None", given="points").replace(', metrics=["accuracy"]', "")
    done, same = run_both(tmp_path, own)
    assert same
    assert "not watched: fit() is given no y" in done.stderr
    (tmp_path / "train.py").write_text(fits(model=OWN_STEP))
    done = watched("train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "watched no longer: no compute_loss() was called in train_step()" in done.stderr
    assert "by PruneMixin" in done.stderr
    done, same = run_both(tmp_path, fits(model=OWN_LOSS))
    assert same
    assert len(rows_told(done.stderr)) == 20


BY_HAND = """
from keras import ops

model.set_weights(begin)
first, first_bias, last, last_bias = model.weights
expected = np.zeros(240)
for at in list(range(0, 240, 16)) * 3:
    x, wanted = ops.convert_to_tensor(points[at : at + 16]), ops.one_hot(labels[at : at + 16], 3)
    hidden = ops.maximum(x @ first + first_bias, 0)
    said = ops.softmax(hidden @ last + last_bias)
    losses = ops.convert_to_numpy(-ops.log(ops.sum(said * wanted, 1)))
    expected[at : at + 16] += (losses - losses.mean()) / 3
    wrong = (said - wanted) / 16
    inner = ops.where(hidden > 0, wrong @ ops.transpose(last), 0)
    steps = ops.transpose(x) @ inner, ops.sum(inner, 0), ops.transpose(hidden) @ wrong, ops.sum(wrong, 0)
    for weight, step in zip(model.weights, steps):
        weight.assign(weight - 0.02 * step)
np.save("expected.npy", expected)
np.save("visits.npy", np.full(240, 3))
torch.save(torch.from_numpy(np.concatenate([np.ravel(each) for each in model.get_weights()])), "by-hand.pt")
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_losses_are_those_of_a_loop_written_by_hand(backend, tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", backend)
    script = fits(more="shuffle=False").replace("epochs=6", "epochs=3").replace('"adam"', '"sgd"')
    script = script.replace("Dropout(0.1)", "Identity()").replace(', kernel_regularizer="l2"', "")
    script = script.replace("history = ", "begin = model.get_weights()\nhistory = ")
    same_by_hand(tmp_path, script, BY_HAND)


STEPS = """
import keras, numpy as np

keras.utils.set_random_seed(0)
random, own = np.random.default_rng(0), np.arange(6) < np.arange(40)[:, None] % 6 + 1
words, labels = np.where(own, random.integers(1, 9, (40, 6)), 0), random.integers(0, 3, (40, 6))
inputs = keras.Input((6,))
hidden = keras.layers.Embedding(9, 4, mask_zero=MASKED)(inputs)
model = keras.Model(inputs, keras.layers.Dense(3, "softmax")(hidden))
loss = keras.losses.SparseCategoricalCrossentropy(ignore_class=None if MASKED else -1)
model.compile(keras.optimizers.SGD(0.0), loss)
said = np.take_along_axis(model.predict(words, verbose=0), labels[..., None], 2)[..., 0]
losses = (-np.log(said) * own).sum(1) / own.sum(1)
np.save("expected.npy", losses - losses.reshape(5, 8).mean(1).repeat(8))
model.fit(words, labels if MASKED else np.where(own, labels, -1), batch_size=8, shuffle=False, verbose=0)
"""


@pytest.mark.parametrize(("backend", "masked"), [*((each, True) for each in BACKENDS), ("torch", False)])
def test_the_loss_of_a_sequence_is_the_mean_over_its_own_steps(backend, masked, tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", backend)
    (tmp_path / "train.py").write_text(f"MASKED = {masked}\n{STEPS}")
    done = watched("train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = read_run(tmp_path / "train.zarr").state.mean_excess
    np.testing.assert_allclose(found, np.load(tmp_path / "expected.npy"), rtol=1e-6, atol=1e-6)


INFINITE = """
labels = labels.astype("float32")
labels[7] = np.inf
model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
"""
"""With the loss "mae" the gradient of an infinite loss is a number."""


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_loss_that_is_no_number_makes_its_sample_neither_suspect_nor_clean(backend, tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", backend)
    (tmp_path / "train.py").write_text(fits(model=INFINITE, loss="'mae'"))
    done = watched("train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "watched no longer" not in done.stderr
    assert torch.isfinite(torch.load(tmp_path / "weights.pt")).all()
    run = read_run(tmp_path / "train.zarr").state
    assert (run.visits == 6).all()
    assert run.mean_excess[7] == pytest.approx(0, abs=1e-6)
    assert np.count_nonzero(abs(run.mean_excess) > 1e-6) == 239


WITH_ADAPTER = """
import tensorflow as tf
from prunedata import Pruner
from prunedata.adapters.keras import PruneCallback, PruneMixin, wrap

class Model(PruneMixin, keras.Model):
    pass

pruner = Pruner(240, epochs=12, leave_out="weight", labels=labels)
rows = wrap(tf.data.Dataset.from_tensor_slices((points, labels)), pruner).batch(16)
model = Model(inputs, keras.layers.Dense(3, "softmax")(hidden))
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_left_out_is_what_the_adapter_leaves_out_by_hand(backend, tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", backend)
    (tmp_path / "train.py").write_text(fits(more="shuffle=False").replace("epochs=6", "epochs=12"))
    done = watched("--leave-out", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "watched" not in done.stderr.replace("prunedata watch", ""), done.stderr
    run = read_run(tmp_path / "train.zarr").state
    assert [record["kept"] for record in run.history] == [240] * 12
    assert run.history[-1]["by_weight"] > 0
    assert set(run.labels.tolist()) == {0, 1, 2}
    left_out = torch.load(tmp_path / "weights.pt")
    hand = fits(model=WITH_ADAPTER, given="rows", more="callbacks=[PruneCallback(pruner)]")
    (tmp_path / "hand.py").write_text(hand.replace("epochs=6", "epochs=12").replace("batch_size=16, ", ""))
    done = plain("hand.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert torch.equal(left_out, torch.load(tmp_path / "weights.pt"))


def test_where_nothing_can_be_left_out_the_way_on_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    (tmp_path / "train.py").write_text(fits(model=OWN_LOSS))
    done = watched("--leave-out", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "not watched: Model has a compute_loss() of its own" in done.stderr
    assert "self.factors(ids)" in done.stderr
