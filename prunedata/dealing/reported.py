"""Losses as workers report them, checked before anything is recorded: a worker is told at once, and can correct it."""

from typing import Any

import numpy as np

from prunedata.counting.batches import plain_losses
from prunedata.errors import LossError
from prunedata.types import Ids, Recorded

__all__ = ["checked_losses"]


def checked_losses(losses: Any, ids: Ids) -> Recorded:
    """Return one finite loss for each id, shape (n,), float32 or float64. Raises :class:`LossError` for all else."""
    array = plain_losses(losses)
    if array.shape != ids.shape:
        raise LossError(f"Expected a loss for each of the {ids.size} ids of the deal. Got shape {array.shape}.")
    with np.errstate(invalid="ignore", over="ignore"):
        total = array.sum(dtype=np.float64)
    if not np.isfinite(total):
        wild = ~np.isfinite(array)
        told = (
            f"{array[wild][:5].tolist()} for the samples {ids[wild][:5].tolist()}" if wild.any() else "a sum too large"
        )
        raise LossError(
            f"Expected finite losses, as a mean with others finds no hits. Got {told}: skip the deal, "
            "by dealer.skip(deal), or lower the learning rate."
        )
    return array
