"""``observe``: record the losses in a ``training_step``, and return the mean to train on."""

from typing import Any

import numpy as np
import torch

from prunedata.adapters.lightning.callback import DataPruning
from prunedata.adapters.torch.loader import PrunedLoader
from prunedata.adapters.torch.means import check_weights, mean_of
from prunedata.types import SomeIds


def observe(
    module: Any,
    losses: torch.Tensor,
    ids: SomeIds | None = None,
    weights: torch.Tensor | None = None,
    logits: torch.Tensor | None = None,
    labels: torch.Tensor | None = None,
) -> torch.Tensor:
    """Record the losses of a batch and return their mean, to be returned from ``training_step``.

    In validation, during a tuner's search, and with a loader that is not wrapped, only return the mean. So the same
    module trains with and without pruning.

    Parameters
    ----------
    module : LightningModule
        The module that trains: ``self`` in ``training_step``.
    losses : Tensor, shape (n,)
        One loss for each sample (``reduction="none"``), on any device. Not modified.
    ids : ndarray of int, shape (n,), optional
        The ids of the samples; needed with ``wrap(..., with_ids=True)``, where a batch is ``(ids, batch)``.
    weights : Tensor, shape (n,), optional
        The weight of each loss in the mean, such as ``class_weights[targets]``. The losses are recorded without them.
    logits : Tensor, shape (n, classes), or (n,) for two classes, optional
        As :meth:`prunedata.Pruner.observe` takes them.
    labels : Tensor of int, shape (n,), optional
        As :meth:`prunedata.Pruner.observe` takes them.

    Raises
    ------
    LossError
        As :meth:`prunedata.Pruner.observe`.
    """
    trainer = module.trainer
    loader = trainer.train_dataloader if trainer.training else None
    if isinstance(loader, PrunedLoader) and any(isinstance(one, DataPruning) for one in trainer.callbacks):
        return loader.observe(losses, ids, weights, logits, labels)
    if weights is None:
        return losses.mean()
    check_weights(weights, losses)
    return mean_of(None, np.arange(len(losses)), losses, None, own=weights)
