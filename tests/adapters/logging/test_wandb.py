"""A run in Weights & Biases, offline."""

import numpy as np
import pytest

from prunedata import Pruner, Schedule
from prunedata.errors import PrunedataError

wandb = pytest.importorskip("wandb")

pytestmark = pytest.mark.slow  # it starts a service of its own


@pytest.fixture
def run(tmp_path, monkeypatch):
    for name in ("CACHE", "CONFIG", "DATA"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / name.lower()))
    settings = wandb.Settings(console="off", silent=True, x_disable_stats=True)
    opened = wandb.init(mode="offline", dir=tmp_path, project="test", settings=settings)
    yield opened
    opened.finish()
    wandb.teardown()


def test_every_epoch_is_logged_beside_what_the_user_logs(run):
    from prunedata.adapters.logging.wandb import log

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


def test_what_is_refused(run):
    from prunedata.adapters.logging.wandb import log

    with pytest.raises(PrunedataError, match=r"wandb.init\(\) returns it. Got str"):
        log(Pruner(10, Schedule.steady(12), prune=0.2), "run")
