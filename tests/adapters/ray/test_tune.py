"""A search by Ray Tune, two trials at once in processes of their own: each has a run of its own."""

import time

import pytest

ray = pytest.importorskip("ray")
tune = pytest.importorskip("ray.tune")

from benchmarks.common.processes.on_ray import on_ray  # noqa: E402
from prunedata import Pruner  # noqa: E402
from prunedata.findings.inspection import inspect  # noqa: E402

EPOCHS = 3


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with on_ray():
        yield


def search(objective, folder, **options):
    config = tune.RunConfig(name="search", storage_path=str(folder), verbose=0, **options)
    space = {"scale": tune.grid_search([1.0, 2.0])}
    return list(tune.Tuner(objective, param_space=space, run_config=config).fit())


def make_objective(meeting, *, dies_at=None):
    """A closure, so that Ray sends it by value: its workers cannot import a test."""
    epochs = EPOCHS

    def objective(config):
        from pathlib import Path

        import numpy as np
        from ray import tune

        from prunedata import Pruner
        from prunedata.policies import RunningLoss

        context = tune.get_context()
        Path(meeting, context.get_trial_id()).touch()
        until = time.monotonic() + 60
        while len(list(Path(meeting).iterdir())) < 2 and time.monotonic() < until:
            time.sleep(0.05)  # both trials train at once
        store = Path(context.get_trial_dir(), "run.zarr")
        begun = store.exists()
        run = Pruner(60, epochs=epochs, prune="25%", policy=RunningLoss(), store=store, resume=True)
        for epoch in run.epochs():
            if not begun and epoch.number == dies_at:
                raise ZeroDivisionError
            for ids in epoch.batches(15):
                run.observe(np.cos(ids) * config["scale"] + 3, ids)
        tune.report({"loss": float(run.arrays["mean_excess"].max()), "trials": len(list(Path(meeting).iterdir()))})

    return objective


@pytest.mark.parametrize("dies_at", [None, pytest.param(2, marks=pytest.mark.slow)], ids=["whole", "begun again"])
def test_two_trials_at_once_have_a_run_each(tmp_path, dies_at):
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    retried = {} if dies_at is None else {"failure_config": tune.FailureConfig(max_failures=1)}
    found = search(make_objective(str(meeting), dies_at=dies_at), tmp_path, **retried)
    assert [result.error for result in found] == [None, None]
    assert [result.metrics["trials"] for result in found] == [2, 2]
    assert found[0].metrics["loss"] != found[1].metrics["loss"]
    for result in found:
        history = inspect(f"{result.path}/run.zarr")["history"]
        assert [record["observed"] for record in history] == [record["kept"] for record in history]
        assert len(history) == EPOCHS


def test_a_pruner_of_the_program_is_not_sent_to_the_trials(tmp_path):
    run = Pruner(60, epochs=EPOCHS)
    with pytest.raises(Exception) as caught:  # noqa: PT011 (Ray looks at what it cannot send, and fails at that)
        search(lambda config: run.next_epoch, tmp_path)
    assert "or in the function of a trial, that trains" in str(caught.value.__context__)
