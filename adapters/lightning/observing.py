"""``observe``: what a ``training_step`` returns."""

from typing import Any

import torch

from prunedata.adapters.lightning.callback import DataPruning
from prunedata.adapters.torch.loader import PrunedLoader
from prunedata.types import SomeIds

__all__ = ["observe"]


def observe(module: Any, losses: torch.Tensor, ids: SomeIds | None = None) -> torch.Tensor:
    """Record the losses of a batch and return their mean, to be returned from ``training_step``.

    In validation, while a tuner searches, and in training on a loader that is not pruned, it is the mean alone: the
    same module trains with and without pruning.

    Parameters
    ----------
    module : LightningModule
        Which trains: ``self`` in ``training_step``.
    losses : Tensor, shape (n,)
        One loss for each sample (``reduction="none"``), on any device. Not modified.
    ids : ndarray of int, shape (n,), optional
        Which samples; needed with ``wrap(..., with_ids=True)``, where a batch is ``(ids, batch)``.

    Raises
    ------
    LossError
        As :meth:`prunedata.Pruner.observe`.
    """
    trainer = module.trainer
    loader = trainer.train_dataloader if trainer.training else None
    if isinstance(loader, PrunedLoader) and any(isinstance(one, DataPruning) for one in trainer.callbacks):
        return loader.observe(losses, ids)
    return losses.mean()
