"""Modules, loaders and trainers of Lightning for the tests, and one that hands each batch over."""

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from greenlet import GreenletExit, getcurrent, greenlet
from torch.utils.data import DataLoader, TensorDataset

from prunedata import Pruner, Schedule
from prunedata.adapters.lightning import DataPruning, observe, wrap
from prunedata.run.pruning import Pruning

# A module that says which samples it was trained on, a pruner whose epochs have wanted lengths, a quiet Trainer.


BATCH = 4
QUIET = [
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),  # on one core
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
]


class WantedPruning(Pruning):
    """Prunes to a number of batches for each epoch."""

    def prunes(self, epoch):
        return True

    def kept_in(self, epoch):
        return self.wanted[epoch] * BATCH

    @property
    def num_pruned(self):
        return self.roles.size - self.kept_in(min(self.engine.ledger.next_epoch, len(self.wanted) - 1))


def pruner_of(lengths, samples=48, **options):
    """A run whose epochs keep as many batches as wanted, other samples each time."""
    epochs = len(lengths)
    pruner = Pruner(samples, Schedule(epochs, epochs, 1, 1, 1), **{"prune": 0.25, "seed": 5, **options})
    pruning = pruner._engine.pruning
    pruning.__class__, pruning.wanted, pruning.engine = WantedPruning, lengths, pruner._engine
    return pruner


def data(samples=48):
    ids = torch.arange(samples)
    return TensorDataset(torch.stack([torch.sin(ids * 1.0), torch.cos(ids * 3.0)], dim=1), ids)


def loader_of(pruner, *, with_ids=False, kind=DataLoader, **options):
    options = {"batch_size": BATCH, "shuffle": True, **options}
    return wrap(kind(data(pruner.samples), **options), pruner, with_ids=with_ids)


class Net(pl.LightningModule):
    """Logistic regression that keeps a diary: the ids of each batch, steps, validations and learning rates."""

    def __init__(self, *, schedule=True, with_ids=False):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(2, 1)
        self.scheduled, self.with_ids = schedule, with_ids
        self.epochs, self.steps, self.validated, self.rates = {}, {}, [], []

    def losses(self, batch):
        features, ids = batch
        return torch.nn.functional.binary_cross_entropy_with_logits(
            self.layer(features)[:, 0], (ids % 2).float(), reduction="none"
        )

    def training_step(self, batch, _):
        ids = None
        if self.with_ids:
            ids, batch = batch
            assert np.array_equal(ids, batch[1].numpy())
        self.epochs.setdefault(self.current_epoch, []).append(batch[1].tolist())
        return observe(self, self.losses(batch), ids)

    def on_before_optimizer_step(self, optimizer):
        self.steps[self.current_epoch] = self.steps.get(self.current_epoch, 0) + 1
        self.rates.append(optimizer.param_groups[0]["lr"])

    def validation_step(self, batch, _):
        if not self.trainer.sanity_checking:
            self.validated.append(self.current_epoch)
        self.log("loss", observe(self, self.losses(batch)))

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=1.0, momentum=0.5)
        if not self.scheduled:
            return optimizer
        self.total = self.trainer.estimated_stepping_batches
        rate = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=self.total)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": rate, "interval": "step"}}

    @property
    def lengths(self):
        return [len(batches) for _, batches in sorted(self.epochs.items())]

    @property
    def rate(self):
        return self.optimizers().param_groups[0]["lr"]


def trainer_of(pruner, *callbacks, **options):
    given = {
        "max_epochs": pruner.schedule.epochs,
        "callbacks": [DataPruning(pruner), *callbacks],
        "accelerator": "cpu",
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": bool(callbacks),
    }
    return pl.Trainer(**{**given, **options})


def validation():
    return DataLoader(data(), batch_size=48)


def kept_by(pruner):
    """Note the mask of each epoch as it begins."""
    masks, begin = {}, pruner.begin_epoch

    def noted():
        epoch = begin()
        masks[epoch.number] = epoch.keep
        return epoch

    pruner.begin_epoch = noted
    return masks


def flat(batches):
    return [each for batch in batches for each in batch]


# Lightning's fit as a loader: it stands still in each training step, so that the conformance kit can be the loop.


__all__ = ["FitLoader"]

ENDED = object()


class Driven(DataPruning):
    """The kit begins and ends the epochs, the rest is as ever."""

    def _begin(self, trainer):
        """Nothing to do: the epoch is open."""

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        """Don't compare epochs: a fit may begin in the middle of the run here."""

    def on_train_epoch_end(self, trainer, pl_module):
        trainer.should_stop = self.pruner.next_epoch + 1 == self.pruner.schedule.epochs
        getcurrent().parent.switch(ENDED)
        trainer.reload_dataloaders_every_n_epochs = 1


class Passing(pl.LightningModule):
    """Hands each batch to the kit."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def training_step(self, batch, _):
        getcurrent().parent.switch(batch)
        return self.weight.sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


class FitLoader:
    """What ``training_step`` gets, pass by pass. A pass that is left ends its fit."""

    def __init__(self, pruner, loader):
        self.pruner, self.loader, self.fit = pruner, loader, None
        self.observe, self.state_dict, self.load_state_dict = loader.observe, loader.state_dict, loader.load_state_dict

    def _run(self):
        trainer = pl.Trainer(
            max_epochs=self.pruner.schedule.epochs, callbacks=[Driven(self.pruner)], accelerator="cpu", logger=False,
            enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(Passing(), self.loader)

    def __iter__(self):
        if self.fit is None or self.fit.dead:
            self.fit = greenlet(self._run)
        try:
            while (batch := self.fit.switch()) is not ENDED:
                yield batch
        except GeneratorExit:
            self.fit.throw(GreenletExit)
            raise
