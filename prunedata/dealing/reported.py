"""Losses as workers report them, checked before anything is recorded: a worker is told at once, and can correct it."""

from typing import Any

import numpy as np

from prunedata.errors import LossError
from prunedata.types import Ids, Recorded

__all__ = ["checked_losses"]


def checked_losses(losses: Any, ids: Ids) -> Recorded:
    """Return one finite loss for each id, shape (n,), float32 or float64. Raises :class:`LossError` for all else."""
    if isinstance(losses, np.ma.MaskedArray):
        raise LossError("Expected a loss for each id. Got a masked array.")
    if hasattr(losses, "detach"):  # a tensor
        losses = losses.detach().cpu()
        losses = losses.double().numpy() if losses.is_floating_point() else losses.numpy()
    array = np.asarray(losses)
    if array.dtype.kind not in "fiu" or array.shape != ids.shape:
        raise LossError(
            f"Expected losses of shape {ids.shape} and a floating dtype, one for each id of the deal "
            f"(reduction='none'). Got shape {array.shape}, {array.dtype}."
        )
    array = array if array.dtype == np.float32 else array.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        total = array.sum(dtype=np.float64)
    if not np.isfinite(total):
        wild = ~np.isfinite(array)
        told = (
            f"{array[wild][:5].tolist()} for the samples {ids[wild][:5].tolist()}" if wild.any() else "a sum too large"
        )
        raise LossError(
            f"Expected finite losses, as a mean with others finds no hits. Got {told}: excuse the deal, "
            "by dealer.excuse(deal), or lower the learning rate."
        )
    return array
