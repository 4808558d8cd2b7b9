"""The validation figure among what a trainer logs, for adapters that hand it over."""

import re
from collections.abc import Mapping
from typing import Any, Literal

from prunedata.checks import shown
from prunedata.errors import PrunedataError

__all__ = ["Mode", "is_lower_better", "monitored"]

Mode = Literal["auto", "max", "min"]
"""Whether more or less of a figure is better; ``"auto"`` tells it by the figure's name."""

LOWER = {
    "loss",
    "error",
    "err",
    "mse",
    "mae",
    "rmse",
    "msle",
    "mape",
    "nll",
    "perplexity",
    "ppl",
    "wer",
    "cer",
    "entropy",
}
"""Words in names of figures of which less is better. Of two words the last counts."""
HIGHER = {
    *{
        "acc",
        "accuracy",
        "auc",
        "auroc",
        "auprc",
        "precision",
        "recall",
        "f1",
        "score",
        "iou",
        "miou",
        "jaccard",
        "dice",
    },
    *{
        "map",
        "ap",
        "bleu",
        "rouge",
        "meteor",
        "r2",
        "mcc",
        "kappa",
        "psnr",
        "ssim",
        "correlation",
        "pearson",
        "spearman",
    },
    *{"similarity", "specificity", "sensitivity", "trust", "ndcg", "mrr"},
}
"""Words in names of figures of which more is better."""


def is_lower_better(monitor: str | None, mode: object) -> bool:
    """Whether less is better of the figure that is named ``monitor``, as ``mode`` says, or the words of its name.

    Raises
    ------
    PrunedataError
        If ``mode`` is unknown, or "auto" and the name has no word that tells it.
    """
    if mode not in ("auto", "max", "min"):
        raise PrunedataError(f'Expected mode to be "max", "min" or "auto". Got {shown(mode)}.')
    if mode != "auto" or monitor is None:
        return mode == "min"
    words = re.findall(r"[a-z]+\d?", monitor.replace("@", "_").lower())
    telling = [word for word in words if word in LOWER or word in HIGHER or word.rstrip("s0123456789") in HIGHER]
    if not telling:
        raise PrunedataError(
            f"Expected a monitor whose name says whether more or less of it is better, as val_accuracy or val_loss. "
            f'Got {shown(monitor)}: pass mode="max" or mode="min".'
        )
    return telling[-1] in LOWER


def monitored(logged: Mapping[str, Any], name: str) -> Any:
    """Return the figure of this name. Raises :class:`PrunedataError` if there is none, saying what there is."""
    if name not in logged:
        raise PrunedataError(
            f"Expected {name!r} among what is logged, as monitor says. Got {', '.join(sorted(logged)) or 'nothing'}."
        )
    return logged[name]
