"""Get the losses of single samples from the loss functions of PyTorch that a training step calls anyway."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any

import torch
import torch.nn.functional as F

__all__ = ["Captured", "capturing"]

FUNCTIONS = (
    "cross_entropy",
    "nll_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "kl_div",
    "poisson_nll_loss",
    "gaussian_nll_loss",
)
"""The loss functions of ``torch.nn.functional``, which the modules of ``torch.nn`` call too."""
IGNORE_INDEX = -100
"""PyTorch's default for targets without a label."""


class Captured:
    """What the loss functions returned in one training step, each with the losses of which it is the mean."""

    _open: "Captured | None" = None
    """The object that captures the losses of the present training step."""

    def __init__(self) -> None:
        self._calls: list[tuple[Any, torch.Tensor, torch.Tensor | None]] = []

    def losses(self, returned: Any, samples: int) -> torch.Tensor | None:
        """Return one loss for each sample, shape (n,), without a graph; None if no function had one for each.

        Parameters
        ----------
        returned : Tensor or other
            The loss that the step returned. If a loss function returned it, the result is that function's losses;
            otherwise the sum over all loss functions whose losses have a gradient.
        samples : int
            How many are in the batch.
        """
        calls = [call for call in self._calls if call[0] is returned] or self._calls
        by_sample = [each for _, losses, mask in calls if (each := _by_sample(losses, mask, samples)) is not None]
        return torch.stack(by_sample).sum(0) if by_sample else None

    def add(self, function: Callable[..., Any], result: Any, args: Any, options: dict[str, Any]) -> None:
        """Compute the losses of which a result is the mean, without class weights."""
        unreduced = {**options, "reduction": "none"} | ({"weight": None} if options.get("weight") is not None else {})
        with torch.no_grad():
            losses = function(*args, **unreduced)
        target = args[1] if len(args) > 1 else options.get("target")
        mask = None
        if isinstance(target, torch.Tensor) and not target.is_floating_point() and target.shape == losses.shape:
            mask = target != options.get("ignore_index", IGNORE_INDEX)
        self._calls.append((result, losses, mask))


def _by_sample(losses: torch.Tensor, mask: torch.Tensor | None, samples: int) -> torch.Tensor | None:
    """Return the mean over the losses of each sample; None if it is not known which losses are of which sample."""
    if not losses.ndim or len(losses) % samples:
        return None
    each = losses.float().reshape(samples, -1)
    if mask is None:
        return each.mean(1)
    counts = mask.reshape(samples, -1)
    return (each * counts).sum(1) / counts.sum(1).clamp(min=1)


@contextmanager
def capturing() -> Iterator[Captured]:
    """Capture the losses of PyTorch's loss functions within the context. They return what they always do."""
    captured = Captured()
    originals = {name: getattr(F, name) for name in FUNCTIONS}
    Captured._open = captured
    for name, original in originals.items():
        setattr(F, name, _capturing(original))
    try:
        yield captured
    finally:
        Captured._open = None
        for name, original in originals.items():
            setattr(F, name, original)


@cache
def _capturing(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a loss function. There is one wrapper for each, so that a compiled step meets the same one again."""

    @wraps(original)
    def function(*args: Any, **options: Any) -> Any:
        result = original(*args, **options)
        if not torch.compiler.is_compiling():
            captured = Captured._open
            if captured is not None and isinstance(result, torch.Tensor) and result.requires_grad:
                captured.add(original, result, args, options)
        return result

    return function
