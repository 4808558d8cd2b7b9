"""Find the validation figure among the logged metrics of a trainer, and whether lower is better."""

import re
from collections.abc import Mapping
from typing import Any, Literal

from prunedata.checks import shown
from prunedata.errors import PrunedataError

Mode = Literal["auto", "max", "min"]  # whether more or less of a figure is better; ``"auto"`` decides by its name

LOWER = frozenset([
    "loss", "error", "err", "mse", "mae", "rmse", "msle", "mape", "nll", "perplexity", "ppl", "wer", "cer",
    "entropy", "crossentropy", "hinge", "divergence", "deviance", "brier", "logcosh",
])  # fmt: skip
"""Words in names of figures of which less is better. Of several words the last counts."""
HIGHER = frozenset([
    "acc", "accuracy", "auc", "auroc", "auprc", "precision", "recall", "f1", "score", "iou", "miou", "jaccard",
    "dice", "map", "ap", "bleu", "rouge", "meteor", "r2", "mcc", "kappa", "psnr", "ssim", "correlation",
    "pearson", "spearman", "similarity", "specificity", "sensitivity", "trust", "ndcg", "mrr",
])  # fmt: skip
"""Words in names of figures of which more is better."""
NEGATED = frozenset(("neg", "negative", "minus", "inverse"))
"""Words that turn a name into its contrary: then ``mode`` decides."""


def _words(monitor: str) -> list[str]:
    """Return the words of a name; a number at the end is dropped if the rest is a known word, as in rouge1."""
    words = re.findall(r"[a-z]+\d*", monitor.lower())
    return [word if word in LOWER | HIGHER else word.rstrip("s0123456789") for word in words]


def is_lower_better(monitor: str | None, mode: object) -> bool:
    """Return whether lower is better for a figure, by ``mode`` or the words of its name; raise if these disagree."""
    if mode not in ("auto", "max", "min"):
        raise PrunedataError(f'Expected mode to be "max", "min" or "auto". Got {shown(mode)}.')
    if monitor is None:
        return mode == "min"
    words = _words(monitor)
    telling = next((word for word in reversed(words) if word in LOWER or word in HIGHER), None)
    if telling is None and mode == "auto":
        raise PrunedataError(
            f"Expected a monitor whose name shows whether more or less of it is better, as val_accuracy or val_loss. "
            f'Got {shown(monitor)}: pass mode="max" or mode="min".'
        )
    lower = mode == "min" if telling is None else telling in LOWER
    if mode != "auto" and lower != (mode == "min") and not NEGATED.intersection(words):
        raise PrunedataError(
            f"Expected mode={'min' if lower else 'max'!r} for {shown(monitor)}, by its name. Got {shown(mode)}: a loss "
            "that was taken for a score would start pruning on clean data. Leave mode out, or log it by another name."
        )
    return lower if mode == "auto" else mode == "min"


def monitored(logged: Mapping[str, Any], name: str) -> Any:
    """Return the figure with this name. Raises :class:`PrunedataError` with the existing names if there is none."""
    if name not in logged:
        raise PrunedataError(
            f"Expected {name!r}, the monitor, among the logged metrics. Got {', '.join(sorted(logged)) or 'nothing'}."
        )
    return logged[name]
