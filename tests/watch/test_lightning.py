"""Scripts with a Trainer of Lightning's and with fit of Keras, unchanged: same weights, each loss with its row."""

import numpy as np
import pytest
import torch

from prunedata.store.run_store import read_run
from tests.watch.watched import plain, rows_told, run_both, watched

# Scripts with a Trainer of Lightning's, unchanged: same weights, each loss with its row.


pytestmark = pytest.mark.slow  # each test runs whole programs, with their imports
SCRIPT = """
import sys, warnings
warnings.simplefilter("ignore")
import numpy as np, torch
import torch.nn.functional as F
import {lightning} as pl
from torch.utils.data import DataLoader, TensorDataset, random_split

pl.seed_everything(0)
random = np.random.default_rng(0)
labels = torch.from_numpy(random.integers(0, 3, 240))
points = torch.randn(240, 3) + 4 * F.one_hot(labels, 3)
wrong = torch.from_numpy(random.random(240) < 0.1)
labels[wrong] = (labels[wrong] + 1) % 3
train, test = random_split(TensorDataset(points, labels), [200, 40])

class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        first, last = torch.nn.Linear(3, 16), torch.nn.Linear(16, 3)
        self.layers = torch.nn.Sequential(first, torch.nn.Dropout(0.1), torch.nn.ReLU(), last)
        self.loss = torch.nn.CrossEntropyLoss(label_smoothing=0.1)

    def training_step(self, batch, batch_idx):
        points, labels = batch
        return {step}

    def validation_step(self, batch, batch_idx):
        self.log("loss", F.cross_entropy(self.layers(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.02)

    {more}

net = Net()
trainer = pl.Trainer({options}, accelerator="cpu", logger=False, enable_checkpointing=False,
                     enable_progress_bar=False, enable_model_summary=False)
trainer.fit(net, DataLoader(train, batch_size=16, shuffle=True, num_workers={workers}), DataLoader(test, batch_size=40))
if trainer.global_rank == 0:
    torch.save(torch.cat([each.detach().flatten() for each in net.parameters()]), "weights.pt")
    np.save("wrong.npy", np.flatnonzero(wrong.numpy()))
"""


PLAIN = "self.loss(self.layers(points), labels)"
OWN = "(self.layers(points).logsumexp(1) - self.layers(points).gather(1, labels[:, None])[:, 0]).mean()"
BEGIN = "def on_train_start(self): self.layers.eval(); torch.save(self.state_dict(), 'begin.pt')"


def script(step=PLAIN, options="max_epochs=4", workers=0, more="", name="lightning.pytorch"):
    return SCRIPT.format(step=step, options=options, workers=workers, more=more, lightning=name)


@pytest.mark.parametrize("given", [
    {}, {"workers": 2, "name": "pytorch_lightning"}, {"options": "max_steps=40, accumulate_grad_batches=2"},
    {"step": '{"loss": F.nll_loss(self.layers(points).log_softmax(1), labels) + 0.1 * self.layers[0].weight.norm()}'},
])  # fmt: skip
def test_weights_are_the_unwatched_ones_and_the_rows_those_of_the_users_data(given, tmp_path):
    done, same = run_both(tmp_path, script(**given))
    assert same
    wrong, told = np.load(tmp_path / "wrong.npy"), rows_told(done.stderr)
    assert np.isin(told[:10], wrong).sum() >= 8
    run = read_run(tmp_path / "train.zarr").state
    assert run.samples == 200
    assert (run.visits >= 4).all()
    assert "watched no longer" not in done.stderr


def test_losses_are_those_of_a_loop_written_by_hand(tmp_path):
    """One epoch in the order of the rows, without dropout: the excess of each sample over the mean of its batch."""
    own = script(options="max_epochs=1", more=BEGIN)
    own = own.replace("shuffle=True", "shuffle=False").replace(
        "label_smoothing=0.1", "weight=torch.tensor([1.0, 2, 3])"
    )
    done, same = run_both(tmp_path, own + "torch.save([train[n] for n in range(200)], 'rows.pt')\n")
    assert same, done.stderr
    layers = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.Identity(), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    begin = {name.removeprefix("layers."): value for name, value in torch.load(tmp_path / "begin.pt").items()}
    layers.load_state_dict({name: value for name, value in begin.items() if name[0].isdigit()})
    optimizer, rows, expected = torch.optim.Adam(layers.parameters(), 0.02), torch.load(tmp_path / "rows.pt"), []
    for at in range(0, 200, 16):
        points, labels = map(torch.stack, zip(*rows[at : at + 16], strict=True))
        losses = torch.nn.functional.cross_entropy(layers(points), labels, reduction="none")
        weights = torch.tensor([1.0, 2, 3])[labels]
        expected += (losses - losses.mean()).tolist()
        optimizer.zero_grad()
        ((losses * weights).sum() / weights.sum()).backward()
        optimizer.step()
    np.testing.assert_allclose(read_run(tmp_path / "train.zarr").state.mean_excess, expected, atol=1e-5)


@pytest.mark.parametrize(("given", "why"), [
    ({"step": OWN}, "calls no loss"),
    ({"options": "fast_dev_run=True"}, "fast_dev_run"),
    ({"options": "max_epochs=1, devices=2, strategy='ddp_fork'"}, "are copies"),
])  # fmt: skip
def test_what_cannot_be_watched_is_said_once_and_trains_on(given, why, tmp_path):
    (tmp_path / "train.py").write_text(script(**given))
    assert plain("train.py", cwd=tmp_path).returncode == 0
    done = watched("train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [why in line for line in done.stderr.splitlines() if "watched" in line] == [True]


def test_two_processes_make_one_run(tmp_path):
    done, same = run_both(tmp_path, script(options="max_epochs=4, devices=2, strategy='ddp'"))
    assert same
    run = read_run(tmp_path / "train.zarr").state
    assert len(list(tmp_path.glob("*.zarr"))) == 1
    assert (run.visits >= 4).all()
    assert np.isin(rows_told(done.stderr)[:10], np.load(tmp_path / "wrong.npy")).sum() >= 8


# Scripts with ``fit`` of Keras, unchanged, on its three backends: same weights, each loss with its row.


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


def fits(model=FUNCTIONAL, loss="'sparse_categorical_crossentropy'", given="points, labels", more=""):
    return FITS.format(model=model, loss=loss, given=given, more=more)


@pytest.mark.parametrize(("backend", "given"), [
    ("tensorflow", {"more": "validation_split=0.2, class_weight={0: 1, 1: 2, 2: 1}"}),
    ("torch", {"more": "validation_data=(points, labels), callbacks=[keras.callbacks.EarlyStopping('loss')]"}),
    ("jax", {}),
])  # fmt: skip
def test_fit_trains_the_unwatched_weights_and_the_rows_are_the_users(backend, given, tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", backend)
    done, same = run_both(tmp_path, fits(**given))
    assert same, done.stderr
    assert "watched no longer" not in done.stderr
    wrong, told = np.load(tmp_path / "wrong.npy"), rows_told(done.stderr)
    assert np.isin(told[:8], wrong).sum() >= 7
    run = read_run(tmp_path / "train.zarr").state
    assert run.samples == (192 if "split" in given.get("more", "") else 240)
    assert (run.visits == len(run.history)).all()


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
    done, same = run_both(tmp_path, fits(model=OWN_LOSS))
    assert same
    assert len(rows_told(done.stderr)) == 20
