"""The mean of a batch's losses that is trained on: by weights, and over what counts."""

import math

import numpy as np
import torch

from prunedata.run.epoch import Epoch
from prunedata.types import SomeIds

__all__ = ["mean_of"]


def mean_of(
    epoch: Epoch | None, ids: SomeIds, losses: torch.Tensor, counting: float | None, scale: float | None = None
) -> torch.Tensor:
    """Return the mean of a batch's losses by their weights; the epoch learns if the loop goes back from it.

    Parameters
    ----------
    epoch : Epoch or None
    ids : ndarray of int, shape (n,)
    losses : Tensor, shape (n,)
    counting : float or None
        Where samples are left out by weight: over how many the mean is. None where none are.
    scale : float or None
        What to multiply the mean by otherwise.
    """
    weights = None if epoch is None else epoch.weights
    weight = None if weights is None else torch.from_numpy(weights[np.asarray(ids)]).to(losses.device)
    if counting is not None:
        scale = len(ids) / (counting or math.inf)
    try:
        mean = _weighed(losses, weight, scale, some_out=counting is not None)
    except RuntimeError:  # of a dtype that has no mean: an integer, or float8
        mean = _weighed(losses.float(), weight, scale, some_out=counting is not None)
    # Only gradients show that this is what the loop trains on. Once is enough.
    if epoch is not None and not epoch.is_applied and mean.requires_grad:
        mean.register_hook(lambda _: epoch.apply_weights())
    return mean


def _weighed(
    losses: torch.Tensor, weight: torch.Tensor | None, scale: float | None, *, some_out: bool = False
) -> torch.Tensor:
    """Return the mean of weighed losses, times ``scale``; ``some_out`` says that some are left out by weight."""
    if weight is not None:
        losses = losses * weight
    if some_out and weight is not None:  # whatever it is: a loss that overflowed, times 0, would be NaN
        losses = losses.masked_fill(weight == 0, 0)
    if scale is None:
        return losses.mean()
    # Not their sum, and in float32 at least: the largest float16 is 65,504.
    return losses.mean(dtype=torch.promote_types(losses.dtype, torch.float32)) * scale
