"""A run in TensorBoard, read back from the files that it writes, and in Weights & Biases, offline."""

import sys
from types import ModuleType
from unittest.mock import Mock

import numpy as np
import pytest

from prunedata import Pruner, Schedule
from prunedata.adapters.logging import log
from prunedata.errors import PrunedataError

# A run in TensorBoard, read back from the files that it writes.


@pytest.fixture
def writer(tmp_path, monkeypatch):
    if "tensorflow" not in sys.modules:  # without it TensorBoard loads it, for remote file systems
        monkeypatch.setitem(sys.modules, "tensorboard.compat.notf", ModuleType("notf"))
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as opened:
        yield opened


def train(pruner, stop=None):
    for epoch in pruner.epochs():
        for ids in epoch.batches(32):
            pruner.observe(np.cos(ids) + 2, ids)
        if epoch.number + 1 == stop:
            break
    return pruner


def read(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "histograms": 0})
    found.Reload()
    return found


def test_every_epoch_is_written(writer, tmp_path):
    pruner = Pruner(200, Schedule(8, 8, 3, 2, 1), prune="20%")
    log(pruner, writer)
    log(pruner, writer)
    train(pruner)
    writer.flush()
    found = read(tmp_path)
    for name in ("kept", "mean_loss", "seconds", "agreement"):
        wanted = [(record["number"], record[name]) for record in pruner.history if name in record]
        got = [(event.step, event.value) for event in found.Scalars(f"prunedata/{name}")]
        assert [step for step, _ in got] == [step for step, _ in wanted]
        assert [value for _, value in got] == pytest.approx([value for _, value in wanted], rel=1e-6)
    last = found.Scalars("prunedata/visits_saved_percent")[-1].value
    assert last == pytest.approx(pruner.saved["visits_saved_percent"])
    for name, values in (("counts", pruner.counts), ("visits", pruner.visits)):
        shown = found.Histograms(f"prunedata/{name}")
        assert [event.step for event in shown] == list(range(8))
        last = shown[-1].histogram_value
        assert last.num == 200
        wanted = np.histogram(values, bins=[-np.inf, *last.bucket_limit])[0]
        assert last.bucket == wanted.tolist()


def test_a_run_that_goes_on_goes_on_there(writer, tmp_path):
    for resume in (False, True):
        pruner = Pruner(40, Schedule.steady(6), prune=0.2, store=tmp_path / "run.zarr", resume=resume)
        log(pruner, writer)
        train(pruner, stop=None if resume else 3)
        pruner.commit()
        del pruner
    writer.flush()
    assert [event.step for event in read(tmp_path).Scalars("prunedata/kept")] == list(range(6))


def test_a_run_without_losses(writer, tmp_path):
    from prunedata.policies import Random

    pruner = Pruner(40, Schedule.steady(3), prune=0.2, policy=Random())
    log(pruner, writer)
    for epoch in pruner.epochs():
        pruner.skip(epoch.kept)
    writer.flush()
    tags = read(tmp_path).Tags()["scalars"]
    assert "prunedata/mean_loss" not in tags
    assert "prunedata/kept" in tags


def test_what_is_refused(writer):
    with pytest.raises(PrunedataError, match="Expected a SummaryWriter"):
        log(Pruner(10, Schedule.steady(12), prune=0.2), "runs")
    with pytest.raises(PrunedataError, match=r"Expected a Pruner to log\. Got str"):
        log("run.zarr", writer)


# A run in Weights & Biases, offline.


@pytest.fixture
def run(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    for name in ("CACHE", "CONFIG", "DATA"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / name.lower()))
    settings = wandb.Settings(console="off", silent=True, x_disable_stats=True)
    opened = wandb.init(mode="offline", dir=tmp_path, project="test", settings=settings)
    yield opened
    opened.finish()
    wandb.teardown()


@pytest.mark.slow  # it starts a service of its own
def test_every_epoch_is_logged_beside_what_the_user_logs(run):
    logged, pruner = [], Pruner(200, Schedule(8, 8, 3, 2, 1), prune="20%")
    log(pruner, run)
    for epoch in pruner.epochs():
        for ids in epoch.batches(64):
            pruner.observe(np.cos(ids) + 2, ids)
        run.log({"mine": epoch.number})
        logged.append(dict(run.summary))
    found, last = dict(run.summary), pruner.history[-1]
    assert found["mine"] == found["prunedata/epoch"] == 7
    for name in ("kept", "mean_loss", "seconds", "agreement"):
        assert found[f"prunedata/{name}"] == pytest.approx(next(r[name] for r in reversed(pruner.history) if name in r))
    assert [one.get("prunedata/epoch") for one in logged] == [None, *range(7)]
    visits = found["prunedata/visits"]
    assert visits["_type"] == "histogram"
    assert sum(visits["values"]) == 200
    assert last["number"] == 7


@pytest.mark.slow
def test_what_is_no_run_of_wandb_is_refused(run):
    with pytest.raises(PrunedataError, match="Got str"):
        log(Pruner(10, Schedule.steady(12), prune=0.2), "run")


def test_a_run_is_known_by_its_methods():
    """As those of releases that do not export its class."""
    pytest.importorskip("wandb")
    run, pruner = Mock(spec=["define_metric", "log"]), Pruner(8, epochs=2)
    log(pruner, run)
    for epoch in pruner.epochs():
        for ids in epoch.batches(4):
            pruner.observe(np.cos(ids) + 2, ids)
    assert [call.args[0]["prunedata/epoch"] for call in run.log.mock_calls] == [0, 1]
