"""Whether the losses of samples agree with the model's own loss, and how its labels are read so that they do."""

from math import inf, isfinite
from typing import Any

import torch

from prunedata.adapters.huggingface.heads import is_sum, part_of
from prunedata.adapters.huggingface.losses import losses_and_counts
from prunedata.errors import PrunedataError

__all__ = ["shift_by_own_loss"]

TOLERANCE = 0.02
"""How far they may be from each other, as a part: a model in bfloat16 rounds its loss."""
CLEARLY = 10
"""How many times nearer the other reading of the labels must be: rounding alone never makes so much."""


def shift_by_own_loss(outputs: Any, inputs: Any, *, shifted: bool, model: Any = None) -> bool | None:
    """Return whether the model's own loss shifts the labels of a batch; None if the loss does not show it.

    The loss may be the mean over the labels of the batch, as most models have it; or their sum divided by the
    ``num_items_in_batch`` that the Trainer gives where several batches make one step. Many models are given it and
    ignore it.

    Parameters
    ----------
    outputs : dict or object
        What the model returned, with its ``loss``. One to which more was added (``aux_loss``) says nothing.
    inputs : dict
        What it was called with.
    shifted : bool
        Whether position n of the output is taken to predict label n + 1. At random weights both readings give much
        the same mean, so the nearer one is chosen.
    model : Module, optional
        As :func:`losses_and_counts` has it.

    Raises
    ------
    PrunedataError
        If the loss is another one.
    """
    loss = part_of(outputs, "loss")
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or part_of(outputs, "aux_loss") is not None:
        return None
    if not isfinite(own := float(loss)):
        return None
    means = {each: _mean_and_shares(outputs, inputs, each, model) for each in (shifted, not shifted)}
    off = {each: _distance(own, *known) for each, known in means.items()}
    mean, shares = means[shifted]
    if not shares:
        return None
    shift = not shifted if CLEARLY * off[not shifted] < off[shifted] else shifted
    if off[shift] > TOLERANCE:
        whole = f", or divided by the labels of the whole step {mean * shares[1]:.4g}" if len(shares) > 1 else ""
        raise PrunedataError(
            f"Expected the loss of the model to be the mean cross entropy of the batch, {mean:.4g}{whole}. Got "
            f"{own:.4g}, so it is another loss: define sample_losses(self, outputs, inputs) in your trainer, which "
            "returns one loss for each sample."
        )
    return shift


def _mean_and_shares(outputs: Any, inputs: Any, shifted: bool, model: Any) -> tuple[float, list[float]]:
    """The mean loss of the batch's labels, and by what each known loss is that times: nothing if it has no labels."""
    losses, counts = losses_and_counts(outputs, inputs, shifted=shifted, model=model)
    labels, items = float(counts.sum()), inputs.get("num_items_in_batch")
    if not labels:
        return 0.0, []
    if is_sum(model):
        return float((losses * counts).sum()) / labels, [labels]
    return float((losses * counts).sum()) / labels, [1.0] + ([] if items is None else [labels / float(items)])


def _distance(own: float, mean: float, shares: list[float]) -> float:
    """How far a loss is from the nearest known one, as a part of it; a mean near 0 counts as 0.01."""
    return min((abs(own / share - mean) / max(mean, 0.01) for share in shares), default=inf)
