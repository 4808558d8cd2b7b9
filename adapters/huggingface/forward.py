"""A look at the model's forward passes within a training step: the losses of its samples, and their weights."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from prunedata.errors import LossError

STOCK = (("transformers", "Trainer"), ("trl", "SFTTrainer"))
"""Whose ``compute_loss`` trains on one forward pass of the model."""


class ForwardWatch:
    """Takes the losses of a batch's samples from the forward pass that the trainer makes anyway.

    Passes without gradients, as for metrics, are left out: nothing is trained on them.

    ``losses_of(outputs, inputs)`` returns one loss for each sample, shape (n,), and over how many labels each is the
    mean, shape (n,), or None where that is not known; ``logits_of(outputs, inputs)`` what the model says of each
    sample, or None. ``waits``: there may be several passes, of which :meth:`choose` takes one. Else the losses are
    taken at once, before the trainer multiplies the model's own loss in place.

    ``losses``, shape (n,), ``counts``, 0 for a sample that has no part in the loss, and ``logits``, shape (n, classes),
    are those of the pass, without a graph; ``called`` is what the model was called with.
    """

    def __init__(
        self,
        losses_of: Callable[[Any, Any], tuple[torch.Tensor, torch.Tensor | None]],
        logits_of: Callable[[Any, Any], torch.Tensor | None],
        *,
        waits: bool,
    ) -> None:
        self._losses_of, self._logits_of = losses_of, logits_of
        self._waits = waits
        self._weights: torch.Tensor | None = None
        self._counted: torch.Tensor | None = None
        self._sums: torch.Tensor | None = None
        self._given: dict[str, Any] = {}
        self._passes: list[tuple[Any, dict[str, Any]]] = []
        self.losses: torch.Tensor | None = None
        self.counts: torch.Tensor | None = None
        self.logits: torch.Tensor | None = None
        self.called: dict[str, Any] = {}

    @contextmanager
    def over(
        self,
        model: torch.nn.Module,
        inputs: Any,
        weights: torch.Tensor | None,
        counted: torch.Tensor | None = None,
        *,
        trains: bool = True,
    ) -> Iterator[None]:
        """Look at what the model returns; ``weights`` of shape (n,), or None, are those of :meth:`weigh`.

        ``counted``, of shape (n,), says which samples have a part in the loss; None if all have. Without ``trains``,
        look at passes without gradients: those of samples that must not be learned.
        """

        def look(module: Any, args: Any, called_with: dict[str, Any], outputs: Any) -> None:
            if torch.is_grad_enabled() == trains:
                called_with = self._given | called_with
                self._passes.append((outputs, called_with)) if self._waits else self._take(outputs, called_with)

        self._given = dict(inputs)  # the trainer may take the labels out
        self._weights, self._counted, self._sums = weights, counted, None
        self.losses, self.counts, self.logits, self.called = None, None, None, {}
        handle = model.register_forward_hook(look, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()
            self._passes, self._given = [], {}
            self._weights = self._sums = None  # and with them the graph

    def choose(self, returned: Any) -> None:
        """Take the losses of the pass that is trained on. ``returned`` are the outputs that ``compute_loss`` returned.

        None if it returned the loss alone: then there can be one pass only.
        """
        passes, self._passes = self._passes, []
        if len(passes) > 1 and returned is None:
            raise LossError(
                "Expected compute_loss to return (loss, outputs) where it is called with return_outputs=True, so that "
                f"the losses of samples are taken from these outputs. Got the loss alone, after {len(passes)} forward "
                "passes: return the outputs of one of them, too."
            )
        if len(passes) > 1:
            inputs = next((called_with for outputs, called_with in passes if outputs is returned), self._given)
            self._take(returned, inputs)
        elif passes:
            self._take(*passes[0])

    def _take(self, outputs: Any, inputs: Any) -> None:
        self.called = inputs
        weighs = self._weights is not None
        with torch.set_grad_enabled(weighs and torch.is_grad_enabled()):
            losses, counts = self._losses_of(outputs, inputs)
            if self._counted is not None and counts is not None:
                counts = counts * self._counted.to(counts.device)
            if weighs and counts is not None:
                self._sums = losses * counts
            self.losses, self.counts = losses.detach(), counts
        self.logits = self._logits_of(outputs, inputs)

    def losses_for(self, samples: int) -> torch.Tensor:
        """Return the losses of the pass, which are to be those of so many samples."""
        if self.losses is None:
            raise LossError(
                "Expected compute_loss to call the model in its arguments, with gradients. Got none of its outputs: "
                "call that model, not self.model or a part of it."
            )
        if self.losses.shape != (samples,):
            raise LossError(
                f"Expected sample_losses to return one loss for each of {samples} samples, shape ({samples},). Got "
                f"shape {tuple(self.losses.shape)}."
            )
        return self.losses

    def weigh(self, loss: torch.Tensor) -> torch.Tensor:
        """Return the loss that is trained on with each sample's part of it times its weight."""
        if self._weights is None or self._sums is None:
            return loss
        # The loss is the sum of these, divided by what only the trainer knows: their quotient tells it.
        total = self._sums.detach().sum()
        part = torch.where(total == 0, 0, loss.detach() / total)
        return loss + ((self._weights.to(self._sums.device) - 1) * self._sums).sum() * part


def compute_loss_owner(kind: type) -> tuple[type, bool]:
    """Return the class whose ``compute_loss`` a trainer of this kind has, and if it is stock."""
    own = next(each for each in kind.__mro__ if "compute_loss" in vars(each))
    return own, (own.__module__.partition(".")[0], own.__name__) in STOCK


def may_be_asked(trainer: Any) -> bool:
    """Whether ``compute_loss`` can be called with ``return_outputs=True`` and does the same as without.

    TRL's own makes another forward pass for it.
    """
    kind = type(trainer)
    if compute_loss_owner(kind)[1] or any(each.__module__.startswith("trl.") for each in kind.__mro__):
        return False
    takes = inspect.signature(trainer.compute_loss).parameters
    return "return_outputs" in takes or any(each.kind is each.VAR_KEYWORD for each in takes.values())
