"""A search over Lightning's Trainer and its tuner, two trials at once: each has a run of its own."""

from threading import Barrier

import lightning.pytorch as pl
import pytest
from lightning.pytorch.tuner import Tuner

from prunedata import Pruner
from prunedata.adapters.lightning import DataPruning
from prunedata.errors import PrunedataError
from prunedata.findings.inspection import inspect
from prunedata.policies import RunningLoss
from tests.adapters.lightning.helpers import QUIET, Net, loader_of, pruner_of, trainer_of, validation
from tests.adapters.lightning.test_tuner import Tuned

pytestmark = [*QUIET, pytest.mark.filterwarnings("ignore:`weights_only` was not set")]
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
