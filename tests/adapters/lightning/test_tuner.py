"""What Lightning's tuners train before the run leaves no trace in it."""

from threading import Barrier

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import LearningRateFinder
from lightning.pytorch.tuner import Tuner

from prunedata import Pruner
from prunedata.adapters.lightning import DataPruning
from prunedata.adapters.torch.run import TorchRun
from prunedata.errors import PrunedataError
from prunedata.findings.inspection import inspect
from prunedata.policies import RunningLoss
from tests.adapters.lightning.helpers import QUIET, Net, loader_of, pruner_of, trainer_of, validation
from tests.common.programs import WORKERS

pytestmark = [*QUIET, pytest.mark.filterwarnings("ignore:`weights_only` was not set")]
LENGTHS = [10, 6, 8]


class Tuned(Net):
    """Has the attributes that tuners set, and forgets what it was trained on while they did."""

    def __init__(self, pruner=None):
        super().__init__(schedule=False)
        self.lr, self.batch_size, self.pruner, self.tried = 0.1, 2, pruner, 0

    def train_dataloader(self):
        return loader_of(self.pruner, batch_size=self.batch_size)

    def forget(self):
        self.tried += sum(self.lengths)
        self.epochs.clear()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr)


def trainer_in(folder, pruner, *callbacks):
    return trainer_of(pruner, callbacks=[*callbacks, DataPruning(pruner)], default_root_dir=folder)


def assert_nothing_came_of_it(pruner, before):
    after = pruner.state_dict()
    assert after["arrays"] == before["arrays"]
    assert after["state"]["epoch"] == before["state"]["epoch"]
    assert not after["state"]["open"]
    assert pruner.attach(TorchRun(pruner)).leader is None


@WORKERS
@pytest.mark.parametrize("steps", [8, 28])
def test_a_rate_is_looked_for_over_several_passes(tmp_path, steps, workers):
    pruner, net = pruner_of(LENGTHS), Tuned()
    loader, trainer, before = loader_of(pruner, num_workers=workers), trainer_in(tmp_path, pruner), pruner.state_dict()
    found = Tuner(trainer).lr_find(net, loader, num_training=steps, early_stop_threshold=None, update_attr=True)
    net.forget()
    assert len(found.results["lr"]) == net.tried == steps
    assert_nothing_came_of_it(pruner, before)
    plain = pruner_of(LENGTHS)
    fits = [(pruner, net, loader), (plain, Tuned(), loader_of(plain))]
    fits[1][1].lr = net.lr
    for one, module, batches in fits:
        pl.seed_everything(0, verbose=False)
        trainer_in(tmp_path, one).fit(module, batches, validation())
    assert net.epochs == fits[1][1].epochs
    assert torch.equal(net.layer.weight, fits[1][1].layer.weight)
    assert np.array_equal(pruner.counts, plain.counts)


def test_a_rate_may_be_tried_at_which_the_loss_grows_beyond_all_numbers(tmp_path):
    pruner = pruner_of(LENGTHS)

    class Growing(Tuned):
        def losses(self, batch):
            pruner.state_dict()  # what was recorded is looked at
            return super().losses(batch) * (float("inf") if sum(self.lengths) > 5 else 1)

    before = pruner.state_dict()
    options = {"num_training": 15, "early_stop_threshold": None}
    found = Tuner(trainer_in(tmp_path, pruner)).lr_find(Growing(), loader_of(pruner), **options)
    assert not np.isfinite(found.results["loss"]).all()
    assert_nothing_came_of_it(pruner, before)


class RateFinder(LearningRateFinder):
    """Looks in the middle of the run, too."""

    def on_fit_start(self, trainer, pl_module):
        """Only between epochs."""

    def on_train_epoch_start(self, trainer, pl_module):
        if trainer.current_epoch in (0, 2):
            trained = dict(pl_module.epochs)
            self.lr_find(trainer, pl_module)
            pl_module.epochs = trained


@pytest.mark.parametrize("first", [True, False])
def test_a_rate_is_looked_for_by_a_callback_of_the_run(tmp_path, first):
    pruner, net = pruner_of(LENGTHS), Tuned()
    callbacks = [RateFinder(num_training_steps=25, early_stop_threshold=None), DataPruning(pruner)]
    trainer = trainer_of(pruner, callbacks=callbacks if first else callbacks[::-1], default_root_dir=tmp_path)
    trainer.fit(net, loader_of(pruner), validation())
    assert net.lengths == LENGTHS
    assert [record["observed"] for record in pruner.history] == [4 * length for length in LENGTHS]


@pytest.mark.parametrize("mode", ["power", "binsearch"])
def test_a_batch_size_is_looked_for(tmp_path, mode):
    pruner = pruner_of(LENGTHS)
    net, before = Tuned(pruner), pruner.state_dict()
    net.val_dataloader = validation
    trainer = trainer_in(tmp_path, pruner)
    size = Tuner(trainer).scale_batch_size(net, mode=mode, max_trials=3, steps_per_trial=8, margin=0)
    net.forget()
    assert (size, net.batch_size, net.tried) == (8, 8, 24)
    assert_nothing_came_of_it(pruner, before)
    trainer.fit(net)
    assert net.lengths == [5, 3, 4]


def test_a_search_that_fails_leaves_the_run_as_it_was(tmp_path):
    pruner = pruner_of(LENGTHS)

    class Failing(Tuned):
        def training_step(self, batch, index):
            if index == 5:
                raise ZeroDivisionError
            return super().training_step(batch, index)

    trainer = trainer_in(tmp_path, pruner)
    with pytest.raises(ZeroDivisionError), pytest.warns(UserWarning, match="callbacks used to create the checkpoint"):
        Tuner(trainer).lr_find(Failing(), loader_of(pruner))
    net = Tuned()
    trainer = trainer_in(tmp_path, pruner)
    trainer.fit(net, loader_of(pruner), validation())
    assert net.lengths == LENGTHS
    assert [record["observed"] for record in pruner.history] == [4 * length for length in LENGTHS]
    assert type(trainer) is pl.Trainer


EPOCHS, SAMPLES = 3, 48


class Meeting(pl.Callback):
    """Each trial waits for the other before each of its epochs."""

    def __init__(self, both):
        self.both = both

    def on_train_epoch_start(self, trainer, pl_module):
        self.both.wait()


def test_two_trials_at_once_each_with_its_tuner(tmp_path):
    optuna = pytest.importorskip("optuna")
    both = Barrier(2, timeout=60)

    def objective(trial):
        pruner = Pruner(
            SAMPLES, epochs=EPOCHS, prune="25%", policy=RunningLoss(), store=tmp_path / f"{trial.number}.zarr"
        )
        net, loader = Tuned(), loader_of(pruner)
        trainer = trainer_of(
            pruner, callbacks=[DataPruning(pruner), Meeting(both)], default_root_dir=tmp_path / str(trial.number)
        )
        Tuner(trainer).lr_find(net, loader, num_training=8, early_stop_threshold=None)
        assert not pruner.visits.any()
        net.forget()
        trainer.fit(net, loader, validation())
        return net.lengths[-1]

    study = optuna.create_study()
    study.optimize(objective, n_trials=2, n_jobs=2)
    assert [trial.value for trial in study.trials] == [9, 9]
    for number in (0, 1):
        history = inspect(tmp_path / f"{number}.zarr")["history"]
        assert [record["observed"] for record in history] == [48, 36, 36]


def test_a_run_that_another_trial_has_trained_is_refused(tmp_path):
    pruner = pruner_of([12, 12])
    loader = loader_of(pruner)
    trainer_of(pruner).fit(Net(), loader, validation())
    with pytest.raises(PrunedataError, match=r"all are done.*make a Pruner within each trial"):
        trainer_of(pruner).fit(Net(), loader, validation())
