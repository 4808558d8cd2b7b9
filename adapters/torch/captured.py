"""The losses of single samples, from the loss functions of PyTorch that a training step calls anyway."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
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
"""Of ``torch.nn.functional``. The modules of ``torch.nn`` call them too."""
IGNORED = -100


class Captured:
    """What the loss functions returned in one training step, each with the losses of which it is the mean."""

    _open: "Captured | None" = None
    """Whose training step this is."""

    def __init__(self) -> None:
        self._calls: list[tuple[Any, torch.Tensor, torch.Tensor | None]] = []

    def losses(self, returned: Any, samples: int) -> torch.Tensor | None:
        """Return one loss for each sample, shape (n,), without a graph; None if no function had as many.

        Parameters
        ----------
        returned : Tensor or other
            The loss that the step returned. If a function returned it, its losses are taken; else the sum over all
            functions whose losses have a gradient.
        samples : int
            How many are in the batch.
        """
        ours = [call for call in self._calls if call[0] is returned] or self._calls
        found = [each for _, losses, mask in ours if (each := _by_sample(losses, mask, samples)) is not None]
        return torch.stack(found).sum(0) if found else None

    def take(self, own: Callable[..., Any], result: Any, args: Any, options: dict[str, Any]) -> None:
        """Compute the losses of which a result is the mean. Class weights are left out: they are the user's."""
        given = {**options, "reduction": "none"} | ({"weight": None} if options.get("weight") is not None else {})
        with torch.no_grad():
            losses = own(*args, **given)
        target = args[1] if len(args) > 1 else options.get("target")
        mask = None
        if isinstance(target, torch.Tensor) and not target.is_floating_point() and target.shape == losses.shape:
            mask = target != options.get("ignore_index", IGNORED)
        self._calls.append((result, losses, mask))


def _by_sample(losses: torch.Tensor, mask: torch.Tensor | None, samples: int) -> torch.Tensor | None:
    """The mean over what belongs to each sample; None where that is not known."""
    if not losses.ndim or len(losses) % samples:
        return None
    each = losses.float().reshape(samples, -1)
    if mask is None:
        return each.mean(1)
    counts = mask.reshape(samples, -1)
    return (each * counts).sum(1) / counts.sum(1).clamp(min=1)


@contextmanager
def capturing() -> Iterator[Captured]:
    """Capture what the loss functions return within. They return what they always did."""
    captured = Captured()
    before = {name: getattr(F, name) for name in FUNCTIONS}
    Captured._open = captured
    for name, own in before.items():
        setattr(F, name, _watched(own))
    try:
        yield captured
    finally:
        Captured._open = None
        for name, own in before.items():
            setattr(F, name, own)


_KNOWN: dict[Any, Callable[..., Any]] = {}
"""One wrapper for each function, so that a compiled step meets the same one again."""


def _watched(own: Callable[..., Any]) -> Callable[..., Any]:
    if own not in _KNOWN:

        @wraps(own)
        def function(*args: Any, **options: Any) -> Any:
            result = own(*args, **options)
            if not torch.compiler.is_compiling():
                captured = Captured._open
                if captured is not None and isinstance(result, torch.Tensor) and result.requires_grad:
                    captured.take(own, result, args, options)
            return result

        _KNOWN[own] = function
    return _KNOWN[own]
