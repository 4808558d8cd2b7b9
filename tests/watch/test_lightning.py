"""Scripts with a Trainer of Lightning's, unchanged: same weights, each loss with its row."""

import numpy as np
import pytest
import torch

from prunedata.store.run_store import read_run
from tests.watch.watched import plain, rows_told, run_both, watched

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


DRAWS = (  # from a generator of its own, once for each batch
    "collate_fn=lambda rows, own=np.random.default_rng(0): "
    "[torch.stack([row[0] for row in rows]) + 0.01 * own.random(), torch.stack([row[1] for row in rows])]"
)


@pytest.mark.parametrize("given", [
    {}, {"workers": 2, "name": "pytorch_lightning"}, {"options": "max_steps=40, accumulate_grad_batches=2"},
    {"step": '{"loss": F.nll_loss(self.layers(points).log_softmax(1), labels) + 0.1 * self.layers[0].weight.norm()}'},
    {"step": "self.loss(self.layers(points), 2 - labels)"},  # the batch's labels in another order, in some batches
])  # fmt: skip
def test_weights_are_the_unwatched_ones_and_the_rows_those_of_the_users_data(given, tmp_path):
    done, same = run_both(tmp_path, script(**given).replace("num_workers=0", f"num_workers=0, {DRAWS}"))
    assert same
    wrong, told = np.load(tmp_path / "wrong.npy"), rows_told(done.stderr)
    assert np.isin(told[:10], wrong).sum() >= 8
    run = read_run(tmp_path / "train.zarr").state
    assert run.samples == 200
    assert (run.visits >= 4).all()
    assert "watched no longer" not in done.stderr


def test_losses_are_those_of_a_loop_written_by_hand(tmp_path):
    """One epoch in the order of the rows, without dropout: the excess of each sample over the mean of its batch.

    A tuner trains before, of which nothing is recorded, a step returns None, and the one loader is in a dict.
    """
    tuner = "pl.callbacks.LearningRateFinder(num_training_steps=20, update_attr=False)"
    step = "None if batch_idx == 3 else F.cross_entropy(self.layers(points), labels, torch.tensor([1.0, 2, 3]))"
    loader = "DataLoader(train, batch_size=16, shuffle={}, num_workers=0)"
    own = script(options=f"max_epochs=1, callbacks=[{tuner}]", step=step, more=BEGIN)
    own = own.replace(loader.format(True), f"{{'one': {loader.format(False)}}}")
    own = own.replace("labels = batch\n", "labels = batch['one']\n")
    done, same = run_both(tmp_path, own + "torch.save([train[n] for n in range(200)], 'rows.pt')\n")
    assert same, done.stderr
    assert "watched" not in done.stderr.replace("prunedata watch", ""), done.stderr
    assert [path.name for path in tmp_path.glob("*.zarr")] == ["train.zarr"]
    layers = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.Identity(), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    begin = {name.removeprefix("layers."): value for name, value in torch.load(tmp_path / "begin.pt").items()}
    layers.load_state_dict({name: value for name, value in begin.items() if name[0].isdigit()})
    optimizer, rows = torch.optim.Adam(layers.parameters(), 0.02), torch.load(tmp_path / "rows.pt")
    expected = [0.0] * 200
    for at in (at for at in range(0, 200, 16) if at != 3 * 16):
        points, labels = map(torch.stack, zip(*rows[at : at + 16], strict=True))
        losses = torch.nn.functional.cross_entropy(layers(points), labels, reduction="none")
        weights = torch.tensor([1.0, 2, 3])[labels]
        expected[at : at + 16] = (losses - losses.mean()).tolist()
        optimizer.zero_grad()
        ((losses * weights).sum() / weights.sum()).backward()
        optimizer.step()
    run = read_run(tmp_path / "train.zarr").state
    np.testing.assert_array_equal(run.visits, np.arange(200) // 16 != 3)
    np.testing.assert_allclose(run.mean_excess, expected, rtol=1e-6, atol=1e-6)


OF_SCRIPT = "DataLoader(train, batch_size=16, shuffle=True, num_workers=0)"
SORTED = "collate_fn=lambda rows: (rows.sort(key=lambda row: row[1]), torch.utils.data.default_collate(rows))[1]"
SORTS = script(options="max_epochs=1", workers=1).replace("num_workers=1", f"num_workers=1, {SORTED}")
SPLITS = script(
    options="max_epochs=2, reload_dataloaders_every_n_epochs=1",
    more="def train_dataloader(self): return DataLoader(random_split(train, [100, 100])[0], batch_size=16)",
).replace(OF_SCRIPT, "None")
OF_LENGTHS = script().replace("= batch\n", "= (part[batch[0][:, 0].argsort()] for part in batch)\n", 1)
FILTERED = (
    script(options="max_epochs=1")
    .replace("DataLoader(train", "Filtered(train")
    .replace(
        "net = Net()",
        """
class Filtered(DataLoader):
    def _get_iterator(self):
        return ((points, labels) for points, labels in super()._get_iterator())

net = Net()""",
    )
)
FETCHES = script(options="max_epochs=1").replace("batch, batch_idx", "dataloader_iter", 1)
FETCHES = FETCHES.replace("= batch", "= next(dataloader_iter)[0]", 1)


@pytest.mark.parametrize(("own", "why"), [
    (script(step=OWN), "calls no loss"),
    (script(options="fast_dev_run=True"), "fast_dev_run"),
    (script(options="max_epochs=1, devices=2, strategy='ddp_fork'"), "are copies"),
    (FETCHES, "fetches batches by itself"),
    (script(step="self.loss(self.layers(points.repeat(2, 1)), labels.repeat(2))"), "32 losses for 16 samples"),
    (SORTS, "its collate function changes the order"),
    (OF_LENGTHS, "its step changes the order"),
    (SPLITS, "another in a later epoch"),
    (FILTERED, "its Filtered changes the batches"),
], ids=["loss", "dev", "fork", "fetches", "views", "sorts", "sorts in its step", "splits", "filtered"])  # fmt: skip
def test_what_cannot_be_watched_is_said_once_and_trains_on(own, why, tmp_path):
    (tmp_path / "train.py").write_text(own)
    done = watched("train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [why in line for line in done.stderr.splitlines() if "watched" in line] == [True]


def test_several_loaders_at_once_are_trained_on_as_ever(tmp_path):
    both = script(step="sum(self.loss(self.layers(points), labels) for points, labels in batch.values())")
    both = both.replace("points, labels = batch\n", "\n").replace(OF_SCRIPT, f"{{name: {OF_SCRIPT} for name in 'ab'}}")
    done, same = run_both(tmp_path, both)
    assert same, done.stderr
    assert done.stderr.count("watched no longer: it trains on several loaders at once") == 1


BY_HAND = """
from prunedata import Pruner
from prunedata.adapters.lightning import DataPruning, observe, wrap

pl.seed_everything(0)
torch.manual_seed(1)

class ByHand(Net):
    def training_step(self, batch, batch_idx):
        return observe(self, self.loss(self.layers(batch[0]), batch[1]))

net, pruner = ByHand(), Pruner(train, epochs=12)
net.loss.reduction = "none"
trainer = pl.Trainer(max_epochs=12, callbacks=[DataPruning(pruner)], accelerator="cpu", logger=False,
                     enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(net, wrap(DataLoader(train, batch_size=16, shuffle=True), pruner), DataLoader(test, batch_size=40))
torch.save(torch.cat([each.detach().flatten() for each in net.parameters()]), "by-hand.pt")
"""


def test_left_out_is_what_the_adapter_leaves_out_by_hand(tmp_path):
    own = script(options="max_epochs=12").replace("net = Net()", "torch.manual_seed(1)\nnet = Net()")
    own = own.replace("label_smoothing=0.1", "")  # whose mean PyTorch computes another way than that of the losses
    own += "assert not trainer.callbacks or 'prunedata' not in str(trainer.callbacks)\n"
    (tmp_path / "train.py").write_text(own)
    done = watched("--leave-out", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "watched" not in done.stderr.replace("prunedata watch", ""), done.stderr
    run = read_run(tmp_path / "train.zarr").state
    assert len(run.history) == 12
    assert run.labels is not None
    assert run.history[0]["kept"] == 200 > run.history[-1]["kept"]
    left_out = torch.load(tmp_path / "weights.pt")
    (tmp_path / "hand.py").write_text(own + BY_HAND)
    hand = plain("hand.py", cwd=tmp_path)
    assert hand.returncode == 0, hand.stderr
    assert torch.equal(left_out, torch.load(tmp_path / "by-hand.pt"))


def test_what_is_left_out_is_compared_by_label_with_any_data_set(tmp_path):
    own = script(options="max_epochs=8").replace("DataLoader(train,", "DataLoader(rows := list(train),")
    own += "np.save('labels.npy', [int(label) for _, label in rows])\n"
    (tmp_path / "train.py").write_text(own)
    done = watched("--leave-out", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = read_run(tmp_path / "train.zarr").state
    assert np.array_equal(run.arrays["label"] - 2, np.load(tmp_path / "labels.npy"))


LISTED = script(options="max_epochs=1", step="self.loss(self.layers(batch[0][0]), batch[0][1])")
LISTED = (
    LISTED.replace("points, labels = batch\n", "\n").replace("fit(net, D", "fit(net, [D").replace("=0), D", "=0)], D")
)


@pytest.mark.parametrize(("own", "why", "status"), [
    (script(options="max_steps=20"), "not watched: nothing can be left out: Expected a Trainer with max_steps=-1", 0),
    (LISTED, "watched no longer: nothing can be left out: its loader is in a list", 0),
    (script(step=OWN), "leave out in the script, by DataPruning", 1),
    (SORTS, "its collate function changes the order", 1),
], ids=["steps", "list", "loss", "sorts"])  # fmt: skip
def test_where_nothing_can_be_left_out_the_way_on_is_said(own, why, status, tmp_path):
    (tmp_path / "train.py").write_text(own)
    done = watched("--leave-out", "train.py", cwd=tmp_path)
    assert why in done.stderr
    assert done.returncode == status, done.stderr


SPOILED = """
    def loss_of(self, points, labels):
        nan = [0] if self.global_step in (3, 5) else []
        said = self.layers(points).index_fill(0, torch.tensor(nan).long(), torch.nan)
        return torch.nan_to_num(self.loss(said, labels))
"""


def test_a_loss_that_is_nan_is_said_once_and_the_script_goes_on_leaving_out(tmp_path):
    own = script(step="self.loss_of(points, labels)", options="max_epochs=12", more=SPOILED.strip())
    (tmp_path / "train.py").write_text(own)
    done = watched("--leave-out", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("prunedata: a loss that is NaN or infinite counts as the mean of its batch") == 1
    run = read_run(tmp_path / "train.zarr").state
    assert run.history[0]["kept"] == 200 > run.history[-1]["kept"]
    assert np.isfinite(run.mean_excess).all()


FAILS = f"({PLAIN} if not self.trainer.global_rank or self.trainer.global_step != 3 else {OWN})"


def test_one_process_that_cannot_be_watched_stops_all(tmp_path):
    """Otherwise the others would wait for it when an epoch ends."""
    options = "max_epochs=4, devices=2, strategy='ddp'"
    done, same = run_both(tmp_path, script(step=FAILS, options=options))
    assert same
    assert done.stderr.count("watched no longer: its step calls no loss") == 1
    assert done.stderr.count("watched no longer: another process stopped") == 1


def test_processes_of_torchrun_make_one_run(tmp_path):
    command = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "train.py")
    (tmp_path / "train.py").write_text(script(options="max_epochs=4, devices=2, strategy='ddp'"))
    one = plain(*command, cwd=tmp_path)
    assert one.returncode == 0, one.stderr
    before = torch.load(tmp_path / "weights.pt")
    done = watched(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert torch.equal(before, torch.load(tmp_path / "weights.pt"))
    assert [path.name for path in tmp_path.glob("*.zarr")] == ["train.zarr"]
    run = read_run(tmp_path / "train.zarr").state
    assert len(run.history) == 4
    assert (run.visits == 4).all()
    assert np.isin(rows_told(done.stderr)[:10], np.load(tmp_path / "wrong.npy")).sum() >= 8


def test_two_processes_make_one_run(tmp_path):
    done, same = run_both(tmp_path, script(options="max_epochs=4, devices=2, strategy='ddp'"))
    assert same
    run = read_run(tmp_path / "train.zarr").state
    assert len(list(tmp_path.glob("*.zarr"))) == 1
    assert (run.visits >= 4).all()
    assert np.isin(rows_told(done.stderr)[:10], np.load(tmp_path / "wrong.npy")).sum() >= 8
