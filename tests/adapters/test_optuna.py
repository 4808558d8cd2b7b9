"""A search by Optuna, two trials at once: each has a run of its own, and none trains nothing without a word."""

import subprocess
import sys
from threading import Barrier

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from prunedata import Pruner
from prunedata.errors import FinishedWarning, RunExists
from prunedata.findings.inspection import inspect
from prunedata.policies import RunningLoss

optuna = pytest.importorskip("optuna")

SAMPLES, EPOCHS = 60, 4
POINTS = torch.randn(SAMPLES, 4, generator=torch.Generator().manual_seed(0))
DATA = TensorDataset(POINTS, (POINTS.sum(1) > 0).long())


def new_run(store, **options):
    return Pruner(DATA, epochs=EPOCHS, prune="25%", policy=RunningLoss(), store=store, **options)


def train(run, rate, after=lambda epoch: None):
    """Train a net, and return its loss at the end."""
    layer, loss = torch.nn.Linear(4, 2, bias=False), None
    with torch.no_grad():
        layer.weight.copy_(torch.linspace(-1, 1, 8).reshape(2, 4))
    optimizer = torch.optim.SGD(layer.parameters(), lr=rate)
    drawn = torch.Generator().manual_seed(0)  # threads share the one that is not named
    loader = run.wrap(DataLoader(DATA, batch_size=15, shuffle=True, generator=drawn))
    for epoch in run.epochs():
        for points, labels in loader:
            optimizer.zero_grad()
            loss = run.observe(F.cross_entropy(layer(points), labels, reduction="none"))
            loss.backward()
            optimizer.step()
        after(epoch)
    return None if loss is None else loss.item()


def test_two_trials_at_once_are_as_each_alone(tmp_path):
    both = Barrier(2, timeout=60)

    def objective(trial):
        rate = trial.suggest_float("rate", 0.01, 1, log=True)
        return train(new_run(tmp_path / f"{trial.number}.zarr"), rate, lambda epoch: both.wait())

    study = optuna.create_study()
    study.optimize(objective, n_trials=4, n_jobs=2)
    for trial in study.trials:
        alone = new_run(None)
        assert trial.value == train(alone, trial.params["rate"])
        run = new_run(tmp_path / f"{trial.number}.zarr", resume=True)
        assert run.next_epoch == EPOCHS
        for name, array in alone.arrays.items():
            assert np.array_equal(array, run.arrays[name]), name
        assert np.array_equal(alone.visits, run.visits)


def test_a_trial_that_is_stopped_keeps_what_it_has_trained(tmp_path):
    def objective(trial):
        def after(epoch):
            trial.report(-epoch.number, epoch.number)
            if trial.number and epoch.number == 2:
                raise optuna.TrialPruned

        return train(new_run(tmp_path / f"{trial.number}.zarr"), 0.1, after)

    study = optuna.create_study()
    study.optimize(objective, n_trials=2)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "PRUNED"]
    assert [len(inspect(tmp_path / f"{number}.zarr")["history"]) for number in (0, 1)] == [EPOCHS, 2]
    assert train(new_run(tmp_path / "1.zarr", resume=True), 0.1) is not None
    assert len(inspect(tmp_path / "1.zarr")["history"]) == EPOCHS


def test_trials_that_share_a_store_are_told_so(tmp_path):
    study = optuna.create_study()
    with pytest.raises(RunExists, match="name another store"):
        study.optimize(lambda trial: train(new_run(tmp_path / "run.zarr"), 0.1), n_trials=2)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "FAIL"]


EMPTY = """
from prunedata import Pruner
import numpy as np

def objective(run):
    for epoch in run.epochs():
        for ids in epoch.batches(10):
            run.observe(np.cos(ids), ids)

shared = Pruner(20, epochs=2)
for trial in range(4):
    objective(shared)
"""


def test_each_trial_that_is_empty_warns(tmp_path):
    """By default Python shows a warning once for each line that gives it."""
    ended = subprocess.run([sys.executable, "-c", EMPTY], capture_output=True, text=True, check=True)
    assert ended.stderr.count("FinishedWarning") == 3
    assert ended.stderr.count("make a Pruner within each trial, with a store of its own") == 3
    run = new_run(None)
    train(run, 0.1)
    with pytest.warns(FinishedWarning):
        train(run, 0.1)
