"""``Trainer.hyperparameter_search``, by Optuna and by Ray Tune: each trial has a run of its own, and none is empty."""

import subprocess
import sys
import threading

import numpy as np
import pytest
from accelerate.state import GradientState
from transformers import Trainer

from prunedata import Pruner
from prunedata.adapters.huggingface import wrap
from prunedata.errors import PrunedataError
from prunedata.findings.inspection import inspect
from prunedata.policies import RunningLoss
from tests.adapters.huggingface.trainers import SAMPLES, Net, Rows, quiet

EPOCHS = 3
WHOLE = [SAMPLES, 72, 72]


def trainer_in(folder, **options):
    given = quiet(folder / "checkpoints", **{"num_train_epochs": EPOCHS, "eval_strategy": "epoch"} | options)
    return Trainer(model_init=Net, args=given, train_dataset=Rows(), eval_dataset=Rows(16))


def space(trial):
    return {"learning_rate": trial.suggest_float("learning_rate", 1e-3, 1e-1, log=True)}


def new_run(store, **options):
    return Pruner(epochs=EPOCHS, prune="25%", policy=RunningLoss(), store=store, **options)


def observed(store):
    return [record["observed"] for record in inspect(store)["history"]]


def alone(folder, rate, **options):
    """A training by itself, with this learning rate: the trainer, and its figure."""
    trainer = trainer_in(folder, learning_rate=rate)
    new_run(None, **options).wrap(trainer).train()
    return trainer, trainer.evaluate()["eval_loss"]


@pytest.mark.parametrize("leave_out", ["delivery", "weight"])
def test_each_trial_of_optuna_is_as_a_training_alone(tmp_path, leave_out):
    pytest.importorskip("optuna")
    trainer = trainer_in(tmp_path)
    assert wrap(trainer, lambda trial: new_run(tmp_path / f"{trial.number}.zarr", leave_out=leave_out)) is trainer
    known = []
    best = trainer.hyperparameter_search(
        hp_space=space,
        compute_objective=lambda metrics: (known.append(trainer.pruner), metrics["eval_loss"])[1],
        backend="optuna",
        n_trials=2,
        direction="minimize",
    )
    assert [observed(tmp_path / f"{number}.zarr") for number in (0, 1)] == [WHOLE] * 2
    run = known[EPOCHS * int(best.run_id)]
    by_itself, figure = alone(tmp_path, best.hyperparameters["learning_rate"], leave_out=leave_out)
    assert np.array_equal(run.arrays["mean_excess"], by_itself.pruner.arrays["mean_excess"])
    assert figure == best.objective


def test_a_trial_that_is_stopped_keeps_what_it_has_trained_and_the_next_is_whole(tmp_path):
    optuna = pytest.importorskip("optuna")
    trainer = trainer_in(tmp_path)
    wrap(trainer, lambda trial: new_run(tmp_path / f"{trial.number}.zarr"))

    class Second(optuna.pruners.BasePruner):
        def prune(self, study, trial):
            return trial.number == 1 and len(trial.intermediate_values) == 2

    trainer.hyperparameter_search(hp_space=space, backend="optuna", n_trials=3, direction="minimize", pruner=Second())
    assert [observed(tmp_path / f"{number}.zarr") for number in range(3)] == [WHOLE, WHOLE[:2], WHOLE]


def test_trials_in_threads_are_refused_whenever_they_come(tmp_path):
    """They would share the Trainer's model: also one that begins while another is evaluated."""
    pytest.importorskip("optuna")
    trainer = trainer_in(tmp_path, eval_strategy="no")
    wrap(trainer, lambda trial: new_run(tmp_path / f"{trial.number}.zarr"))
    with pytest.raises(PrunedataError, match=r"Expected all trials of a Trainer in one thread.*start the script twice"):
        trainer.hyperparameter_search(hp_space=space, backend="optuna", n_trials=4, n_jobs=2, direction="minimize")
    first, evaluated = [], threading.Event()

    def in_another_thread():
        with pytest.raises(PrunedataError, match="backend='ray'"):
            trainer.train()
        evaluated.set()

    def evaluate(metrics):
        first.append(trainer.pruner)
        other = threading.Thread(target=in_another_thread)
        other.start()
        other.join()
        return metrics["eval_loss"]

    trainer = trainer_in(tmp_path, eval_strategy="no")
    wrap(trainer, lambda trial: new_run(None))
    trainer.hyperparameter_search(
        hp_space=space, backend="optuna", n_trials=1, direction="minimize", compute_objective=evaluate
    )
    assert evaluated.is_set()
    assert trainer.pruner is first[0]


SEARCH = """
import sys, time
from pathlib import Path
from prunedata.adapters.huggingface import wrap
from tests.adapters.huggingface.test_search import new_run, space, trainer_in

folder = Path(sys.argv[1])

def make_pruner(trial):
    (folder / "meeting" / str(trial.number)).touch()
    until = time.monotonic() + 120
    while len(list((folder / "meeting").iterdir())) < 2:
        assert time.monotonic() < until, "the other trial did not come"
        time.sleep(0.05)
    return new_run(folder / f"{trial.number}.zarr")

trainer = trainer_in(folder)
wrap(trainer, make_pruner)
trainer.hyperparameter_search(
    hp_space=space, backend="optuna", n_trials=1, direction="minimize", storage=f"sqlite:///{folder}/search.db",
    study_name="search", load_if_exists=True,
)
"""


def test_two_trials_at_once_in_two_processes_that_share_a_study(tmp_path):
    """The way that the error names."""
    optuna = pytest.importorskip("optuna")
    (tmp_path / "meeting").mkdir()
    storage = f"sqlite:///{tmp_path}/search.db"
    optuna.create_study(storage=storage, study_name="search", direction="minimize")  # two that make it may collide
    started = [
        subprocess.Popen([sys.executable, "-c", SEARCH, str(tmp_path)], stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in started:
        _, told = process.communicate()
        assert process.returncode == 0, told
    study = optuna.load_study(storage=storage, study_name="search")
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "COMPLETE"]
    assert [observed(tmp_path / f"{number}.zarr") for number in (0, 1)] == [WHOLE] * 2
    for trial in study.trials:
        assert alone(tmp_path, trial.params["learning_rate"])[1] == trial.value


@pytest.mark.slow
def test_two_trials_of_ray_at_once(tmp_path):
    pytest.importorskip("ray.tune")
    from ray import tune

    from benchmarks.common.processes.on_ray import on_ray

    meeting = tmp_path / "meeting"
    meeting.mkdir()
    GradientState._reset_state()  # accelerate's, of the process: trainings before may leave what cannot be sent
    with on_ray():
        trainer = trainer_in(tmp_path)
        wrap(trainer, _maker(str(tmp_path), str(meeting), EPOCHS))
        best = trainer.hyperparameter_search(
            hp_space=lambda trial: {"learning_rate": tune.grid_search([0.01, 0.1])},
            backend="ray", n_trials=1, direction="minimize", storage_path=str(tmp_path / "tune"), verbose=0,
        )  # fmt: skip
    stores = sorted(tmp_path.glob("*.zarr"))
    assert {best.run_id} < {store.stem for store in stores}
    assert [observed(store) for store in stores] == [WHOLE] * 2


def _maker(folder, meeting, epochs):
    """By value, as Ray's workers cannot import a test."""

    def make_pruner(trial):
        import time
        from pathlib import Path

        from ray import tune

        name = tune.get_context().get_trial_id()
        Path(meeting, name).touch()
        until = time.monotonic() + 60
        while len(list(Path(meeting).iterdir())) < 2:
            assert time.monotonic() < until, "the other trial did not come"
            time.sleep(0.05)
        return Pruner(epochs=epochs, prune="25%", policy=RunningLoss(), store=f"{folder}/{name}.zarr")

    return make_pruner


def test_what_the_function_returns_is_looked_at(tmp_path):
    trainer = trainer_in(tmp_path)
    wrap(trainer, lambda trial: None)
    with pytest.raises(PrunedataError, match=r"the trial's Pruner\. Got NoneType"):
        trainer.train()
