"""Stock heads of transformers whose loss is no cross entropy of classes or tokens: the loss of each sample."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from prunedata.errors import LossError

__all__ = ["IGNORED", "base_of", "classes_in", "ignored_labels", "is_sum", "losses_of_head", "part_of"]

IGNORED = -100
"""The label of what has no loss, as padding."""
FAR = 1 << 30
"""A position behind the end of any text: answers there have no loss."""


def part_of(outputs: Any, name: str) -> Any:
    """Return the part of a model's output with this name, or None."""
    return outputs.get(name) if isinstance(outputs, dict) else getattr(outputs, name, None)


def base_of(model: Any) -> Any:
    """Return the model of transformers that PEFT may have wrapped."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _is(model: Any, head: str) -> bool:
    return any(each.__name__.endswith(head) for each in type(base_of(model)).__mro__)


def _config(model: Any, name: str) -> Any:
    return getattr(getattr(base_of(model), "config", None), name, None)


def classes_in(trainer: Any) -> int | None:
    """Return how many classes the model of a trainer tells apart, one a sample; None if it is another model."""
    model = getattr(trainer, "model", None)
    stock = any(_is(model, f"For{kind}Classification") for kind in ("Sequence", "Image", "Audio", "Video"))
    if not stock or _config(model, "problem_type") not in (None, "single_label_classification"):
        return None
    number = _config(model, "num_labels") or 0
    return number if number > 1 else None


def ignored_labels(model: Any, batch: Any) -> dict[str, int]:
    """Return which value of which labels has no loss in a batch, by name.

    Empty where a model knows no such value, as of a regression: what is left out has to leave the batch.
    """
    if "start_positions" in batch and "end_positions" in batch:
        return {"start_positions": FAR, "end_positions": FAR}
    labels = batch.get("labels")
    if not isinstance(labels, torch.Tensor) or labels.is_floating_point() or _is(model, "ForCTC"):
        return {}
    if _is(model, "ForSemanticSegmentation"):
        value = _config(model, "semantic_loss_ignore_index")
        return {} if value is None else {"labels": int(value)}
    return {"labels": IGNORED, "shift_labels": IGNORED}


def is_sum(model: Any) -> bool:
    """Whether a model's loss is the sum over the samples of its batch, and no mean."""
    return _is(model, "ForCTC") and _config(model, "ctc_loss_reduction") == "sum"


def losses_of_head(model: Any, outputs: Any, inputs: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return the loss of each sample under a stock head, and its weight in the mean that the head computes.

    Parameters
    ----------
    model : Module
    outputs : dict or object
        Of its forward pass, just now: a model sets ``config.problem_type`` there.
    inputs : dict

    Returns
    -------
    tuple of Tensor of float, shape (n,), or None
        None if the head is none of these, or its outputs and labels are others than this one has.
    """
    if isinstance(part_of(outputs, "start_logits"), torch.Tensor) and "start_positions" in inputs:
        return _answers(outputs, inputs)
    logits, labels = part_of(outputs, "logits"), inputs.get("labels")
    if not isinstance(logits, torch.Tensor) or not isinstance(labels, torch.Tensor) or len(logits) != len(labels):
        return None
    labels = labels.to(logits.device)
    if _is(model, "ForCTC"):
        return _ctc(base_of(model), logits, labels, inputs)
    if _is(model, "ForSemanticSegmentation"):
        return _pixels(logits, labels, _config(model, "semantic_loss_ignore_index"))
    return _numbers(logits, labels, _config(model, "problem_type"))


def _answers(outputs: Any, inputs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean of the losses of an answer's begin and end; positions after the end of the text have none."""
    each, known = [], []
    for name in ("start", "end"):
        logits = part_of(outputs, f"{name}_logits").float()
        size = logits.shape[1]
        places = inputs[f"{name}_positions"].reshape(len(logits)).to(logits.device).clamp(0, size)
        each.append(F.cross_entropy(logits, places, reduction="none", ignore_index=size))
        known.append(places != size)
    mask = torch.stack(known)
    return (torch.stack(each) * mask).sum(0) / mask.sum(0).clamp(min=1), mask.sum(0) / 2


def _numbers(logits: torch.Tensor, labels: torch.Tensor, problem: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return the mean over the values of a regression, or over several labels per sample."""
    losses: dict[Any, Callable[..., torch.Tensor]] = {
        "regression": F.mse_loss,
        "multi_label_classification": F.binary_cross_entropy_with_logits,
    }
    known = losses.get(problem)
    if known is None or not labels.is_floating_point() or logits.numel() != labels.numel() or logits.ndim > 2:
        return None
    size = len(labels)
    each = known(logits.float().reshape(size, -1), labels.float().reshape(size, -1), reduction="none")
    return each.mean(1), torch.ones(size, device=each.device)


def _pixels(logits: torch.Tensor, labels: torch.Tensor, void: int | None) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The mean over the pixels that have a label."""
    if void is None or logits.ndim != 4 or labels.ndim != 3 or logits.shape[1] == 1:
        return None
    scaled = F.interpolate(logits.float(), size=labels.shape[-2:], mode="bilinear", align_corners=False)
    each = F.cross_entropy(scaled, labels, reduction="none", ignore_index=void).flatten(1)
    counts = (labels != void).flatten(1).sum(1)
    return each.sum(1) / counts.clamp(min=1), counts.to(each.dtype)


def _ctc(model: Any, logits: torch.Tensor, labels: torch.Tensor, inputs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the CTC loss of a transcript, divided by its length with ``ctc_loss_reduction="mean"``."""
    mask, config = inputs.get("attention_mask"), model.config
    if mask is None:
        mask = torch.ones(inputs[model.main_input_name].shape[:2], dtype=torch.long)
    lengths_of = getattr(model, "_get_feat_extract_output_lengths", None)
    if lengths_of is None:
        raise LossError(
            f"Expected a CTC model with _get_feat_extract_output_lengths. Got {type(model).__name__}: define "
            "sample_losses(self, outputs, inputs) in your trainer, which returns one loss for each sample."
        )
    lengths = lengths_of(mask.sum(-1)).to(torch.long)
    target = (labels >= 0) & (labels != config.pad_token_id)
    log_probs = F.log_softmax(logits, dim=-1, dtype=torch.float32).transpose(0, 1)
    with torch.backends.cudnn.flags(enabled=False):
        each = F.ctc_loss(
            log_probs, labels.masked_select(target), lengths, target.sum(-1), blank=config.pad_token_id,
            reduction="none", zero_infinity=config.ctc_zero_infinity,
        )  # fmt: skip
    if config.ctc_loss_reduction == "mean":
        each = each / target.sum(-1).clamp(min=1)
    return each, torch.ones_like(each)
