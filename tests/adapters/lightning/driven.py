"""Lightning's fit as a loader: it stands still in each training step, so that the conformance kit can be the loop."""

import lightning.pytorch as pl
import torch
from greenlet import GreenletExit, getcurrent, greenlet

from prunedata.adapters.lightning import DataPruning

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
