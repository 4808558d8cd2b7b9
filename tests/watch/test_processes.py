"""Several processes train one run, whoever starts them."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from prunedata.store.reading import read_run
from tests.watch.watched import TRAINER, TRAINS, plain, rows_told, watched

pytestmark = pytest.mark.slow  # each test runs whole programs, with their imports
BIN = Path(sys.executable).parent
TORCHRUN = ("--nproc-per-node", "2", "--standalone", "train.py")
ACCELERATE = ("launch", "--num_processes", "2", "--cpu", "--num_machines", "1", "--mixed_precision", "no",
              "--dynamo_backend", "no", "--main_process_port", "29533", "train.py")  # fmt: skip


@pytest.mark.parametrize("command", [
    ("-m", "torch.distributed.run", *TORCHRUN), (str(BIN / "accelerate"), *ACCELERATE),
])  # fmt: skip
def test_two_processes_make_one_run(command, tmp_path):
    trains = TRAINS.replace("torch.save(", "trainer.args.process_index or torch.save(")
    (tmp_path / "train.py").write_text(TRAINER.replace("num_train_epochs=2", "num_train_epochs=6") + trains)
    one = plain(*command, cwd=tmp_path)
    assert one.returncode == 0, one.stderr
    before = torch.load(tmp_path / "weights.pt")
    (tmp_path / "weights.pt").unlink()
    done = watched(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert torch.equal(before, torch.load(tmp_path / "weights.pt"))
    assert [path.name for path in tmp_path.glob("*.zarr")] == ["train.zarr"]
    run = read_run(tmp_path / "train.zarr").state
    assert (run.visits == 6).all()
    assert np.isin(rows_told(done.stderr)[:8], np.load(tmp_path / "wrong.npy")).sum() >= 6


def test_one_that_cannot_be_watched_stops_all(tmp_path):
    """Otherwise the others would wait for it when an epoch ends."""
    fails = """
class Kind(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        if self.args.process_index and self.state.global_step == 3:
            inputs = {name: value[:4] for name, value in inputs.items()}  # and nothing says which these are
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

KIND = Kind
"""
    (tmp_path / "train.py").write_text(TRAINER + fails + TRAINS.replace("torch.save(", "0 and torch.save("))
    done = watched("-m", "torch.distributed.run", *TORCHRUN, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("prunedata: watched no longer") == 2
