"""How a loss comes from those of its samples: how labels are read so that both agree, and by what it is divided."""

from math import inf, isfinite, log
from typing import Any

import torch

from prunedata.adapters.huggingface.forward import ForwardWatch
from prunedata.adapters.huggingface.losses import is_sum, losses_and_counts, part_of, shifts_labels
from prunedata.counting.guess import IGNORED
from prunedata.errors import PrunedataError

TOLERANCE = 0.02  # how far they may be from each other, as a part: a model in bfloat16 rounds its loss
CLEARLY = 10  # how many times nearer the other reading of the labels must be: rounding alone never makes so much
APART = 1.5
"""How many times the mean of its samples' losses a loss of one's own may be, or that times it, to be taken for it."""


class HeadLosses:
    """The losses of samples by the head of a trainer's model, which reads labels as the model does."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer  # its model may become another, with model_init
        self._shifted = shifts_labels(trainer.model)
        self._compared: set[bool] = set()

    def of(self, outputs: Any, inputs: Any, samples: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss of each sample, and over how many labels it is the mean, as :func:`losses_and_counts`."""
        return losses_and_counts(outputs, inputs, shifted=self._shifted, model=self._trainer.model, samples=samples)

    def compare(self, outputs: Any, inputs: Any, *, some_out: bool) -> None:
        """Compare them with the model's own loss: once with all labels, and once with some removed.

        Not more often, as each comparison waits for the device.
        """
        if some_out not in self._compared:
            shift = shift_by_own_loss(outputs, inputs, shifted=self._shifted, model=self._trainer.model)
            if shift is not None:
                self._shifted = shift
                self._compared.add(some_out)


def shift_by_own_loss(outputs: Any, inputs: Any, *, shifted: bool, model: Any = None) -> bool | None:
    """Return whether the model's own loss shifts the labels of a batch; None if the loss does not show it.

    The loss may be the mean over the labels of the batch, as most models have it; or their sum divided by the
    ``num_items_in_batch`` that the Trainer gives where several batches make one step. Many models are given it and
    ignore it. One to which more was added (``aux_loss``) says nothing. ``shifted`` is the reading that is assumed: at
    random weights both give much the same mean, so the nearer one is chosen. Raises :class:`PrunedataError` if the loss
    is another one.
    """
    loss = part_of(outputs, "loss")
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or part_of(outputs, "aux_loss") is not None:
        return None
    if not isfinite(own := float(loss)):
        return None
    means = {each: _mean_and_shares(outputs, inputs, each, model) for each in (shifted, not shifted)}
    off = {each: _distance(own, *known) for each, known in means.items()}
    mean, shares = means[shifted]
    if not shares:
        return None
    shift = not shifted if CLEARLY * off[not shifted] < off[shifted] else shifted
    if off[shift] > TOLERANCE:
        whole = f", or divided by the labels of the whole step {mean * shares[1]:.4g}" if len(shares) > 1 else ""
        raise PrunedataError(
            f"Expected the loss of the model to be the mean cross entropy of the batch, {mean:.4g}{whole}. Got "
            f"{own:.4g}, so it is another loss: define sample_losses(self, outputs, inputs) in your trainer, or pass "
            "wrap(..., sample_losses=function). It returns one loss for each sample."
        )
    return shift


def _mean_and_shares(outputs: Any, inputs: Any, shifted: bool, model: Any) -> tuple[float, list[float]]:
    """The mean loss of the batch's labels, and by what each known loss is that times: nothing if it has no labels."""
    losses, counts = losses_and_counts(outputs, inputs, shifted=shifted, model=model)
    labels, items = float(counts.sum()), inputs.get("num_items_in_batch")
    if not labels:
        return 0.0, []
    shares = [labels] if is_sum(model) else [1.0] if items is None else [1.0, labels / float(items)]
    return float((losses * counts).sum()) / labels, shares


def _distance(own: float, mean: float, shares: list[float]) -> float:
    """How far a loss is from the nearest known one, as a part of it; a mean near 0 counts as 0.01."""
    return min((abs(own / share - mean) / max(mean, 0.01) for share in shares), default=inf)


class Divisor:
    """Finds out whether a Trainer's loss is divided by the labels of the whole step, and not by those of its batch."""

    def __init__(self, trainer: Any, watch: ForwardWatch, *, own_losses: bool) -> None:
        self._trainer, self._watch, self._own_losses = trainer, watch, own_losses
        self._scaled: bool | None = None
        """Whether it is divided by the labels of the step; None if that is not known yet."""

    def is_of_step(self, loss: torch.Tensor, items: Any) -> bool:
        """Whether the loss of a batch, just now, is divided by ``items``, the labels of the whole step."""
        trainer, args = self._trainer, self._trainer.args
        said = getattr(trainer, "loss_is_scaled_for_ga", None)
        if said is not None or is_sum(trainer.model):
            return said is not False
        if items is None or trainer.compute_loss_func is not None:
            return items is not None
        if args.world_size * args.gradient_accumulation_steps == 1:
            return False
        if self._scaled is None and not self._own_losses:
            if trainer.label_smoother is not None:
                self._scaled = "num_items_in_batch" in type(trainer.label_smoother).__call__.__code__.co_varnames
            elif any(each.__module__.startswith("trl.") for each in type(trainer).__mro__):
                self._scaled = True
        if self._scaled is not None:
            return self._scaled
        # The Trainer multiplies a loss that is divided by the labels of all processes by their number.
        world = int(args.world_size) if args.average_tokens_across_devices else 1
        by_value, losses = self._own_by_value if self._own_losses else self._head_by_value, self._watch.losses
        if not isfinite(float(loss)) or (losses is not None and not isfinite(float(losses.sum()))):
            return False  # it shows nothing, and stays what it is
        return by_value(float(loss), float(items), world)

    def _head_by_value(self, loss: float, items: float, world: int) -> bool:
        """As the losses of the samples say it. Many models are given the labels of the step and ignore them."""
        losses, counts = self._watch.losses, self._watch.counts
        if losses is None or counts is None:
            return False
        total, labels = float((losses * counts).sum()), float(counts.sum())
        mean = total / max(labels, 1.0)
        scaled, own = abs(loss - total / items * world), min(abs(loss - mean), abs(loss - mean * world))
        if items != labels * world:  # else both are alike
            self._scaled = scaled < own
        return scaled < own

    def _own_by_value(self, loss: float, items: float, world: int) -> bool:
        """The same of a loss of the user's own, of which the labels in the batch are all that is known.

        Raises :class:`PrunedataError` if it is neither.
        """
        losses, labels = self._watch.losses, self._watch.called.get("labels")
        mean = 0.0 if losses is None else float(losses.mean())
        known = max(1, int((labels != IGNORED).sum())) if isinstance(labels, torch.Tensor) else 0
        share = known / items * world
        scaled = loss * mean > 0 and share > 0 and abs(log(loss / mean / share)) < abs(log(loss / mean))
        if not 1 / APART < loss / (mean * (share if scaled else 1.0) or inf) < APART:
            raise PrunedataError(
                f"Expected the compute_loss of {type(self._trainer).__name__} to return the mean of its sample_losses, "
                f"{mean:.4g}, or their sum divided by num_items_in_batch. Got {loss:.4g}, so it is unknown how "
                "much a batch counts from which samples are left out: set loss_is_scaled_for_ga in the trainer's "
                "class, True if its loss is divided by num_items_in_batch."
            )
        if abs(log(share or 1)) > log(APART):  # else both are much alike
            self._scaled = scaled
        return scaled
