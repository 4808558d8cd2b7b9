"""One loss for each sample, from the output of a model's forward pass: of classes, of tokens, and of stock heads."""

from typing import Any

import torch
import torch.nn.functional as F
from transformers.loss.loss_utils import ForCausalLMLoss

from prunedata.counting.guess import IGNORED, MOST_CLASSES
from prunedata.errors import LossError

FAR = 1 << 30  # a position behind the end of any text: answers there have no loss


def part_of(outputs: Any, name: str) -> Any:
    """Return the part of a model's output with this name, or None."""
    return outputs.get(name) if isinstance(outputs, dict) else getattr(outputs, name, None)


def base_of(model: Any) -> Any:
    """Return the model of transformers that PEFT may have wrapped."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _is(model: Any, head: str) -> bool:
    return any(each.__name__.endswith(head) for each in type(base_of(model)).__mro__)


def _config(model: Any, name: str, default: Any = None) -> Any:
    return getattr(getattr(base_of(model), "config", None), name, default)


def classes_in(trainer: Any) -> int | None:
    """Return how many classes the model of a trainer tells apart, one a sample; None if it is another model."""
    model = getattr(trainer, "model", None)
    stock = any(_is(model, f"For{kind}Classification") for kind in ("Sequence", "Image", "Audio", "Video"))
    if not stock or _config(model, "problem_type") not in (None, "single_label_classification"):
        return None
    number = _config(model, "num_labels") or 0
    return number if number > 1 else None


def shifts_labels(model: Any) -> bool:
    """Whether position n of a model's output predicts label n + 1, as in a causal language model."""
    causal = getattr(base_of(model), "loss_function", None) is ForCausalLMLoss
    return causal and not _config(model, "is_encoder_decoder")


def is_sum(model: Any) -> bool:
    """Whether a model's loss is the sum over the samples of its batch, and no mean."""
    return _is(model, "ForCTC") and _config(model, "ctc_loss_reduction") == "sum"


def is_flat(batch: Any) -> bool:
    """Whether a batch is one row of many samples, as TRL packs them, and ``DataCollatorWithFlattening`` joins them."""
    if "cu_seq_lens_q" in batch or "seq_idx" in batch:
        return True
    places = batch.get("position_ids")
    return isinstance(places, torch.Tensor) and len(places) == 1 and int((places == 0).sum()) > 1


def sequence_of_tokens(batch: Any, samples: int) -> Any:
    """Of a flat batch, which sample each token is of, shape (1, tokens). What pads the end counts as the last one's."""
    begins = (batch["position_ids"] == 0).cumsum(-1) - 1
    return begins.clamp(max=samples - 1)


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


def logits_of(outputs: Any, inputs: Any, model: Any) -> torch.Tensor | None:
    """Return the logits of each sample, shape (n, classes), if each has one class as its label; else None."""
    logits, labels = part_of(outputs, "logits"), inputs.get("labels")
    known = isinstance(logits, torch.Tensor) and isinstance(labels, torch.Tensor) and not labels.is_floating_point()
    if not known or logits.ndim != 2 or labels.shape != logits.shape[:1] or not 1 < logits.shape[1] <= MOST_CLASSES:
        return None
    return logits.detach() if _config(model, "num_labels", logits.shape[1]) == logits.shape[1] else None


def losses_and_counts(
    outputs: Any, inputs: Any, *, shifted: bool, model: Any = None, samples: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss of each sample, and over how many labels it is the mean; both Tensors of float, shape (n,).

    The count is 1, or how many of a sample's tokens, or pixels, have a loss. ``outputs`` are of the forward pass, just
    now, as a model sets ``config.problem_type`` there: ``logits`` of shape (n, classes), or (n, tokens, classes);
    ``log_probs`` and ``label_mask`` of shape (n, tokens), as TRL has it; or what the stock head of ``model`` returns.
    ``inputs`` have ``labels`` of shape (n,) or (n, tokens); tokens labeled -100 have no loss. With ``shifted``,
    position n of the output predicts label n + 1. ``samples`` are in a batch that may be flat; by default a row is a
    sample.
    """
    if samples is not None and is_flat(inputs):
        return _sequence_losses(outputs, inputs, samples, shifted=shifted)
    known = _losses_of_head(model, outputs, inputs)
    if known is not None:
        return known
    each, mask = _token_losses(outputs, inputs, shifted=shifted)
    counts = mask.sum(1).to(each.dtype)
    return (each * mask).sum(1) / counts.clamp(min=1), counts


def _sequence_losses(outputs: Any, inputs: Any, samples: int, *, shifted: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean loss of each sample of a flat batch over its own tokens, and how many these are."""
    each, mask = _token_losses(outputs, inputs, shifted=shifted)
    owner = sequence_of_tokens(inputs, samples)[0, -each.shape[1] :]  # of the token predicted, or the one before it
    sums, counts = torch.zeros((2, samples), dtype=each.dtype, device=each.device)
    sums = sums.scatter_add(0, owner, (each * mask)[0])
    counts = counts.scatter_add(0, owner, mask[0].to(each.dtype))
    return sums / counts.clamp(min=1), counts


def _token_losses(outputs: Any, inputs: Any, *, shifted: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss of each label, and a mask of those that are labels, both of shape (n, tokens), or (n, 1)."""
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
        "inputs) in your trainer, or pass wrap(..., sample_losses=function). It returns one loss for each sample."
    )


def _shape(name: str, given: Any) -> str:
    return f"{name} of shape {tuple(given.shape)}" if isinstance(given, torch.Tensor) else f"no {name}"


# -- stock heads whose loss is no cross entropy of classes or tokens


def _losses_of_head(model: Any, outputs: Any, inputs: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return the loss of each sample under a stock head, and its weight in the mean that the head computes.

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
    if not labels.is_floating_point() or logits.numel() != labels.numel() or logits.ndim > 2:
        return None
    size = len(labels)
    said, values = logits.float().reshape(size, -1), labels.float().reshape(size, -1)
    if problem == "regression":
        each = F.mse_loss(said, values, reduction="none")
    elif problem == "multi_label_classification":
        each = F.binary_cross_entropy_with_logits(said, values, reduction="none")
    else:
        return None
    return each.mean(1), torch.ones(size, device=each.device)


def _pixels(logits: torch.Tensor, labels: torch.Tensor, void: int | None) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return the mean over the pixels that have a label."""
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
