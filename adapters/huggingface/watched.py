"""Shared by trainers that prune: one loss per sample, from the forward pass of the training step."""

from typing import Any

import torch

from prunedata.adapters.huggingface.agreement import shift_by_own_loss
from prunedata.adapters.huggingface.asking import may_be_asked
from prunedata.adapters.huggingface.callback import HandOver
from prunedata.adapters.huggingface.checks import check_loss
from prunedata.adapters.huggingface.losses import logits_of, losses_and_counts, shifts_labels
from prunedata.adapters.huggingface.watch import ForwardWatch
from prunedata.adapters.torch.run import TorchRun
from prunedata.errors import LossError
from prunedata.run.pruner import Pruner
from prunedata.types import SomeIds

__all__ = ["WatchedTrainer"]


class WatchedTrainer:
    """Looks at the losses of the samples that a Trainer trains on."""

    # The Trainer's own.
    args: Any
    model: Any
    state: Any
    accelerator: Any
    callback_handler: Any
    train_dataset: Any
    lr_scheduler: Any
    control: Any

    pruner: Pruner

    def _watch_losses(self, pruner: Pruner, mixin: type) -> None:
        """Look at them from now on; ``mixin`` is the class whose ``compute_loss`` is ours."""
        self.pruner = pruner
        self._own_losses = type(self).sample_losses is not WatchedTrainer.sample_losses
        self._check_loss(pruner, mixin)
        self._shifted = shifts_labels(self.model)
        self._watch = ForwardWatch(
            self._losses_of,
            waits=self._own_losses,
            logits_of=lambda outputs, inputs: logits_of(outputs, inputs, self.model),
        )
        self._asks = self._own_losses and may_be_asked(self, mixin)
        self._run = pruner.attach(TorchRun(pruner))
        self.callback_handler.callbacks.insert(0, HandOver(pruner))
        self._run.joins_batches = True  # those of one optimizer step
        self._held: list[tuple[SomeIds, torch.Tensor, torch.Tensor | None]] = []
        self._trained = 0
        self._compared: set[bool] = set()
        self._fused = False
        """Whether the model gives no logits, but what its own labels make of them."""

    def _check_loss(self, pruner: Pruner, mixin: type) -> None:
        """Raise :class:`PrunedataError` if the losses of samples cannot be known, or not weighed."""
        check_loss(self, pruner, mixin)

    # -- what a user may override

    def sample_losses(self, outputs: Any, inputs: Any) -> torch.Tensor:
        """Return one loss for each sample of a batch, shape (n,): those that are recorded.

        By default what the loss of a stock head is the mean of, as its cross entropy; of a model of tokens the mean
        over the sample's own tokens, without those that are labeled -100. Override it for a model, or a
        ``compute_loss``, with another loss.

        Parameters
        ----------
        outputs
            What the model returned in the forward pass of the training step. Of several passes, what ``compute_loss``
            returns beside the loss; it is called with ``return_outputs=True`` for that.
        inputs : dict
            What ``data_collator`` made, and what the model was called with.

        Raises
        ------
        LossError
            If the model has no logits for its labels.
        """
        return self._known_losses(outputs, inputs)[0]

    def _losses_of(self, outputs: Any, inputs: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the result of a user's ``sample_losses``, or the losses of the model's own head."""
        with self.pruner.charge:
            if self._own_losses:
                return self.sample_losses(outputs, inputs), None
            return self._known_losses(outputs, inputs)

    def _known_losses(self, outputs: Any, inputs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return losses_and_counts(outputs, inputs, shifted=self._shifted, model=self.model)

    def _compare(self, outputs: Any, inputs: Any, *, some_out: bool) -> None:
        """Compare the losses with the model's own: once with all labels, and once with some removed.

        Not more often, as each comparison waits for the device.
        """
        if some_out not in self._compared:
            with self.pruner.charge:
                shift = shift_by_own_loss(outputs, inputs, shifted=self._shifted, model=self.model)
            if shift is not None:
                self._shifted = shift
                self._compared.add(some_out)

    def _watched(self, samples: int) -> torch.Tensor:
        """The losses of the batch that was trained on just now, of so many samples."""
        losses = self._watch.losses
        if losses is None:
            raise LossError(
                "Expected compute_loss to call the model in its arguments, with gradients. Got none of its outputs: "
                "call that model, not self.model or a part of it."
            )
        if losses.shape != (samples,):
            raise LossError(
                f"Expected sample_losses to return one loss for each of {samples} samples, shape ({samples},). Got "
                f"shape {tuple(losses.shape)}."
            )
        return losses
