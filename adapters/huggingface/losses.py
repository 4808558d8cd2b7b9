"""Compute one loss per sample, from the output of a model's forward pass."""

from typing import Any

import torch
import torch.nn.functional as F
from transformers.loss.loss_utils import ForCausalLMLoss

from prunedata.adapters.huggingface.heads import IGNORED, base_of, losses_of_head, part_of
from prunedata.counting.guess import MOST_CLASSES
from prunedata.errors import LossError

__all__ = ["logits_of", "losses_and_counts", "shifts_labels", "token_losses"]


def shifts_labels(model: Any) -> bool:
    """Whether position n of a model's output predicts label n + 1, as in a causal language model."""
    model = base_of(model)
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        return False
    return getattr(model, "loss_function", None) is ForCausalLMLoss


def losses_and_counts(
    outputs: Any, inputs: Any, *, shifted: bool, model: Any = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss of each sample, and over how many labels it is the mean.

    Parameters
    ----------
    outputs : dict or object
        With ``logits`` of shape (n, classes), or (n, tokens, classes); or with ``log_probs`` and ``label_mask`` of
        shape (n, tokens), as TRL has it.
    inputs : dict
        With ``labels`` of shape (n,) or (n, tokens); tokens labeled -100 have no loss.
    shifted : bool
        Whether position n of the output predicts label n + 1.
    model : Module, optional
        Of which a stock head may have another loss than a cross entropy: see :func:`losses_of_head`.

    Returns
    -------
    losses : Tensor of float, shape (n,)
    counts : Tensor of float, shape (n,)
        1 for each sample, or how many of its tokens, or pixels, have a loss.
    """
    known = None if model is None else losses_of_head(model, outputs, inputs)
    if known is not None:
        return known
    each, mask = token_losses(outputs, inputs, shifted=shifted)
    counts = mask.sum(1).to(each.dtype)
    return (each * mask).sum(1) / counts.clamp(min=1), counts


def logits_of(outputs: Any, inputs: Any, model: Any) -> torch.Tensor | None:
    """Return the logits of each sample, shape (n, classes), if each has one class as its label; else None."""
    logits, labels = part_of(outputs, "logits"), inputs.get("labels")
    known = isinstance(logits, torch.Tensor) and isinstance(labels, torch.Tensor) and not labels.is_floating_point()
    if not known or logits.ndim != 2 or labels.shape != logits.shape[:1] or not 1 < logits.shape[1] <= MOST_CLASSES:
        return None
    classes = getattr(getattr(base_of(model), "config", None), "num_labels", logits.shape[1])
    return logits.detach() if classes == logits.shape[1] else None


def token_losses(outputs: Any, inputs: Any, *, shifted: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss of each label, and a mask of those that are labels, both of shape (n, tokens), or (n, 1).

    As :func:`losses_and_counts` has it.
    """
    log_probs = part_of(outputs, "log_probs")
    if log_probs is not None:
        return -log_probs.float(), part_of(outputs, "label_mask")
    logits, labels = part_of(outputs, "logits"), inputs.get("labels")
    if isinstance(logits, torch.Tensor) and isinstance(labels, torch.Tensor) and not labels.is_floating_point():
        tokens = logits.ndim == 3
        if tokens and inputs.get("shift_labels") is not None:
            labels = inputs["shift_labels"]
        elif tokens and shifted:
            logits, labels = logits[:, :-1], labels[:, 1:]
        if logits.ndim in (2, 3) and logits.shape[:-1] == labels.shape and logits.shape[-1] > 1:
            labels = labels.to(logits.device)
            each = F.cross_entropy(logits.float().movedim(-1, 1), labels, reduction="none", ignore_index=IGNORED)
            return each.view(len(labels), -1), (labels != IGNORED).view(len(labels), -1)
    raise LossError(
        "Expected logits of shape (n, classes) or (n, tokens, classes), and integer labels of as many samples and "
        f"tokens. Got {_shape('logits', logits)} and {_shape('labels', labels)}: define sample_losses(self, outputs, "
        "inputs) in your trainer, which returns one loss for each sample."
    )


def _shape(name: str, given: Any) -> str:
    return f"{name} of shape {tuple(given.shape)}" if isinstance(given, torch.Tensor) else f"no {name}"
