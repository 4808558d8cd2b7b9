"""Checkpoints of Lightning's, saved at each moment that it can: a run that goes on is as the whole run."""

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torchdata.stateful_dataloader import StatefulDataLoader

from prunedata.adapters.lightning import DataPruning
from prunedata.errors import PrunedataError
from tests.adapters.lightning.helpers import QUIET, Net, flat, loader_of, pruner_of, trainer_of, validation
from tests.common.marks import WORKERS

pytestmark = QUIET
LENGTHS = [10, 6, 8, 12, 6, 9]
MOMENTS = {
    "validation": {"every_n_epochs": 1},  # as by default
    "epoch": {"save_on_train_epoch_end": True},
    "batch": {"every_n_train_steps": 1},
}


def fit(folder, moment, checkpoint=None, schedule=True, pruner=None, **options):
    pruner, net = pruner or pruner_of(LENGTHS), Net(schedule=schedule)
    saver = ModelCheckpoint(folder, filename="{step}", save_top_k=-1, **MOMENTS[moment])
    trainer_of(pruner, saver).fit(net, loader_of(pruner, **options), validation(), ckpt_path=checkpoint)
    return pruner, net


@pytest.mark.parametrize(
    ("moment", "schedule", "steps"),
    [
        ("validation", True, [10, 36, 51]),
        ("epoch", True, [10, 36, 51]),
        ("batch", True, [1, 10, 13, 16]),  # 10 and 16 are last batches: the next epoch is shorter, and longer
        ("batch", False, [9, 10, 16]),
    ],
)
def test_a_run_goes_on_as_if_it_had_never_stopped(tmp_path, moment, schedule, steps):
    whole, net = fit(tmp_path, moment, schedule=schedule)
    assert net.lengths == LENGTHS
    batches = flat(net.epochs.values())
    for step in steps:
        pruner, later = fit(tmp_path, moment, checkpoint=tmp_path / f"step={step}.ckpt", schedule=schedule)
        assert flat(later.epochs.values()) == batches[step:]
        assert later.rates == net.rates[step:]
        assert later.validated == net.validated[len(LENGTHS) - len(later.epochs) :]
        assert np.array_equal(pruner.counts, whole.counts)
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(later.parameters(), net.parameters(), strict=True))


@WORKERS
def test_a_stateful_loader_goes_on_within_an_epoch(tmp_path, workers):
    options = {"kind": StatefulDataLoader, "num_workers": workers}
    _, net = fit(tmp_path, "batch", **options)
    _, later = fit(tmp_path, "batch", tmp_path / "step=13.ckpt", **options)
    assert flat(later.epochs.values()) == flat(net.epochs.values())[13:]
    assert later.rates == net.rates[13:]


def test_a_run_that_stands_elsewhere_than_lightning_is_refused(tmp_path):
    pruner, _ = fit(tmp_path, "epoch")
    behind = pruner_of(LENGTHS)
    behind.begin_epoch()
    behind.skip(behind.samples)
    behind.end_epoch()
    with pytest.raises(PrunedataError, match=r"Expected epoch 1, .* Got epoch 0 .* fit\(ckpt_path="):
        fit(tmp_path, "epoch", pruner=behind)
    with pytest.raises(PrunedataError, match=r"Expected the result of state_dict\(\)"):
        DataPruning(pruner).load_state_dict({"ranks": [{}, {}, {}]})
