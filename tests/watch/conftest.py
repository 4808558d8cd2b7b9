"""What tests of loops that are watched share."""

import sys

import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from prunedata.cli.watching.hooks import notice_steps, watch_loops
from prunedata.cli.watching.session import Session
from prunedata.store.run_store import read_run
from tests.watch.loops import Training


@pytest.fixture
def watch(tmp_path, monkeypatch, capsys):
    """Run a loop unwatched, and watched: its weights are the same; return its training, its runs, and what was said."""

    def run(loop, epochs=3):
        loop(plain := Training(), epochs)
        monkeypatch.setenv("PRUNEDATA_WATCH", str(tmp_path))
        Session.current.cache_clear()
        with monkeypatch.context() as patched:
            for kind, methods in ((DataLoader, ["__iter__"]), (StatefulDataLoader, ["__iter__", "state_dict"])):
                for method in methods:
                    patched.setattr(kind, method, getattr(kind, method))
                watch_loops(kind)
            steps = notice_steps(sys.modules["torch.optim.optimizer"])
            loop(watched := Training(), epochs)
            steps.remove()
            session = Session.current()
            session.loops.close()
            session.trains = False  # or it tells of its runs when the process ends
            session.runs.clear()
        Session.current.cache_clear()
        assert torch.equal(plain.weights, watched.weights)
        stores = sorted(tmp_path.glob("*.zarr"), key=lambda path: path.stat().st_ctime_ns)
        return watched, [read_run(store).state for store in stores], capsys.readouterr().err

    return run
