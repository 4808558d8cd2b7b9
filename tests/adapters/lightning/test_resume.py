"""Runs under Lightning go on as if they had never stopped, with the figure that they would have had."""

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from prunedata import Pruner, Schedule
from prunedata.adapters.lightning import DataPruning, observe, wrap
from prunedata.errors import PrunedataError
from tests.adapters.lightning.helpers import QUIET, Net, data, flat, loader_of, pruner_of, trainer_of, validation
from tests.common.programs import WORKERS

# Checkpoints of Lightning's, saved at each moment that it can: a run that goes on is as the whole run.


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


# The figure of a validation that the callback hands over, and where a run goes on from it.


# Lightning's logged figure is handed to the pruner in each epoch that is validated.


EACH = [10, 6, 8, 12]


class Logging(Net):
    """Logs the mean of its validation losses."""

    def __init__(self):
        super().__init__()
        self.logged = {}

    def validation_step(self, batch, index):
        loss = self.losses(batch).mean()
        self.log("val_loss", loss)
        return super().validation_step(batch, index)

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            self.logged[self.current_epoch] = float(self.trainer.callback_metrics["val_loss"])


def fit_logging(monitor="val_loss", mode="min", **options):
    pruner, net = pruner_of(EACH), Logging()
    trainer = trainer_of(pruner, **options)
    trainer.callbacks = [one for one in trainer.callbacks if not isinstance(one, DataPruning)]
    trainer.callbacks.append(DataPruning(pruner, monitor=monitor, mode=mode))
    trainer.fit(net, loader_of(pruner), validation())
    return pruner, trainer


def test_each_epoch_has_the_figure_of_its_own_validation():
    pruner, trainer = fit_logging()
    figures = [record["validation"] for record in pruner.history]
    assert len(figures) == 4
    assert figures[-1] == pytest.approx(float(trainer.callback_metrics["val_loss"]))
    assert len(set(figures)) == 4
    assert all(record["lower_is_better"] for record in pruner.history)


def test_an_epoch_that_is_not_validated_has_none():
    pruner, _ = fit_logging(check_val_every_n_epoch=2)
    assert ["validation" in record for record in pruner.history] == [False, True, False, True]


def test_without_a_name_nothing_is_handed_over():
    pruner, _ = fit_logging(monitor=None, mode="max")
    assert not any("validation" in record for record in pruner.history)


def test_a_name_that_nobody_logs_is_told():
    with pytest.raises(PrunedataError, match=r"'val_acc'.*Got loss"):
        fit_logging(monitor="val_acc", mode="max")


def test_another_mode_is_refused():
    with pytest.raises(PrunedataError, match="Expected mode to be"):
        DataPruning(pruner_of(EACH), mode="best")


# The epoch's figure in checkpoints: a run that goes on from any of them decides as one that never stopped.


RISING = [0.5, 0.6, 0.7, 0.65, 0.5, 0.4, 0.3, 0.3]  # turns in its fifth epoch
PLACES = {"batch": {"every_n_train_steps": 1}, "validation": {"every_n_epochs": 1, "save_on_train_epoch_end": False}}


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


def fit_turning(folder, moment, checkpoint=None, **options):
    pruner = Pruner(48, Schedule.steady(len(RISING)), prune=8, policy="auto", seed=5)
    net, saver = Turning(), ModelCheckpoint(folder, filename="{step}", save_top_k=-1, **PLACES[moment])
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
    whole = fit_turning(tmp_path, moment, **options)
    assert options.get("val_check_interval") == 6 or None not in whole["figures"]
    assert min(whole["kept"]) < 48  # it has turned
    for step in steps:
        assert fit_turning(tmp_path, moment, tmp_path / f"step={step}.ckpt", **options) == whole


def test_an_epoch_that_is_not_validated_gets_no_figure_where_it_goes_on(tmp_path):
    options = {"check_val_every_n_epoch": 2}
    whole = fit_turning(tmp_path, "batch", **options)
    assert [figure is None for figure in whole["figures"]] == [True, False] * 4
    for step in (6, 12, 18, 24):
        assert fit_turning(tmp_path, "batch", tmp_path / f"step={step}.ckpt", **options) == whole


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
