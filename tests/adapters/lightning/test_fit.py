"""Lightning's own Trainer: epochs of the wanted length, every one validated, the rate where its schedule says."""

import lightning.pytorch as pl
import numpy as np
import pytest
import pytorch_lightning
import torch
from torch.utils.data import DataLoader

from prunedata import Pruner, Schedule
from prunedata.adapters import iterable
from prunedata.adapters.lightning import DataPruning, observe, wrap
from prunedata.adapters.torch.run import TorchRun
from prunedata.policies import LossRanked
from tests.adapters.helpers.alone import EPOCHS, check_batches_of_one
from tests.adapters.lightning.helpers import (
    BATCH,
    QUIET,
    Net,
    data,
    flat,
    kept_by,
    loader_of,
    pruner_of,
    trainer_of,
    validation,
)
from tests.common.programs import WORKERS

pytestmark = QUIET


@WORKERS
@pytest.mark.parametrize("lengths", [[10, 6, 8, 12, 5, 9], [6, 10, 8, 12, 9, 5], [12, 6, 12, 6, 6, 12]], ids=str)
def test_epochs_have_the_samples_that_are_kept(lengths, workers):
    pruner, net = pruner_of(lengths), Net()
    masks = kept_by(pruner)
    trainer_of(pruner).fit(net, loader_of(pruner, num_workers=workers), validation())
    assert net.lengths == lengths
    for epoch, batches in net.epochs.items():
        assert sorted(flat(batches)) == np.flatnonzero(masks[epoch]).tolist()
    assert [record["observed"] for record in pruner.history] == [4 * length for length in lengths]
    assert net.validated == list(range(6))
    assert net.total == sum(lengths) == len(net.rates)
    assert net.rate == pytest.approx(0)
    assert not np.array_equal(masks[1], masks[4])


@pytest.mark.parametrize("lengths", [[10, 7, 5, 10], [6, 10, 8, 12], [1, 4, 5, 3]], ids=str)
def test_accumulated_steps_end_with_each_epoch(lengths):
    pruner, net = pruner_of(lengths), Net()
    trainer_of(pruner, accumulate_grad_batches=4).fit(net, loader_of(pruner), validation())
    assert net.lengths == lengths
    assert [net.steps[epoch] for epoch in range(4)] == [-(-length // 4) for length in lengths]
    assert net.total == len(net.rates)
    assert net.rate == pytest.approx(0)
    assert net.validated == [0, 1, 2, 3]


def test_accumulation_may_change_from_epoch_to_epoch():
    pruner, net = pruner_of([10, 6, 8]), Net()
    growing = pl.callbacks.GradientAccumulationScheduler({0: 2, 1: 3})
    trainer_of(pruner, growing, enable_checkpointing=False).fit(net, loader_of(pruner), validation())
    assert net.steps == {0: 5, 1: 2, 2: 3}
    assert net.total == len(net.rates)
    assert net.rate == pytest.approx(0)


@pytest.mark.parametrize("start", [1, 2])
@pytest.mark.parametrize("drop_last", [False, True])
def test_a_schedule_of_the_papers(start, drop_last):
    """Prunes from the second epoch on, or from the third; the last batches are not full."""
    pruner = Pruner(45, Schedule(6, window=6, start=start, block=2, pruned_per_block=1), prune=0.3)
    net = Net()
    trainer_of(pruner).fit(net, loader_of(pruner, drop_last=drop_last), validation())
    kept = [record["kept"] for record in pruner.history]
    assert kept == [32 if record["pruned"] else 45 for record in pruner.history]
    assert net.lengths == [number // BATCH if drop_last else -(-number // BATCH) for number in kept]
    assert net.rate == pytest.approx(0)
    assert pruner.history[1]["pruned"] is (start == 1)


class Data(pl.LightningDataModule):
    """Makes its loaders when it is asked."""

    def __init__(self, pruner, **options):
        super().__init__()
        self.pruner, self.options, self.asked = pruner, options, []

    def train_dataloader(self):
        self.asked.append("train")
        return loader_of(self.pruner, **self.options)

    def val_dataloader(self):
        self.asked.append("val")
        return validation()


@pytest.mark.parametrize("every", [0, 2])
def test_loaders_may_be_made_by_a_data_module(every):
    lengths = [10, 6, 8, 12]
    pruner, net = pruner_of(lengths), Net()
    module = Data(pruner)
    trainer = trainer_of(pruner, reload_dataloaders_every_n_epochs=every)
    trainer.fit(net, datamodule=module)
    assert net.lengths == lengths
    assert module.asked.count("train") == 4
    assert module.asked.count("val") == (1 if every == 0 else 2), "validation loaders are reloaded as the user says"
    assert trainer.reload_dataloaders_every_n_epochs == every
    assert type(trainer) is pl.Trainer


@pytest.mark.parametrize("options", [{"num_workers": 2, "persistent_workers": True}, {"with_ids": True}], ids=str)
def test_a_loader_with(options):
    lengths = [10, 6, 8, 12]
    pruner, net = pruner_of(lengths), Net(with_ids="with_ids" in options)
    trainer_of(pruner, num_sanity_val_steps=0).fit(net, loader_of(pruner, **options))
    assert net.lengths == lengths


def test_a_stream_is_fetched_one_batch_ahead():
    lengths = [10, 6, 8, 12, 5, 9]
    pruner, net = pruner_of(lengths), Net(schedule=False, with_ids=True)
    masks = kept_by(pruner)
    records = [{"uid": number, "sample": data()[number]} for number in range(48)]
    stream = iterable.wrap(records, pruner, id="uid", then=lambda record: record["sample"])
    loader = wrap(DataLoader(stream, batch_size=BATCH), pruner, with_ids=True)
    trainer_of(pruner).fit(net, loader, validation())
    assert net.lengths == lengths
    for epoch, batches in net.epochs.items():
        assert sorted(flat(batches)) == np.flatnonzero(masks[epoch]).tolist()
    assert net.validated == list(range(6))


def test_losses_are_weighed_where_the_policy_says_so():
    pruner = Pruner(48, Schedule(2, 2, 1, 1, 1), prune=0.5, policy=LossRanked())
    found = []

    class Weighing(Net):
        def training_step(self, batch, _):
            losses = self.losses(batch)
            loss = observe(self, losses)
            weights = pruner.current.weights
            expected = losses.mean() if weights is None else (losses * torch.tensor(weights[batch[1].numpy()])).mean()
            found.append((weights is not None, torch.equal(loss, expected)))
            return loss

    trainer_of(pruner).fit(Weighing(), loader_of(pruner))
    assert {weighed for weighed, _ in found} == {False, True}
    assert all(right for _, right in found)


def test_logits_and_labels_go_with_the_losses():
    class Saying(Net):
        def training_step(self, batch, _):
            return observe(self, self.losses(batch), logits=batch[0], labels=batch[0].argmax(1))

    pruner = pruner_of([12, 12])
    trainer_of(pruner).fit(Saying(), loader_of(pruner), validation())
    assert np.array_equal(pruner.arrays["guess"], data().tensors[0].topk(2)[1][:, 1].numpy())


def test_a_fast_dev_run_leaves_nothing_behind(tmp_path):
    pruner = pruner_of([10, 6, 8], store=tmp_path / "run.zarr")
    before, net = pruner.state_dict(), Net()
    trainer_of(pruner, fast_dev_run=3).fit(net, loader_of(pruner), validation())
    assert net.lengths == [3]
    assert net.total == 3
    after = pruner.state_dict()
    assert after["arrays"] == before["arrays"]
    assert after["state"]["epoch"] == 0
    assert not after["state"]["open"]
    trainer_of(pruner).fit(Net(), loader_of(pruner), validation())
    assert [record["observed"] for record in pruner.history] == [40, 24, 32]


class StopAt(pl.Callback):
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if (trainer.current_epoch, batch_idx) == (1, 2):
            trainer.should_stop = True


def test_a_run_that_was_told_to_stop_leaves_its_epoch_open():
    pruner, net = pruner_of([10, 6, 8]), Net()
    trainer_of(pruner, StopAt(), enable_checkpointing=False).fit(net, loader_of(pruner), validation())
    assert net.lengths == [10, 3]
    assert len(pruner.history) == 1
    assert pruner.current.number == 1
    assert pruner.state_dict()["state"]["observed"] == 12


def test_early_stopping_ends_between_epochs():
    pruner, net = pruner_of([10, 6, 8, 12]), Net()
    stopping = pl.callbacks.EarlyStopping("loss", patience=1, min_delta=100.0)
    trainer_of(pruner, stopping, enable_checkpointing=False).fit(net, loader_of(pruner), validation())
    assert net.lengths == [10, 6]
    assert pruner.next_epoch == 2


def test_the_clock_stops_before_validation():
    pruner, net = pruner_of([10, 6, 8]), Net()
    run = pruner.attach(TorchRun(pruner))
    ended = []

    class Look(pl.Callback):
        def on_validation_start(self, trainer, pl_module):
            ended.append(run.delivery is not None and run.delivery.ended is not None)

    trainer = trainer_of(pruner, Look(), enable_checkpointing=False, num_sanity_val_steps=0)
    trainer.fit(net, loader_of(pruner), validation())
    assert ended == [True] * 3


def test_a_module_trains_without_pruning_as_with_it():
    net = Net(schedule=False)
    trainer_of(pruner_of([10, 6]), callbacks=[]).fit(net, DataLoader(data(), batch_size=BATCH), validation())
    assert net.lengths == [12, 12]


def test_pytorch_lightning_is_served_too():
    lengths = [10, 6, 8, 12]
    pruner, seen = pruner_of(lengths), []

    class Theirs(pytorch_lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch, _):
            seen.append(self.current_epoch)
            return observe(self, self.layer(batch[0])[:, 0] ** 2)

        def configure_optimizers(self):
            assert self.trainer.estimated_stepping_batches == sum(lengths)
            return torch.optim.SGD(self.parameters(), 0.1)

    pytorch_lightning.Trainer(
        max_epochs=4, callbacks=[DataPruning(pruner)], accelerator="cpu", logger=False, enable_progress_bar=False,
        enable_checkpointing=False, enable_model_summary=False,
    ).fit(Theirs(), loader_of(pruner))  # fmt: skip
    assert [seen.count(epoch) for epoch in range(4)] == lengths


class Classifier(pl.LightningModule):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def training_step(self, batch, index):
        inputs, labels = batch
        return observe(self, torch.nn.functional.cross_entropy(self.layer(inputs), labels, reduction="none"))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.2)


def test_batches_of_one_with_accumulation_find_suspects_as_batches_of_16_do():
    def train(pruner, data, layer, batch, accumulate):
        drawn = torch.Generator().manual_seed(0)
        loader = wrap(DataLoader(data, batch_size=batch, shuffle=True, generator=drawn), pruner)
        trainer_of(pruner, max_epochs=EPOCHS, accumulate_grad_batches=accumulate).fit(Classifier(layer), loader)

    check_batches_of_one(train)
