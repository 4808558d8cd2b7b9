"""Remove the samples that must not be learned from a Trainer's batch: their labels, or their rows."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from prunedata.adapters.huggingface.losses import is_flat, sequence_of_tokens
from prunedata.errors import PrunedataError
from prunedata.types import SomeIds, Weights


@dataclass
class Part:
    """The samples of a batch that count: ids, weights of the losses, and which count, all of shape (n,)."""

    ids: SomeIds
    weights: Weights
    counted: npt.NDArray[np.bool_]
    rows: bool = False  # whether only the rows that count are in the batch; of one of which none counts, the first
    labels: dict[str, Any] = field(default_factory=dict)
    """The labels of all samples, where those of what does not count were taken."""
    given: torch.Tensor | None = None
    """The label of each sample, shape (n,), if the run may keep it: before any were taken."""
    apart: dict[str, Any] | None = None
    """The rows that do not count, where they have left the batch and their losses are recorded."""
    factor: float = 1.0  # times a mean over the batch it makes the mean over what counts in the whole step

    @property
    def none(self) -> bool:
        """Whether nothing of it counts."""
        return not self.counted.any()

    @property
    def in_batch(self) -> npt.NDArray[np.bool_]:
        """Which samples are in the batch, shape (n,)."""
        if not self.rows:
            return np.ones(len(self.ids), dtype=np.bool_)
        return np.arange(len(self.ids)) == 0 if self.none else self.counted

    def weighed(self) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Return the weights of the losses in the batch, None if all are 1; and a mask of those that count, or None."""
        stay = self.in_batch
        counted = self.counted[stay]
        weights = np.where(counted, self.weights[stay], np.float32(1))
        return (
            None if self.none or (weights == 1).all() else torch.from_numpy(weights),
            None if counted.all() else torch.from_numpy(counted),
        )

    def leave_out(self, batch: Any, ignored: Mapping[str, int], *, keeps: bool) -> None:
        """Remove what does not count from the batch: the labels that have an ``ignored`` value, else whole rows.

        With ``keeps``, keep these rows apart, as the run records their losses.
        """
        if ignored:
            self.labels = {name: batch[name] for name in ignored if batch.get(name) is not None}
            if not self.none:  # else it is trained on with a factor of 0, as it is
                without_labels(batch, self.counted, ignored)
            return
        self.rows = True
        if keeps:
            self.apart = dict(batch)
            _without_rows(self.apart, ~self.counted)
        _without_rows(batch, self.in_batch)

    def spread(self, came: torch.Tensor) -> torch.Tensor:
        """Return the losses, or logits, of the rows that are left in the batch, in their places among all."""
        if not self.rows:
            return came
        spread = torch.zeros((len(self.ids), *came.shape[1:]), dtype=came.dtype, device=came.device)
        spread[torch.from_numpy(self.in_batch).to(came.device)] = came
        return spread


def without_labels(batch: Any, counted: npt.NDArray[np.bool_], ignored: Mapping[str, int]) -> None:
    """Remove the labels of the samples that do not count, so that they have no loss; changes the batch.

    ``ignored`` is the value without a loss of each kind of labels, by name.
    """
    for name, value in ignored.items():
        labels = batch.get(name)
        if labels is None:
            continue
        which = torch.from_numpy(counted).to(labels.device)
        if is_flat(batch):
            keep = which[sequence_of_tokens(batch, len(counted))]
        else:
            keep = which.view(-1, *[1] * (labels.ndim - 1))
        batch[name] = labels.masked_fill(~keep, value)


def _without_rows(batch: Any, stay: npt.NDArray[np.bool_]) -> None:
    """Remove rows from a batch, in place, but for those in ``stay``, shape (n,)."""
    size, which = stay.size, torch.from_numpy(np.flatnonzero(stay))
    for name, value in list(batch.items()):
        if isinstance(value, torch.Tensor) and value.ndim and len(value) == size:
            batch[name] = value[which.to(value.device)]
        elif isinstance(value, (list, tuple)) and len(value) == size:
            batch[name] = type(value)(value[row] for row in which.tolist())
        elif isinstance(value, torch.Tensor):
            raise PrunedataError(
                f"Expected one row for each of {size} samples in the batch, so that those that must not be learned "
                f"leave it, as with a loss of your own. Got {name} of shape {tuple(value.shape)}: use a Pruner that "
                'shortens epochs, without leave_out="weight" and holdout.'
            )


@contextmanager
def evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Run a model without learning: no gradients, no dropout, no running mean."""
    modes = [(each, each.training) for each in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for each, mode in modes:
            each.training = mode
