"""The mean of a batch's losses to train on, by the samples' weights."""

import math

import numpy as np
import torch
from torch.nn.functional import nll_loss

from prunedata.errors import LossError
from prunedata.run.epoch import Epoch
from prunedata.types import SomeIds, Weights

ALIKE = 1024
"""Largest batch whose mean by the user's weights is PyTorch's, bit for bit: it takes a square matrix of its size."""


def mean_of(
    epoch: Epoch | None,
    ids: SomeIds,
    losses: torch.Tensor,
    trained: float | None,
    scale: float | None = None,
    own: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the mean of a batch's losses by their weights. Its backward pass notes that the weights were applied.

    ``trained`` is the number of samples that the mean is over, if samples are left out by weight; ``scale`` otherwise a
    factor for the mean. ``own`` are the user's own weights, as of classes, shape (n,).
    """
    weights = None if epoch is None else epoch.weights
    weight = None if weights is None else _moved(weights[np.asarray(ids)], losses.device)
    if trained is not None:
        here = len(ids) if own is None or epoch is None else epoch.counting(ids)
        scale = here / (trained or math.inf)
    try:
        mean = _weighed(losses, weight, scale, own, some_out=trained is not None)
    except RuntimeError:  # of a dtype that has no mean: an integer, or float8
        mean = _weighed(losses.float(), weight, scale, own, some_out=trained is not None)
    # Only a backward pass shows that the loop trains on this mean. Once an epoch is enough.
    if epoch is not None and not epoch.is_applied and mean.requires_grad:
        mean.register_hook(lambda _: epoch.apply_weights())
    return mean


def _moved(weights: Weights, device: torch.device) -> torch.Tensor:
    """Copy weights to a device, from pinned memory: from other memory the host would wait for it."""
    tensor = torch.from_numpy(weights)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def _weighed(
    losses: torch.Tensor, weight: torch.Tensor | None, scale: float | None, own: torch.Tensor | None, *, some_out: bool
) -> torch.Tensor:
    """Return the mean of weighted losses, times ``scale``. ``some_out`` if samples are left out by weight."""
    if weight is not None:
        losses = losses * weight
    if some_out and weight is not None:  # an infinite loss times 0 would be NaN
        losses = losses.masked_fill(weight == 0, 0)
    if own is not None:
        return _by_own(losses, own if weight is None else own.masked_fill(weight == 0, 0), scale)
    if scale is None:
        return losses.mean()
    # The mean in at least float32, and no sum: the largest float16 is 65,504.
    return losses.mean(dtype=torch.promote_types(losses.dtype, torch.float32)) * scale


def _by_own(losses: torch.Tensor, own: torch.Tensor, scale: float | None) -> torch.Tensor:
    """Return the sum of weight times loss over the sum of weights, as PyTorch's ``weight=`` does; 0 where that is 0."""
    some = own.sum() > 0
    losses, own = torch.where(some, losses, losses * 0), torch.where(some, own, torch.ones_like(own))
    if scale is None and len(losses) <= ALIKE:
        # PyTorch's own kernel, with each sample as a class of its own that has the sample's weight.
        matrix = (-losses).expand(len(losses), len(losses))
        return nll_loss(matrix, torch.arange(len(losses), device=losses.device), weight=own.to(losses.dtype))
    wide = torch.promote_types(losses.dtype, torch.float32)
    mean = (losses * own).sum(dtype=wide) / own.sum(dtype=wide)
    return mean.to(losses.dtype) if scale is None else mean * scale


def check_weights(weights: object, losses: torch.Tensor) -> None:
    """Raise :class:`LossError` unless weights are a Tensor of one number for each loss, on the device of the losses."""
    if not isinstance(weights, torch.Tensor) or weights.shape != losses.shape or weights.device != losses.device:
        got = tuple(weights.shape) if isinstance(weights, torch.Tensor) else type(weights).__name__
        on = f" on {weights.device}" if isinstance(weights, torch.Tensor) else ""
        raise LossError(
            f"Expected weights as a Tensor of shape {tuple(losses.shape)} on {losses.device}, one for each loss. Got "
            f"{got}{on}: for weights of classes pass weights=class_weights[targets]."
        )
