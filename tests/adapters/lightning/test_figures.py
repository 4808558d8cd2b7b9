"""The epoch's figure in checkpoints: a run that goes on from any of them decides as one that never stopped."""

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset

from prunedata import Pruner, Schedule
from prunedata.adapters.lightning import DataPruning, observe, wrap
from prunedata.errors import PrunedataError
from tests.adapters.lightning.helpers import QUIET, data, pruner_of

pytestmark = QUIET
RISING = [0.5, 0.6, 0.7, 0.65, 0.5, 0.4, 0.3, 0.3]  # turns in its fifth epoch
MOMENTS = {"batch": {"every_n_train_steps": 1}, "validation": {"every_n_epochs": 1, "save_on_train_epoch_end": False}}


class Turning(pl.LightningModule):
    """Its figure turns, and has something of the weights in it."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(2, 1)

    def losses(self, batch):
        features, ids = batch
        return torch.nn.functional.binary_cross_entropy_with_logits(
            self.layer(features)[:, 0], (ids % 2).float(), reduction="none"
        )

    def training_step(self, batch, _):
        return observe(self, self.losses(batch))

    def validation_step(self, batch, _):
        self.log("val_acc", RISING[self.current_epoch] - self.losses(batch).mean() / 1000)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5, momentum=0.5)


def fit(folder, moment, checkpoint=None, **options):
    pruner = Pruner(48, Schedule.steady(len(RISING)), prune=8, policy="auto", seed=5)
    net, saver = Turning(), ModelCheckpoint(folder, filename="{step}", save_top_k=-1, **MOMENTS[moment])
    trainer = pl.Trainer(
        max_epochs=len(RISING), callbacks=[DataPruning(pruner, monitor="val_acc"), saver], accelerator="cpu",
        logger=False, enable_progress_bar=False, enable_model_summary=False, **options,
    )  # fmt: skip
    loader = wrap(DataLoader(data(), batch_size=8, shuffle=True), pruner)
    trainer.fit(net, loader, DataLoader(data(), batch_size=48), ckpt_path=checkpoint)
    return {
        "figures": [record.get("validation") for record in pruner.history],
        "kept": [record["kept"] for record in pruner.history],
        "weights": [number for each in net.parameters() for number in each.detach().ravel().tolist()],
        "counts": pruner.counts.tolist(),
    }


@pytest.mark.parametrize(
    ("moment", "options", "steps"),
    [
        ("batch", {}, [3, 6, 18, 24, 30, 33]),
        ("batch", {"val_check_interval": 0.5}, [3, 6, 24, 27, 30]),
        ("batch", {"val_check_interval": 5}, [5, 6, 29, 30]),  # the last batch comes after the validation
        ("batch", {"check_val_every_n_epoch": None, "val_check_interval": 6}, [6, 30]),
        ("validation", {}, [6, 24, 30]),
    ],
)
def test_a_run_goes_on_with_the_figure_that_it_would_have_had(tmp_path, moment, options, steps):
    whole = fit(tmp_path, moment, **options)
    assert options.get("val_check_interval") == 6 or None not in whole["figures"]
    assert min(whole["kept"]) < 48  # it prunes after the onset
    for step in steps:
        assert fit(tmp_path, moment, tmp_path / f"step={step}.ckpt", **options) == whole


def test_an_epoch_that_is_not_validated_gets_no_figure_where_it_goes_on(tmp_path):
    options = {"check_val_every_n_epoch": 2}
    whole = fit(tmp_path, "batch", **options)
    assert [figure is None for figure in whole["figures"]] == [True, False] * 4
    for step in (6, 12, 18, 24):
        assert fit(tmp_path, "batch", tmp_path / f"step={step}.ckpt", **options) == whole


class Learning(Turning):
    """On clean data: its validation loss falls."""

    def validation_step(self, batch, _):
        self.log("val_loss", self.losses(batch).mean())

    def losses(self, batch):
        features, labels = batch
        return torch.nn.functional.binary_cross_entropy_with_logits(
            self.layer(features)[:, 0], labels, reduction="none"
        )


@pytest.mark.parametrize(("mode", "lower"), [("auto", True), ("min", True)])
def test_a_loss_is_known_to_be_better_when_lower(mode, lower):
    """On clean data nothing is left out: the loss falls to the end, which is no turn."""
    features = torch.randn(240, 2, generator=torch.Generator().manual_seed(0))
    clean = TensorDataset(features, (features.sum(1) > 0).float())
    pruner = Pruner(240, Schedule.steady(12), policy="auto")
    trainer = pl.Trainer(
        max_epochs=12, callbacks=[DataPruning(pruner, monitor="val_loss", mode=mode)], accelerator="cpu",
        logger=False, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip
    loader = wrap(DataLoader(clean, batch_size=24, shuffle=True), pruner)
    trainer.fit(Learning(), loader, DataLoader(clean, batch_size=240))
    assert [record["kept"] for record in pruner.history] == [240] * 12
    assert all(record["lower_is_better"] is lower for record in pruner.history)
    figures = [record["validation"] for record in pruner.history]
    assert figures[-1] < figures[0] / 2


@pytest.mark.parametrize("monitor", ["val", "val_metric", "figure"])
def test_a_name_that_tells_neither_is_refused(monitor):
    with pytest.raises(PrunedataError, match=monitor):
        DataPruning(pruner_of([10, 6]), monitor=monitor)
    DataPruning(pruner_of([10, 6]), monitor=monitor, mode="max")
