"""Whether the loss of a Trainer's batch is a mean over the batch, or its share of the mean over the whole step."""

from math import inf, log
from typing import Any

import torch

from prunedata.adapters.huggingface.heads import IGNORED, is_sum
from prunedata.adapters.huggingface.watched import WatchedTrainer
from prunedata.errors import PrunedataError

__all__ = ["ScaledTrainer"]

APART = 1.5
"""How many times the mean of its samples' losses a loss of one's own may be, or that times it, to be taken for it."""


class ScaledTrainer(WatchedTrainer):
    """Finds out the divisor of a Trainer's loss."""

    compute_loss_func: Any
    label_smoother: Any

    _scaled: bool | None = None
    """Whether the loss is divided by the labels of the whole step; None if that is not known yet."""

    def _is_scaled(self, loss: torch.Tensor, items: Any) -> bool:
        """Whether a loss is divided by the labels of the whole step, and not by those of its batch."""
        said = getattr(self, "loss_is_scaled_for_ga", None)
        if said is not None or is_sum(self.model):
            return said is not False
        if items is None or self.compute_loss_func is not None:
            return items is not None
        if self.args.world_size * self.args.gradient_accumulation_steps == 1:
            return False
        if self._own_losses:
            return self._own_by_value(float(loss), float(items))
        if self._scaled is None:
            if self.label_smoother is not None:
                self._scaled = "num_items_in_batch" in type(self.label_smoother).__call__.__code__.co_varnames
            elif any(each.__module__.startswith("trl.") for each in type(self).__mro__):
                self._scaled = True
            else:
                return self._by_value(float(loss), float(items))
        return self._scaled

    def _by_value(self, loss: float, items: float) -> bool:
        """As the losses of the samples say it. Many models are given the labels of the step and ignore them."""
        losses, counts = self._watch.losses, self._watch.counts
        if losses is None or counts is None:
            return False
        total, labels, world = float((losses * counts).sum()), float(counts.sum()), self._world
        mean = total / max(labels, 1.0)
        scaled, own = abs(loss - total / items * world), min(abs(loss - mean), abs(loss - mean * world))
        if items != labels * world:  # else both are alike
            self._scaled = scaled < own
        return scaled < own

    def _own_by_value(self, loss: float, items: float) -> bool:
        """The same of a loss of the user's own, of which the labels in the batch are all that is known.

        Raises :class:`PrunedataError` if it is neither.
        """
        losses, labels = self._watch.losses, self._watch.called.get("labels")
        if self._scaled is not None:
            return self._scaled
        mean = 0.0 if losses is None else float(losses.mean())
        known = max(1, int((labels != IGNORED).sum())) if isinstance(labels, torch.Tensor) else 0
        share = known / items * self._world
        scaled = loss * mean > 0 and share > 0 and abs(log(loss / mean / share)) < abs(log(loss / mean))
        if not 1 / APART < loss / (mean * (share if scaled else 1.0) or inf) < APART:
            raise PrunedataError(
                f"Expected the compute_loss of {type(self).__name__} to return the mean of its sample_losses, "
                f"{mean:.4g}, or their sum divided by num_items_in_batch. Got {loss:.4g}, so it is unknown how "
                "much a batch counts from which samples are left out: set loss_is_scaled_for_ga in the trainer's "
                "class, True if its loss is divided by num_items_in_batch."
            )
        if abs(log(share or 1)) > log(APART):  # else both are much alike
            self._scaled = scaled
        return scaled

    @property
    def _world(self) -> int:
        """Return the factor by which the Trainer multiplies a loss that is divided by the labels of all processes."""
        return int(self.args.world_size) if self.args.average_tokens_across_devices else 1
