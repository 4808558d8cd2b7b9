"""The mean of a batch's losses that is trained on: by weights, and over what counts."""

import math

import numpy as np
import torch
from torch.nn.functional import nll_loss

from prunedata.errors import LossError
from prunedata.run.epoch import Epoch
from prunedata.types import SomeIds, Weights

__all__ = ["check_weights", "mean_of"]

ALIKE = 1024
"""Samples up to which a mean by the user's weights is PyTorch's, bit for bit: it takes the square of them in memory."""


def mean_of(
    epoch: Epoch | None,
    ids: SomeIds,
    losses: torch.Tensor,
    counting: float | None,
    scale: float | None = None,
    own: torch.Tensor | None = None,
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
    own : Tensor, shape (n,), or None
        The user's own weights, as of classes.
    """
    weights = None if epoch is None else epoch.weights
    weight = None if weights is None else _moved(weights[np.asarray(ids)], losses.device)
    if counting is not None:
        here = len(ids) if own is None or epoch is None else epoch.counting(ids)
        scale = here / (counting or math.inf)
    try:
        mean = _weighed(losses, weight, scale, own, some_out=counting is not None)
    except RuntimeError:  # of a dtype that has no mean: an integer, or float8
        mean = _weighed(losses.float(), weight, scale, own, some_out=counting is not None)
    # Only gradients show that this is what the loop trains on. Once is enough.
    if epoch is not None and not epoch.is_applied and mean.requires_grad:
        mean.register_hook(lambda _: epoch.apply_weights())
    return mean


def _moved(weights: Weights, device: torch.device) -> torch.Tensor:
    """Weights on the device of the losses. A copy from memory that is not pinned would make the host wait."""
    here = torch.from_numpy(weights)
    return here.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else here.to(device)


def _weighed(
    losses: torch.Tensor,
    weight: torch.Tensor | None,
    scale: float | None,
    own: torch.Tensor | None = None,
    *,
    some_out: bool = False,
) -> torch.Tensor:
    """Return the mean of weighed losses, times ``scale``; ``some_out`` says that some are left out by weight."""
    if weight is not None:
        losses = losses * weight
    if some_out and weight is not None:  # whatever it is: a loss that overflowed, times 0, would be NaN
        losses = losses.masked_fill(weight == 0, 0)
    if own is not None:
        return _by_own(losses, own if weight is None else own.masked_fill(weight == 0, 0), scale)
    if scale is None:
        return losses.mean()
    # Not their sum, and in float32 at least: the largest float16 is 65,504.
    return losses.mean(dtype=torch.promote_types(losses.dtype, torch.float32)) * scale


def _by_own(losses: torch.Tensor, own: torch.Tensor, scale: float | None) -> torch.Tensor:
    """Return the sum of weight times loss over the sum of weights, as PyTorch's ``weight=`` does; 0 where that is 0."""
    some = own.sum() > 0
    losses, own = torch.where(some, losses, losses * 0), torch.where(some, own, torch.ones_like(own))
    if scale is None and len(losses) <= ALIKE:
        # PyTorch's own kernel, of a matrix with the losses in its diagonal: each sample is a class with a weight.
        matrix = (-losses).expand(len(losses), len(losses))
        return nll_loss(matrix, torch.arange(len(losses), device=losses.device), weight=own.to(losses.dtype))
    wide = torch.promote_types(losses.dtype, torch.float32)
    mean = (losses * own).sum(dtype=wide) / own.sum(dtype=wide)
    return mean.to(losses.dtype) if scale is None else mean * scale


def check_weights(weights: object, losses: torch.Tensor) -> None:
    """Raise :class:`LossError` if weights are no tensor with one number for each loss, beside it."""
    if not isinstance(weights, torch.Tensor) or weights.shape != losses.shape or weights.device != losses.device:
        got = tuple(weights.shape) if isinstance(weights, torch.Tensor) else type(weights).__name__
        on = f" on {weights.device}" if isinstance(weights, torch.Tensor) else ""
        raise LossError(
            f"Expected weights as a Tensor of shape {tuple(losses.shape)} on {losses.device}, one for each loss. Got "
            f"{got}{on}: for weights of classes pass weights=class_weights[targets]."
        )
