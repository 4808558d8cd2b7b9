"""A look at the model's forward pass within a training step: the losses of its samples, and their weights."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

__all__ = ["ForwardWatch"]


class ForwardWatch:
    """Takes the losses of a batch's samples from the forward pass that the trainer makes anyway.

    Parameters
    ----------
    losses_of : callable
        ``losses_of(outputs, inputs)`` returns one loss for each sample, shape (n,), and over how many labels each is
        the mean, shape (n,), or None where that is not known.

    Attributes
    ----------
    losses : Tensor of float, shape (n,), or None
        Of the last forward pass, without a graph.
    """

    def __init__(self, losses_of: Callable[[Any, Any], tuple[torch.Tensor, torch.Tensor | None]]) -> None:
        self._losses_of = losses_of
        self._weights: torch.Tensor | None = None
        self._sums: torch.Tensor | None = None
        self.losses: torch.Tensor | None = None

    @contextmanager
    def over(self, model: torch.nn.Module, inputs: Any, weights: torch.Tensor | None) -> Iterator[None]:
        """Look at what the model returns; ``weights`` of shape (n,), or None, are those of :meth:`weigh`."""
        given = dict(inputs)  # the trainer may take the labels out

        def look(module: Any, args: Any, called_with: dict[str, Any], outputs: Any) -> None:
            with torch.set_grad_enabled(weights is not None and torch.is_grad_enabled()):
                losses, counts = self._losses_of(outputs, given | called_with)
                if weights is not None and counts is not None:
                    self._sums = losses * counts
                self.losses = losses.detach()

        self._weights, self._sums, self.losses = weights, None, None
        handle = model.register_forward_hook(look, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()
            self._weights = self._sums = None  # and with them the graph

    def weigh(self, loss: torch.Tensor) -> torch.Tensor:
        """Return the loss that is trained on with each sample's part of it times its weight."""
        if self._weights is None or self._sums is None:
            return loss
        # The loss is the sum of these, divided by what only the trainer knows: their quotient tells it.
        total = self._sums.detach().sum()
        part = torch.where(total == 0, 0, loss.detach() / total)
        return loss + ((self._weights.to(self._sums.device) - 1) * self._sums).sum() * part
